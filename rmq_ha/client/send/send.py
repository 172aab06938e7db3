"""One send on its way, and what its answer means.

Spec: remoting.md, sections 4.1, 4.2 and 11.1.
"""

from collections.abc import Hashable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.model.properties import MAX_RECONSUME_TIMES, RECONSUME_TIME, TRAN_MSG
from rmq_ha.base.model.topics import RETRY_PREFIX, is_for_brokers, topic_fault
from rmq_ha.base.model.unserved_properties import MARKS, UNSERVED, unserved_property
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.duplicates import DUPLICATE
from rmq_ha.client.rules.errors import (
    BrokerRefused,
    IllegalMessage,
)
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus, body_of
from rmq_ha.client.rules.queue_choice import QueueChoice, Selector
from rmq_ha.client.rules.routes import PublishInfo
from rmq_ha.client.rules.send_frames import Destination, Outgoing, properties_text
from rmq_ha.client.rules.settings import ProducerConfig

if TYPE_CHECKING:  # the blocking client sends too, and wants no Twisted
    from twisted.internet.defer import Deferred

    from rmq_ha.base.remoting.pending import PendingCalls
    from rmq_ha.client.connection.hooks import SendContext

MESSAGE_TYPE = "MSG_TYPE"
REPLY = "reply"
_TIMER, _PRIORITY, _LITE = MARKS
_STATUSES = {status.value: status for status in SendStatus}


class PublishTopic:
    """
    A topic that is sent to.

    :ivar name: with namespace.
    :ivar shown: without.
    :ivar is_borrowed: the topic does not exist yet; the route is another topic's.
    :ivar looked: when its route was last asked for because it was of no use; in seconds.
    :ivar was_there: some broker took its messages once: that none does passes.
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
    """Who decides what comes after an attempt of a send."""

    def answered(self, send: "Send", response: RemotingCommand, /) -> None:
        """What its broker says."""

    def failed(self, send: "Send", error: BaseException, /) -> None:
        """Its broker says nothing, or was not asked."""


class Send:
    """
    What is to be sent, and how far it is.

    :ivar since: when it was asked for; in the clock's seconds.
    :ivar deadline: for everything, waiting for a place in flight too; infinite: there is none.
    :ivar timeout_ms: for a round of attempts, from its first one on; twice as long after one in
        which nobody answered.
    :ivar until: when this round is over.
    :ivar size: bytes of its body.
    :ivar queue: of this attempt.
    :ivar address: of this attempt's broker.
    :ivar started: this attempt; in the clock's seconds.
    :ivar tries: attempts so far.
    :ivar tried: those of rounds before this one.
    :ivar brokers: of these attempts.
    :ivar decider: is told how its attempts end.
    :ivar later: what its caller waits for.
    :ivar call: this attempt, by the calls of its connection.
    :ivar current: what it waits for, if that is no such call.
    :ivar given_up: why the producer wants it to end.
    :ivar error: of its last attempt.
    :ivar stored: it is stored already, if not as safely as it should be.
    :ivar is_handed: this attempt was given to the connections; one may have to be made first.
    :ivar is_cancelled: its caller cancelled it: nobody hears how it ends.
    :ivar is_out: of an idempotent producer: it was given to a broker once, and may be there.
    """

    __slots__ = (
        "address",
        "arg",
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
        self.is_out = False

    def begin(self, now: float) -> None:
        """Its own queue is behind it: the time for brokers begins, and a round of attempts."""
        self.until = min(self.deadline, now + self.timeout_ms / 1000)
        self.tried = self.tries

    @property
    def is_fixed(self) -> bool:
        """Its queue is chosen by the caller: it is tried once a round."""
        return self.fixed_queue is not None or self.selector is not None

    @property
    def stands_on(self) -> Hashable:
        """What has to be there for it: its topic's brokers, or the one of its queue."""
        if not self.is_fixed:
            return self.topic
        queue = self.fixed_queue or self.queue
        return (self.topic.name,) if queue is None else queue.broker_name

    def callback(self, response: RemotingCommand) -> None:
        """Its broker answers; as a Deferred is told, see `rmq_ha.base.remoting.pending.Waiting`."""
        if self.decider is not None:
            self.decider.answered(self, response)

    def errback(self, error: BaseException) -> None:
        """This attempt brought no answer."""
        if self.decider is not None:
            self.decider.failed(self, error)


def check_message(message: Message, config: ProducerConfig) -> None:
    """
    The Java client's own rules.

    :raises IllegalMessage: the message breaks a rule.
    """
    try:
        body = message.body
    except AttributeError:
        raise IllegalMessage(
            f"a producer sends a Message, not {type(message).__name__}: Message(topic, body)"
        ) from None
    if not isinstance(body, bytes):  # it was changed after the message was made
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


def check_properties(properties: Mapping[str, str], config: ProducerConfig) -> None:
    """
    Whether brokers do what a message asks for.

    :raises IllegalMessage: brokers of 4.9 ignore one of the properties.
    """
    name = unserved_property(properties) if config.refuse_unserved_properties else None
    if name is not None:
        raise IllegalMessage(
            f"{name} asks for {UNSERVED[name]}, which only RocketMQ 5 knows: other brokers answer "
            "SEND_OK and deliver at once. Use delay, or refuse_unserved_properties=False"
        )


def check_topic(topic: str) -> None:
    """
    Whether clients may send to it.

    :raises IllegalMessage: no.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise IllegalMessage(fault)
    if is_for_brokers(topic):
        raise IllegalMessage(f"the topic {topic} is for brokers only")


def outgoing_of(message: Message, config: ProducerConfig) -> tuple[int, Outgoing]:
    """
    Request code and what goes over the wire; a large body compressed.

    :raises IllegalMessage: a property cannot be sent.
    """
    properties, body, sys_flag = message.properties, message.body, 0
    if len(body) >= config.compress_msg_body_over_howmuch:
        sys_flag, deflate = config.compression
        body = deflate(body)
    if TRAN_MSG in properties and properties[TRAN_MSG].lower() == "true":
        sys_flag |= TRANSACTION_PREPARED
    text = properties_text(properties)
    if _TIMER in text or _PRIORITY in text or _LITE in text:  # no calls: each message comes here
        check_properties(properties, config)
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
    What the broker's answer means.

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
        )
    except (KeyError, ValueError):
        raise BrokerRefused(
            response.code, f"the answer lacks queue or offset: {ext}", send.address
        ) from None


def choose_by(
    selector: Selector, queues: Sequence[MessageQueue], send: Send, config: ProducerConfig
) -> MessageQueue:
    """
    Ask the caller's own selector, in the first round of a send.

    A later round goes to the same queue, whatever the route says by then, as order matters; unless
    `chosen_queue_may_move`.

    :raises IllegalMessage: it returns something else than one of the queues.
    """
    if send.queue is not None and not config.chosen_queue_may_move:
        return send.queue
    queue = selector(queues, send.messages[0], send.arg)
    if queue not in queues:
        raise IllegalMessage(f"the selector chose {queue!r}, which is none of the topic's queues")
    return queue
