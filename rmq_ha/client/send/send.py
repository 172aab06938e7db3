"""Send: the state of one send, the checks before it, and the result in the broker's answer.

Spec: remoting.md, sections 4.1, 4.2 and 11.1.
"""

from collections.abc import Hashable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.model.printable import words_of
from rmq_ha.base.model.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    TIMER_ASKS,
    TRAN_MSG,
)
from rmq_ha.base.model.topics import RETRY_PREFIX, is_for_brokers, topic_fault
from rmq_ha.base.model.unserved_properties import MARKS, TIMERS, UNSERVED, unserved_property
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.duplicates import DUPLICATE
from rmq_ha.base.wire.recall_handle import RECALL_HANDLE
from rmq_ha.client.rules.errors import (
    BrokerRefused,
    IllegalMessage,
)
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus, body_of
from rmq_ha.client.rules.queue_choice import QueueChoice, Selector
from rmq_ha.client.rules.routes import PublishInfo
from rmq_ha.client.rules.send_frames import Destination, Outgoing, properties_text
from rmq_ha.client.rules.settings import ProducerConfig

if TYPE_CHECKING:  # the blocking client imports this module without Twisted
    from twisted.internet.defer import Deferred

    from rmq_ha.base.remoting.pending import PendingCalls
    from rmq_ha.client.connection.hooks import SendContext

MESSAGE_TYPE = "MSG_TYPE"
REPLY = "reply"
TIMER_MARK, _PRIORITY, _LITE = MARKS
_STATUSES = {status.value: status for status in SendStatus}


class PublishTopic:
    """
    A topic that a producer sends to.

    :ivar name: the topic's name with its namespace.
    :ivar shown: the topic's name without namespace.
    :ivar is_borrowed: whether the topic does not exist yet and uses its template topic's route.
    :ivar looked: when the route was last fetched because its brokers did not answer, in seconds.
    :ivar was_there: whether a broker has ever taken messages of the topic. If so, having none now
        is expected to pass.
    """

    __slots__ = (
        "choice",
        "destinations",
        "info",
        "is_borrowed",
        "looked",
        "name",
        "shown",
        "was_there",
    )

    def __init__(self, name: str, shown: str, start: int) -> None:
        self.name = name
        self.shown = shown
        self.choice = QueueChoice(start)
        self.info: PublishInfo | None = None
        self.is_borrowed = False
        self.looked = -inf
        self.was_there = False
        self.destinations: dict[tuple[int, str], Destination] = {}


class Decider(Protocol):
    """Decides what follows an attempt of a send."""

    def answered(self, send: "Send", response: RemotingCommand, /) -> None:
        """Take the broker's answer to an attempt."""

    def failed(self, send: "Send", error: BaseException, /) -> None:
        """Take the error of an attempt that got no answer, or did not reach a broker."""


class Send:
    """
    One send and its progress. A round is a sequence of attempts without pauses. Times without a
    unit are in seconds of the producer's clock.

    :ivar since: when the caller asked for the send.
    :ivar deadline: when the whole send has to end, including the wait for a place in flight;
        infinite if it has no limit.
    :ivar timeout_ms: time for one round, in ms; doubled after a round that ended in a timeout.
    :ivar until: when the current round has to end.
    :ivar size: size of the body, in bytes.
    :ivar queue: the queue of the current attempt.
    :ivar address: the broker address of the current attempt.
    :ivar started: when the current attempt began.
    :ivar tries: how many attempts there were so far.
    :ivar tried: how many of these were in the rounds before the current one.
    :ivar brokers: the broker names of all attempts, in order.
    :ivar decider: told of the end of each attempt.
    :ivar later: the Deferred that the caller waits for.
    :ivar call: the pending calls of a connection and the number of the current attempt in them.
    :ivar current: the Deferred that the send waits for, if it does not wait for `call`.
    :ivar given_up: the error with which the producer ends the send.
    :ivar error: the error of the last attempt.
    :ivar stored: the result if a broker has stored the message, but not yet safely.
    :ivar is_handed: whether the current attempt was given to the client's connections, which may
        have to connect first.
    :ivar is_cancelled: whether the caller has cancelled the send; then its result is dropped.
    :ivar is_timed: whether the message asks for a timer: only brokers with timers may get it.
    :ivar asks: whether a broker is asked before the message goes there.
    :ivar aimed: the queue whose broker was asked, for the attempt that follows.
    :ivar is_out: whether an idempotent producer has written the message to a broker, which may have
        stored it.
    """

    __slots__ = (
        "address",
        "aimed",
        "arg",
        "asks",
        "brokers",
        "call",
        "code",
        "context",
        "current",
        "deadline",
        "decider",
        "error",
        "fixed_queue",
        "given_up",
        "is_cancelled",
        "is_handed",
        "is_out",
        "is_timed",
        "later",
        "messages",
        "msg_id",
        "oneway",
        "outgoing",
        "queue",
        "selector",
        "since",
        "size",
        "started",
        "stored",
        "timeout_ms",
        "topic",
        "tried",
        "tries",
        "until",
    )

    def __init__(
        self,
        topic: PublishTopic,
        code: int,
        outgoing: Outgoing,
        msg_id: str,
        messages: tuple[Message, ...],
        since: float,
        deadline: float,
        timeout_ms: float,
    ) -> None:
        self.topic = topic
        self.code = code
        self.outgoing = outgoing
        self.size = len(outgoing.body)
        self.msg_id = msg_id
        self.messages = messages
        self.since = since
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.until = deadline
        self.oneway = False
        self.fixed_queue: MessageQueue | None = None
        self.selector: Selector | None = None
        self.arg: Any = None
        self.queue: MessageQueue | None = None
        self.address = ""
        self.brokers: tuple[str, ...] = ()
        self.tries = 0
        self.tried = 0
        self.started = 0.0
        self.decider: Decider | None = None
        self.later: Deferred[Any] | None = None
        self.call: tuple[PendingCalls, int] | None = None
        self.current: Deferred[Any] | None = None
        self.context: SendContext | None = None
        self.given_up: Exception | None = None
        self.error: Exception | None = None
        self.stored: SendResult | None = None
        self.is_handed = False
        self.is_cancelled = False
        self.is_timed = self.asks = False
        self.aimed: MessageQueue | None = None
        self.is_out = False

    def begin(self, now: float) -> None:
        """Begin a round of attempts, and its time."""
        self.until = min(self.deadline, now + self.timeout_ms / 1000)
        self.tried = self.tries

    @property
    def is_fixed(self) -> bool:
        """Whether the caller chooses the queue; such a send has one attempt a round."""
        return self.fixed_queue is not None or self.selector is not None

    @property
    def stands_on(self) -> Hashable:
        """
        The key under which the send waits until brokers are back: its topic, or the name of the
        broker of the queue that its caller chose.
        """
        if not self.is_fixed:
            return self.topic
        queue = self.fixed_queue or self.queue
        return (self.topic.name,) if queue is None else queue.broker_name

    def callback(self, response: RemotingCommand) -> None:
        """Take the broker's answer, like a Deferred (`rmq_ha.base.remoting.pending.Waiting`)."""
        if self.decider is not None:
            self.decider.answered(self, response)

    def errback(self, error: BaseException) -> None:
        """Take the error of an attempt without an answer, like a Deferred."""
        if self.decider is not None:
            self.decider.failed(self, error)


def check_message(message: Message, config: ProducerConfig) -> None:
    """
    Check a message by the rules of the Java client.

    :raises IllegalMessage: the message breaks a rule.
    """
    try:
        body = message.body
    except AttributeError:
        raise IllegalMessage(
            f"a producer sends a Message, not {type(message).__name__}: Message(topic, body)"
        ) from None
    if not isinstance(body, bytes):  # the application replaced the body
        body = message.body = body_of(body)
        if not isinstance(body, bytes):
            raise IllegalMessage(f"a body is bytes, not {type(body).__name__}: encode it")
    if not body:
        raise IllegalMessage("the body is empty")
    if len(body) > config.max_message_size:
        raise IllegalMessage(
            f"the body has {len(body)} bytes, at most {config.max_message_size} are allowed"
            " (max_message_size)"
        )


def check_properties(
    properties: Mapping[str, str], config: ProducerConfig, *, serves_timers: bool = False
) -> None:
    """
    Check that a message has no property that brokers would ignore.

    :param serves_timers: timers are no fault; the message goes only to brokers that have them.
    :raises IllegalMessage: brokers of 4.9 ignore one of the properties.
    """
    if not config.refuse_unserved_properties:
        return
    name = unserved_property(properties, serves_timers=serves_timers)
    if name in TIMERS:
        raise IllegalMessage(
            f"{name} asks for {UNSERVED[name]}, and brokers of RocketMQ 5 ignore that in a batch: "
            "send the message alone, or with refuse_unserved_properties=False"
        )
    if name is not None:
        raise IllegalMessage(
            f"{name} asks for {UNSERVED[name]}, which only RocketMQ 5 knows: other brokers answer "
            "SEND_OK and deliver at once. Leave it out, or use refuse_unserved_properties=False"
        )


def is_timed(properties: Mapping[str, str], config: ProducerConfig) -> bool:
    """
    Return whether a message may go only to brokers that have timers: it asks for one, or recalls
    another message.

    :raises IllegalMessage: it asks for several times, and brokers would choose one of them.
    """
    if not config.refuse_unserved_properties:
        return False
    times = [name for name in (*TIMER_ASKS, DELAY) if properties.get(name, "0") != "0"]
    if len(times) > 1:
        raise IllegalMessage(f"the message asks for several delays ({', '.join(times)}): take one")
    return not TIMERS.isdisjoint(properties)


def check_oneway(send: Send) -> None:
    """
    Check that a send may go without asking its broker.

    :raises IllegalMessage: it asks for a timer, and nobody would learn that its broker has none.
    """
    if send.is_timed:
        raise IllegalMessage(
            "a message with a timer is not sent one-way, as its broker is asked first whether it "
            "has timers: use send, or refuse_unserved_properties=False"
        )


def check_topic(topic: str) -> None:
    """
    Check that clients may send to a topic.

    :raises IllegalMessage: the name is not valid, or the topic is for brokers only.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise IllegalMessage(fault)
    if is_for_brokers(topic):
        raise IllegalMessage(f"the topic {topic} is for brokers only")


def outgoing_of(message: Message, config: ProducerConfig) -> tuple[int, Outgoing]:
    """
    Return the request code and the values of a send; a large body is compressed.

    :raises IllegalMessage: a property cannot be sent.
    """
    properties, body, sys_flag = message.properties, message.body, 0
    if len(body) >= config.compress_msg_body_over_howmuch:
        sys_flag, deflate = config.compression
        body = deflate(body)
    if TRAN_MSG in properties and properties[TRAN_MSG].lower() == "true":
        sys_flag |= TRANSACTION_PREPARED
    text = properties_text(properties)
    if _PRIORITY in text or _LITE in text:  # inline: each message comes here
        check_properties(properties, config, serves_timers=True)
    code = RequestCode.SEND_MESSAGE_V2
    if MESSAGE_TYPE in properties and properties[MESSAGE_TYPE] == REPLY:
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    if not message.topic.startswith(RETRY_PREFIX):
        return code, Outgoing(sys_flag, message.flag, text, body)
    times, most = properties.get(RECONSUME_TIME), properties.get(MAX_RECONSUME_TIMES)
    try:
        return code, Outgoing(
            sys_flag, message.flag, text, body, int(times or 0), int(most) if most else None
        )
    except ValueError:
        raise IllegalMessage(f"{RECONSUME_TIME} and {MAX_RECONSUME_TIMES} are numbers") from None


def result_of(send: Send, response: RemotingCommand) -> SendResult:
    """
    Return the result in a broker's answer.

    :raises BrokerRefused: the message is not stored.
    """
    status = _STATUSES.get(response.code)
    ext = response.ext
    if status is None or ext is None:
        raise BrokerRefused(response.code, response.remark, send.address)
    queue = send.queue
    assert queue is not None
    try:
        queue_id = int(ext["queueId"])
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        return SendResult(
            status,
            send.msg_id,
            queue,
            int(ext["queueOffset"]),
            ext.get("msgId", ""),
            ext.get("transactionId"),
            ext.get("MSG_REGION", "DefaultRegion"),
            ext.get("TRACE_ON", "true") != "false",
            DUPLICATE in ext and ext[DUPLICATE] == "true",
            ext.get(RECALL_HANDLE),
        )
    except (KeyError, ValueError):
        raise BrokerRefused(
            response.code, f"the answer lacks queue or offset: {words_of(ext)}", send.address
        ) from None


def choose_by(
    selector: Selector, queues: Sequence[MessageQueue], send: Send, config: ProducerConfig
) -> MessageQueue:
    """
    Return the queue that the caller's selector chooses in the first round of a send.

    Later rounds go to the same queue to keep the order, even if the route has changed, unless
    `chosen_queue_may_move` is set.

    :raises IllegalMessage: the selector did not return one of the queues.
    """
    if send.queue is not None and not config.chosen_queue_may_move:
        return send.queue
    queue = selector(queues, send.messages[0], send.arg)
    if queue not in queues:
        raise IllegalMessage(f"the selector chose {queue}, which is none of the topic's queues")
    return queue
