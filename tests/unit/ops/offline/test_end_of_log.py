"""Where a log ends, whatever part of it is read at once."""

from pathlib import Path

import pytest

from rmq_ha.base.host.files import files_of
from rmq_ha.base.model.message import Address
from rmq_ha.base.store_files import OVERLAP
from rmq_ha.base.store_format.commitlog import Record, encode_blank, encode_record
from rmq_ha.ops.offline.chain import Layout
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.end import end_of_log
from rmq_ha.ops.offline.log_files import LogFile, log_files
from rmq_ha.ops.offline.records import Damage, FoundRecord, records

HOST = Address.parse("10.0.0.1", 10911)


def record(offset: int, stored_ms: int, size: int = 10) -> bytes:
    head = (0, 0, 3, 0, 5, offset, 0, 1, HOST, stored_ms, HOST, 0, 0)
    return encode_record(Record(*head, b"b" * size, "T", ""))


def end_of(folder: Path, *parts: bytes, window: int = 256) -> int:
    """Of files with these bytes, one behind the other."""
    (folder / "commitlog").mkdir(parents=True)
    base = 0
    for part in parts:
        (folder / "commitlog" / f"{base:020}").write_bytes(part)
        base += len(part)
    files, root = files_of(str(folder))
    return end_of_log(files, log_files(files, root), window)


@pytest.mark.parametrize("window", [100, 256, 1 << 20])
def test_a_record_may_be_larger_than_what_is_read_and_end_with_its_file(
    tmp_path: Path, window: int
) -> None:
    first = record(0, 1)
    second = record(len(first), 2, 3000)
    assert end_of(tmp_path, first + second, window=window) == len(first + second)


def test_a_record_of_which_a_byte_is_missing_is_none(tmp_path: Path) -> None:
    first = record(0, 1)
    second = record(len(first), 2, 3000)
    assert end_of(tmp_path, first + second[:-1]) == len(first)


def test_a_blank_closes_its_file_and_an_empty_one_behind_it_has_nothing(tmp_path: Path) -> None:
    one = record(0, 1)
    closed = one + encode_blank(400) + bytes(400 - len(encode_blank(400)))
    assert end_of(tmp_path, closed, bytes(400)) == len(closed)
    assert end_of(tmp_path / "empty", bytes(400), bytes(400)) == 0


@pytest.mark.parametrize("gap", [8, OVERLAP - 1, OVERLAP, 300, 5000])
@pytest.mark.parametrize(("stored_ms", "goes_on"), [(5, True), (6, True), (4, False)])
def test_behind_lost_bytes_the_log_goes_on_with_what_was_stored_no_earlier(
    tmp_path: Path, gap: int, stored_ms: int, goes_on: bool
) -> None:
    first = record(0, 5)
    later = record(len(first) + gap, stored_ms, 500)
    data = first + bytes(gap) + later
    assert end_of(tmp_path, data + bytes(100)) == (len(data) if goes_on else len(first))


def test_a_file_ends_where_its_last_byte_is() -> None:
    assert LogFile("x", 70, 30, Layout.CLASSIC).end == 100


def test_a_record_that_its_file_cuts_off_is_damage_and_the_next_file_is_read(
    tmp_path: Path,
) -> None:
    """Only its last file may end within a record."""
    one = record(0, 1) + encode_blank(8)
    second = record(len(one), 2)
    cut = second + record(len(one + second), 3, 300)[:-1]
    later = record(len(one + cut), 4)
    end = len(one + cut + later) + 8
    assert end_of(tmp_path, one, cut, later + encode_blank(8)) == end
    store = StoreFiles(str(tmp_path), *files_of(str(tmp_path)))
    found = list(records(store))
    read = [each.data for each in found if isinstance(each, FoundRecord)]
    assert read == [record(0, 1), second, later]
    path = str(tmp_path / "commitlog" / f"{len(one):020}")
    assert [each for each in found if isinstance(each, Damage)] == [
        Damage(path, len(one + second), len(one + cut))
    ]
