"""Rules: timer messages that wait."""

from collections.abc import Iterator

from rmq_ha.base.wire.timer_bodies import TimerFacts
from rmq_ha.ops.admin.doctor.facts import ClusterFacts, number
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule
from rmq_ha.ops.admin.message_text import time_text

LATE_S = 10
"""A broker that keeps up delivers a message within 0.1 s."""
_NEWS_MS = 24 * 3_600_000
_REASONS = {
    "held": (
        "timerStopDequeue=true",
        "`rmqha-admin broker config set BROKER timerStopDequeue=false` delivers them",
    ),
    "refused": (
        "the store takes no puts",
        "see disk-full and puts-refused; as soon as the broker takes messages, it delivers them",
    ),
    "behind": (
        "the broker became the master, and its queues lack a part of the log yet",
        "wait; see dispatch-behind",
    ),
}
_OVERLOADED = (
    "it does not keep up",
    "see puts-slow, flush-behind and slave-behind; `rmqha-admin timer status` shows whether fewer "
    "messages become due",
)


def reason_of_delay(work: str) -> tuple[str, str]:
    """
    Return why timer messages are late, and the remedy.

    :param work: `TimerFacts.work`.
    """
    return _REASONS.get(work, _OVERLOADED)


def _late(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        timers = broker.timers
        late_s = timers.overdue_ms(broker.clock_ms(facts.now_ms)) / 1000
        count = timers.waiting
        if not broker.is_ours and not broker.is_slave:
            late_s = number(broker.info, "timerReadBehind", 0.0)
            count = int(number(broker.info, "timerCongestNum", 0))
        elif timers.work in ("off", "slave", "scanning"):
            continue
        if late_s > LATE_S:
            why, fix = reason_of_delay(timers.work)
            yield Observation(
                str(broker),
                f"{count} timer messages wait, and the first is late by {late_s:.0f} s: {why}",
                fix,
            )


def _left_waiting(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.timers.work == "off" and broker.timers.waiting:
            yield Observation(
                str(broker),
                f"{broker.timers.waiting} timer messages wait in its log, and timerWheelEnable is "
                "false",
            )


def _clock_set(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        timers = broker.timers
        age_ms = broker.clock_ms(facts.now_ms) - timers.clock_step_at_ms
        if timers.clock_step_ms and age_ms < _NEWS_MS:
            yield Observation(
                str(broker),
                f"its clock was set by {timers.clock_step_ms / 1000:+.0f} s at "
                f"{time_text(timers.clock_step_at_ms)}, and {_meaning(timers)}",
            )


def _meaning(timers: TimerFacts) -> str:
    way = "early" if timers.clock_step_ms > 0 else "late"
    return (
        f"timer messages that were sent before with a delay come {way} by as much, if the clock "
        "was right then"
    )


RULES = (
    Rule(
        "timers-late",
        DoctorSeverity.ERROR,
        "timer messages are late by more than 10 s",
        "the finding names the cause and its remedy",
        _late,
    ),
    Rule(
        "timers-off",
        DoctorSeverity.ERROR,
        "timer messages wait in the log of a broker whose timers are off: they are not delivered, "
        "and are deleted with their files (fileReservedTime)",
        "set `timerWheelEnable=true` in the properties file and restart the broker: it then "
        "delivers these messages, and overdue ones at once",
        _left_waiting,
    ),
    Rule(
        "clock-stepped",
        DoctorSeverity.WARNING,
        "a broker's clock was set in the last day while timer messages waited: messages that were "
        "sent with a delay come early or late by the step",
        "have NTP (chrony) set the clock slowly, not by a jump; a restart of the broker forgets "
        "the step",
        _clock_set,
    ),
)
