"""Chooses the rules that doctor asks, and the findings that an operator does not want to see."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.printable import counted
from rmq_ha.ops.admin.doctor.findings import DoctorFinding, Rule


class IgnoreEntry(NamedTuple):
    """
    Findings that are left out.

    :ivar code: the rule's code.
    :ivar about: the broker, group or file, or a pattern with `*`; empty: all findings of the rule.
    """

    code: str
    about: str = ""

    def covers(self, finding: DoctorFinding) -> bool:
        if finding.code != self.code:
            return False
        return self.about in ("", finding.about) or fnmatchcase(finding.about, self.about)

    def __str__(self) -> str:
        return f"{self.code}:{self.about}" if self.about else self.code


class RuleSelection(NamedTuple):
    """
    The rules to ask, and the findings to leave out.

    :ivar only: codes of the rules to ask; empty: all rules.
    :ivar ignored: findings to leave out.
    """

    only: tuple[str, ...] = ()
    ignored: tuple[IgnoreEntry, ...] = ()

    def rules_of(self, rules: Sequence[Rule]) -> list[Rule]:
        return [rule for rule in rules if not self.only or rule.code in self.only]

    def split(
        self, findings: Iterable[DoctorFinding]
    ) -> tuple[list[DoctorFinding], list[DoctorFinding]]:
        """Return the findings to show, and the ignored ones."""
        shown: list[DoctorFinding] = []
        left_out: list[DoctorFinding] = []
        for finding in findings:
            is_ignored = any(item.covers(finding) for item in self.ignored)
            (left_out if is_ignored else shown).append(finding)
        return shown, left_out

    def idle_entries(self, findings: Sequence[DoctorFinding]) -> list[str]:
        """Return the entries of the ignore list that no finding matches, as they were typed."""
        return [
            str(item)
            for item in self.ignored
            if not any(item.covers(finding) for finding in findings)
        ]


EVERYTHING = RuleSelection()


def selection_of(
    only: Iterable[str], ignored: Iterable[str], rules: Iterable[Rule]
) -> RuleSelection:
    """
    Read the options `--only` and `--ignore`.

    :param only: codes, each text with one or several, separated by commas.
    :param ignored: `CODE` or `CODE:ABOUT`.
    :raises ConfigurationError: no rule has a code; the text names the nearest codes.
    """
    codes = [rule.code for rule in rules]
    chosen = [code.strip() for text in only for code in text.split(",")]
    left_out = [IgnoreEntry(*text.split(":", 1)) for text in ignored]
    for code in [*chosen, *(item.code for item in left_out)]:
        if code not in codes:
            raise ConfigurationError(_unknown(code, codes))
    return RuleSelection(tuple(chosen), tuple(left_out))


def _unknown(code: str, codes: Sequence[str]) -> str:
    near = get_close_matches(code, codes, 3, 0.5)
    near = near or [item for item in codes if set(code.split("-")) & set(item.split("-"))][:3]
    hint = f"did you mean {' or '.join(near)}" if near else "docs/doctor.md lists all rules"
    return f"doctor has no rule {code or '(empty)'}: {hint}"


def counts_of(findings: Iterable[DoctorFinding]) -> tuple[int, int, int]:
    """Return the numbers of errors, warnings and notes."""
    severities = [item.severity for item in findings]
    return severities.count("error"), severities.count("warning"), severities.count("note")


def sum_of(findings: Sequence[DoctorFinding]) -> str:
    """Return `1 error, 2 warnings`, with the notes if there are any."""
    errors, warnings, notes = counts_of(findings)
    parts = [counted(errors, "error"), counted(warnings, "warning")]
    return ", ".join([*parts, counted(notes, "note")] if notes else parts)


class NagiosState(NamedTuple):
    """
    What a check of Nagios returns.

    :ivar code: the exit code: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    :ivar line: the first line of the output.
    """

    code: int
    line: str


def nagios_state(findings: Sequence[DoctorFinding], *, is_known: bool = True) -> NagiosState:
    """
    Return the state of the cluster for Nagios, with the numbers as performance data.

    :param is_known: whether a server answered.
    """
    errors, warnings, _ = counts_of(findings)
    code = (2 if errors else 1 if warnings else 0) if is_known else 3
    names = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
    bad = [item for item in findings if item.severity != "note"]
    faults = dict.fromkeys(f"{item.code} {item.about}".replace("|", " ") for item in bad)
    said = f": {'; '.join(list(faults)[:3])}" if faults else ""
    more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
    summary = sum_of(findings) if is_known else f"no server answers, {sum_of(findings)}"
    line = f"DOCTOR {names[code]} - {summary}{said}{more}"
    return NagiosState(code, f"{line} | errors={errors} warnings={warnings}")
