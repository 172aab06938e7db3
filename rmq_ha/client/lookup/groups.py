"""Requests for the offsets and lag of consumer groups, and resets of their offsets.

Spec: remoting.md, sections 7.5 and 7.6.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.wire.bodies import MessageQueue, decode_queue_table
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import parse
from rmq_ha.base.wire.pop_reports import IN_FLIGHT, InFlightReport
from rmq_ha.client.lookup.asking import Ask, Asking, expect, expect_any
from rmq_ha.client.lookup.lookups import (
    addresses_in,
    cluster_info,
    commit_offset,
    committed_offset,
    in_order,
    queue_number,
    topic_route,
)
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NoRoute
from rmq_ha.client.rules.routes import subscribe_queues

EARLIEST = 0
LATEST = -1


class QueueLag(NamedTuple):
    """
    The offsets of a group in one queue.

    :ivar broker_offset: the offset after the queue's last message.
    :ivar consumer_offset: the offset of the next message that the group has not consumed.
    :ivar last_timestamp: when the last consumed message was stored, in ms since the epoch; 0 if not
        known.
    :ivar in_flight: messages that are out with consumers who pop; None for a group that pulls, or
        if the broker does not tell.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    in_flight: int | None = None

    @property
    def lag(self) -> int:
        """How many messages the group has to consume yet."""
        return self.broker_offset - self.consumer_offset


class GroupLag(NamedTuple):
    """
    The offsets of a group in all its queues, in order.

    :ivar consume_tps: consumed messages per second, as the brokers count them.
    """

    queues: list[QueueLag]
    consume_tps: float

    @property
    def lag(self) -> int:
        """How many messages of all queues the group has to consume yet."""
        return sum(item.lag for item in self.queues)


def consume_stats(group: str, topic: str = "") -> Asking[GroupLag]:
    """
    Ask for a group's offsets; a slave is asked if a master does not answer.

    :param topic: the topic; empty for all topics of the group.
    :raises BrokerRefused: a broker refuses.
    :raises RemotingError: neither master nor slave of a broker answers.
    """
    brokers = yield from _brokers_of(group, topic)
    ext = {"consumerGroup": group}
    if topic:
        ext["topic"] = topic
    queues: list[QueueLag] = []
    tps = 0.0
    for addresses in brokers:
        command = RemotingCommand(RequestCode.GET_CONSUME_STATS, dict(ext))
        response = yield from expect_any(command, in_order(addresses))
        body = response.body or b"{}"
        for queue, item in decode_queue_table(body).items():
            queues.append(_lag(queue, item))
        tps += _tps(body)
    return GroupLag(sorted(queues, key=lambda item: item.queue), tps)


def in_flight(address: str, group: str, topic: str = "") -> Asking[InFlightReport]:
    """
    Ask a broker which messages are out with a group.

    :param topic: the topic; empty for all topics of the group.
    :returns: for a broker of RocketMQ a report with an empty `state`.
    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: the broker does not answer.
    """
    ext = {"consumerGroup": group, "topic": topic, IN_FLIGHT: "true"}
    response = yield from expect(Ask(RemotingCommand(RequestCode.GET_CONSUME_STATS, ext), address))
    return InFlightReport.decode(response.body or b"{}")


def _brokers_of(group: str, topic: str) -> Asking[list[dict[int, str]]]:
    """Return the brokers of the group's retry topic; else those of the topic; else all brokers."""
    for name in (RETRY_PREFIX + group, topic):
        try:
            if name:
                route = yield from topic_route(name)
                return [item.addresses for item in route.brokers]
        except NoRoute:
            if name == topic:
                raise
    cluster = yield from cluster_info()
    return [item.addresses for item in cluster.brokers.values()]


def _lag(queue: MessageQueue, item: Any) -> QueueLag:
    try:
        committed, popped = int(item["consumerOffset"]), item.get("pullOffset")
        return QueueLag(
            queue,
            int(item["brokerOffset"]),
            committed,
            int(item.get("lastTimestamp", 0)),
            None if popped is None else max(0, int(popped) - committed),
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        raise ProtocolViolation(f"the offsets of {queue} have an unexpected form") from None


def _tps(body: bytes) -> float:
    try:
        return float(parse(body).get("consumeTps", 0.0))
    except (TypeError, ValueError):
        return 0.0


class OffsetMove(NamedTuple):
    """
    The offsets of one queue before and after a reset.

    :ivar before: the offset before; -1 if the group had none.
    """

    queue: MessageQueue
    before: int
    after: int


class Reset(NamedTuple):
    """
    The result of a reset.

    :ivar told: whether connected consumers were told; else the brokers' offsets were set.
    """

    moved: list[OffsetMove]
    told: bool


def reset_offset(group: str, topic: str, timestamp: int, *, apply: bool = True) -> Asking[Reset]:
    """
    Reset a group to a time: tell its connected consumers or, if there are none, set its offsets.

    :param timestamp: the time, in ms since the epoch; or EARLIEST or LATEST.
    :param apply: False to return the result without changing anything.
    :raises NoRoute: the topic has no route.
    :raises MQClientError: a broker has no master, which alone may do it.
    :raises BrokerRefused: a broker refuses.
    :raises RemotingError: a master does not answer.
    """
    route = yield from topic_route(topic)
    queues = subscribe_queues(topic, route)
    moved: list[OffsetMove] = []
    told = False
    for name in sorted({queue.broker_name for queue in queues}):
        addresses = addresses_in(route, name)
        if MASTER_ID not in addresses:
            raise MQClientError(
                f"the broker {name} has no master, and slaves do not reset offsets: bring it back"
            )
        master = {MASTER_ID: addresses[MASTER_ID]}
        mine = [queue for queue in queues if queue.broker_name == name]
        plan: list[OffsetMove] = []
        for queue in mine:
            before = yield from committed_offset(master, group, queue)
            after = yield from offset_at(master, queue, timestamp)
            plan.append(OffsetMove(queue, before, after))
        if apply:
            heard = yield from _tell(master[MASTER_ID], group, topic, timestamp)
            if heard is None:
                for item in plan:
                    yield from commit_offset(master, group, item.queue, item.after)
            else:
                told = True
                plan = [item._replace(after=heard.get(item.queue, item.after)) for item in plan]
        moved += plan
    return Reset(moved, told)


def offset_at(addresses: dict[int, str], queue: MessageQueue, timestamp: int) -> Asking[int]:
    """
    Ask for the offset of a time in a queue; a slave is asked if the master does not answer.

    :param timestamp: the time, in ms since the epoch; or EARLIEST or LATEST.
    :raises BrokerRefused: a broker refuses.
    :raises RemotingError: no address answers.
    """
    if timestamp == LATEST:
        return (yield from queue_number(RequestCode.GET_MAX_OFFSET, addresses, queue))
    if timestamp == EARLIEST:
        return (yield from queue_number(RequestCode.GET_MIN_OFFSET, addresses, queue))
    return (
        yield from queue_number(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, addresses, queue, timestamp=str(timestamp)
        )
    )


def _tell(
    address: str, group: str, topic: str, timestamp: int
) -> Asking[Mapping[MessageQueue, int] | None]:
    """
    Have a broker tell a group's consumers to continue at a time; return their new offsets, or None
    if no consumer is connected.
    """
    connections = RemotingCommand(
        RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
    )
    not_there = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
    response = yield from expect(Ask(connections, address), not_there)
    if response.code:
        return None
    ext = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "true"}
    command = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    response = yield from expect(Ask(command, address), not_there)
    if response.code == ResponseCode.SYSTEM_ERROR:
        raise BrokerRefused(response.code, response.remark, address)
    if response.code:
        return None
    return decode_queue_table(response.body or b"{}")
