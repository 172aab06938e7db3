"""SimpleConsumer: receives single messages, each with its own acknowledgement and time limit.

Its words are those of the simple consumer in RocketMQ 5's SDKs; it speaks remoting.

Spec: pop.md, sections 2 and 13.4.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack
from uuid import UUID

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError, RemotingError, RmqHaError
from rmq_ha.base.model.properties import POP_CK
from rmq_ha.base.model.subscription import SUB_ALL
from rmq_ha.base.model.topics import topic_fault
from rmq_ha.base.wire.bodies import ConsumerData, MessageQueue
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.consumer_member import ConsumerMember
from rmq_ha.client.consume.pop_api import BatchItem, PopApi
from rmq_ha.client.lookup.pops import ALL_QUEUES, MOST_POPPED, MessageLease, Pop, lease_of
from rmq_ha.client.rules.consumer_settings import (
    ConsumeFromWhere,
    MessageModel,
    SimpleConsumerConfig,
    milliseconds,
)
from rmq_ha.client.rules.errors import (
    BrokerRefused,
    MQClientError,
    NoMaster,
    NoNameServer,
    NoRoute,
    NotStarted,
)
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.namespaces import unwrap
from rmq_ha.client.rules.options import SimpleConsumerOptions, settings_of
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.client.rules.subscriptions import MessageSelector, Subscriptions, chosen

_HOLD_MS = 1000
"""How long one of several brokers or topics may hold a receive before the next one is asked, ms."""
_PAUSE_S = 0.5
_Place = tuple[str, str]
"""A topic, with its namespace, and the name of a broker that has it."""


class SimpleConsumer:
    """
    A member of a group that asks for messages when it wants some, and answers each by itself.

    Subscribe, `start()`, and call `receive`. A message that is neither acknowledged nor given
    another time comes again when its `invisible_duration` is over. Members share no queues, so a
    slow member delays nobody. Brokers of rmq-ha need `popEnable=true`, those of RocketMQ 5 nothing.

    :ivar config: the consumer's settings.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        consumer_group: str,
        config: SimpleConsumerConfig | None = None,
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        """
        :param options: settings of `SimpleConsumerConfig`; they override those of `config`.
        :raises ConfigurationError: a setting, or the group's name, is not valid.
        """
        self.config = settings_of(SimpleConsumerConfig, config, options).checked()
        self._instance = instance
        self._member = ConsumerMember(instance, consumer_group)
        self._api = PopApi(instance, self._member.group)
        self._subscriptions = Subscriptions()
        self._turn = 0
        self._attempts: dict[_Place, str] = {}
        self._waiting: set[Deferred[Any]] = set()

    def __repr__(self) -> str:
        return f"<SimpleConsumer {self.consumer_group} {self._member.state}>"

    @property
    def consumer_group(self) -> str:
        """The group's name as the application knows it, without namespace."""
        return self._member.consumer_group

    @property
    def is_running(self) -> bool:
        """Whether the consumer has started and has not begun to stop."""
        return self._member.is_running

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """
        Receive messages of a topic, or change which of them; before or after `start`.

        :param expression: tags like `TagA || TagB`, or a `MessageSelector`.
        :raises ConfigurationError: topic or expression is not valid.
        """
        fault = topic_fault(topic)
        if fault:
            raise ConfigurationError(fault)
        topic = self._member.wrap(topic)
        self._subscriptions.add(topic, expression, self._instance.host.now_ms())
        if self.is_running:
            self._member.watch(topic)
            self._instance.heartbeat_now()

    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic; messages that are out can be acknowledged still."""
        topic = self._member.wrap(topic)
        self._subscriptions.remove(topic)
        self._member.unwatch(topic)
        if self.is_running:
            self._instance.heartbeat_now()

    # Life

    def start(self) -> "Deferred[None]":
        """
        Join the group.

        :returns: fails with `ConfigurationError` if no topic is subscribed, and with
            `MQClientError` if, for example, no name server answers; the consumer is then stopped.
        """
        if not len(self._subscriptions):
            return fail(
                ConfigurationError(
                    f"{self.consumer_group} subscribes to no topic: call subscribe(topic) before"
                    " start()"
                )
            )
        try:
            self._member.begin()
        except MQClientError as error:
            return fail(error)
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> "Deferred[None]":
        """
        Leave the group; never fails. Calls of `receive` that wait end with `NotStarted`. Messages
        that are out come again when their time is over.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        member = self._member
        try:
            await self._instance.start()
            await member.know_routes(list(self._subscriptions))
            member.must_go_on()
            self._instance.register_consumer(member.group, self)
            member.state = "running"
            await self._instance.heartbeat_now()
            member.must_go_on()
        except Exception:  # not a start that is dropped
            await self._stop()
            raise

    async def _stop(self) -> None:
        member = self._member
        if not member.stops():
            return
        for waiting in list(self._waiting):
            waiting.cancel()
        member.unwatch_all()
        if self._instance.consumers.get(member.group) is self:
            await self._instance.unregister_consumer(member.group)
        await self._instance.stop_if_unused()
        member.state = "stopped"

    # Messages

    def receive(
        self, max_message_num: int, invisible_duration: timedelta
    ) -> "Deferred[list[MessageExt]]":
        """
        Receive messages: those that are there, or the first that come within `await_duration`.

        :param max_message_num: most messages, 1 to 32.
        :param invisible_duration: how long the messages are only yours. Acknowledge them before, or
            set another time; else they come again.
        :returns: an empty list if nothing came. It fails with `ConfigurationError` for a wrong
            argument, with `NotStarted`, `NoRoute`, and with `BrokerRefused`, `NoMaster` or
            `RemotingError` if at the end of the time no broker serves the subscribed topics.
        """
        try:
            self._member.must_run()
            invisible_ms = milliseconds(invisible_duration, "invisible_duration")
            if not 1 <= max_message_num <= MOST_POPPED:
                raise ConfigurationError(
                    f"max_message_num is {max_message_num}: a broker hands out 1 to {MOST_POPPED}"
                    " messages at a time"
                )
            if not invisible_ms:
                raise ConfigurationError("invisible_duration must be at least a millisecond")
        except (MQClientError, ConfigurationError):
            return fail()
        received = Deferred.fromCoroutine(self._receive(max_message_num, invisible_ms))
        self._waiting.add(received)
        return received.addBoth(self._received, received)

    def ack(self, message: MessageExt) -> "Deferred[None]":
        """
        Answer that a message is consumed; the group never gets it again.

        An acknowledgement without an answer is repeated for `ack_timeout_ms`, also at the new
        master after a fail-over.

        :returns: fails with `ReceiptExpired` if the message's time was over, with `BrokerRefused`,
            `NoMaster` or `RemotingError`, and with `MQClientError` if it was not received here.
        """
        try:
            topic, lease = self._lease(message)
        except MQClientError:
            return fail()
        return Deferred.fromCoroutine(
            self._api.ack(topic, lease, message.msg_id, self.config.ack_timeout_ms)
        )

    def ack_all(self, messages: Sequence[MessageExt]) -> "Deferred[None]":
        """
        Answer that messages are consumed, by one request to each broker.

        As in RocketMQ, a broker skips messages whose time was over, and says nothing as long as one
        message's was not. Use `ack` where you have to know.

        :returns: fails as `ack` does, after all brokers were asked.
        """
        try:
            by_broker: dict[str, list[BatchItem]] = {}
            for message in messages:
                topic, lease = self._lease(message)
                items = by_broker.setdefault(lease.receipt.broker_name, [])
                items.append(BatchItem(topic, lease, message.msg_id))
        except MQClientError:
            return fail()
        return Deferred.fromCoroutine(self._ack_brokers(by_broker))

    def change_invisible_duration(
        self, message: MessageExt, invisible_duration: timedelta
    ) -> "Deferred[None]":
        """
        Have a message come again at another time: later, if the work takes longer, or sooner.

        The message gets a new receipt, by which `ack` then answers it.

        :param invisible_duration: the time from now on; zero for at once.
        :returns: fails as `ack` does, and with `ConfigurationError` for a wrong argument.
        """
        try:
            invisible_ms = milliseconds(invisible_duration, "invisible_duration")
            topic, lease = self._lease(message)
        except (MQClientError, ConfigurationError):
            return fail()
        return Deferred.fromCoroutine(self._change(message, topic, lease, invisible_ms))

    # Inside

    def _received(self, result: Any, received: "Deferred[Any]") -> Any:
        self._waiting.discard(received)
        if not self.is_running and not isinstance(result, list):
            raise NotStarted(f"{self!r}: it was stopped while receive() waited")
        return result

    def _lease(self, message: MessageExt) -> tuple[str, MessageLease]:
        self._member.must_run()
        topic = self._member.wrap(message.topic)
        lease = lease_of(message, self._member.group, topic)
        if lease is None:
            raise MQClientError(
                f"{message.msg_id} has no receipt: only messages that receive() returned can be"
                " acknowledged here"
            )
        return topic, lease

    async def _ack_brokers(self, by_broker: Mapping[str, list[BatchItem]]) -> None:
        failed: RmqHaError | None = None
        for broker_name, items in by_broker.items():
            try:
                await self._api.ack_batch(broker_name, items, self.config.ack_timeout_ms)
            except RmqHaError as error:
                failed = error
        if failed is not None:
            raise failed

    async def _change(
        self, message: MessageExt, topic: str, lease: MessageLease, invisible_ms: int
    ) -> None:
        within_ms = self.config.ack_timeout_ms
        receipt = await self._api.change(topic, lease, invisible_ms, message.msg_id, within_ms)
        message.properties[POP_CK] = receipt.encode()

    async def _receive(self, max_message_num: int, invisible_ms: int) -> list[MessageExt]:
        """
        Ask one place after the other. Each is asked once without a wait, so that messages that are
        there come at once; then places hold the request in turn until the time is over.
        """
        steady_ms = self._instance.host.steady_ms
        deadline = steady_ms() + milliseconds(self.config.await_duration, "await_duration")
        holds = False
        while True:
            places, error = await self._places()
            answered = False
            for place in places:
                left_ms = max(0, deadline - steady_ms())
                hold_ms = left_ms if len(places) == 1 else min(left_ms, _HOLD_MS)
                try:
                    messages = await self._pop(
                        place,
                        max_message_num,
                        invisible_ms,
                        hold_ms if holds or len(places) == 1 else 0,
                    )
                except (RemotingError, NoMaster, BrokerRefused) as failed:
                    if isinstance(failed, BrokerRefused) and not failed.retriable:
                        raise
                    error = failed
                    await self._api.look_for_master(place[0])
                    continue
                answered = True
                if messages:
                    return messages
            if steady_ms() >= deadline:
                if answered or error is None:
                    return []
                raise error
            if not answered:
                await self._api.pause(min(_PAUSE_S, max(0.0, (deadline - steady_ms()) / 1000)))
            holds = True

    async def _places(self) -> tuple[list[_Place], RmqHaError | None]:
        """Return the places to ask, beginning with another one each time."""
        places: list[_Place] = []
        error: RmqHaError | None = None
        for topic in self._subscriptions:
            try:
                route = await self._instance.route(topic)
            except (NoRoute, NoNameServer, RemotingError) as failed:
                error = failed
                continue
            names = sorted({queue.broker_name for queue in subscribe_queues(topic, route)})
            places += [(topic, name) for name in names]
        if not places:
            return [], error
        self._turn = (self._turn + 1) % len(places)
        return places[self._turn :] + places[: self._turn], error

    async def _pop(
        self, place: _Place, max_message_num: int, invisible_ms: int, hold_ms: int
    ) -> list[MessageExt]:
        topic, broker_name = place
        subscription = self._subscriptions.get(topic)
        if subscription is None:
            return []
        attempt = self._attempt(place) if self.config.order else ""
        from_max = self.config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        popped = await self._api.pop(
            Pop(
                topic,
                broker_name,
                ALL_QUEUES,
                subscription,
                max_message_num,
                invisible_ms,
                hold_ms,
                from_max,
                attempt,
            )
        )
        self._attempts.pop(place, None)
        if popped.is_full:
            self.log.warn(
                "{broker} hands out no messages of {topic} now: too many of {group} are out, or too"
                " many requests wait",
                broker=broker_name,
                topic=topic,
                group=self._member.group,
            )
            await self._api.pause(_PAUSE_S)
        messages = chosen(popped.messages, subscription)
        if len(messages) != len(popped.messages):
            self._ack_others(popped.messages, messages)
        for message in messages:
            message.topic = unwrap(self._instance.settings.namespace, message.topic)
        return messages

    def _attempt(self, place: _Place) -> str:
        """Return the attempt's name: that of the attempt before, if its answer never came."""
        if place not in self._attempts:
            self._attempts[place] = str(UUID(int=self._instance.host.random.getrandbits(128)))
        return self._attempts[place]

    def _ack_others(self, popped: list[MessageExt], kept: list[MessageExt]) -> None:
        """Acknowledge messages whose tag is not subscribed, as brokers compare only hashes."""
        group, within_ms = self._member.group, self.config.ack_timeout_ms
        places = {message.properties[POP_CK] for message in kept}
        for message in popped:
            lease = lease_of(message, group, message.topic)
            if lease is not None and message.properties[POP_CK] not in places:
                acked = self._api.ack(message.topic, lease, message.msg_id, within_ms)
                Deferred.fromCoroutine(acked).addErrback(
                    lambda why: self.log.debug("a message of another tag: {why}", why=why.value)
                )

    # ConsumerPart: what the client asks this consumer, for heartbeats and for operators

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            self._member.group,
            "CONSUME_ACTIVELY",
            MessageModel.CLUSTERING.value,
            self.config.consume_from_where.value,
            self._subscriptions.all(),
            False,
        )

    def on_group_changed(self) -> None:
        """Do nothing: members share no queues."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Do nothing: brokers keep the group's offsets and hand out from there."""

    def consume_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {}

    def running_info(self, want_stack: bool) -> Mapping[str, Any]:
        return {
            "mqTable": {},
            "properties": {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"},
            "statusTable": {},
            "subscriptionSet": self._subscriptions.all(),
        }

    def consume_directly(self, message: MessageExt) -> Any:
        raise MQClientError("a simple consumer has no listener to consume with")
