"""Requests for the timer messages that wait at a broker.

Spec: timer.md, section 9.
"""

from collections.abc import Mapping

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.timer_bodies import DUE_WITHIN, TimerCounts
from rmq_ha.client.lookup.asking import Ask, Asking, expect


def timers_by_topic(address: str, timeout_ms: int = 0) -> Asking[Mapping[str, int]]:
    """
    Ask how many timer messages wait for each topic.

    The broker reads each of them, so it takes a while: a second for some 50,000.

    :raises BrokerRefused: the broker refuses, or has no timers.
    :raises RemotingError: the broker does not answer.
    """
    command = RemotingCommand(RequestCode.GET_TIMER_METRICS)
    response = yield from expect(Ask(command, address, timeout_ms))
    counts = TimerCounts.decode(response.body or b"{}")
    return {topic: item.count for topic, item in counts.by_topic.items()}


def timers_due_within(address: str) -> Asking[Mapping[int, int]]:
    """
    Ask how many timer messages are due within some spans of seconds; raises as `timers_by_topic`.

    :returns: empty for a broker of RocketMQ.
    """
    command = RemotingCommand(RequestCode.GET_TIMER_METRICS, {DUE_WITHIN: "true"})
    response = yield from expect(Ask(command, address))
    counts = TimerCounts.decode(response.body or b"{}")
    return {int(bound): count for bound, count in counts.due_within.items() if bound.isdecimal()}
