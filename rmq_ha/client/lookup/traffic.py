"""What a broker counts by topic and group: messages in and out, and what waits.

Spec: remoting.md, section 2.2.
"""

from collections import Counter
from typing import NamedTuple

from rmq_ha.base.wire.bodies import MessageQueue, read_body
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.asking import Ask, Asking, expect

TOPIC_PUTS, GROUP_GETS = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"


class Growth(NamedTuple):
    """
    Messages of the last minute a second, and of the last day.

    :ivar per_second: 0 for what a broker has not counted yet.
    """

    per_second: float = 0.0
    day: int = 0


def growth(address: str, name: str, key: str) -> Asking[Growth]:
    """
    One figure of a broker.

    :param key: a topic, or `topic@group`.
    :raises BrokerRefused: it does not tell.
    :raises RemotingError: it does not answer.
    """
    ext = {"statsName": name, "statsKey": key}
    command = RemotingCommand(RequestCode.VIEW_BROKER_STATS_DATA, ext)
    response = yield from expect(Ask(command, address), (ResponseCode.SYSTEM_ERROR,))
    if response.code:  # nobody has sent or read there since it started
        return Growth()
    return read_body(
        response.body or b"{}",
        lambda value: Growth(
            float(value["statsMinute"]["tps"]),
            # A day is looked at once an hour, an hour every ten minutes: the shorter may know more.
            max(int(value[span]["sum"]) for span in ("statsMinute", "statsHour", "statsDay")),
        ),
        None,
    )


def waiting(address: str) -> Asking[dict[tuple[str, str], int]]:
    """Messages that each group has yet to consume of each topic; raises as `growth`."""
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
