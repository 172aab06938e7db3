"""Judges every key of every slave, and makes findings and sums of the judgements."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rmq_ha.ops.offsets.codes import MEANINGS
from rmq_ha.ops.offsets.findings import Finding
from rmq_ha.ops.offsets.model import DELAY, LOG, OFFSET, QUEUE, TEXTS
from rmq_ha.ops.offsets.pairing import Forecast, Pairing, cases, forecast
from rmq_ha.ops.offsets.rules import Case, Ruling, judge


class WorstGroup(NamedTuple):
    """The effect of a failover on one group; topic and queue say where it is worst."""

    slave: str
    group: str
    repeats: int
    skipped: int
    topic: str | None
    queue_id: int | None


class JudgedKey(NamedTuple):
    """
    What a fail-over to a slave would mean for one key: an offset, a queue, a table or the log.

    :ivar slave: place of the slave.
    :ivar master: place of its master.
    :ivar observed: when the slave was read, ms since the epoch.
    """

    slave: str
    master: str
    observed: int
    case: Case
    ruling: Ruling


def judged(pairings: Sequence[Pairing], max_lag: int = 0) -> list[JudgedKey]:
    """Judge all keys that either side of each pair has."""
    return [
        JudgedKey(
            pairing.slave.place,
            pairing.masters[-1].place,
            pairing.slave.ended,
            case,
            judge(case, max_lag),
        )
        for pairing in pairings
        for case in cases(pairing)
    ]


def sums(rows: Iterable[JudgedKey]) -> dict[str, Forecast]:
    """Return the effect of a failover to each slave."""
    by_slave: dict[str, list[tuple[Case, Ruling]]] = defaultdict(list)
    for row in rows:
        by_slave[row.slave].append((row.case, row.ruling))
    return {slave: forecast(mine) for slave, mine in by_slave.items()}


def worst_groups(rows: Iterable[JudgedKey], most: int) -> list[WorstGroup]:
    """Return the groups with most repeats and skips, each with the queue in which it is worst."""
    groups: dict[tuple[str, str], list[JudgedKey]] = defaultdict(list)
    for row in rows:
        if row.case.key.kind == OFFSET and row.ruling.repeats + row.ruling.skipped > 0:
            groups[row.slave, row.case.key.group or ""].append(row)
    harmed = []
    for (slave, group), mine in groups.items():
        queue = max(mine, key=lambda row: row.ruling.repeats + row.ruling.skipped).case.key
        repeats = sum(row.ruling.repeats for row in mine)
        skipped = sum(row.ruling.skipped for row in mine)
        harmed.append(WorstGroup(slave, group, repeats, skipped, queue.topic, queue.queue_id))
    return sorted(harmed, key=lambda item: (-item.repeats - item.skipped, item[:2]))[:most]


def findings(rows: Iterable[JudgedKey]) -> Iterator[Finding]:
    """Yield a finding for each code of each key."""
    for row in rows:
        for code in row.ruling.codes:
            yield _finding(row, code)


_OF_MASTER = ("MASTER_BEYOND_MAX", "MASTER_DAMAGED")


def _finding(row: JudgedKey, code: str) -> Finding:
    """Return the finding for one code of a judged key. What is expected depends on the code."""
    case, key = row.case, row.case.key
    severity, sentence = MEANINGS[code]
    expected: object = case.master
    actual: object = case.slave
    if key.kind in TEXTS:
        expected, actual = case.master_text, case.slave_text
    elif code == "BEYOND_MAX":
        expected = case.slave_end
    elif code == "BELOW_MIN":
        expected, actual = case.slave_first, case.master
    elif code == "MIN_DRIFT":
        expected, actual = case.master_low, case.slave_low
    elif code == "MASTER_BEYOND_MAX":
        expected, actual = case.master_end, case.master
    elif code == "MASTER_DAMAGED":
        expected, actual = "an offset", case.master
    known = case.master if case.slave is None else case.slave
    return Finding(
        str(severity),
        code,
        sentence.format(**row.ruling._asdict()),
        row.master if code in _OF_MASTER else row.slave,
        key.topic,
        key.queue_id,
        key.group,
        physical_offset=known if key.kind == LOG else None,
        queue_offset=known if key.kind in (OFFSET, DELAY, QUEUE) else None,
        expected=None if expected is None else str(expected),
        actual=None if actual is None else str(actual),
        observed_at=row.observed,
    )
