"""Producer: sends messages.

Spec: remoting.md, chapter 4 and section 11.1.
"""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.model.topics import group_fault
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.connection.hooks import Deliveries, DeliveryHook, SendHook
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.connection.parts import CheckHeader
from rmq_ha.client.lookup.asking import drive
from rmq_ha.client.lookup.lookups import topic_route
from rmq_ha.client.lookup.recall import recall
from rmq_ha.client.rules.errors import (
    IllegalMessage,
    MQClientError,
    NotStarted,
)
from rmq_ha.client.rules.messages import Message, MessageExt, MessageQueue, SendResult
from rmq_ha.client.rules.namespaces import wrap
from rmq_ha.client.rules.options import ProducerOptions, settings_of
from rmq_ha.client.rules.queue_choice import Selector
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.asked_attempts import AskedAttempts
from rmq_ha.client.send.publish_topics import PublishTopics
from rmq_ha.client.send.request_reply import Requests
from rmq_ha.client.send.send import Send, check_oneway
from rmq_ha.client.send.send_maker import SendMaker
from rmq_ha.client.send.sender import Sender


class Producer:
    """
    Sends messages; many sends may be under way at a time.

    A send that was awaited is stored as `SendResult.send_status` says. A message whose send failed
    may be stored nevertheless. So a retry can store it twice, as in every RocketMQ client, unless
    `ProducerConfig.idempotent` is set.

    :ivar config: the producer's settings.
    :ivar group: the producer group, with its namespace.
    :ivar on_wait: called with a topic and the reason when sends to the topic begin to wait for a
        broker; once for each time of waiting.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        config: ProducerConfig | None = None,
        hooks: Sequence[SendHook | DeliveryHook] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """
        :param instance: producers and consumers may share it; it starts with the first of them
            and stops with the last.
        :param hooks: called for each attempt (`SendHook`) or each delivery (`DeliveryHook`),
            depending on which methods a hook has.
        :param options: settings of `ProducerConfig`, over those of `config`.
        :raises IllegalMessage: the group's name breaks a rule.
        :raises ConfigurationError: a setting is not valid.
        """
        self.config = config = settings_of(ProducerConfig, config, options).checked()
        fault = group_fault(config.producer_group)
        if fault is not None:
            raise IllegalMessage(fault)
        host = instance.host
        self.instance = instance
        self.group = wrap(instance.settings.namespace, config.producer_group)
        self._clock = host.clock
        self._topics = PublishTopics(instance, config)
        self._maker = SendMaker(
            instance.settings,
            config,
            instance.process,
            host.random,
            self._topics.get,
            host.clock.seconds,
            host.now_ms,
        )
        self._deliveries = Deliveries(
            hooks,
            self.group,
            instance.client_id,
            host.clock.seconds,
            lambda: self.log.failure("a hook after a delivery"),
        )
        of_attempts: list[Any] = [hook for hook in hooks if hasattr(hook, "before_send")]
        attempts = AskedAttempts(instance, config, self.group, of_attempts, self._topics.look_again)
        self._requests = Requests(host.clock, host.random, instance.client_id)
        self.on_wait: Callable[[str, Exception], object] = lambda topic, error: None
        self._sender = Sender(
            host.clock,
            host.random,
            self._topics,
            attempts,
            config,
            lambda topic, error: self.on_wait(topic, error),
        )
        self._state = "new"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group} {self._state}>"

    # Life

    @property
    def in_flight(self) -> int:
        """How many sends wait for their brokers' answers."""
        return self._sender.in_flight

    async def start(self) -> None:
        """
        Join the client. Connections are made with the first send. A second call changes nothing.

        :raises NotStarted: the producer was stopped before: make a new one.
        :raises MQClientError: the client has a producer of this group already.
        """
        if self._state == "running":
            return
        if self._state != "new":
            raise NotStarted("this producer was stopped: make a new one")
        await self.instance.start()
        self.instance.register_producer(self.group, self)
        self._topics.start()
        self._state = "running"

    async def stop(self) -> None:
        """
        Take no more sends, and leave the group when the sends under way have ended.

        A send without an answer after `stop_timeout_ms` fails.
        """
        if self._state != "running":
            return
        self._state = "stopping"
        await self._sender.drain()
        self._state = "stopped"
        self._requests.fail_all(NotStarted("the producer was stopped before a reply came"))
        self._topics.stop()
        await self.instance.unregister_producer(self.group)
        await self.instance.stop_if_unused()

    # Sends

    def ready(self) -> "Deferred[None]":
        """
        Wait until a send would go at once, so that waiting sends do not pile up.

        :returns: fires when a place in flight is free; each free place wakes one waiter.
        """
        return self._sender.ready()

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout_ms: float | None = None,
    ) -> "Deferred[SendResult]":
        """
        Send one message and wait until it is stored.

        Without `queue` and `selector` the queues take turns. If a broker fails, others are tried,
        and all of them again while none answers, until `delivery_timeout_ms`. With `queue` or
        `selector` the send waits for its queue until then, and goes to no other queue, to keep the
        order. Await each send before the next send of the same key.

        :param queue: the queue to send to.
        :param selector: called with (queues, message, arg), returns the queue; `select_by_hash`
            of `queue_choice` sends equal keys to one queue.
        :param timeout_ms: time for the whole send, including the wait for a place in flight, in ms.
            None allows `send_msg_timeout_ms` for each round of attempts, and `delivery_timeout_ms`
            for the whole send.
        :returns: fails with `IllegalMessage`, `NotStarted`, `NoRoute`, `BrokerRefused` (after one
            attempt), `SendFailed` (after several), `SendTimeout` or `TooManyInFlight`.
        """
        if self._deliveries.hooks:
            return self._send_with_hooks(
                (message,), lambda: self._send(message, queue, selector, arg, timeout_ms)
            )
        return self._send(message, queue, selector, arg, timeout_ms)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> "Deferred[None]":
        """
        Send one message without asking for an answer of the broker.

        :returns: fires when a connection has the message; fails as `send` does, except for errors
            that a broker answers.
        """
        if self._deliveries.hooks:
            return self._send_with_hooks(
                (message,), lambda: self._send(message, queue, selector, arg, None, oneway=True)
            )
        return self._send(message, queue, selector, arg, None, oneway=True)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
    ) -> "Deferred[list[SendResult]]":
        """
        Send messages of one topic together, in as many requests as `max_batch_size` needs.

        :param timeout_ms: time for each request, in ms; None as in `send`.
        :returns: fires with one result for each request. Fails as `send` does; if requests before
            the failed one were stored, with `BatchFailed`.
        """
        if self._deliveries.hooks:
            return self._send_with_hooks(
                messages, lambda: self._send_all(messages, queue, timeout_ms)
            )
        return self._send_all(messages, queue, timeout_ms)

    def request(
        self, message: Message, timeout_ms: float, *, queue: MessageQueue | None = None
    ) -> "Deferred[MessageExt]":
        """
        Send a message and wait for the reply that a consumer of the message sends.

        :param timeout_ms: time until the reply has to be here, in ms.
        :returns: fails as `send` does, or with `RequestTimeout`.
        """
        correlation_id, reply = self._requests.open(message, timeout_ms)
        sent = self.send(message, queue=queue, timeout_ms=timeout_ms)
        sent.addErrback(self._requests.not_sent, correlation_id)

        def not_wanted(failure: Failure) -> Failure:
            sent.cancel()
            return failure

        return reply.addErrback(not_wanted)

    def recall(self, topic: str, recall_handle: str) -> "Deferred[str]":
        """
        Take back a message with a timer, before it is due.

        :param recall_handle: `SendResult.recall_handle` of the message.
        :returns: fires with the message's unique id when no consumer will get it. Fails with
            `BrokerRefused` (its code is 604 if the message does not wait any more), and as `send`
            does.
        """
        if self._state != "running":
            return fail(self._not_running())
        asking = recall(
            self.instance.settings.namespace, self.group, topic, recall_handle, topic_route
        )
        return Deferred.fromCoroutine(Asker(self.instance).run(asking))

    def fetch_publish_message_queues(self, topic: str) -> "Deferred[list[MessageQueue]]":
        """
        Return the queues that messages of a topic can be sent to.

        :returns: fails with `NoRoute`, `NoNameServer` or `IllegalMessage`.
        """
        try:
            known = self._topics.get(topic)
        except MQClientError as error:
            return fail(error)
        looked_up = succeed(None) if known.info is not None else self._topics.find(known)
        return looked_up.addCallback(lambda _: list(known.info.queues if known.info else ()))

    # Requests of brokers (rmq_ha.client.connection.parts.ProducerPart)

    def check_transaction(
        self,
        message: MessageExt,
        header: CheckHeader,
        answer: Callable[[RemotingCommand], object],
    ) -> None:
        """Log a broker's question, which only a `TransactionProducer` can answer."""
        self.log.warn(
            "{broker} asks {group} about a transaction, but it is no TransactionProducer",
            broker=header.answer_to,
            group=self.group,
        )

    def reply(self, message: MessageExt, correlation_id: str) -> bool:
        """Take the reply to a request; return False if no request of this producer waits for it."""
        return self._requests.resolve(message, correlation_id)

    # Making a send

    def _send(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: Any,
        timeout_ms: float | None,
        *,
        oneway: bool = False,
    ) -> "Deferred[Any]":
        if self._state != "running":
            return fail(self._not_running())
        try:
            send = self._maker.of_message(message, queue, selector, arg, timeout_ms)
            if oneway:
                check_oneway(send)
        except MQClientError as error:
            return fail(error)
        send.oneway = oneway
        return self._sender.admit(send)

    def _send_all(
        self, messages: Sequence[Message], queue: MessageQueue | None, timeout_ms: float | None
    ) -> "Deferred[list[SendResult]]":
        sends = self._maker.in_parts(messages, queue, timeout_ms)
        return Deferred.fromCoroutine(drive(sends, self._admit))

    async def _admit(self, send: Send) -> SendResult:
        if self._state != "running":
            raise self._not_running()
        result: SendResult = await self._sender.admit(send)
        return result

    def _send_with_hooks(
        self, messages: Sequence[Message], send: "Callable[[], Deferred[Any]]"
    ) -> "Deferred[Any]":
        """Send with calls of the delivery hooks before and after."""
        try:
            begun = self._deliveries.begin(messages)
        except Exception as error:
            return fail(error)

        def end_delivery(outcome: Any) -> Any:
            if isinstance(outcome, Failure):
                self._deliveries.end(begun, (), outcome.value)
            elif isinstance(outcome, list):
                self._deliveries.end(begun, outcome)
            else:
                self._deliveries.end(begun, () if outcome is None else (outcome,))
            return outcome

        return send().addBoth(end_delivery)

    def _not_running(self) -> NotStarted:
        return NotStarted(f"the producer {self.group} is {self._state}: start() it first")
