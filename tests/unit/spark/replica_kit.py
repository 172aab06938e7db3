"""Pairs of stores, and verify-replica's tasks run one after the other, without Spark."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmq_ha.offsets.findings import Finding
from rmq_ha.spark.replica.comparing import resolve
from rmq_ha.spark.replica.settings import Settings, StoreAt, common_of, open_pair
from rmq_ha.spark.replica.tasks import (
    DELAY,
    FAILED,
    QUEUE,
    SHIFT,
    TALLY,
    Doubt,
    Survey,
    Work,
    plan,
    run_doubt,
    run_stretch,
    run_survey,
)
from rmq_ha.spark.replica.verdicts import DelaySum, judge_delays
from rmq_ha.store.format.commitlog import parse_delay_levels
from rmq_ha.testing.store_faults.image import StoreImage

INDEX_SIZES = (50, 150)
LEVELS_OF_JAVA = "1s 2s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_OF_OURS = LEVELS_OF_JAVA.replace("2s ", "5s ", 1)


def image_of(store: Path, levels: str) -> StoreImage:
    """All of a store's bytes."""
    return StoreImage.load(store, INDEX_SIZES[0], parse_delay_levels(levels))


def settings_of(master: Path, slave: Path, **given: Any) -> Settings:
    """Small files, small stretches."""
    given.setdefault("index_sizes", INDEX_SIZES)
    return Settings(StoreAt(str(master)), StoreAt(str(slave)), pause_ms=0, **given)


def found_in(
    master: Path, slave: Path, between: Callable[[], object] = lambda: None, **given: Any
) -> list[Finding]:
    """
    What the tasks find; of the rules about sums only that of delays is asked.

    :param between: called when the bounds are fixed.
    """
    settings = settings_of(master, slave, **given)
    pair = open_pair(settings)
    between()
    names, common = [one.store.uri for one in pair], common_of(pair, settings.start)
    rows: list[Any] = []
    work = _work(settings, pair, names, [one.high for one in pair])
    for side, one in enumerate(pair):
        queues = one.store.topics_on_disk()
        low = max(one.low, settings.start)
        rows += run_survey(work, Survey(0, side, queues, -1, low, one.high))
        for number in range(len(one.store.index_parts()[0])):
            rows += run_survey(work, Survey(0, side, (), number, one.low, one.high))
    ends = [max(row[4][2] for row in rows if row[1:3] == (QUEUE, side)) for side in (0, 1)]
    work = _work(settings, pair, names, ends)
    bases = [file.base for one in pair for file in one.store.log_files()]
    ranges = [(max(one.low, settings.start), one.high) for one in pair]
    holes = [one.store.holes for one in pair]
    for stretch in plan(ranges, common, settings.split, bases, holes):
        rows += run_stretch(work, stretch)
    surplus: Counter[Any] = Counter()
    for row in rows:
        if row[1] == QUEUE:
            surplus[(*row[2:4], row[4][0])] += row[4][1]
        if row[1] == TALLY:
            surplus[(*row[2:4], row[4][0])] -= row[4][1] + row[4][2]
    for (side, topic, queue_id), count in surplus.items():
        if count > 0:
            rows += run_doubt(work, Doubt(0, side, topic, queue_id))
    assert not [row for row in rows if row[1] == FAILED]
    found = [row[5] for row in rows if row[5] is not None]
    found += judge_delays(_delays(rows, names))
    shifts = sorted((row[4][0], row[4][1]) for row in rows if row[1] == SHIFT)
    spans, more = resolve(work.pair, shifts, 1000)
    found = [one for one in found if not any(_covered(one, *span) for span in spans)]
    return list(dict.fromkeys(found + more))


def _work(settings: Settings, pair: list[Any], names: list[str], ends: list[int]) -> Work:
    sides = [
        one.side(name, min(end, one.high)) for one, name, end in zip(pair, names, ends, strict=True)
    ]
    return Work(tuple(sides), settings.checks, settings.window)


def _delays(rows: list[Any], names: list[str]) -> list[DelaySum]:
    sums: dict[Any, DelaySum] = {}
    for row in rows:
        if row[1] == DELAY:
            one = DelaySum(names[row[2]], *row[4])
            had = sums.setdefault(one[:3], one._replace(messages=0))
            sums[one[:3]] = had._replace(
                messages=had.messages + one.messages, last=max(had.last, one.last)
            )
    return list(sums.values())


def _covered(one: Finding, low: int, high: int) -> bool:
    return one.code == "LOG_DIFFERS" and low <= (one.physical_offset or 0) < high


def says(found: list[Finding], planted: Any) -> bool:
    """One of the findings names a planted fault, in its place."""
    return any(
        one.code in planted.codes
        and (
            one.physical_offset == planted.physical_offset
            or (one.topic, one.queue_id, one.queue_offset)
            == (planted.topic, planted.queue_id, planted.queue_offset)
        )
        for one in found
    )
