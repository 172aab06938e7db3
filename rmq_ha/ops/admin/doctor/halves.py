"""Rules: half messages whose producers do not end their transactions."""

from collections.abc import Iterator

from rmq_ha.base.model.printable import counted
from rmq_ha.ops.admin.doctor.facts import ClusterFacts
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

OLD_S = 300
"""Age from which on a half message is old; brokers ask about it each minute."""


def _old(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        half = broker.oldest_half
        age_s = (broker.clock_ms(facts.now_ms) - half.born_ms) / 1000
        if half.number and age_s > OLD_S:
            yield Observation(
                str(broker),
                f"{counted(half.number, 'half message')} open, the oldest for {age_s:.0f} s: no "
                f"producer of {half.group or '(no group)'} ends its transaction for "
                f"{half.topic or '(no topic)'}",
            )


RULES = (
    Rule(
        "half-messages-old",
        DoctorSeverity.WARNING,
        "a half message is open for more than 300 s: no producer of its group commits it or rolls "
        "it back, and after `transactionCheckMax` questions no consumer ever gets it",
        "`rmqha-admin transaction list` shows the messages; start a producer of the group that can "
        "answer checks",
        _old,
    ),
)
