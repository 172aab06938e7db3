"""Requests for a broker's counts by topic and group: messages sent, read and still to consume.

Spec: remoting.md, section 2.2.
"""

from collections import Counter
from typing import NamedTuple

from rmq_ha.base.wire.bodies import MessageQueue, read_body
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.asking import Ask, Asking, expect

TOPIC_PUTS, GROUP_GETS = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"


class TrafficCount(NamedTuple):
    """
    A count of messages.

    :ivar per_second: messages per second in the last minute; 0 if the broker has counted none.
    :ivar day: messages in the last day.
    """

    per_second: float = 0.0
    day: int = 0


def growth(address: str, name: str, key: str) -> Asking[TrafficCount]:
    """
    Ask a broker for one of its counts.

    :param name: which count, like TOPIC_PUTS.
    :param key: a topic, or `topic@group`.
    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: the broker does not answer.
    """
    ext = {"statsName": name, "statsKey": key}
    command = RemotingCommand(RequestCode.VIEW_BROKER_STATS_DATA, ext)
    response = yield from expect(Ask(command, address), (ResponseCode.SYSTEM_ERROR,))
    if response.code:  # no message was sent or read there since the broker has started
        return TrafficCount()
    return read_body(
        response.body or b"{}",
        lambda value: TrafficCount(
            float(value["statsMinute"]["tps"]),
            # A broker samples the day once an hour and the hour every ten minutes, so the sum of
            # the shorter span may be the larger one.
            max(int(value[span]["sum"]) for span in ("statsMinute", "statsHour", "statsDay")),
        ),
        None,
    )


def waiting(address: str) -> Asking[dict[tuple[str, str], int]]:
    """Ask how many messages of each topic each group has to consume yet; raises as `growth`."""
    command = RemotingCommand(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    response = yield from expect(Ask(command, address))
    sums: Counter[tuple[str, str]] = Counter()
    rows = read_body(
        response.body or b"{}",
        lambda value: [
            (
                str(group),
                MessageQueue.from_key(queue).topic,
                int(item["brokerOffset"]) - int(item["consumerOffset"]),
            )
            for entry in value.get("consumeStatsList") or ()
            for group, tables in entry.items()
            for table in tables
            for queue, item in (table.get("offsetTable") or {}).items()
        ],
        None,
    )
    for name, topic, count in rows:
        sums[topic, name] += count
    return sums
