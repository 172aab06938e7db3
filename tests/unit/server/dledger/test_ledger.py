"""The ledger's bytes, places, cuts and starts, on the simulated and on the real disk."""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rmq_ha.base.errors import CorruptRecord, InconsistentLedger, LedgerFull, StoreError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.seams import Disk, File
from rmq_ha.base.store_format.dledger import (
    CHECKSUM_UNIT,
    INDEX_UNIT,
    MAGIC,
    EntryHeader,
    SyncedUpTo,
    decode_entry,
    encode_header,
)
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, MAX_ENTRY_SIZE, Entry
from rmq_ha.server.dledger.codes import DLedgerResponseCode
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.ledger_files import DirtyRow
from rmq_ha.testing.disk import SimDisk

VECTORS = Path(__file__).parents[3] / "vectors" / "ha" / "dledger_frames.json"
FILE = 4096
JAVA_FILE = 131072
Open = Callable[..., Ledger]


@pytest.fixture(params=["simulated", "real"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return RealDisk() if request.param == "real" else SimDisk(Random(1), lambda: 0)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "dledger-n0")


@pytest.fixture
def start(disk: Disk, root: str) -> Open:
    """Opens the store, as often as wanted."""

    def opened(file_size: int = FILE, **options: int) -> Ledger:
        ledger = Ledger(disk, root, file_size, index_file_size=INDEX_UNIT * 64, **options)
        ledger.load()
        return ledger

    return opened


def overwrite(disk: Disk, path: str, position: int, data: bytes) -> None:
    """As a fault, or a stranger, would."""
    file = disk.open(path, disk.size(path))
    file.pwrite(data, position)
    file.close()


def filled(start: Open, count: int = 20, size: int = 500) -> Ledger:
    ledger = start()
    ledger.append(1, [b"%03d" % n + b"." * (size - 3) for n in range(count)])
    ledger.commit(count - 1)
    return ledger


def bodies(ledger: Ledger) -> list[int]:
    """The numbers in what `filled` wrote."""
    return [
        int(entry.body[:3]) for entry in ledger.entries(max(ledger.begin_index, 0), 1 << 20, 99)
    ]


# Bytes


def test_the_recorded_entry_is_laid_out_as_javas() -> None:
    recorded = bytes.fromhex(json.loads(VECTORS.read_text())["disk"]["data_first_two_entries"])
    first = decode_entry(recorded)
    second = decode_entry(recorded, first.size)
    assert (first.index, first.term, first.pos, first.size) == (0, 2, 0, 160)
    assert (second.index, second.pos) == (1, 160)
    assert encode_header(first) + first.body == recorded[:160]
    assert encode_header(second) == recorded[160:208]


@pytest.mark.parametrize("size", [0, 1])
def test_an_entry_is_taken_whole_or_not_at_all(size: int) -> None:
    data = encode_header(Entry(3, 1, 500, b"x" * size)) + b"x" * size
    assert decode_entry(b"??" + data, 2) == Entry(3, 1, 500, b"x" * size)
    no_magic = b"\0\0\0\2" + data[4:]
    for bad in (data[:-1], data[:47], b"", no_magic, no_magic + bytes(999), bytes(99)):
        for offset in (0, 30):
            with pytest.raises(CorruptRecord):
                decode_entry(bytes(offset) + bad, offset)


def test_files_are_those_of_java(start: Open, disk: Disk, root: str) -> None:
    """Spec: dledger.md, sections 20.3 and 20.4: index, roll and blank of a recorded group."""
    recorded = json.loads(VECTORS.read_text())["disk"]
    ledger = start(JAVA_FILE)
    for size in [0xA0] * 4 + [0x9E] * 2 + [0x75C7] * 6:
        ledger.append(2, [bytes(size - 48)])
    index = disk.open(f"{root}/index/{0:020}", INDEX_UNIT * 64).pread(INDEX_UNIT * 13, 0)
    assert index == bytes.fromhex("".join(recorded["index_entries_0_to_11"])) + bytes(INDEX_UNIT)
    data = disk.open(f"{root}/data/{0:020}", JAVA_FILE).pread(JAVA_FILE, 0)
    assert data[121560:121576].hex() == recorded["data_blank_at_121560"]
    assert not any(data[121568:])
    assert disk.list_dir(f"{root}/data") == [f"{0:020}", f"{JAVA_FILE:020}"]


def test_an_entry_of_four_mib_is_found_again_byte_for_byte(start: Open) -> None:
    """The longest that is taken; its header has no checksums, as upstream's."""
    ledger = start(8 << 20)
    body = bytes(range(256)) * (1 << 14)
    ledger.append(1, [body[: MAX_ENTRY_SIZE - ENTRY_HEADER_SIZE]])
    for found in (ledger, start(8 << 20)):
        entry = found.entry(0)
        assert entry is not None
        assert entry.size == MAX_ENTRY_SIZE
        whole = encode_header(entry) + entry.body
        assert found.files.data.read(0, MAX_ENTRY_SIZE) == whole


def test_an_entry_that_leaves_just_eight_bytes_fits(start: Open) -> None:
    ledger = start()
    assert ledger.place(FILE - 48 - 8) == 0
    ledger.append(1, [b"x" * 100])
    assert ledger.place(FILE - 148 - 48 - 8) == 148
    assert ledger.place(FILE - 148 - 48 - 7) == FILE
    (entry,) = ledger.append(1, [b"y" * (FILE - 148 - 48 - 8)])
    assert (entry.pos, ledger.end_pos) == (148, FILE - 8)
    (entry,) = ledger.append(1, [b""])
    assert entry.pos == FILE
    assert ledger.read(FILE - 8, 100) == bytes.fromhex("ffffffff00000008")


def test_an_entry_longer_than_a_file_or_four_mib_is_refused(start: Open) -> None:
    ledger = start()
    with pytest.raises(ValueError, match="at most 4040"):
        ledger.append(1, [b"x", bytes(FILE - 48 - 7)])
    assert ledger.end_index == -1
    large = Ledger(SimDisk(Random(1), lambda: 0), "/m", 1 << 30)
    assert large.largest_body == MAX_ENTRY_SIZE - 48


def test_index_files_are_sparse(tmp_path: Path) -> None:
    """160 MiB each, as upstream's, and not written full."""
    ledger = Ledger(RealDisk(), str(tmp_path), 1 << 20)
    ledger.load()
    ledger.append(1, [b"x"] * 100)
    ledger.sync(thorough=True)
    found = (tmp_path / "index" / f"{0:020}").stat()
    assert found.st_size == 160 << 20
    assert found.st_blocks * 512 < 1 << 20


# A follower's append


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (Entry(21, 1, 0, b"x"), DLedgerResponseCode.INCONSISTENT_INDEX),
        (Entry(19, 1, 0, b"x"), DLedgerResponseCode.INCONSISTENT_INDEX),
        (Entry(20, 0, 0, b"x"), DLedgerResponseCode.INCONSISTENT_TERM),
        (Entry(20, 1, 1, b"x"), DLedgerResponseCode.DISK_ERROR),
        (Entry(20, 1, -48, b"x"), DLedgerResponseCode.DISK_ERROR),
        (Entry(20, 1, 0, bytes(FILE)), DLedgerResponseCode.INCONSISTENT_STATE),
        (Entry(20, 1, 0, b"x", magic=2), DLedgerResponseCode.INCONSISTENT_STATE),
    ],
)
def test_what_does_not_follow_is_refused_before_it_is_written(
    start: Open, entry: Entry, code: int
) -> None:
    """Spec: dledger.md, section 11.6: upstream writes first, and never gets out of that."""
    ledger = filled(start)
    place = ledger.place(len(entry.body)) if len(entry.body) < FILE else ledger.end_pos
    good = Entry(20, 1, ledger.place(1), b"y")
    with pytest.raises(InconsistentLedger) as caught:
        ledger.append_entry([entry._replace(pos=place + entry.pos)])
    assert caught.value.code == code
    ledger.append_entry([good])
    assert start().entry(20) == good


@pytest.mark.parametrize(("index", "pos"), [(1 << 58, 0), (20, 1 << 63)])
def test_no_cut_to_where_no_ledger_comes(start: Open, index: int, pos: int) -> None:
    """Its files would have names that the next start refuses."""
    ledger = filled(start)
    with pytest.raises(InconsistentLedger, match="no ledger comes as far"):
        ledger.truncate_to(Entry(index, 1, pos, b"x"))
    assert start().end_index == 19


def test_of_a_batch_with_one_bad_entry_nothing_is_stored(start: Open) -> None:
    ledger = filled(start)
    one = Entry(20, 1, ledger.place(1), b"y")
    with pytest.raises(InconsistentLedger):
        ledger.append_entry([one, one])
    assert ledger.end_index == start().end_index == 19


# Cutting: section 11.5


def test_truncating_to_an_equal_entry_cuts_behind_it(start: Open, disk: Disk, root: str) -> None:
    ledger = filled(start)
    entry = ledger.entry(9)
    assert entry is not None
    ledger.truncate_to(entry)
    assert (ledger.end_index, ledger.end_pos) == (9, entry.pos + entry.size)
    assert ledger.committed_index == 9
    assert disk.list_dir(f"{root}/data") == [f"{0:020}", f"{FILE:020}"]
    rest = disk.open(f"{root}/data/{FILE:020}", FILE).pread(FILE, ledger.end_pos - FILE)
    assert not any(rest)
    assert bodies(start()) == list(range(10))


def test_truncating_to_the_last_entry_writes_nothing(start: Open) -> None:
    """Each election ends with one: a file would be zeroed to its end, and synced."""
    ledger = filled(start)
    ledger.sync(thorough=True)
    entry = ledger.entry(19)
    assert entry is not None
    ledger.truncate_to(entry)
    assert ledger.files.take(True) == []
    assert (ledger.end_index, ledger.synced_index) == (19, 19)


def test_an_empty_ledger_begins_with_the_leaders_first_entry(start: Open) -> None:
    ledger = start()
    ledger.truncate_to(Entry(50, 3, 9 * FILE, b"x"))
    ledger.append(3, [b"y" * 3000] * 3)
    for found in (ledger, start()):
        assert (found.begin_index, found.begin_pos, found.end_index) == (50, 9 * FILE, 53)
        assert found.entry(49) is None
        assert found.term_at(50) == 3


def test_another_entry_behind_committed_ones_replaces_the_rest(start: Open) -> None:
    ledger = start()
    ledger.append(1, [b"a" * 100] * 10)
    ledger.commit(4)
    pos = 5 * 148
    ledger.truncate_to(Entry(5, 2, pos, b"b"))
    assert (ledger.begin_index, ledger.end_index, ledger.end_term) == (0, 5, 2)
    assert start().entry(5) == Entry(5, 2, pos, b"b")


def test_the_very_first_entry_stays_if_it_is_committed(start: Open) -> None:
    ledger = start()
    (first,) = ledger.append(1, [b"first"])
    ledger.commit(0)
    ledger.truncate_to(Entry(1, 2, first.pos + first.size, b"another"))
    assert (ledger.begin_index, ledger.end_index, ledger.committed_index) == (0, 1, 0)
    assert [entry.body for entry in ledger.entries(0, 1 << 20, 9)] == [b"first", b"another"]


def test_an_entry_that_cannot_be_compared_is_replaced_by_the_leaders(
    start: Open, disk: Disk, root: str
) -> None:
    """It is damaged: a follower that kept asking its disk would never get a sound one."""
    ledger = filled(start)
    sound = ledger.entry(2)
    assert sound is not None
    ledger.sync(thorough=True)
    overwrite(disk, f"{root}/data/{0:020}", sound.pos + 60, b"?")
    ledger = start(cached_bytes=0)
    ledger.truncate_to(sound)
    assert (ledger.begin_index, ledger.end_index) == (0, 2)
    assert start().entry(2) == sound


def test_the_last_place_that_files_can_have(start: Open) -> None:
    start().truncate_to(Entry((1 << 57) - 1, 1, 1 << 62, b"x"))
    assert start().end_index == (1 << 57) - 1


def test_terms_never_fall_whatever_is_to_be_the_last_entry(start: Open) -> None:
    """No start would take the entry, and what is before it would be all there is."""
    ledger = start()
    ledger.append(3, [b"a" * 100] * 5)
    ledger.commit(4)
    ledger.truncate_to(Entry(5, 2, 5 * 148, b"b"))
    for found in (ledger, start()):
        assert (found.begin_index, found.end_index, found.end_term) == (5, 5, 2)


def test_another_entry_behind_uncommitted_ones_begins_the_ledger_anew(start: Open) -> None:
    """Nobody has compared what is before it."""
    ledger = start()
    ledger.append(1, [b"a" * 100] * 10)
    ledger.truncate_to(Entry(5, 2, 5 * 148, b"b"))
    for found in (ledger, start()):
        assert (found.begin_index, found.begin_pos, found.end_index) == (5, 5 * 148, 5)


def test_a_ledger_that_begins_anew_vouches_for_nothing_of_before(
    start: Open, disk: Disk, root: str
) -> None:
    """Neither in memory nor in the checkpoint, nor does a byte of a file stay."""
    ledger = filled(start)
    ledger.sync(thorough=True)
    ledger.truncate_to(Entry(200, 3, 9 * FILE, b"x"))
    assert (ledger.committed_index, ledger.committed_pos, ledger.synced_index) == (-1, 0, -1)
    assert disk.list_dir(f"{root}/data") == [f"{9 * FILE:020}"]
    assert disk.list_dir(f"{root}/index") == [f"{192 * INDEX_UNIT:020}"]
    saved = ledger.checkpoint_file.load()
    assert (saved.committed_index, saved.synced) == (-1, SyncedUpTo())
    assert start().entry(200) == ledger.entry(200)


def test_a_ledger_whose_files_cannot_be_dropped_is_empty_until_they_can(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to go is neither served nor gone on from: its leader did not confirm it."""
    ledger = filled(start)
    cut = ledger.files.cut

    def refuse(pos: int, index: int) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr(ledger.files, "cut", refuse)
    with pytest.raises(StoreError, match="cannot cut the ledger"):
        ledger.truncate_to(Entry(200, 3, 9 * FILE, b"x"))
    assert (ledger.begin_index, ledger.end_index, ledger.end_pos) == (-1, -1, 0)
    assert (ledger.committed_index, ledger.committed_pos) == (-1, 0)
    assert [ledger.entry(index) for index in (0, 19)] == [None, None]
    assert ledger.entries(0, 1 << 20, 9) == []
    with pytest.raises(StoreError):
        ledger.append(4, [b"y"])
    monkeypatch.setattr(ledger.files, "cut", cut)
    ledger.append(4, [b"y"])
    for found in (ledger, start()):
        assert (found.begin_index, found.end_index, found.term_at(0)) == (0, 0, 4)


def test_a_place_that_no_file_has_is_refused(start: Open) -> None:
    ledger = filled(start)
    for pos in (-1, FILE - 20):
        with pytest.raises(InconsistentLedger):
            ledger.truncate_to(Entry(3, 2, pos, b"x"))
    assert bodies(ledger) == list(range(20))


def test_an_entry_that_leaves_no_room_for_a_blank_is_refused_to_the_byte(start: Open) -> None:
    """A start would not find it again."""
    ledger = filled(start)
    most = FILE - 8 - 100 - ENTRY_HEADER_SIZE
    for more in (1, 8, 16):
        with pytest.raises(InconsistentLedger, match="mappedFileSizeCommitLog"):
            ledger.truncate_to(Entry(50, 3, 9 * FILE + 100, bytes(most + more)))
    assert bodies(ledger) == list(range(20))
    ledger.truncate_to(Entry(50, 3, 9 * FILE + 100, bytes(most)))
    assert start().end_index == 50


# Reading


def test_a_disk_that_cannot_read_is_no_end_of_the_ledger() -> None:
    disk = SimDisk(Random(1), lambda: 0)
    ledger = Ledger(disk, "/m", FILE, index_file_size=2048, cached_bytes=0)
    ledger.load()
    ledger.append(1, [b"x" * 50] * 5)
    disk.fault = lambda operation, path: 5 if operation == "pread" else None
    reads = (
        lambda: ledger.entry(2),
        lambda: ledger.entries(2, 1000, 9),
        lambda: ledger.term_at(2),
        lambda: ledger.read(0, 10),
    )
    for read in reads:
        with pytest.raises(StoreError):
            read()


def test_nothing_is_read_outside_the_ledger(start: Open) -> None:
    ledger = start()
    assert ledger.read(0, 10) == b""
    ledger.append(1, [b"%d" % number + b"." * 3000 for number in range(3)])
    ledger.commit(2)
    ledger.sync(thorough=True)
    assert len(ledger.read(ledger.end_pos - 5, 10)) == 5
    for place in (-1, ledger.end_pos, ledger.end_pos + 5):
        assert ledger.read(place, 10) == b""
    ledger.begin_pos = FILE  # as the first file expires
    assert ledger.read(FILE - 10, 10) == b""
    assert len(ledger.read(FILE, 10)) == 10


def test_a_disk_that_cannot_read_stops_a_start() -> None:
    """It says so in the words of the store, whatever the disk was asked for."""
    disk = SimDisk(Random(1), lambda: 0)
    ledger = Ledger(disk, "/m", FILE, index_file_size=2048)
    ledger.load()
    ledger.append(1, [b"x" * 50] * 5)
    ledger.sync(thorough=True)
    ledger.close()
    disk.fault = lambda operation, path: 5 if operation == "pread" and "/data/" in path else None
    with pytest.raises(StoreError, match="cannot recover the ledger"):
        Ledger(disk, "/m", FILE, index_file_size=2048).load()


def test_what_was_just_appended_is_pushed_without_a_read(start: Open) -> None:
    ledger = start()
    ledger.append(1, [b"x" * 50] * 5)
    ledger.append_entry([Entry(5, 1, ledger.end_pos, b"y")])

    def refuse(*_: object) -> bytes:
        raise AssertionError("read")

    ledger.files.data.read = refuse  # type: ignore[method-assign]
    assert [entry.index for entry in ledger.entries(0, 1 << 20, 9)] == list(range(6))


def test_entries_side_by_side_are_read_at_once_and_nothing_else(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = start(cached_bytes=0)
    ledger.append(1, [bytes(52)] * 9)
    asked: list[tuple[int, int]] = []
    read = ledger.files.data.read

    def noted(pos: int, size: int) -> bytes:
        asked.append((pos, size))
        return read(pos, size)

    monkeypatch.setattr(ledger.files.data, "read", noted)
    assert len(ledger.entries(3, 1000, 4)) == 4
    assert asked == [(300, 400)]


def test_entries_come_in_batches_with_a_limit(start: Open) -> None:
    for ledger in (filled(start), start(cached_bytes=2000)):
        assert [e.index for e in ledger.entries(0, 0, 10)] == [0]
        assert [e.index for e in ledger.entries(5, 548 * 3, 10)] == [5, 6, 7]
        assert [e.index for e in ledger.entries(17, 1 << 20, 10)] == [17, 18, 19]
        assert [e.index for e in ledger.entries(3, 1 << 20, 2)] == [3, 4]
        assert ledger.entries(20, 1 << 20, 9) == ledger.entries(-1, 1 << 20, 9) == []
        assert ledger.term_at(20) == ledger.term_at(-1) == -1


def test_the_committed_index_only_rises_and_ends_with_the_ledger(start: Open) -> None:
    ledger = start()
    ledger.commit(5)
    assert (ledger.committed_index, ledger.committed_pos) == (-1, 0)
    ledger.append(1, [b"x" * 52] * 4)
    for index, expected in ((1, 1), (0, 1), (99, 3)):
        ledger.commit(index)
        assert (ledger.committed_index, ledger.committed_pos) == (expected, 100 * expected + 100)


def test_a_rotten_body_is_not_passed_on(start: Open, disk: Disk, root: str) -> None:
    """Spec: dledger.md, section 18.1, first row."""
    ledger = start()
    for term, numbers in ((1, range(4)), (2, range(4, 20))):
        ledger.append(term, [b"%03d" % n + b"." * 497 for n in numbers])
    ledger.sync(thorough=True)
    overwrite(disk, f"{root}/data/{0:020}", 548 * 2 + 60, b"?")
    ledger = start()
    assert ledger.end_index == 19
    for first in (0, 1, 2):  # alone or among others
        with pytest.raises(CorruptRecord, match="entry 2 at 1096"):
            ledger.entries(first, 1 << 20, 9)
    with pytest.raises(CorruptRecord, match="entry 2 at 1096"):
        ledger.entry(2)
    assert ledger.entry(3) is not None


@pytest.mark.parametrize(
    ("position", "data"),
    [
        (0, b"\7\7\7\7"),  # no such magic
        (4, struct.pack(">q", 548)),  # where another entry stands
        (12, struct.pack(">i", 7)),  # too small for an entry
        (12, struct.pack(">i", 1 << 30)),  # too large for one
        (16, struct.pack(">q", 3)),  # of another entry
    ],
)
def test_an_index_that_points_elsewhere_gives_nothing_of_another_entry(
    start: Open, disk: Disk, root: str, position: int, data: bytes
) -> None:
    """While the ledger is open; a start makes the index anew."""
    ledger = start(cached_bytes=0)
    ledger.append(1, [b"%03d" % number + b"." * 497 for number in range(20)])
    overwrite(disk, f"{root}/index/{0:020}", INDEX_UNIT * 2 + position, data)
    with pytest.raises(CorruptRecord):
        ledger.entry(2)
    assert ledger.entry(5) is not None
    assert start().entry(2) is not None


def test_an_index_that_ends_too_early_is_damage_and_not_the_end(start: Open) -> None:
    """A follower that asks would be told to begin anew."""
    ledger = start(cached_bytes=0)
    ledger.append(1, [b"x"] * 70)
    ledger.files.index.row.delete(64 * INDEX_UNIT)
    assert [entry.index for entry in ledger.entries(62, 1 << 20, 9)] == [62, 63]
    for read in (ledger.entry, ledger.located, ledger.term_at):
        for index in (64, 65):
            with pytest.raises(StoreError, match=f"does not know entry {index}"):
                read(index)


# Starts: section 15.1


def test_a_start_finds_the_end_and_the_committed_index(start: Open) -> None:
    ledger = start()
    ledger.append(1, [b"x" * 500] * 20)
    ledger.commit(12)
    ledger.sync(thorough=True)
    found = start()
    assert (found.end_index, found.end_term, found.end_pos) == (19, 1, ledger.end_pos)
    assert (found.committed_index, found.synced_index) == (12, 19)
    assert found.committed_pos == ledger.committed_pos


def test_without_index_and_checkpoint_only_the_committed_index_is_lost(
    start: Open, disk: Disk, root: str
) -> None:
    filled(start).sync(thorough=True)
    disk.remove_tree(f"{root}/index")
    disk.remove(f"{root}/checkpoint")
    found = start()
    assert bodies(found) == list(range(20))
    assert found.committed_index == -1


def test_a_start_syncs_the_newest_file_only_and_makes_an_index_in_large_pieces(
    start: Open, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker with a thousand files would take minutes to start."""
    filled(start).sync(thorough=True)
    opened, opens = [], DirtyRow.opened
    written, writes = [], DirtyRow.write

    def noted(row: DirtyRow) -> list[tuple[int, File]]:
        opened.append([at for at, _ in opens(row)])
        return opens(row)

    def written_down(row: DirtyRow, position: int, data: bytes) -> None:
        written.append((position, len(data)))
        writes(row, position, data)

    monkeypatch.setattr(DirtyRow, "opened", noted)
    start()
    assert opened == [[2 * FILE], [0], [0]]
    disk.remove_tree(f"{root}/index")
    monkeypatch.setattr(DirtyRow, "write", written_down)
    start()
    assert written == [(0, 20 * INDEX_UNIT)]


def test_a_wrong_index_is_made_anew_from_the_data(start: Open, disk: Disk, root: str) -> None:
    filled(start).sync(thorough=True)
    for index in (15, 18):
        overwrite(disk, f"{root}/index/{0:020}", INDEX_UNIT * index + 5, b"\7\7\7")
    for said in (["2 index entries made anew"], []):
        with capturedLogs() as events:
            assert bodies(start()) == list(range(20))
        warnings = [item for item in events if item["log_level"] is LogLevel.warn]
        assert [formatEvent(item) for item in warnings] == said


def test_without_checksums_what_was_synced_is_there(start: Open, disk: Disk, root: str) -> None:
    """The checkpoint vouches for it; for what nobody synced nobody does."""
    ledger = filled(start)
    ledger.sync(thorough=True)
    ledger.append(1, [b"%03d" % n + b"." * 500 for n in range(20, 25)])
    disk.remove_tree(f"{root}/checksums")
    assert bodies(start()) == list(range(20))


def test_a_checksum_that_is_missing_is_no_damage(start: Open, disk: Disk, root: str) -> None:
    """Of the newest entry that was synced, too."""
    filled(start).sync(thorough=True)
    for index in (16, 19):
        overwrite(disk, f"{root}/checksums/{0:020}", CHECKSUM_UNIT * index, bytes(CHECKSUM_UNIT))
    assert bodies(start()) == list(range(20))


@pytest.mark.parametrize(("count", "size"), [(35, 500), (4, 3000)])
def test_checksums_that_fit_stay_as_they_are_after_javas_turn(
    start: Open, disk: Disk, root: str, count: int, size: int
) -> None:
    """The walk begins in the middle: it does not know the term before, and they do."""
    filled(start, count, size).sync(thorough=True)
    disk.replace(f"{root}/checkpoint", b"committedIndex=%d\nendIndex=0\n" % (count - 1))
    file = disk.open(f"{root}/checksums/{0:020}", CHECKSUM_UNIT * 64)
    before = file.pread(CHECKSUM_UNIT * count, 0)
    found = start(cached_bytes=0)
    assert file.pread(CHECKSUM_UNIT * count, 0) == before
    assert bodies(found) == list(range(count))


def sizes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much each read of a row asks for, from now on."""
    asked: list[int] = []
    read = DirtyRow.read

    def noted(row: DirtyRow, position: int, size: int) -> bytes:
        asked.append(size)
        return read(row, position, size)

    monkeypatch.setattr(DirtyRow, "read", noted)
    return asked


def test_entries_larger_than_a_read_are_found_whole(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those over the end of one, and side by side; a file of a GiB is not read at once."""
    ledger = start(4 << 20)
    sizes = [600_000, 600_000, 1_300_000, 1_200_000]
    ledger.append(1, [bytes(size) for size in sizes])
    ledger.sync(thorough=True)
    asked = sizes_read(monkeypatch)
    found = start(4 << 20)
    assert (found.end_index, found.end_pos) == (3, sum(sizes) + 4 * 48)
    assert max(asked) <= 1_300_048


def test_files_without_our_checksums_are_taken_as_upstream_does(
    start: Open, disk: Disk, root: str
) -> None:
    """And get them, so that they are looked after from now on."""
    filled(start).sync(thorough=True)
    disk.remove_tree(f"{root}/checksums")
    disk.replace(f"{root}/checkpoint", b"committedIndex=9\nendIndex=19\n")
    found = start()
    assert (bodies(found), found.committed_index) == (list(range(20)), 9)
    checksums = disk.open(f"{root}/checksums/{0:020}", CHECKSUM_UNIT * 64)
    assert any(checksums.pread(CHECKSUM_UNIT, CHECKSUM_UNIT * 19))


@pytest.mark.parametrize("is_javas", [False, True])
def test_a_ledger_without_its_beginning_is_not_taken_for_an_empty_one(
    start: Open, disk: Disk, root: str, is_javas: bool
) -> None:
    """Two files of entries would be given up for a few bytes."""
    ledger = start()
    ledger.append(1, [b"x" * 3000])
    ledger.sync(thorough=True)  # the second one is not known to be on the disk
    ledger.append(1, [b"y" * 3000])
    assert ledger.end_pos > FILE
    if is_javas:
        disk.replace(f"{root}/checkpoint", b"committedIndex=0\nendIndex=1\n")
    overwrite(disk, f"{root}/data/{0:020}", 0, bytes(48))
    with pytest.raises(CorruptRecord, match="does not begin with an entry"):
        start()


def test_what_nothing_vouches_for_ends_where_it_is_not_sure(
    start: Open, disk: Disk, root: str
) -> None:
    """The end that was synced is gone, whole files with it: what is left needs its checksums."""
    filled(start).sync(thorough=True)
    overwrite(disk, f"{root}/data/{2 * FILE:020}", 548 * 2, bytes(FILE - 548 * 2))
    overwrite(disk, f"{root}/checksums/{0:020}", CHECKSUM_UNIT * 10, bytes(CHECKSUM_UNIT))
    assert start().end_index == 9


def test_a_checkpoint_that_speaks_of_another_entry_vouches_for_nothing(
    start: Open, disk: Disk, root: str
) -> None:
    """Restored from elsewhere: an entry here is believed if its own checksum says so."""
    ledger = filled(start, 5)
    (last,) = ledger.append(2, [b"z"])
    ledger.sync()
    disk.replace(
        f"{root}/checkpoint", b"committedIndex=-1\nendIndex=5\nrmqHaSynced=5,1,%d\n" % last.pos
    )
    assert start().end_index == 5
    disk.replace(
        f"{root}/checkpoint", b"committedIndex=-1\nendIndex=5\nrmqHaSynced=5,1,%d\n" % last.pos
    )
    overwrite(disk, f"{root}/checksums/{0:020}", CHECKSUM_UNIT * 3, bytes(CHECKSUM_UNIT))
    assert start().end_index == 2


def test_a_first_entry_with_another_header_is_not_the_one_that_was_written(
    start: Open, disk: Disk, root: str
) -> None:
    """Nobody synced it: it may be gone, but not be there with a term of the disk's making."""
    start().append(1, [b"x"])
    overwrite(disk, f"{root}/data/{0:020}", 16, struct.pack(">q", 7))
    assert start().end_index == -1


def test_one_file_of_javas_that_begins_with_nothing_is_empty(
    start: Open, disk: Disk, root: str
) -> None:
    """Created, and stopped before anything was written; it may begin elsewhere then."""
    filled(start, 3).sync(thorough=True)
    disk.replace(f"{root}/checkpoint", b"committedIndex=-1\nendIndex=-1\n")
    overwrite(disk, f"{root}/data/{0:020}", 0, bytes(FILE))
    assert start().end_index == -1
    assert [disk.list_dir(f"{root}/{part}") for part in ("data", "index", "checksums")] == [[]] * 3


def test_a_wrong_index_of_the_first_entry_is_made_anew_too(
    start: Open, disk: Disk, root: str
) -> None:
    """Though the newest file and its index are sound."""
    filled(start).sync(thorough=True)
    overwrite(disk, f"{root}/index/{0:020}", 5, b"\7\7\7")
    assert bodies(start()) == list(range(20))


def test_of_javas_files_the_newest_three_are_walked(start: Open, disk: Disk, root: str) -> None:
    """Spec: dledger.md, section 15.1: nobody says what was synced; what is older is not cut."""
    filled(start, 35).sync(thorough=True)
    disk.remove_tree(f"{root}/checksums")
    overwrite(disk, f"{root}/data/{0:020}", 548, bytes(548))
    disk.replace(f"{root}/checkpoint", b"committedIndex=9\nendIndex=34\n")
    assert start().end_index == 34
    disk.replace(f"{root}/checkpoint", b"committedIndex=9\nendIndex=34\n")
    disk.remove_tree(f"{root}/checksums")
    overwrite(disk, f"{root}/data/{2 * FILE:020}", 548, bytes(548))
    assert start().end_index == 14


def test_junk_behind_the_end_is_cut_and_wiped(start: Open, disk: Disk, root: str) -> None:
    """Spec: dledger.md, section 11.6: what a push with a wrong position left behind in Java."""
    ledger = filled(start, 3)
    ledger.sync(thorough=True)
    disk.replace(f"{root}/checkpoint", b"committedIndex=2\nendIndex=2\n")
    index = f"{root}/index/{0:020}"
    kept = disk.open(index, INDEX_UNIT * 64).pread(INDEX_UNIT * 64, 0)
    overwrite(disk, index, INDEX_UNIT * 3, b"junk" * 100)
    junk = Entry(3, 1, ledger.end_pos + 1, b"junk")
    overwrite(
        disk, f"{root}/data/{0:020}", ledger.end_pos, encode_header(junk) + junk.body + b"x" * 900
    )
    found = start()
    assert (found.end_index, found.end_pos) == (2, ledger.end_pos)
    data = disk.open(f"{root}/data/{0:020}", FILE).pread(FILE, 0)
    assert not any(data[found.end_pos :])
    assert disk.open(index, INDEX_UNIT * 64).pread(INDEX_UNIT * 64, 0) == kept
    assert found.checkpoint_file.load().synced == SyncedUpTo(2, 1, 2 * 548)


def test_an_entry_that_says_to_go_beyond_its_file_is_none(
    start: Open, disk: Disk, root: str
) -> None:
    """A start ends in front of it, and looks for its end nowhere."""
    size = 1 << 22
    ledger = start(size)
    ledger.append(1, [b"000" * 5, b"001" * 5])
    end, path = ledger.end_pos, ledger.files.data.row.path(0)
    ledger.sync(thorough=True)
    ledger.close()
    header = EntryHeader(MAGIC, size, 2, 1, end, 0, 0, 0, size - ENTRY_HEADER_SIZE)
    assert header.is_sound
    overwrite(disk, path, end, header.encode())
    ledger = start(size)
    assert (bodies(ledger), ledger.end_pos) == ([0, 1], end)


@pytest.mark.parametrize("keep", [0, 4, 47, 48, 200, 547])
def test_a_torn_entry_is_cut(start: Open, disk: Disk, root: str, keep: int) -> None:
    ledger = filled(start, 3)
    ledger.sync(thorough=True)
    (last,) = ledger.append(1, [b"z" * 500])
    overwrite(disk, f"{root}/data/{0:020}", last.pos + keep, bytes(548 - keep))
    assert start().end_index == 2


@pytest.mark.parametrize(("position", "size"), [(548 * 2, 548), (548 * 2 + 60, 1)])
def test_damage_of_what_was_synced_stops_the_start(
    start: Open, disk: Disk, root: str, position: int, size: int
) -> None:
    """To cut it would forget what this member has vouched for."""
    filled(start, 5).sync(thorough=True)
    overwrite(disk, f"{root}/data/{0:020}", position, bytes(size))
    with pytest.raises(CorruptRecord, match="copies the leader's"):
        start()


def test_a_blank_without_a_next_file_belongs_to_nobody(start: Open, disk: Disk, root: str) -> None:
    ledger = start()
    ledger.append(1, [b"x" * 3000])
    end = ledger.end_pos
    ledger.append(1, [b"y" * 2000])
    disk.remove(f"{root}/data/{FILE:020}")
    found = start()
    assert (found.end_index, found.end_pos) == (0, end)
    assert found.place(10) == end


@pytest.mark.parametrize(
    ("name", "size"), [(f"{0:020}", FILE + 1), ("notes.txt", 10), (f"{5:020}", FILE)]
)
def test_files_of_another_kind_stop_the_start(
    start: Open, disk: Disk, root: str, name: str, size: int
) -> None:
    disk.open(f"{root}/data/{name}", size).close()
    with pytest.raises(StoreError):
        start()


def test_data_may_lie_in_several_directories(disk: Disk, root: str) -> None:
    places = [f"{root}/a", f"{root}/b"]
    for _ in range(2):
        ledger = Ledger(disk, root, FILE, data_directories=places, index_file_size=2048)
        ledger.load()
        ledger.append(1, [b"x" * 3000] * 4)
    assert ledger.end_index == 7
    assert all(len(disk.list_dir(place)) == 4 for place in places)


def test_an_empty_ledger_may_begin_behind_an_old_log(disk: Disk, root: str) -> None:
    for expected in (0, 1):
        ledger = Ledger(disk, root, FILE, first_pos=7 * FILE, index_file_size=2048)
        ledger.load()
        (entry,) = ledger.append(1, [b"x"])
        assert (entry.index, ledger.begin_pos) == (expected, 7 * FILE)


# Full disks


def test_a_full_disk_leaves_nothing_half_written() -> None:
    disk = SimDisk(Random(1), lambda: 0)
    ledger = Ledger(disk, "/m", FILE * 4, index_file_size=2048)
    ledger.load()
    ledger.append(1, [b"x" * 2000])
    disk.is_full = True
    with pytest.raises(LedgerFull):
        ledger.append(1, [b"y" * 1000] * 12)
    assert ledger.end_index == 0
    data = disk.open(f"/m/data/{0:020}", FILE * 4).pread(FILE * 4, 0)
    assert not any(data[ledger.end_pos :])
    for part, unit in (("index", INDEX_UNIT), ("checksums", CHECKSUM_UNIT)):
        size = 2048 // INDEX_UNIT * unit
        units = disk.open(f"/m/{part}/{0:020}", size).pread(size, 0)
        assert any(units[:unit])
        assert not any(units[unit:])
    disk.is_full = False
    ledger.append(1, [b"z"])
    assert ledger.end_index == 1


def test_a_nearly_full_disk_refuses_appends_until_there_is_room(start: Open) -> None:
    ledger = start()
    ledger.full = "its disk is 93% full"
    with pytest.raises(LedgerFull, match="93%"):
        ledger.append(1, [b"x"])
    ledger.full = None
    ledger.append(1, [b"x"])


def test_after_a_failed_sync_nothing_more_is_taken() -> None:
    """Nobody knows what is on the disk then."""
    disk = SimDisk(Random(1), lambda: 0)
    ledger = Ledger(disk, "/m", FILE, index_file_size=2048)
    ledger.load()
    ledger.append(1, [b"x"])
    disk.sync_fails = True
    with pytest.raises(StoreError):
        ledger.sync()
    disk.sync_fails = False
    with pytest.raises(StoreError, match="takes no more"):
        ledger.append(1, [b"y"])
    with pytest.raises(StoreError, match="synced no more"):
        ledger.sync()  # of a file that counts as clean by now
    assert (ledger.synced_index, ledger.is_broken) == (-1, True)


# Syncs beside other things


def test_a_sync_does_not_vouch_for_what_was_cut_meanwhile(start: Open) -> None:
    ledger = filled(start)
    job = ledger.sync_job()
    entry = ledger.entry(7)
    assert entry is not None
    ledger.truncate_to(entry)
    ledger.append(2, [b"new"] * 5)
    job.run()
    assert ledger.synced(job) == 7
    assert ledger.sync() == 12


def test_one_sync_at_a_time(start: Open) -> None:
    ledger = filled(start)
    job = ledger.sync_job()
    with pytest.raises(ValueError, match="running"):
        ledger.sync_job()
    job.run()
    assert ledger.synced(job) == 19


def test_what_was_synced_is_not_synced_again(start: Open) -> None:
    """Of data, checksums and index alike."""
    ledger = filled(start)
    assert ledger.files.take(True) != []
    assert ledger.files.take(True) == []


def test_descriptors_are_given_back(
    start: Open, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While there are many files, of clean ones; at the end, of all."""
    monkeypatch.setattr("rmq_ha.server.store.log.files._MAX_OPEN", 2)
    opened, opens = [], disk.open

    def noted(path: str, size: int) -> File:
        opened.append((path, opens(path, size)))
        return opened[-1][1]

    def still_open(part: str) -> int:
        count = 0
        for path, file in opened:
            with suppress(OSError):
                file.pread(1, 0)
                count += f"/{part}/" in path
        return count

    monkeypatch.setattr(disk, "open", noted)
    ledger = filled(start, 300, 200)
    assert all(still_open(part) > 2 for part in ("data", "index", "checksums"))
    ledger.sync(thorough=True)
    assert all(still_open(part) <= 3 for part in ("data", "index", "checksums"))
    assert bodies(ledger) == list(range(99))
    ledger.close()
    assert all(still_open(part) == 0 for part in ("data", "index", "checksums"))


# Expiry: chapter 14


def test_dropping_files_moves_the_beginning(start: Open, disk: Disk) -> None:
    ledger = filled(start)
    ledger.commit(19)
    assert ledger.drop_files(1) == []  # not known to be on the disk
    ledger.sync(thorough=True)
    for path in ledger.drop_files(2):
        disk.remove(path)
    for found in (ledger, start()):
        assert (found.begin_index, found.begin_pos) == (14, 2 * FILE)
        assert bodies(found) == list(range(14, 20))
        assert found.drop_files(9) == []  # never the last one


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_first_sync_after_a_kill_takes_all_that_nobody_synced(is_cut: bool) -> None:
    """What it wrote is in the page cache only, and counts as stored from then on."""
    disk = SimDisk(Random(1), lambda: 0)

    def opened() -> Ledger:
        made = Ledger(disk, "/m", FILE, index_file_size=INDEX_UNIT * 8)
        made.load()
        return made

    ledger = opened()
    ledger.append(1, [b"%03d" % n + b"." * 700 for n in range(12)])
    ledger.sync()
    ledger.append(1, [b"%03d" % n + b"." * 700 for n in range(12, 30)])
    if is_cut:
        overwrite(disk, disk.paths("/m/data")[-1], 0, b"\1" * FILE)
    disk = disk.crash(power=False)
    again = opened()
    assert again.end_index >= 12
    assert again.sync(thorough=True) == again.end_index
    assert [path for path in disk.paths("/m") if not disk.is_safe(path)] == []
    end = again.end_index
    disk = disk.crash()
    assert opened().end_index == end


def test_no_files_are_dropped_that_leave_a_ledger_without_a_beginning(
    start: Open, disk: Disk, root: str
) -> None:
    """No start would take it."""
    ledger = filled(start)
    ledger.sync(thorough=True)
    overwrite(disk, f"{root}/data/{FILE:020}", 0, bytes(48))
    with pytest.raises(StoreError, match="does not begin well"):
        ledger.drop_files(1)
    assert (ledger.begin_index, ledger.begin_pos) == (0, 0)
    assert ledger.drop_files(2) != []


# Starts on what upstream wrote, or nobody


def as_javas(disk: Disk, root: str, end: int) -> None:
    """As upstream leaves it: no checksums, and nobody says what is on the disk."""
    if disk.exists(f"{root}/checksums"):
        disk.remove_tree(f"{root}/checksums")
    disk.replace(f"{root}/checkpoint", b"committedIndex=-1\nendIndex=%d\n" % end)


def test_of_javas_files_an_index_is_made_anew_from_where_it_is_sound(
    start: Open, disk: Disk, root: str
) -> None:
    """Though it is not at the beginning of one of the newest files."""
    filled(start, 35).sync(thorough=True)
    as_javas(disk, root, 34)
    overwrite(disk, f"{root}/index/{0:020}", INDEX_UNIT * 12 + 5, b"\7" * INDEX_UNIT * 4)
    assert bodies(start()) == list(range(35))


@pytest.mark.parametrize(("count", "end"), [(28, 27), (21, 0)])
def test_of_three_javas_files_all_are_walked_and_of_four_the_newest_three(
    start: Open, disk: Disk, root: str, count: int, end: int
) -> None:
    filled(start, count).sync(thorough=True)
    as_javas(disk, root, count - 1)
    overwrite(disk, f"{root}/data/{0:020}", 548, bytes(548))
    assert start().end_index == end


@pytest.mark.parametrize(("index", "term"), [(9, 1), (3, 0), (2, 1), (9, 0)])
def test_of_javas_entries_one_that_does_not_follow_is_none_of_the_ledger(
    start: Open, disk: Disk, root: str, index: int, term: int
) -> None:
    """Left by another leader, behind the end, in a place where one can be."""
    ledger = filled(start, 3)
    ledger.sync(thorough=True)
    as_javas(disk, root, 2)
    left = Entry(index, term, ledger.end_pos, b"left")
    overwrite(disk, f"{root}/data/{0:020}", ledger.end_pos, encode_header(left) + left.body)
    assert start().end_index == 2


def test_a_file_begun_far_behind_its_start_is_found_again_in_pieces(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a GiB is not read at once."""
    ledger = start(4 << 20)
    ledger.truncate_to(Entry(50, 3, (8 << 20) + (5 << 19), b"x"))
    ledger.sync(thorough=True)
    asked = sizes_read(monkeypatch)
    found = start(4 << 20)
    assert (found.begin_index, found.begin_pos, found.end_index) == (50, (8 << 20) + (5 << 19), 50)
    assert max(asked) <= 1 << 20


def test_a_ledger_does_not_begin_in_its_second_file(start: Open, disk: Disk, root: str) -> None:
    """The first one is empty: what was in it is lost, and somebody has to know."""
    ledger = start()
    ledger.truncate_to(Entry(50, 3, 9 * FILE, b"x" * 3000))
    ledger.append(3, [b"y" * 3000])
    ledger.sync(thorough=True)
    overwrite(disk, f"{root}/data/{9 * FILE:020}", 0, bytes(FILE))
    with pytest.raises(CorruptRecord, match="does not begin with an entry"):
        start()


@pytest.mark.parametrize("blank", [b"", b"\xff\xff\xff\xff\0\0\0\1", b"\0\0\0\0\0\0\x04\0"])
def test_of_javas_files_one_that_is_not_closed_is_the_last(
    start: Open, disk: Disk, root: str, blank: bytes
) -> None:
    """What is in the next one follows something that is not there."""
    ledger = start()
    ledger.append(1, [b"x" * 3000])
    end = ledger.end_pos
    ledger.append(1, [b"y" * 3000])
    ledger.sync(thorough=True)
    as_javas(disk, root, 1)
    overwrite(disk, f"{root}/data/{0:020}", end, blank.ljust(8, b"\0"))
    found = start()
    assert (found.end_index, found.end_pos) == (0, end)


# Faults of the disk in between


def test_a_cut_that_failed_is_said_to_have_failed(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start would find what the leader believes to be gone."""
    ledger = filled(start)
    entry = ledger.entry(9)
    assert entry is not None

    def refuse(pos: int, index: int) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr(ledger.files, "cut", refuse)
    with pytest.raises(StoreError, match="cannot cut the ledger"):
        ledger.truncate_to(entry)
    assert ledger.fault is not None


def test_of_what_is_cut_neither_index_nor_checksum_is_left(
    start: Open, disk: Disk, root: str
) -> None:
    ledger = filled(start)
    entry = ledger.entry(9)
    assert entry is not None
    ledger.truncate_to(entry)
    for part, unit in (("index", INDEX_UNIT), ("checksums", CHECKSUM_UNIT)):
        units = disk.open(f"{root}/{part}/{0:020}", unit * 64).pread(unit * 64, 0)
        assert any(units[unit * 9 : unit * 10])
        assert not any(units[unit * 10 :])


def test_a_checkpoint_that_was_just_written_does_not_vouch_for_what_is_cut(start: Open) -> None:
    """Or what another leader puts there would count as synced."""
    ledger = filled(start)
    job = ledger.sync_job(thorough=True)
    job.run()
    entry = ledger.entry(7)
    assert entry is not None
    ledger.truncate_to(entry)
    assert ledger.synced(job) == 7
    assert ledger.checkpoint_file.load().synced == SyncedUpTo(7, 1, entry.pos)


@pytest.mark.parametrize("count", [0, 3])
def test_what_a_failed_write_left_is_wiped_before_the_next_one(count: int) -> None:
    """Though it could not be wiped at once."""
    disk = SimDisk(Random(1), lambda: 0)
    ledger = Ledger(disk, "/m", FILE, index_file_size=2048)
    ledger.load()
    ledger.append(1, [b"x" * 50] * count)
    disk.fault = lambda operation, path: 5 if "/data/" in path else None
    with pytest.raises(StoreError):
        ledger.append(1, [b"y" * 50])
    with pytest.raises(StoreError):
        ledger.truncate_to(Entry(50, 3, 9 * FILE, b"z"))
    assert (ledger.fault is not None) == (count > 0)  # nothing was made where nothing was
    disk.fault = lambda operation, path: None
    (entry,) = ledger.append(4, [b"w"])
    assert ledger.fault is None
    for _ in range(2):
        assert (ledger.begin_index, ledger.entry(entry.index)) == (0, entry)
        ledger = Ledger(disk, "/m", FILE, index_file_size=2048)
        ledger.load()
