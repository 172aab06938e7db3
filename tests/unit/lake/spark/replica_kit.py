"""Pairs of stores, and verify-replica's tasks run one after the other, without Spark."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.lake.scan.replica.settings import Settings, StoreAt
from rmq_ha.lake.scan.replica.tasks import Answers, Task, Work
from rmq_ha.lake.scan.replica.verifying import run_here, verify
from rmq_ha.ops.offsets.findings import Finding
from tests.sim_kit.store_faults.image import StoreImage

INDEX_SIZES = (50, 150)
LEVELS_OF_JAVA = "1s 2s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
OF_ENDS = frozenset(
    {
        "MASTER_AHEAD", "SLAVE_AHEAD", "SLAVE_STARTS_LATER", "TORN_TAIL", "TAIL_RESIDUE",
        "CHECKPOINT_MISSING", "CHECKPOINT_AHEAD", "CHECKPOINT_DAMAGED", "CQ_NOT_DISPATCHED",
        "INDEX_NOT_DISPATCHED", "LOG_HOLE", "LOG_CUT",
    }
)  # fmt: skip
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
    What is said of records, queues, index and delays; what is said of ends is not asked here.

    :param between: called when the bounds are fixed.
    """
    begun: list[object] = []

    def run(label: str, work: Work, tasks: Sequence[Task], is_apart: bool) -> Answers:
        if not begun:
            begun.append(between())
        return run_here(label, work, tasks, is_apart)

    found = verify(settings_of(master, slave, **given), run).findings
    return [one for one in found if one.code not in OF_ENDS]


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
