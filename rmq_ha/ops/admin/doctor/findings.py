"""The types of doctor: rules, their observations, and findings."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from rmq_ha.ops.admin.doctor.facts import ClusterFacts


class DoctorSeverity(Enum):
    """
    How bad a finding is.

    A `NOTE` is only information, and does not change the exit code.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Observation(NamedTuple):
    """
    A rule's report about one broker, group or file.

    :ivar about: a broker's name or address, a group, a file.
    :ivar text: the cause, with the values that were seen.
    :ivar fix: the remedy in this case; empty: the rule's `fix` holds.
    """

    about: str
    text: str
    fix: str = ""


class Rule(NamedTuple):
    """
    One fault that can be seen from outside.

    :ivar code: the name of the fault for programs; it never changes.
    :ivar cause: the cause in general, as docs/doctor.md gives it.
    :ivar fix: what to do next.
    :ivar look: finds the fault in the facts; it asks no server and changes nothing.
    """

    code: str
    severity: DoctorSeverity
    cause: str
    fix: str
    look: Callable[[ClusterFacts], Iterable[Observation]]


class DoctorFinding(NamedTuple):
    """A fault that was found; see `Rule` and `Observation`."""

    severity: str
    code: str
    about: str
    text: str
    fix: str


def judge(facts: ClusterFacts, rules: Iterable[Rule]) -> list[DoctorFinding]:
    """Return all findings, the worst first."""
    order = [severity.value for severity in DoctorSeverity]
    findings = [
        DoctorFinding(rule.severity.value, rule.code, said.about, said.text, said.fix or rule.fix)
        for rule in rules
        for said in rule.look(facts)
    ]
    return sorted(findings, key=lambda item: order.index(item.severity))


def is_healthy(findings: Iterable[DoctorFinding]) -> bool:
    return all(item.severity == DoctorSeverity.NOTE.value for item in findings)
