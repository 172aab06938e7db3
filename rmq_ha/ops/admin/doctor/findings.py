"""What a rule is, and what it finds."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from rmq_ha.ops.admin.doctor.facts import Facts


class Severity(Enum):
    """
    How bad it is.

    `NOTE`: good to know, and no reason for another exit code.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Observation(NamedTuple):
    """
    What a rule says of one thing.

    :ivar about: a broker's name or address, a group, a file.
    :ivar text: the cause, with what was seen.
    :ivar fix: what to do in this case; empty: what the rule says.
    """

    about: str
    text: str
    fix: str = ""


class Rule(NamedTuple):
    """
    One fault that can be seen from outside.

    :ivar code: what programs know it by; it does not change.
    :ivar cause: in general, as the document says it.
    :ivar fix: what to do next.
    :ivar look: finds it; asks nobody, changes nothing.
    """

    code: str
    severity: Severity
    cause: str
    fix: str
    look: Callable[[Facts], Iterable[Observation]]


class Finding(NamedTuple):
    """A fault that is there; see `Rule` and `Observation`."""

    severity: str
    code: str
    about: str
    text: str
    fix: str


def judge(facts: Facts, rules: Iterable[Rule]) -> list[Finding]:
    """All that is wrong, the worst first."""
    order = [severity.value for severity in Severity]
    findings = [
        Finding(rule.severity.value, rule.code, said.about, said.text, said.fix or rule.fix)
        for rule in rules
        for said in rule.look(facts)
    ]
    return sorted(findings, key=lambda item: order.index(item.severity))


def is_healthy(findings: Iterable[Finding]) -> bool:
    return all(item.severity == Severity.NOTE.value for item in findings)
