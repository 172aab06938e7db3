"""Counts findings, so that even a summary of very many fits on a page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rmq_ha.ops.offsets.findings import COLUMNS, Severity

WORST_FIRST: Sequence[str] = (Severity.ERROR, Severity.WARN, Severity.INFO)


class Digest(NamedTuple):
    """
    Findings in numbers, and the first of them.

    :ivar counts: how many by code, the worst codes first.
    :ivar severities: how many by severity, all three, the worst first.
    :ivar worst_of: the severity of each code; of several, the worst.
    :ivar top: the first findings as rows of `COLUMNS`, the worst first.
    """

    counts: dict[str, int]
    severities: dict[str, int]
    worst_of: dict[str, str]
    top: Sequence[Mapping[str, Any]]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def rank(severity: str) -> int:
    """Return the rank of a severity, 0 for the worst; an unknown severity comes last."""
    return WORST_FIRST.index(severity) if severity in WORST_FIRST else len(WORST_FIRST)


def digest(
    counted: Iterable[tuple[str, str, int]], top: Iterable[Mapping[str, Any]], limit: int
) -> Digest:
    """Sort severities, codes and numbers, and at most `limit` of the top rows, into a digest."""
    counted = sorted(counted, key=lambda item: (rank(item[0]), -item[2], item[1]))
    codes: Counter[str] = Counter()
    severities: Counter[str] = Counter({str(severity): 0 for severity in WORST_FIRST})
    worst_of: dict[str, str] = {}
    for severity, code, number in counted:
        codes[code] += number
        severities[severity] += number
        worst_of.setdefault(code, severity)
    return Digest(dict(codes), dict(severities), worst_of, sorted(top, key=_place)[:limit])


def digest_of_rows(rows: Sequence[Mapping[str, Any]], limit: int) -> Digest:
    """Return the digest of findings that are all in memory."""
    counted = Counter((row["severity"], row["code"]) for row in rows)
    return digest(((*key, number) for key, number in counted.items()), rows, limit)


def counts_of(findings: Digest) -> list[str]:
    """Return a line for people for each code, with severity and number, the worst first."""
    width = max(map(len, findings.counts), default=0)
    return [
        f"{findings.worst_of[code]:<5}  {code:<{width}}  {count:>12,}"
        for code, count in findings.counts.items()
    ]


def finding_line(row: Mapping[str, Any]) -> str:
    """Return a finding as a line for people."""
    names = (("group", "group "), ("queueId", "queue "), ("topic", "topic "))
    where = ", ".join(f"{word}{row[name]}" for name, word in names if row[name] is not None)
    values = f": {row['expected']} / {row['actual']}" if row["expected"] or row["actual"] else ""
    place = f"{row['broker'] or ''} {where}".strip()
    return f"{row['severity']:<5}  {row['code']}  {place}{values}: {row['detail']}"


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key: the worst first, then code and place, so that the order is fixed."""
    rest = ((row[name] is not None, row[name]) for name in COLUMNS[3:-1])
    return (rank(row["severity"]), row["code"], *rest, row["detail"])
