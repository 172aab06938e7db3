"""A window that differs, fetched from both stores: what is said of it, and of what follows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.lake.scan.fleet.judging import _compare_in_stores
from rmq_ha.ops.offsets.findings import Finding
from tests.unit.lake.scan.parts_kit import log_of, store_at

Given = dict[str, Any]
ROWS: list[Given] = [{"queue_offset": at, "body": b"%05d" % at} for at in range(20)]
LONGER: Given = {"queue_offset": 99, "body": b"a longer one"}
SIZE = len(log_of(ROWS[0]))
SHIFTED = "the logs are out of step since before it"


def store_of(folder: Path, rows: Sequence[Given]) -> str:
    return str(store_at(folder, log_of(*rows), 1 << 13))


def fetched(
    folder: Path, slave: Sequence[Given], low: int, high: int, *, was_shifted: bool = False
) -> tuple[list[tuple[str, int]], str, bool]:
    """:param low: bytes, as `high`."""
    names = store_of(folder / "m", ROWS), store_of(folder / "s", slave)
    found, why, is_shifted = _compare_in_stores(names, (low, high), was_shifted)
    assert {one.broker for one in found} <= {names[1]}
    return [said(one) for one in found], why, is_shifted


def said(one: Finding) -> tuple[str, int]:
    assert one.physical_offset is not None
    return one.code, one.physical_offset // SIZE


def flagged(*numbers: int) -> list[Given]:
    return [one | {"flag": int(at in numbers)} for at, one in enumerate(ROWS)]


@pytest.mark.parametrize("was_shifted", [False, True])
def test_records_of_a_window_that_differ_are_named(tmp_path: Path, was_shifted: bool) -> None:
    """And none of another one; whatever was said of the window before."""
    found = fetched(tmp_path, flagged(1, 3, 4, 7), 2 * SIZE, 7 * SIZE, was_shifted=was_shifted)
    assert found == ([("LOG_DIFFERS", 3), ("LOG_DIFFERS", 4)], "", False)


def test_a_window_that_is_alike_now_says_so(tmp_path: Path) -> None:
    found = fetched(tmp_path, flagged(1, 7), 2 * SIZE, 7 * SIZE)
    assert found == ([], "both sides have the same there now", False)


@pytest.mark.parametrize(
    ("slave", "said"),
    [
        ([*ROWS[:3], *ROWS[4:]], ("RECORD_LOST", 3)),
        (ROWS[1:], ("RECORD_LOST", 0)),  # from the very first one on
        ([*ROWS[:3], LONGER, *ROWS[3:]], ("RECORD_EXTRA", 3)),
    ],
)
def test_a_window_with_a_shift_in_it_says_what_was_lost_or_is_too_many(
    tmp_path: Path, slave: list[Given], said: tuple[str, int]
) -> None:
    """Records behind it stand in other places, but for those of one size."""
    found, why, is_shifted = fetched(tmp_path, slave, 0, 8 * SIZE)
    assert (found, why) == ([said], "")
    assert is_shifted is (said[0] == "RECORD_EXTRA")


@pytest.mark.parametrize(
    ("low", "was_shifted", "is_before"),
    [(8 * SIZE, True, True), (8 * SIZE + 5, False, True), (8 * SIZE, False, False)],
)
def test_what_follows_a_shift_is_not_told_again(
    tmp_path: Path, low: int, was_shifted: bool, is_before: bool
) -> None:
    """It is known from the window before, or by a record that reaches into this one."""
    slave = [*ROWS[:3], LONGER, *ROWS[3:]]
    found = fetched(tmp_path, slave, low, 12 * SIZE, was_shifted=was_shifted)
    assert (found == ([], SHIFTED, True)) is is_before


@pytest.mark.parametrize("was_shifted", [False, True])
@pytest.mark.parametrize("gone", ["m", "s"])
def test_a_store_that_is_not_seen_from_here_is_named(
    tmp_path: Path, gone: str, was_shifted: bool
) -> None:
    names = [store_of(tmp_path / name, ROWS) for name in "ms"]
    (tmp_path / gone / "commitlog").rename(tmp_path / "elsewhere")
    found, why, is_shifted = _compare_in_stores(names, (0, SIZE), was_shifted)
    assert (found, is_shifted) == ([], was_shifted)
    assert why.startswith(f"the store {tmp_path / gone} is not seen from here (")


@pytest.mark.parametrize("was_shifted", [False, True])
def test_a_window_that_no_file_holds_any_more_could_not_be_read(
    tmp_path: Path, was_shifted: bool
) -> None:
    names = [store_of(tmp_path / name, ROWS) for name in "ms"]
    found, why, is_shifted = _compare_in_stores(names, (1 << 20, (1 << 20) + SIZE), was_shifted)
    assert (found, is_shifted) == ([], was_shifted)
    assert why.startswith("it could not be read (")
