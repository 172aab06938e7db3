"""A file of a log in two splits, cut at each place: what is read, and what stands between."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.store_format.commitlog import BLANK_SIZE, encode_blank
from rmq_ha.lake.scan.log.records import MAX_BATCH_ROWS, Records
from rmq_ha.lake.scan.store.scanning import Gap, Split, pieces, splits_of
from rmq_ha.ops.offline.log_files import LogFile
from tests.unit.lake.scan.parts_kit import log_of

BASE = 1000
SIZE = len(log_of({"body": b"0"}))
Seen = tuple[list[int], list[tuple[int, int]], list[str]]


def seen(
    path: Path,
    low: int,
    high: int,
    *,
    stop: int | None = None,
    window: int = 4 * SIZE,
    look_back: int = 3 * SIZE,
) -> Seen:
    """Records, gaps and their reasons; places count from the file's first byte."""
    end = BASE + path.stat().st_size
    split = Split(
        str(path), BASE, BASE + low, BASE + high, end if stop is None else BASE + stop, end
    )
    places, gaps, reasons = list[int](), list[tuple[int, int]](), list[str]()
    for piece in pieces(LocalFiles(), split, window, look_back):
        if isinstance(piece, Gap):
            assert piece.path == str(path)
            gaps.append((piece.start - BASE, piece.end - BASE))
            reasons.append(piece.reason)
        else:
            assert isinstance(piece, Records)
            places += [at - BASE for at in piece.physical_offset.tolist()]
    return places, gaps, reasons


def file_of(folder: Path, *parts: bytes | int) -> tuple[Path, list[int], list[tuple[int, int]]]:
    """Bytes that are no record, and so many records; where these are, and the other ones."""
    data, places, gaps = b"", list[int](), list[tuple[int, int]]()
    for part in parts:
        if isinstance(part, bytes):
            gaps.append((len(data), len(data) + len(part)))
            data += part
            continue
        for _ in range(part):
            places.append(len(data))
            data += log_of({"body": b"%d" % (len(places) % 10)}, base=BASE + len(data))
    path = folder / f"{BASE:020}"
    path.write_bytes(data)
    return path, places, gaps


JUNK = b"junk" * 9


@pytest.mark.parametrize("window", [200, 4 * SIZE, 1 << 20])
@pytest.mark.parametrize(
    "parts",
    [
        (6,),
        (2, JUNK, 3),
        (JUNK, 3),
        (3, JUNK),
        (1, JUNK, 1, bytes(50), 2),
        (2, b"j" * 700, 1),
    ],
)
def test_each_record_and_each_gap_is_in_one_of_two_splits(
    tmp_path: Path, parts: tuple[bytes | int, ...], window: int
) -> None:
    path, places, gaps = file_of(tmp_path, *parts)
    end = path.stat().st_size
    edges = {
        edge + more
        for edge in (*places, *(at for gap in gaps for at in gap))
        for more in (-1, 0, 1)
    }
    for cut in sorted({0, 5, end, *range(0, end, 41), *edges} & set(range(end + 1))):
        one = seen(path, 0, cut, window=window)
        other = seen(path, cut, end, window=window)
        assert one[0] == [at for at in places if at < cut], cut
        assert other[0] == [at for at in places if at >= cut], cut
        assert one[1] == [gap for gap in gaps if gap[0] < cut], cut
        assert other[1] == [gap for gap in gaps if gap[0] >= cut], cut


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        (bytes(60), "zeros"),
        (
            b"\x00\x00\x10\x00\xda\xa3\x20\xa7",
            "a record that claims 4096 bytes, more than there are",
        ),
        (log_of({}, base=7), "a record that says that it is at 7"),
        (JUNK, ""),
    ],
)
def test_a_gap_says_why_it_is_one(tmp_path: Path, behind: bytes, reason: str) -> None:
    path, places, gaps = file_of(
        tmp_path, 2, behind.ljust(200, b"x") if reason != "zeros" else behind, 2
    )
    found = seen(path, 0, path.stat().st_size)
    assert found[:2] == (places, gaps)
    assert found[2][0].startswith(reason)
    assert found[2][0] != ""


def test_what_stands_behind_the_bound_is_no_gap(tmp_path: Path) -> None:
    """A log that is written ends there: it will go on."""
    path, places, gaps = file_of(tmp_path, 3, JUNK * 3)
    end = path.stat().st_size
    for stop in (end - 1, gaps[0][0], gaps[0][0] + 1):
        assert seen(path, 0, end, stop=stop) == (places, [], [])
    assert seen(path, 0, end)[1] == gaps
    for stop in (places[2], places[2] + 1, gaps[0][0] - 1):
        assert seen(path, 0, end, stop=stop)[0] == places[:2]


@pytest.mark.parametrize("room", [0, 1, BLANK_SIZE - 1, BLANK_SIZE, BLANK_SIZE + 1, 300])
def test_a_file_ends_with_its_blank_or_with_less_room_than_one_needs(
    tmp_path: Path, room: int
) -> None:
    behind = encode_blank(room).ljust(room, b"x") if room >= BLANK_SIZE else b"x" * room
    path, places, _ = file_of(tmp_path, 4, behind)
    for cut in (0, places[2], places[3], path.stat().st_size):
        one, other = seen(path, 0, cut), seen(path, cut, path.stat().st_size)
        assert one[0] + other[0] == places
        assert one[1] + other[1] == []


def test_a_record_in_a_body_is_left_behind_when_its_part_begins(tmp_path: Path) -> None:
    """So looking begins a message before the split."""
    at = SIZE + 88 + 3
    inner = log_of({"body": b"inner"}, base=BASE + at)
    outer = log_of({"body": b"abc" + inner + inner}, base=BASE + SIZE)
    first = log_of({"body": b"0"}, base=BASE)
    last = log_of({"body": b"1"}, base=BASE + SIZE + len(outer))
    path = tmp_path / f"{BASE:020}"
    path.write_bytes(first + outer + last)
    end = len(first + outer + last)
    for cut in (at - 1, at, at + 1):
        assert seen(path, cut, end, look_back=at)[0] == [SIZE + len(outer)]
    assert seen(path, at, end, look_back=0)[0] == [at, SIZE + len(outer)], "it cannot know"


def test_splits_are_of_one_file_each_and_of_no_more_than_is_asked_for() -> None:
    row = [LogFile("a", 0, 25), LogFile("b", 25, 10), LogFile("c", 40, 10)]

    def spans(start: int, stop: int, size: int = 10) -> list[tuple[str, int, int]]:
        return [(one.path, one.lo, one.hi) for one in splits_of(row, size, start, stop)]

    whole = [("a", 0, 10), ("a", 10, 20), ("a", 20, 25), ("b", 25, 35), ("c", 40, 50)]
    assert spans(0, 99) == whole
    assert spans(10, 40) == whole[1:4]
    assert spans(11, 34) == [("a", 11, 20), ("a", 20, 25), ("b", 25, 34)]
    assert spans(0, 99, 1 << 20) == [("a", 0, 25), ("b", 25, 35), ("c", 40, 50)]
    assert spans(50, 50) == []


class Reading(LocalFiles):
    """Remembers how much was asked for at once."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def window(self, path: str, offset: int, length: int) -> Any:
        self.lengths.append(length)
        return super().window(path, offset, length)


def test_no_more_is_read_at_once_than_a_window(tmp_path: Path) -> None:
    path, places, _ = file_of(tmp_path, 60)
    end = path.stat().st_size
    split = Split(str(path), BASE, BASE, BASE + end, BASE + end, BASE + end)
    files = Reading()
    found = [one for one in pieces(files, split, 1000) if isinstance(one, Records)]
    assert sum(len(one) for one in found) == len(places)
    assert max(files.lengths) == 1000
    assert len(files.lengths) < 8


def test_records_come_in_pieces_of_no_more_rows_than_a_batch(tmp_path: Path) -> None:
    one = log_of({"body": b"", "topic": ""})
    count = MAX_BATCH_ROWS + 5
    data = np.tile(np.frombuffer(one, np.uint8), (count, 1))
    data[:, 28:36] = (BASE + np.arange(count) * len(one)).astype(">i8")[:, None].view(np.uint8)
    path = tmp_path / f"{BASE:020}"
    path.write_bytes(data.tobytes())
    end = BASE + count * len(one)
    split = Split(str(path), BASE, BASE, end, end, end)
    rows = [len(piece) for piece in pieces(LocalFiles(), split) if isinstance(piece, Records)]
    assert rows == [MAX_BATCH_ROWS, 5]
