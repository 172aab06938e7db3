"""Every record is read once, however the log is split, and damage hides nothing but itself."""

import pickle
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import BLANK_SIZE, Record, encode_blank, encode_record
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.store.directory import StoreDirectory, open_store, scan, scan_with_gaps
from rmq_ha.lake.scan.store.scanning import Gap, Split, pieces, splits_of
from rmq_ha.ops.offline.chain import Layout
from rmq_ha.ops.offline.end import end_of_log
from rmq_ha.ops.offline.log_files import LogFile
from tests.unit.lake.spark.golden_stores import read_records

HOST = Address.parse("10.0.0.1", 10911)
FILES = LocalFiles()
Write = Callable[..., StoreDirectory]


def record(offset: int, body: bytes, at: int = 1000) -> bytes:
    return encode_record(
        Record(0, 0, 0, 0, 0, offset, 0, 5, HOST, at, HOST, 0, 0, body, "T", "KEYS\x01k")
    )


class Log:
    """A log in files of one size."""

    def __init__(self, root: Path, file_size: int, base: int = 0) -> None:
        self.directory = root / "commitlog"
        self.directory.mkdir(parents=True)
        self.root, self.file_size, self.base = root, file_size, base
        self.data = bytearray()
        self.places: list[int] = []
        self.time = 1000

    @property
    def end(self) -> int:
        return self.base + len(self.data)

    def put(self, body: bytes) -> int:
        self.time += 1
        data = record(self.end, body, self.time)
        room = self.file_size - len(self.data) % self.file_size
        if len(data) + BLANK_SIZE > room:
            self.data += encode_blank(room) + b"junk" * room
            del self.data[len(self.data) // self.file_size * self.file_size :]
            data = record(self.end, body, self.time)
        self.places.append(self.end)
        self.data += data
        return self.places[-1]

    def write(self, **also: object) -> StoreDirectory:
        for start in range(0, len(self.data), self.file_size):
            path = self.directory / f"{self.base + start:020d}"
            path.write_bytes(
                bytes(self.data[start : start + self.file_size]).ljust(self.file_size, b"\0")
            )
        return open_store(str(self.root))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = Log(tmp_path / "store", 4096, 8192)
    for index in range(40):
        made.put(bytes([index]) * (index * 29 % 300))
    return made


def places(store: StoreDirectory, split_size: int, window: int = 700, back: int = 600) -> list[int]:
    found: list[int] = []
    for split in store.splits(split_size):
        for piece in pieces(store.files, split, window, back):
            if isinstance(piece, Records):
                mine = piece.physical_offset.tolist()
                assert all(split.lo <= place < split.hi for place in mine)
                found += mine
    return found


@pytest.mark.lake
@pytest.mark.parametrize("split_size", [1 << 30, 4096, 2048, 1000, 333, 30])
def test_all_splits_together_are_the_log(log: Log, split_size: int) -> None:
    """One split or a thousand, and however small the windows are."""
    store = log.write()
    assert places(store, split_size) == log.places
    assert places(store, split_size, 130, 600) == log.places
    assert store.max_offset() == log.end
    assert store.min_offset() == 8192
    for window in (16, 130, 700, 1 << 20):
        assert end_of_log(FILES, store.log_files(), window) == log.end


def test_a_split_is_read_alone_by_another_process(log: Log) -> None:
    """Both may be pickled."""
    store = log.write()
    store.max_offset()
    store, splits = pickle.loads(pickle.dumps((store, store.splits(2000))))
    found = [
        place for split in splits for one in scan(store, split) for place in one.physical_offset
    ]
    assert found == log.places


def test_bounds_are_kept(log: Log) -> None:
    """Only what begins at the start or behind, and ends before the stop."""
    store = log.write()
    start, stop = log.places[7], log.places[30]

    def read(start: int, stop: int) -> list[int]:
        splits = store.splits(500, stop, start)
        return [
            place for split in splits for one in scan(store, split) for place in one.physical_offset
        ]

    assert read(start, stop) == log.places[7:30]
    assert read(start + 1, stop - 1) == log.places[8:29]
    assert read(start, 1 << 60) == log.places[7:]
    assert read(stop, start) == []


def test_records_in_bodies_fool_no_split(log: Log) -> None:
    """A chain of whole records, each of which says exactly where it is, up to the body's end."""
    for _ in range(3):
        at = log.end + 88
        inner = b""
        for index in range(12):
            inner += record(at + len(inner), b"deceit" * index)
        log.put(inner)
        log.put(b"honest")
    store = log.write()
    for split_size in (4096, 900, 100, 17):
        assert places(store, split_size, 5000, 4096) == log.places


def gaps(store: StoreDirectory, split_size: int) -> list[tuple[int, int]]:
    return [
        (piece.start, piece.end)
        for split in store.splits(split_size)
        for piece in pieces(store.files, split, 700, 600)
        if isinstance(piece, Gap)
    ]


@pytest.mark.parametrize("split_size", [1 << 30, 1000, 90])
@pytest.mark.parametrize(
    ("at", "damage"),
    [
        (4, b"\0"),  # the magic
        (0, b"\x7f"),  # the size: more than any record has
        (1, b"\1"),  # the size: more than there is
        (2, b"\x04"),  # the size: into a later record
        (3, b"\x5b"),  # the size: less
        (35, b"\xff"),  # the own offset
        (84, b"\x7f"),  # the length of the body
        (0, bytes(60)),  # a page that was lost
    ],
)
def test_damage_hides_one_record_only(log: Log, at: int, damage: bytes, split_size: int) -> None:
    """It is reported once, in the split in which it starts, with its whole length."""
    for number in (5, 20, 38):
        hit = log.places[number]
        log.data[hit + at - 8192 : hit + at - 8192 + len(damage)] = damage
    store = log.write()
    hit = [log.places[number] for number in (5, 20, 38)]
    assert places(store, split_size) == [place for place in log.places if place not in hit]
    assert gaps(store, split_size) == [(log.places[n], log.places[n + 1]) for n in (5, 20, 38)]
    assert store.max_offset() == log.end


def test_damage_at_the_end_of_a_file_ends_there(log: Log) -> None:
    """A file that is not the last one has no end of its own."""
    log.data[4096 - 300 : 4096] = b"x" * 300
    hit = [place for place in log.places if 8192 + 4096 - 300 - 379 < place < 8192 + 4096]
    store = log.write()
    found = gaps(store, 100)
    assert len(found) == 1
    assert found[0][1] == 8192 + 4096
    assert set(log.places) - set(places(store, 100)) <= set(hit)


def test_a_torn_record_ends_the_log(log: Log) -> None:
    """As after a crash: half of it is zero."""
    last = log.put(b"last" * 20)
    del log.data[last + 60 - 8192 :]
    store = log.write()
    assert store.max_offset() == last
    assert places(store, 500) == log.places[:-1]
    assert gaps(store, 500) == []


def test_what_an_old_truncation_left_stays_dead(log: Log) -> None:
    """Sound records behind the end that were stored before the last one. Spec: store.md, 5.6."""
    store = log.write()
    cut = log.places[-3] - 8192
    old = bytes(log.data[cut:])
    del log.data[cut:], log.places[-3:]
    log.put(b"new")
    end = log.end
    log.data += old[len(log.data) - cut :]
    store = log.write()
    assert store.max_offset() == end
    assert places(store, 500) == log.places


def test_files_are_prepared_and_blanks_close_them(log: Log) -> None:
    """An empty file behind the last one; a log that ends with a blank ends at the next file."""
    (log.directory / f"{8192 + 4096 * 3:020d}").write_bytes(bytes(4096))
    store = log.write()
    assert store.max_offset() == log.end
    assert places(store, 1000) == log.places
    room = 4096 - len(log.data) % 4096
    log.data += encode_blank(room) + bytes(room - 8)
    assert log.write().max_offset() == log.end == 8192 + 4096 * 2 + 4096


def test_nothing_was_written(tmp_path: Path) -> None:
    """A broker that was only started."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    store = open_store(str(tmp_path))
    assert (store.min_offset(), store.max_offset(), store.splits()) == (0, 0, [])
    assert store.topics_on_disk() == []
    assert store.index_files() == []
    assert store.config("consumerOffset.json") is None


def test_a_file_that_is_missing_is_named(log: Log) -> None:
    """In the middle: nobody knows what was in it."""
    store = log.write()
    store.log_files()
    middle = log.directory / f"{8192 + 4096:020d}"
    data = middle.read_bytes()
    middle.unlink()
    with pytest.raises(
        CannotDecide, match=r"no bytes from 12288 to 16384 .*Copy it from a replica"
    ):
        open_store(str(log.root))
    middle.write_bytes(data[:-1])
    with pytest.raises(CannotDecide, match="no bytes from 16383 to 16384"):
        open_store(str(log.root))
    middle.write_bytes(data + b"x")
    with pytest.raises(CannotDecide, match="reaches into"):
        open_store(str(log.root))


def test_a_file_that_expires_while_it_is_read_is_named(log: Log) -> None:
    """The broker deletes the oldest file; what was planned cannot be read any more."""
    store = log.write()
    splits = store.splits(4096)
    (log.directory / f"{8192:020d}").unlink()
    with pytest.raises(CannotDecide, match=r"00008192 vanished while it was read"):
        list(scan(store, splits[0]))
    assert list(scan_with_gaps(store, splits[1]))
    (log.directory / f"{8192 + 4096:020d}").write_bytes(b"short")
    with pytest.raises(CannotDecide, match="was cut to 5 bytes"):
        list(scan(store, splits[1]))


def test_no_store_says_where_it_looked(tmp_path: Path) -> None:
    """And what to give in its place."""
    with pytest.raises(CannotDecide, match=r"no commit log: .*storePathRootDir"):
        open_store(str(tmp_path / "nowhere"))


def test_a_log_in_other_directories(log: Log, tmp_path: Path) -> None:
    """`storePathCommitLog` may name several."""
    log.write()
    other = tmp_path / "other disk"
    other.mkdir()
    name = f"{8192 + 4096:020d}"
    (log.directory / name).rename(other / name)
    store = open_store(str(log.root), commit_log=f"{log.directory},{other}")
    assert places(store, 1000) == log.places


def test_records_that_come_while_it_is_read_are_not_read(log: Log) -> None:
    """The bound is fixed first."""
    store = log.write()
    before, splits = list(log.places), store.splits(1 << 20)
    log.put(b"later")
    log.write()
    assert places(store, 1 << 20) == before
    assert [
        place for split in splits for one in scan(store, split) for place in one.physical_offset
    ] == before


@pytest.mark.lake
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_is_split_the_same_way(
    tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    """Whatever bytes change: the same records and gaps from one split as from many."""
    log = Log(tmp_path_factory.mktemp("log"), 1 << 14)
    for index in range(20):
        log.put(bytes([index]) * (index * 37 % 200))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(log.data) - 1))
        log.data[at] ^= 1 << draw.draw(st.integers(0, 7))
    store = log.write()
    whole = places(store, 1 << 30)
    assert set(whole) <= set(log.places)
    for split_size in (500, 150):
        assert places(store, split_size) == whole
        assert gaps(store, split_size) == gaps(store, 1 << 30)


def test_a_single_record_may_be_larger_than_a_window(tmp_path: Path) -> None:
    """The window grows for it, and only for it."""
    log = Log(tmp_path, 1 << 16)
    for size in (10, 20000, 10, 10, 9000, 5):
        log.put(b"x" * size)
    store = log.write()
    for split_size in (1 << 20, 5000):
        assert places(store, split_size, 256, 30000) == log.places
    assert end_of_log(FILES, store.log_files(), 256) == log.end


def test_splits_cover_a_file_of_any_layout() -> None:
    """A broker that joined a DLedger has files of both."""
    row = [LogFile("a", 0, 100), LogFile("b", 100, 100, Layout.DLEDGER)]
    assert splits_of(row, 64, 10, 150) == [
        Split("a", 0, 10, 64, 150, 100),
        Split("a", 0, 64, 100, 150, 100),
        Split("b", 100, 100, 150, 150, 200, Layout.DLEDGER),
    ]


def test_a_log_that_grows_is_read_up_to_a_whole_record(tmp_path: Path) -> None:
    """While somebody writes, each look finds the first so many records, and no gap."""
    log = Log(tmp_path, 1 << 16)
    for index in range(400):
        log.put(bytes([index % 256]) * (index * 31 % 700))
    data, size = bytes(log.data), 1 << 16
    paths = [log.directory / f"{start:020d}" for start in range(0, len(data), size)]
    paths[0].write_bytes(bytes(size))

    def write() -> None:
        for place, path in enumerate(paths):
            if place:
                path.write_bytes(bytes(size))
            with path.open("r+b", buffering=0) as file:
                for at in range(0, size, 777):
                    file.seek(at)
                    file.write(data[place * size :][at : min(at + 777, size)])

    writer = Thread(target=write)
    writer.start()
    seen = [0]
    while writer.is_alive() or seen[-1] < len(log.places):
        store = open_store(str(tmp_path))
        found = places(store, 1 << 14, 4096, 4096)
        assert found == log.places[: len(found)]
        assert gaps(store, 1 << 30) == []
        assert store.max_offset() >= (found[-1] if found else 0)
        assert len(found) >= seen[-1]
        seen.append(len(found))
    writer.join()
    assert seen[-1] == len(log.places)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_only_what_is_really_there_is_picked(log: Log, draw: st.DataObject) -> None:
    """In the order asked for, twice if asked twice; wrong places and sizes are left out."""
    if not list(log.directory.iterdir()):
        log.write()
    store = open_store(str(log.root))
    sizes = {
        place: size
        for split in store.splits()
        for one in scan(store, split)
        for place, size in zip(one.physical_offset.tolist(), one.sizes.tolist(), strict=True)
    }
    right = st.sampled_from(sorted(sizes.items()))
    wrong = st.tuples(st.integers(-10, 1 << 15), st.integers(-10, 5000))
    far = st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1))
    asked = draw.draw(st.lists(st.one_of(right, right, wrong, far), max_size=30))
    found = read_records(store, [place for place, _ in asked], [size for _, size in asked])
    expected = [place for place, size in asked if sizes.get(place) == size]
    assert found.physical_offset.tolist() == expected
    assert found.crc_ok().all()
