"""What a checker notices in a simulation: broken promises, and failures that RocketMQ allows."""

from dataclasses import dataclass, field
from typing import NamedTuple

MAX_FINDINGS = 40


class CheckerFinding(NamedTuple):
    """
    Something that a checker noticed.

    :ivar time: simulated seconds.
    :ivar kind: a short name; equal causes have equal kinds.
    """

    time: float
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.time:.6f} s: {self.kind}: {self.text}"


@dataclass
class Findings:
    """
    All findings.

    :ivar violations: promises that were broken.
    :ivar hazards: events that 4.x does not promise to prevent.
    """

    violations: list[CheckerFinding] = field(default_factory=list)
    hazards: list[CheckerFinding] = field(default_factory=list)

    def violation(self, time: float, kind: str, text: str) -> None:
        """Note a promise that is broken."""
        if len(self.violations) < MAX_FINDINGS:
            self.violations.append(CheckerFinding(time, kind, text))

    def hazard(self, time: float, kind: str, text: str) -> None:
        """Note a failure that RocketMQ 4.x allows."""
        if len(self.hazards) < MAX_FINDINGS:
            self.hazards.append(CheckerFinding(time, kind, text))

    def kinds(self) -> list[str]:
        """Return the kinds of violations, in order of appearance."""
        return list(dict.fromkeys(finding.kind for finding in self.violations))
