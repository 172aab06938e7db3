"""`rmqha-admin timer`: the timer messages that wait, by time and by topic."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.wire.timer_bodies import TIMERS, TimerFacts
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import broker_config, replication_of, runtime_info
from rmq_ha.client.lookup.timers import timers_by_topic, timers_due_within
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.doctor.timers import LATE_S, reason_of_delay
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NothingFound, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, first_of_each, targets
from rmq_ha.ops.admin.timer_levels import levels

COLUMNS = (
    "broker",
    "id",
    "address",
    "state",
    "waiting",
    "late_s",
    "next_due",
    "due",
    "in_1m",
    "in_1h",
    "in_1d",
    "later",
    "recalled",
)
_SHOWN_BOUNDS_S = (0, 60, 3600, 86400)
_A_SECOND = 20_000
"""Timer messages that a slow broker counts by topic in one second; longer counts get more time."""


class TimersOfBroker(NamedTuple):
    """
    One broker, and the facts that it tells of its timer messages.

    :ivar target: the broker's name, id and address.
    :ivar facts: state and numbers of the messages; None if the broker does not answer.
    :ivar now_ms: the time of the broker's clock, ms since the epoch.
    :ivar within: number of messages that are due within so many seconds; empty if the broker
        does not tell.
    :ivar problem: why the broker does not answer; empty if it does.
    """

    target: BrokerTarget
    facts: TimerFacts | None
    now_ms: int = 0
    within: Mapping[int, int] = {}
    problem: str = ""

    @property
    def late_s(self) -> float:
        return 0.0 if self.facts is None else self.facts.overdue_ms(self.now_ms) / 1000


@click.group()
@common_options
def timer() -> None:
    """
    Show the messages that wait for their time: timer messages (TIMER_DELAY_SEC, TIMER_DELAY_MS,
    TIMER_DELIVER_MS), and messages with a delay level (DELAY).
    """


timer.add_command(levels)


@timer.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@common_options
def status(which: str) -> None:
    """
    Show for each broker how many timer messages wait, and when they are due.

    `late_s` is for how many seconds the first of them is due. `due` is the number of those that are
    due now. `in_1m`, `in_1h` and `in_1d` are due within a minute, an hour and a day, and `later`
    after that. `recalled` were due later, and their producers took them back. A slave shows what
    it would deliver as the master.

    Exit code 4: a broker does not answer; 1: a message is late by more than 10 s.
    """

    async def work(session: Session) -> int | None:
        return await show_timers(session, which)

    run(work)


@timer.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@common_options
def topics(which: str) -> None:
    """
    Show for each topic how many timer messages wait. A broker reads all of them to count, which
    takes about a second for 50,000.

    Exit code 3: no broker has timers.
    """

    async def work(session: Session) -> None:
        await show_topics(session, which)

    run(work)


async def show_timers(session: Session, which: str = "") -> int | None:
    """
    Show a row for each broker with its timer messages.

    :param which: name of a broker or cluster, or an address; empty for all brokers.

    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    looked = [
        await _look_at(asker, session, target)
        for target in session.output.track("asking brokers", brokers)
    ]
    problems = [f"{item.target.address}: {item.problem}" for item in looked if item.problem]
    late = [_fault(item) for item in looked if item.late_s > LATE_S and not _follows(item)]
    rows = [_row(item) for item in looked]
    session.output.table("timers", COLUMNS, rows, problems=[*problems, *late] or None)
    if problems:
        return NO_ANSWER
    return FAILED if late else None


async def _look_at(asker: Asker, session: Session, target: BrokerTarget) -> TimersOfBroker:
    try:
        info = await asker.run(runtime_info(target.address))
        told = replication_of(info)
        if not told:
            return await _look_at_java(asker, session, target, info)
        facts, now_ms = TimerFacts(told.get(TIMERS)), told.get("now_ms")
        now_ms = now_ms if isinstance(now_ms, int) else session.host.now_ms()
        if facts.work in ("", "off", "scanning"):
            return TimersOfBroker(target, facts, now_ms)
        within = await asker.run(timers_due_within(target.address))
    except (RemotingError, BrokerRefused, ProtocolViolation) as error:
        return TimersOfBroker(target, None, problem=str(error))
    return TimersOfBroker(target, facts, now_ms, within)


async def _look_at_java(
    asker: Asker, session: Session, target: BrokerTarget, info: Mapping[str, str]
) -> TimersOfBroker:
    """Return the facts of a broker of RocketMQ; one of 4.9 has no timers, so they are off."""
    config, now_ms = await asker.run(broker_config(target.address)), session.host.now_ms()
    if config.get("timerWheelEnable") != "true":
        return TimersOfBroker(target, TimerFacts({"work": "off"}), now_ms)
    counts = await asker.run(timers_by_topic(target.address))
    behind = info.get("timerReadBehind", "")
    late_ms = int(behind) * 1000 if behind.isdecimal() and len(behind) < 10 else 0
    is_slave = config.get("brokerRole") == "SLAVE"
    told = {"work": "slave" if is_slave else "delivering", "waiting": sum(counts.values())}
    if late_ms:
        told["next_due_ms"] = now_ms - late_ms
    return TimersOfBroker(target, TimerFacts(told), now_ms)


def _follows(item: TimersOfBroker) -> bool:
    return item.facts is not None and item.facts.work == "slave"


def _fault(item: TimersOfBroker) -> str:
    why, _ = reason_of_delay(item.facts.work if item.facts else "")
    count = item.facts.waiting if item.facts else 0
    return f"{item.target.address}: the first of {count} is late by {item.late_s:.0f} s: {why}"


def _row(item: TimersOfBroker) -> list[Any]:
    target, facts = item.target, item.facts
    own: list[Any] = [target.name, target.broker_id, target.address]
    if facts is None:
        return [*own, "does not answer", *[None] * 9]
    next_due = None if facts.next_due_ms is None else time_text(facts.next_due_ms)
    due, *within = (item.within.get(bound) for bound in _SHOWN_BOUNDS_S)
    later = None if within[-1] is None else max(0, facts.waiting - within[-1])
    state = facts.work or "unknown"
    late_s = round(item.late_s, 1)
    return [*own, state, facts.waiting, late_s, next_due, due, *within, later, facts.recalled]


async def show_topics(session: Session, which: str = "") -> None:
    """
    Show the number of waiting messages of each topic.

    :param which: name of a broker or cluster, or an address; empty for all brokers.

    :raises NothingFound: no broker has timers.
    """
    asker, brokers = await targets(session, which)
    counts: Counter[str] = Counter()
    without = []
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        info = await asker.run(runtime_info(target.address))
        waiting = info.get("timerCongestNum", "0")
        most_s = int(waiting) // _A_SECOND if waiting.isdecimal() and len(waiting) < 10 else 0
        timeout_ms = session.options.timeout_ms + most_s * 1000
        try:
            counts.update(await asker.run(timers_by_topic(target.address, timeout_ms)))
        except BrokerRefused as error:
            without.append(f"{target.address}: {error}")
    if without and len(without) == len(first_of_each(brokers)):
        raise NothingFound("; ".join(without))
    for problem in without:
        session.output.warn(problem)
    rows = [[topic, count] for topic, count in counts.most_common() if count]
    session.output.table("waiting", ("topic", "waiting"), rows)
