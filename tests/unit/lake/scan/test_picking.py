"""Records at places that somebody names: what is not there is left out, and nothing else."""

from pathlib import Path
from struct import pack

import numpy as np
import pytest

from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.store_format.commitlog import RECORD_OVERHEAD
from rmq_ha.lake.scan.store.picking import pick_records
from rmq_ha.ops.offline.log_files import LogFile
from tests.unit.lake.scan.parts_kit import log_of

BASE = 500
SIZE = len(log_of({}))


@pytest.fixture
def row(tmp_path: Path) -> list[LogFile]:
    """Two files of four records each; the last one is as small as a record may be."""
    found, base = list[LogFile](), BASE
    for last in ({}, {"body": b"", "topic": ""}):
        given = [{"queue_id": (base - BASE) // SIZE + at} for at in range(4)]
        given[3] |= last
        data = log_of(*given, base=base)
        (tmp_path / f"{base:020}").write_bytes(data)
        found.append(LogFile(str(tmp_path / f"{base:020}"), base, len(data)))
        base += len(data)
    return found


def picked(
    row: list[LogFile], wanted: list[tuple[int, int]], stop: int | None = None
) -> list[tuple[int, int]]:
    """:param wanted: places and sizes; so are those that are there, in the order that is asked."""
    offsets, sizes = (np.array(column, np.int64) for column in zip(*wanted, strict=True))
    found = pick_records(LocalFiles(), row, offsets, sizes, row[-1].end if stop is None else stop)
    records = list(zip(found.physical_offset.tolist(), found.sizes.tolist(), strict=True))
    assert found.queue_id.tolist() == [(at - BASE) // SIZE for at, _ in records]
    return records


EVERY = [
    *((BASE + at * SIZE, SIZE) for at in range(7)),
    (BASE + 7 * SIZE, RECORD_OVERHEAD),
]


@pytest.mark.parametrize(
    "order", [(0, 1, 2, 3, 4, 5, 6, 7), (7, 2, 5, 0, 3), (4, 4, 3, 3), (3,), (7,)]
)
def test_records_come_in_the_order_in_which_they_are_asked_for(
    row: list[LogFile], order: tuple[int, ...]
) -> None:
    wanted = [EVERY[number] for number in order]
    assert picked(row, wanted) == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        (BASE - SIZE, SIZE),  # before the log
        (BASE + 1, SIZE),
        (BASE, SIZE - 1),
        (BASE, SIZE + 1),
        (BASE, RECORD_OVERHEAD - 1),
        (BASE, 1 << 40),
        (BASE, -5),
        (BASE + 3 * SIZE, 2 * SIZE),  # over the end of a file
        (BASE + 7 * SIZE, SIZE),  # and of the log
        (BASE + 99 * SIZE, SIZE),
    ],
)
def test_what_is_not_there_is_left_out(row: list[LogFile], wrong: tuple[int, int]) -> None:
    assert picked(row, [EVERY[2], wrong, EVERY[1]]) == [EVERY[2], EVERY[1]]
    assert picked(row, [wrong]) == []


def test_what_ends_behind_the_bound_is_not_there(row: list[LogFile]) -> None:
    assert picked(row, EVERY, BASE + 5 * SIZE) == EVERY[:5]
    assert picked(row, EVERY, BASE + 5 * SIZE - 1) == EVERY[:4]


@pytest.mark.parametrize(
    ("at", "other"),
    [
        (0, pack(">i", SIZE + 1)),
        (4, b"\0"),
        (28, pack(">q", BASE)),
        (84, pack(">i", 2)),  # parts that do not add up
    ],
)
def test_a_record_that_is_damaged_is_not_there(row: list[LogFile], at: int, other: bytes) -> None:
    path = Path(row[0].path)
    data = path.read_bytes()
    place = SIZE + at
    path.write_bytes(data[:place] + other + data[place + len(other) :])
    assert picked(row, EVERY) == [EVERY[0], *EVERY[2:]]
