"""The index: layout, inserting, looking up, cleaning. Spec: store.md, section 4."""

from collections.abc import Callable
from errno import EIO, EMFILE, ENOMEM, ENOSPC
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import ConfigurationError, CorruptRecord, StoreError
from rmq_ha.base.model.java_hash import java_hash
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.store_format.index import (
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    SLOT,
    SLOT_SIZE,
    IndexHeader,
    file_name,
    index_file_size,
    key_hash,
)
from rmq_ha.server.store.index import file as index_file
from rmq_ha.server.store.index.index import IndexService
from rmq_ha.testing.disk import SimDisk, SimFile
from tests.unit.server.store.lookup import query

SLOTS, ITEMS = 10, 20
NOW = 1795245780632


def a_disk() -> SimDisk:
    return SimDisk(Random(1), lambda: 1000)


def an_index(disk: SimDisk, slots: int = SLOTS) -> IndexService:
    return IndexService(disk, "/store", slots, ITEMS, lambda: NOW)


def request(
    physical_offset: int, uniq_key: str = "", keys: str = "", time: int = 0, sys_flag: int = 0
) -> DispatchRequest:
    time = time or NOW + physical_offset
    return DispatchRequest(
        "T", 0, physical_offset, 100, 0, time, 0, keys, uniq_key, sys_flag, 0, ""
    )


def contents(disk: SimDisk) -> dict[str, bytes]:
    paths = [f"/store/index/{name}" for name in disk.list_dir("/store/index")]
    return {path: disk.open(path, disk.size(path)).pread(disk.size(path), 0) for path in paths}


def find(index: IndexService, key: str, begin: int = 0, end: int = 1 << 62) -> list[int]:
    return query(index, "T", key, 64, begin, end)[0]


# The layout


def test_vectors() -> None:
    """Spec: store.md, 15.2."""
    data = bytes.fromhex(
        "000001a1fcfcb0fe000001a1fcfcf1c10000000000020bb200000000000241800000002700000046"
    )
    header = IndexHeader.decode(data)
    assert header[2:] == (134066, 147840, 39, 70)
    assert header.encode() == data
    assert ITEM.pack(375142739, 134066, 0, 0).hex() == "165c39530000000000020bb20000000000000000"
    assert key_hash("TopicA", "key-0") == 1577233007
    assert key_hash("A", "u0") == 1973725
    assert index_file_size(5000000, 20000000) == 420000040


def test_a_file_needs_room_for_one_item_at_least() -> None:
    """The first place is never used."""
    index = IndexService(a_disk(), "/store", SLOTS, 2, lambda: NOW)
    index.put_requests([request(100 * i, f"u{i}") for i in range(3)])
    assert [find(index, f"u{i}") for i in range(3)] == [[0], [100], [200]]
    with pytest.raises(ConfigurationError):
        IndexService(a_disk(), "/store", SLOTS, 1, lambda: NOW)


def test_the_least_java_integer_hashes_to_0() -> None:
    """Its absolute value does not fit."""
    assert java_hash("T#DWIECHC") == -(2**31)
    assert key_hash("T", "DWIECHC") == 0


@given(st.sampled_from(["T", "a topic", "é"]), st.text("09:?@AFNOf_-+ .é#\ud800", max_size=70))
@example("load", "7F00000100002A139A5589A1B2C30042")
@example("T", "0" * 64)
@example("T", "0" * 65)
def test_the_hash_of_a_text_goes_on_from_that_of_its_beginning(topic: str, key: str) -> None:
    assert java_hash(key, java_hash(topic)) == java_hash(topic + key)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_corrupt(data: bytes) -> None:
    """Fuzz; a count below 1 reads as 1."""
    try:
        header = IndexHeader.decode(data)
    except CorruptRecord:
        assert len(data) < HEADER_SIZE
        return
    assert header.index_count >= 1
    assert header.encode()[:36] == data[:36]


def test_file_names_are_local_times() -> None:
    """17 digits."""
    name = file_name(NOW)
    assert len(name) == 17
    assert name.isdigit()
    assert name.endswith("632")


# Inserting and looking up


def test_unique_key_and_keys_are_found() -> None:
    """Empty tokens are no keys; other topics have other keys."""
    index = an_index(a_disk())
    index.put_requests([request(0, "u0", "a  b "), request(100, "u1", "a"), request(200)])
    assert find(index, "u0") == [0]
    assert find(index, "a") == [100, 0]
    assert find(index, "b") == [0]
    assert find(index, "") == []
    assert query(index, "U", "a", 64, 0, 1 << 62) == ([], NOW + 100, 100)
    assert query(index, "T", "a", 1, 0, 1 << 62)[0] == [100]


def test_rolled_back_messages_are_not_indexed() -> None:
    """Prepared and committed ones are."""
    index = an_index(a_disk())
    index.put_requests([request(i, "u", sys_flag=flag) for i, flag in enumerate((0, 4, 8, 0xC))])
    assert find(index, "u") == [2, 1, 0]


def test_an_empty_index_finds_nothing() -> None:
    """And makes no file."""
    disk = a_disk()
    index = an_index(disk)
    index.load(True, 0)
    index.put_requests([request(0)])
    assert query(index, "T", "a", 64, 0, 1) == ([], 0, 0)
    assert not disk.exists("/store/index")


def test_times_limit_a_search() -> None:
    """Whole seconds after the file's first record; chains end where they get too old."""
    index = an_index(a_disk())
    index.put_requests([request(i, "u", time=NOW + 1500 * i) for i in range(5)])
    assert find(index, "u", NOW + 3000, NOW + 4000) == [3, 2]  # 4500 counts as 4000
    assert find(index, "u", NOW + 6001) == []
    assert find(index, "u", 0, NOW - 1) == []


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [(0, 9, False), (0, 10, True), (12, 15, True), (20, 99, True), (21, 99, False)],
)
def test_only_files_of_the_span_are_searched(begin: int, end: int, expected: bool) -> None:
    """Both ends count; a file that is all earlier, or all later, is left alone."""
    file = index_file.IndexFile(a_disk(), "/store/index/1", SLOTS, ITEMS)
    file.header = IndexHeader(10, 20)
    assert file.overlaps(begin, end) is expected


def test_a_full_file_is_followed_by_another() -> None:
    """149 items of 150, so to say; keys of one record may be split; names rise within one ms."""
    disk = a_disk()
    index = an_index(disk)
    full: list[int] = []
    index.on_file_full = full.append
    index.put_requests([request(100 * i, f"u{i}", "k") for i in range(30)])
    headers = [header for _, header in index.headers()]
    assert [header.index_count for header in headers] == [20, 20, 20, 4]
    assert full == [header.end_timestamp for header in headers[:3]]
    names = disk.list_dir("/store/index")
    assert [int(name) - int(names[0]) for name in names] == [0, 1, 2, 3]
    assert find(index, "k") == [100 * i for i in range(29, -1, -1)]
    assert all(find(index, f"u{i}") == [100 * i] for i in range(30))
    index.sync()
    assert find(index, "k") == [100 * i for i in range(29, -1, -1)]


def test_repeats_are_skipped_but_the_last_record() -> None:
    """As Java: it may be there twice."""
    index = an_index(a_disk())
    requests = [request(100 * i, f"u{i}") for i in range(3)]
    index.put_requests(requests)
    index.put_requests(requests)
    assert [find(index, f"u{i}") for i in range(3)] == [[0], [100], [200, 200]]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 30)), min_size=1, max_size=8),
    st.integers(1, 12),
)
def test_parts_make_the_same_files(records: list[tuple[bool, int]], most: int) -> None:
    """However many keys a record has, and however few are put at once."""
    requests = [
        request(100 * i, f"u{i}" if has_unique_key else "", " ".join(f"k{n}" for n in range(count)))
        for i, (has_unique_key, count) in enumerate(records)
    ]
    whole, parts = a_disk(), a_disk()
    an_index(whole).put_requests(requests)
    index = an_index(parts)
    items = sum(has_unique_key + count for has_unique_key, count in records)
    calls = 1
    while not index.put_requests(requests, most):
        calls += 1
    assert calls > items / (2 * most + 1)  # the last record of a call may be whole
    assert contents(parts) == contents(whole)


def test_a_full_part_takes_no_key_of_the_next_record() -> None:
    """As many keys as are asked for go into one call; the next one has the rest."""
    index = an_index(a_disk())
    records = [request(0, "u0", "a b"), request(1, "u1")]
    assert not index.put_requests(records, 3)
    assert index.headers()[0][1].index_count == 1 + 3
    assert index.put_requests(records, 3)
    assert index.headers()[0][1].index_count == 1 + 4


def test_what_was_begun_and_cut_off_is_put_again() -> None:
    """A part is not taken for the record that stands there after the log was cut."""
    index = an_index(a_disk())
    assert not index.put_requests([request(0, "u0"), request(100, "", "a b c")], 2)
    index.truncate(100)
    assert index.put_requests([request(100, "", "d e f")])
    assert [find(index, key) for key in "abcdef"] == [[], [], [], [100], [100], [100]]


def test_a_restart_goes_on_in_the_newest_file() -> None:
    """With the same bytes as without a restart."""
    one, two = a_disk(), a_disk()
    whole, parts = an_index(one), an_index(two)
    for i in range(60):
        whole.put_requests([request(100 * i, f"u{i}", "k")])
        parts.put_requests([request(100 * i, f"u{i}", "k")])
        parts.close()
        parts = an_index(two)
        parts.load(True, 0)
    for name in one.list_dir("/store/index"):
        path = f"/store/index/{name}"
        assert one.read_bytes(path) == two.read_bytes(path)


def test_times_in_later_files_are_their_own() -> None:
    """The first item of a later file is not late by the pause before it, as it is in Java."""
    index = an_index(a_disk())
    index.put_requests([request(i, "u", time=NOW) for i in range(19)])
    index.put_requests([request(19, "v", time=NOW + 60_000)])
    assert find(index, "v", NOW + 60_000, NOW + 60_000) == [19]


@pytest.mark.parametrize("time", [0, -5, 2**63 - 1, -(2**63)])
def test_hostile_times_are_clamped(time: int) -> None:
    """No time of a record can break the file."""
    index = an_index(a_disk())
    index.put_requests([request(0, "u", time=NOW), request(100, "u", time=time or 1)])
    assert find(index, "u", -(2**63))[-1:] == [0]


def test_a_file_whose_first_record_has_no_good_time_counts_no_seconds() -> None:
    """A search that ends with the same second finds it."""
    index = an_index(a_disk())
    index.put_requests([request(0, "u", time=-5)])
    assert find(index, "u", -5, 500) == [0]


def test_a_full_disk_loses_nothing() -> None:
    """StoreError now, and the same requests again later."""
    disk = a_disk()
    index = an_index(disk)
    disk.is_full = True
    with pytest.raises(StoreError, match="cannot make room"):
        index.put_requests([request(0, "u0")])
    assert disk.list_dir("/store/index") == []
    disk.is_full = False
    index.put_requests([request(0, "u0")])
    assert find(index, "u0") == [0]


@given(st.binary(min_size=440, max_size=440))
def test_any_chain_ends(noise: bytes) -> None:
    """Slots and items full of noise: a search ends and finds only what carries the hash."""
    disk = a_disk()
    header = IndexHeader(1, 1 << 62, 0, 0, 1, 20).encode()
    disk.replace("/store/index/20261121072300632", header + noise)
    index = an_index(disk)
    index.load(True, 0)
    for key in range(20):
        assert len(find(index, str(key), -(2**63))) < 20


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0, 1, 400, 1000, 60_000]))),
    st.tuples(st.integers(0, 80), st.integers(-1500, 1500)),
    st.tuples(st.integers(0, 80), st.integers(-1500, 1500)),
    st.integers(1, 30),
)
def test_a_search_finds_what_a_walk_finds(
    puts: list[tuple[str, int]], low: tuple[int, int], high: tuple[int, int], most: int
) -> None:
    """Of its key and its span of time, newest first, in whatever file and chain it is."""
    index, times = an_index(a_disk(), slots=3), [NOW]
    for number, (key, pause) in enumerate(puts * 3):
        times.append(times[-1] + pause)
        index.put_requests([request(100 * number, key, time=times[-1])])
    begin, end = (times[at % len(times)] + more for at, more in (low, high))
    walked = []
    for number, (key, _) in reversed([*enumerate(puts * 3)]):
        first = times[
            number - number % (ITEMS - 1) + 1
        ]  # of its file: its seconds count from there
        time = times[number + 1] - (times[number + 1] - first) % 1000
        if key == "a" and begin <= time <= end:
            walked.append(100 * number)
    assert query(index, "T", "a", most, begin, end) == (
        walked[:most],
        times[-1] if puts else 0,
        300 * len(puts) - 100 if puts else 0,
    )


def test_a_long_chain_is_walked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the file that it is in has expired meanwhile, or is full and closed."""
    monkeypatch.setattr("rmq_ha.server.store.index.file.ITEMS_AT_ONCE", 5)
    index = an_index(a_disk(), slots=1)
    for number in range(ITEMS + 9):
        index.put_requests([request(100 * number, "a" if number % 3 else "b")])
    wanted = [100 * number for number in reversed(range(ITEMS + 9)) if number % 3]
    found: list[int] = []
    walk = index.find("T", "a", 64, 0, 1 << 62, found)
    assert [len(found) for _ in walk] == [3, 6, 9, 13, 16]
    assert found == wanted
    for steps in range(6):
        index = an_index(a_disk(), slots=1)
        for number in range(ITEMS + 9):
            index.put_requests([request(100 * number, "a" if number % 3 else "b")])
        found = []
        walk = index.find("T", "a", 64, 0, 1 << 62, found)
        for _ in range(steps):
            next(walk)
        before = len(found)
        index.delete_expired(1 << 40)
        list(walk)
        assert found == wanted[: max(before, 7)]


# Loading, cleaning, flushing


def test_load_ignores_names_that_are_no_number() -> None:
    """And removes a file of no bytes, which a crash left."""
    disk = a_disk()
    disk.replace("/store/index/readme", b"x")
    disk.replace("/store/index/20261121072300632", b"")
    index = an_index(disk)
    index.load(True, 0)
    assert index.headers() == []
    assert disk.list_dir("/store/index") == ["readme"]


def test_load_refuses_other_settings() -> None:
    """Java would grow the file and misread it."""
    disk = a_disk()
    an_index(disk).put_requests([request(0, "u")])
    with pytest.raises(StoreError, match="maxHashSlotNum"):
        an_index(disk, slots=11).load(True, 0)
    with pytest.raises(ConfigurationError):
        IndexService(disk, "/store", 0, 20, lambda: NOW)


def only_file(size: int, header: IndexHeader | None = None, item: bytes = b"") -> SimDisk:
    """A disk with one index file, which has lost its end; its header and first item as told."""
    disk = a_disk()
    an_index(disk).put_requests([request(700, "u"), request(800, "v")])
    (name,) = disk.paths("/store/index")
    data = disk.read_bytes(name)
    if header is not None:
        data = header.encode() + data[HEADER_SIZE:]
    at = HEADER_SIZE + SLOT_SIZE * SLOTS + ITEM_SIZE
    data = data[:at] + (item or data[at : at + ITEM_SIZE]) + data[at + ITEM_SIZE :]
    disk.damage(name, (data + bytes(ITEM_SIZE))[:size])
    return disk


FIRST_ITEM_END = HEADER_SIZE + SLOT_SIZE * SLOTS + 2 * ITEM_SIZE
WHOLE = index_file_size(SLOTS, ITEMS)


@pytest.mark.parametrize("size", [FIRST_ITEM_END, WHOLE - 1])
def test_an_only_file_that_lost_its_end_is_made_anew(size: int) -> None:
    """Its first item is where these settings put it: no operator has to choose others."""
    disk = only_file(size)
    index = an_index(disk)
    index.load(True, 0)
    assert f"has {size} bytes" in index.damage
    assert disk.paths("/store/index") == []


@pytest.mark.parametrize("size", [FIRST_ITEM_END - 1, WHOLE + 1])
def test_an_only_file_of_another_size_stays(size: int) -> None:
    """Nothing shows that the settings are those of before."""
    disk = only_file(size)
    with pytest.raises(StoreError, match="maxHashSlotNum"):
        an_index(disk).load(True, 0)
    assert len(disk.paths("/store/index")) == 1


@pytest.mark.parametrize(
    ("begin", "item"),
    [
        (0, (0, 0, 0, 0)),
        (700, (9, 701, 0, 0)),
        (700, (9, 700, 1, 0)),
    ],
    ids=["nothing", "another record", "a later one"],
)
def test_what_is_no_first_item_says_nothing_of_the_settings(
    begin: int, item: tuple[int, int, int, int]
) -> None:
    """With more slots that place holds some of them."""
    disk = only_file(WHOLE - 1, IndexHeader(1, 2, begin, 800, 2, 3), ITEM.pack(*item))
    with pytest.raises(StoreError, match="maxHashSlotNum"):
        an_index(disk).load(True, 0)
    assert len(disk.paths("/store/index")) == 1


def test_nothing_behind_a_damaged_file_is_taken() -> None:
    """Entries are in the order of the log: what is missing is indexed again, from there on."""
    disk = a_disk()
    an_index(disk).put_requests([request(100 * i, f"u{i}") for i in range(60)])
    names = [f"/store/index/{name}" for name in disk.list_dir("/store/index")]
    assert len(names) == 4
    disk.damage(names[1], disk.read_bytes(names[1])[:-1])
    index = an_index(disk)
    index.load(True, 0)
    assert names[1] in index.damage
    assert [path for path, _ in index.headers()] == disk.paths("/store/index") == names[:1]


def test_what_is_left_of_a_cut_file_is_found_by_its_time() -> None:
    """Times in the file are whole seconds after its first one; its end must not lie before them."""
    index = an_index(a_disk())
    index.put_requests([request(100 * i, f"u{i}", time=NOW + 1500 * i) for i in range(4)])
    index.truncate(300)
    assert find(index, "u2", NOW + 3000) == [200]
    assert find(index, "u3") == []
    assert find(index, "u2", NOW + 4000) == []


@pytest.mark.parametrize(("pause", "end"), [(1500, 3999), (100, 300)])
def test_a_cut_file_ends_no_later_than_what_is_left(pause: int, end: int) -> None:
    """Or a crash would take it whole, as if the checkpoint did not vouch for it."""
    index = an_index(a_disk())
    index.put_requests([request(100 * i, f"u{i}", time=NOW + pause * i) for i in range(4)])
    index.truncate(300)
    assert query(index, "T", "u2", 9, 0, 1 << 62) == ([200], NOW + end, 200)


@pytest.mark.parametrize("left", range(1, 18))
def test_a_truncated_file_counts_its_items_and_slots(left: int) -> None:
    """As if the others had never come, several to a slot as they are."""
    requests = [request(100 * i, f"u{i}") for i in range(18)]
    cut, never = an_index(a_disk()), an_index(a_disk())
    cut.put_requests(requests)
    cut.truncate(100 * left)
    never.put_requests(requests[:left])
    headers = [index._files[-1].header for index in (cut, never)]
    assert headers[0].index_count == headers[1].index_count
    assert headers[0].hash_slot_count == headers[1].hash_slot_count


def test_a_file_that_begins_behind_the_end_of_the_log_goes() -> None:
    """The end itself is behind it."""
    disk = a_disk()
    index = an_index(disk)
    index.put_requests([request(100 * i, f"u{i}") for i in range(ITEMS + 5)])
    begin = index._files[-1].header.begin_physical_offset
    assert len(disk.list_dir("/store/index")) == 2
    index.truncate(begin + 1)
    assert len(disk.list_dir("/store/index")) == 2
    index.truncate(begin)
    assert len(disk.list_dir("/store/index")) == 1
    assert find(index, "u0") == [0]


def test_a_new_file_is_synced_though_nothing_is_in_it_yet() -> None:
    """The disk was full when its first item came; it begins and ends where the one before ended."""
    disk = a_disk()
    file = index_file.IndexFile(disk, "/store/index/1", SLOTS, ITEMS)
    file.create(IndexHeader(1, 2, 3, 4, 5, 6))
    assert file.is_dirty
    file.sync()
    assert disk.is_safe("/store/index/1")
    assert not file.is_dirty
    file.load()
    assert file.header == IndexHeader(2, 2, 4, 4)


def found_in(
    file: index_file.IndexFile, key_hash: int, begin: int = 0, end: int = 1 << 62
) -> list[int]:
    found: list[int] = []
    for _ in file.find(key_hash, 64, begin, end, found):
        pass
    return found


def test_what_is_put_in_and_what_is_taken_out_is_synced() -> None:
    """Header and slots are on the disk as in memory; a sync that failed is still to be done."""
    disk = a_disk()
    file = index_file.IndexFile(disk, "/store/index/1", SLOTS, ITEMS)
    file.create(None)
    file.sync()
    file.put([(1, 100, NOW), (1 + SLOTS, 200, NOW), (2, 300, NOW)])
    assert file.is_dirty
    disk.fault = lambda operation, path: 5 if operation == "sync" else None
    with pytest.raises(StoreError):
        file.sync()
    disk.fault = lambda operation, path: None
    assert file.is_dirty
    file.sync()
    file.truncate(200)
    assert file.is_dirty
    file.sync()
    again = index_file.IndexFile(disk, "/store/index/1", SLOTS, ITEMS)
    again.load()
    assert again.header == file.header
    assert again.header.index_count == 2
    assert [found_in(again, key) for key in (1, 1 + SLOTS, 2)] == [[100], [], []]


def test_a_record_older_than_the_first_one_counts_as_old_as_that() -> None:
    """The file has only seconds after its first record."""
    file = index_file.IndexFile(a_disk(), "/store/index/1", SLOTS, ITEMS)
    file.create(None)
    file.put([(1, 100, NOW), (2, 200, NOW - 5000), (3, 300, NOW + 1000)])
    assert [found_in(file, key, NOW, NOW) for key in (1, 2, 3)] == [[100], [200], []]


def test_a_disk_that_cannot_be_read_is_said() -> None:
    disk = a_disk()
    index = an_index(disk)
    index.put_requests([request(0, "u")])
    disk.fault = lambda operation, path: EIO if operation == "pread" else None
    with pytest.raises(StoreError, match="cannot read /store/index"):
        find(index, "u")


def test_each_step_of_a_file_has_its_room_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A write through the map to a full disk would end the process."""
    monkeypatch.setattr(index_file, "_ITEMS_STEP", 4)
    disk = a_disk()
    index = an_index(disk)
    index.put_requests([request(100 * i, f"u{i}") for i in range(3)])
    disk.fault = lambda operation, path: ENOSPC if operation == "reserve" else None
    rest = [request(100 * i, f"u{i}") for i in range(3, 9)]
    with pytest.raises(StoreError, match="cannot make room"):
        index.put_requests(rest)
    disk.fault = lambda operation, path: None
    index.put_requests(rest)
    assert all(find(index, f"u{i}") == [100 * i] for i in range(9))


def test_all_that_is_written_through_the_map_was_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Header, slots and each item, also after a restart; nothing else of a file, which is large."""
    monkeypatch.setattr(index_file, "_ITEMS_STEP", 4)
    disk = a_disk()
    reserved: set[int] = set()
    reserve = SimFile.reserve

    def noted(file: SimFile, position: int, size: int) -> None:
        assert size > 0, "a file system refuses that"
        reserved.update(range(position, position + size))
        reserve(file, position, size)

    monkeypatch.setattr(SimFile, "reserve", noted)
    index = an_index(disk)
    most = 0
    for i in (*range(9), *range(6, ITEMS - 1)):
        if index.reached > 100 * i:
            index.close()
            index = an_index(disk)
            index.load(True, 0)
            index.truncate(100 * i)
        index.put_requests([request(100 * i, f"u{i}")])
        count = index.headers()[0][1].index_count
        end = HEADER_SIZE + SLOT_SIZE * SLOTS + count * ITEM_SIZE
        most = max(most, end)
        assert reserved >= set(range(end))
        assert max(reserved) < most + 4 * ITEM_SIZE


def test_what_is_written_does_not_stay_in_our_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each step of items, and when the file is full: it would count as the broker's."""
    monkeypatch.setattr(index_file, "_ITEMS_STEP", 8)
    forgotten: list[tuple[int, int, int]] = []
    index = an_index(a_disk())

    def noted(file: SimFile, position: int, size: int) -> None:
        forgotten.append((index.headers()[-1][1].index_count, position, size))

    monkeypatch.setattr(SimFile, "forget", noted)
    for i in range(ITEMS):
        index.put_requests([request(100 * i, f"u{i}")])
    begin = HEADER_SIZE + SLOT_SIZE * SLOTS
    assert forgotten == [(n, 0, begin + n * ITEM_SIZE) for n in (8, 16, ITEMS)]


def test_room_is_made_once() -> None:
    """Each batch would ask the file system for it again."""
    disk = a_disk()
    index = an_index(disk)
    index.put_requests([request(0, "u0")])
    asked: list[str] = []
    disk.fault = lambda operation, path: asked.append(operation)
    for i in range(1, ITEMS - 2):
        index.put_requests([request(100 * i, f"u{i}")])
    assert "reserve" not in asked


def test_expired_files_go() -> None:
    """The oldest first, never the newest."""
    disk = a_disk()
    index = an_index(disk)
    index.put_requests([request(100 * i, f"u{i}") for i in range(60)])
    assert index.delete_expired(1800) == 0
    assert index.delete_expired(1801) == 1
    index.sync()
    assert index.delete_expired(1 << 40) == 2
    assert find(index, "u59") == [5900]
    assert find(index, "u0") == []
    assert len(disk.list_dir("/store/index")) == 1


def test_sync_makes_safe_what_was_put() -> None:
    """Full files and the newest one; a failure is tried again."""
    disk = a_disk()
    index = an_index(disk)
    index.put_requests([request(100 * i, f"u{i}") for i in range(30)])
    disk.sync_fails = True
    with pytest.raises(StoreError, match="cannot flush"):
        index.sync()
    disk.sync_fails = False
    index.sync()
    index.close()
    disk = disk.crash()
    after = an_index(disk)
    after.load(True, 0)
    asked: list[str] = []
    disk.fault = lambda operation, path: asked.append(operation)
    after.sync()
    assert asked == [], "what was only read is on the disk already"
    assert all(find(after, f"u{i}") == [100 * i] for i in range(30))


def opened_files(disk: SimDisk) -> list[SimFile]:
    """What is opened from now on, in that order."""
    files: list[SimFile] = []
    plain_open = disk.open

    def opened(path: str, size: int) -> SimFile:
        files.append(plain_open(path, size))
        return files[-1]

    disk.open = opened  # type: ignore[method-assign]
    return files


def test_only_what_is_written_or_waits_for_the_worker_stays_open() -> None:
    """Searches close old files again, but none under the worker, which would open it anew."""
    disk = a_disk()
    files = opened_files(disk)
    index = an_index(disk)
    count = 0
    for _ in range(12):
        index.put_requests([request(100 * i, f"u{i}") for i in range(count, count + 10)])
        count += 10
        assert all(find(index, f"u{i}") == [100 * i] for i in range(count))
        before = len(files)
        index.sync()
        assert len(files) == before, "the worker finds all that it flushes open"
        assert all(find(index, f"u{i}") == [100 * i] for i in range(count))
        assert len([file for file in files if not file._closed]) == 1
    assert len(index.headers()) == 7
    index.close()
    assert all(file._closed for file in files)


def test_a_file_that_became_old_unsearched_is_closed() -> None:
    """With the next file that is full; that one waits for the worker."""
    disk = a_disk()
    files = opened_files(disk)
    index = an_index(disk)
    for i in range(200):
        index.put_requests([request(100 * i, f"u{i}")])
        index.sync()
        assert len([file for file in files if not file._closed]) <= 2
    assert len(index.headers()) == len(files) == 11


def test_a_file_that_begins_in_the_first_millisecond_has_times() -> None:
    """Only 0 means that no time is known."""
    for begin, found in ((1, [100]), (0, [])):
        index = an_index(a_disk())
        index.put_requests([request(0, "a", time=1), request(100, "b", time=5001)])
        if begin == 0:
            index = an_index(a_disk())
            entries = [(key_hash("T", "a"), 0, 0), (key_hash("T", "b"), 100, 5001)]
            index.put_requests([request(0, "a")])
            index._files[-1].truncate(0)
            index._files[-1].put(entries)
        assert find(index, "b", 4000) == found


def four_files() -> tuple[SimDisk, list[str]]:
    disk = a_disk()
    an_index(disk).put_requests([request(100 * i, f"u{i}") for i in range(60)])
    return disk, [f"/store/index/{name}" for name in disk.list_dir("/store/index")]


def test_a_file_that_cannot_be_read_goes_with_those_behind_it() -> None:
    """As a damaged one does, and is said; nothing of it stays open."""
    disk, names = four_files()
    files = opened_files(disk)
    disk.fault = lambda operation, path: EIO if (operation, path) == ("pread", names[1]) else None
    index = an_index(disk)
    index.load(True, 0)
    assert names[1] in index.damage
    assert [path for path, _ in index.headers()] == disk.paths("/store/index") == names[:1]
    assert files
    assert all(file._closed for file in files)


@pytest.mark.parametrize("operation", ["open", "pread"])
def test_a_disk_that_refuses_just_now_costs_no_file(operation: str) -> None:
    """The start fails; what it could not look at may be good."""
    disk, names = four_files()
    number = EMFILE if operation == "open" else ENOMEM
    disk.fault = lambda called, path: number if (called, path) == (operation, names[1]) else None
    with pytest.raises(StoreError, match=names[1]):
        an_index(disk).load(True, 0)
    assert disk.paths("/store/index") == names


def test_a_file_of_other_settings_beside_good_ones_is_damage() -> None:
    """The settings are those of the others."""
    disk, names = four_files()
    disk.damage(names[2], b"short")
    index = an_index(disk)
    index.load(True, 0)
    assert f"{names[2]} has 5 bytes" in index.damage
    assert disk.paths("/store/index") == names[:2]


@pytest.mark.parametrize(
    "removes", [lambda index: index.truncate(0), lambda index: index.delete_expired(1 << 40)]
)
def test_a_file_that_cannot_be_removed_is_said(removes: Callable[[IndexService], object]) -> None:
    """Else it would be back after the next start, with records that the log has no more."""
    disk, names = four_files()
    index = an_index(disk)
    index.load(True, 0)
    disk.fault = lambda operation, path: EIO if operation == "remove" else None
    with pytest.raises(StoreError, match="cannot remove"):
        removes(index)
    assert disk.paths("/store/index") == names


@pytest.mark.parametrize(("late", "count"), [(0, 4), (1, 3)])
def test_after_a_crash_the_checkpoint_vouches_to_the_millisecond(late: int, count: int) -> None:
    """A file that ends later goes; after a clean stop none does."""
    disk, _ = four_files()
    end = an_index(disk)
    end.load(True, 0)
    sure = end.headers()[-1][1].end_timestamp - late
    index = an_index(disk)
    index.load(False, sure)
    assert len(index.headers()) == len(disk.paths("/store/index")) == count


def test_a_part_that_is_all_is_the_last_one() -> None:
    """Nobody has to ask once more."""
    assert an_index(a_disk()).put_requests([request(0, "", "a b c")], 3)


def test_a_file_that_cannot_be_made_leaves_nothing_open() -> None:
    """It is tried again every second, and descriptors are few."""
    disk = a_disk()
    files = opened_files(disk)
    index = an_index(disk)
    disk.is_full = True
    for _ in range(3):
        with pytest.raises(StoreError):
            index.put_requests([request(0, "u")])
    assert files
    assert all(file._closed for file in files)


def test_a_broken_chain_does_not_hide_older_files() -> None:
    """What the newest file lost is said in the log; the others are searched."""
    disk, names = four_files()
    index = an_index(disk)
    index.load(True, 0)
    newest = index._files[-1]
    newest.header = newest.header._replace(index_count=1000)
    slot = HEADER_SIZE + key_hash("T", "u0") % SLOTS * SLOT_SIZE
    disk.open(names[-1], WHOLE).pwrite(SLOT.pack(900), slot)
    assert find(index, "u0") == [0]


def test_a_search_that_has_it_all_opens_no_older_file() -> None:
    """It ends with the file in which it found enough."""
    disk, _ = four_files()
    index = an_index(disk)
    index.load(True, 0)
    files = opened_files(disk)
    assert query(index, "T", "u59", 1, 0, 1 << 62)[0] == [5900]
    assert len(files) == 1


def test_a_file_that_was_cut_off_before_it_was_flushed_does_not_come_back() -> None:
    """The worker would make it anew to flush it."""
    disk = a_disk()
    files = opened_files(disk)
    index = an_index(disk)
    index.put_requests([request(100 * i, f"u{i}") for i in range(60)])
    index.truncate(0)
    assert all(file._closed for file in files)
    index.sync()
    assert disk.paths("/store/index") == []


def test_each_full_file_is_flushed_once_also_when_one_was_cut() -> None:
    """The one that was cut waits until it is full again; the one before it does not wait longer."""
    disk = a_disk()
    index = an_index(disk)
    index.put_requests([request(100 * i, f"u{i}") for i in range(45)])
    index.truncate(2500)
    index.put_requests([request(100 * i, f"u{i}") for i in range(25, 40)])
    flushed: list[str] = []
    disk.fault = lambda operation, path: flushed.append(path) if operation == "sync" else None
    index.sync()
    assert sorted(flushed) == disk.paths("/store/index")
    assert len(flushed) == 3


def test_an_expired_file_is_closed() -> None:
    """Also one that was searched while it was the newest."""
    disk, names = four_files()
    files = opened_files(disk)
    index = an_index(disk)
    index.load(True, 0)
    index._files[0].find(1, 1, 0, 1, [])
    index._files[0].truncate(1 << 40)
    index._files[0].reserve(0)
    assert not files[-1]._closed
    assert index.delete_expired(1801) == 1
    assert all(file._closed for file in files)
    assert disk.paths("/store/index") == names[1:]


def a_file(disk: SimDisk, *entries: tuple[int, int, int]) -> index_file.IndexFile:
    """A file with these items, that is on the disk."""
    file = index_file.IndexFile(disk, "/store/index/1", SLOTS, ITEMS)
    file.create(None)
    for entry in entries:
        file.put([entry])
    file.sync()
    return file


def item_of(disk: SimDisk, number: int) -> tuple[int, int, int, int]:
    at = HEADER_SIZE + SLOT_SIZE * SLOTS + number * ITEM_SIZE
    return ITEM.unpack(disk.open("/store/index/1", WHOLE).pread(ITEM_SIZE, at))


def test_a_cut_behind_the_end_of_a_file_changes_nothing() -> None:
    """Not even its times, which are exact as long as nothing was taken out."""
    file = a_file(a_disk(), (1, 100, NOW), (2, 200, NOW + 1500))
    before = file.header
    file.truncate(201)
    assert (file.header, file.is_dirty) == (before, False)


def test_an_item_that_the_header_does_not_count_is_none() -> None:
    """Lost power may keep a slot and lose the header: its record may be gone from the log."""
    disk = a_disk()
    file = a_file(disk, (1, 100, NOW), (1, 200, NOW))
    file.header = file.header._replace(index_count=2)
    assert found_in(file, 1) == []
    file.put([(1, 300, NOW)])
    assert found_in(file, 1) == [300]
    assert item_of(disk, 2) == (1, 300, 0, 0), "the slot led to the very place of this item"


@pytest.mark.parametrize("previous", [2, 3])
def test_a_chain_that_leads_back_to_itself_ends(previous: int) -> None:
    """What is found is found once."""
    disk = a_disk()
    file = a_file(disk, (1, 100, NOW), (1, 200, NOW), (5, 300, NOW))
    at = HEADER_SIZE + SLOT_SIZE * SLOTS + 2 * ITEM_SIZE
    disk.open("/store/index/1", WHOLE).pwrite(ITEM.pack(1, 200, 0, previous), at)
    assert found_in(file, 1) == [200]


@given(st.booleans(), st.lists(st.integers(0, 9), min_size=1, max_size=ITEMS - 2), st.data())
def test_what_was_put_since_is_taken_back_and_nothing_else(
    is_killed: bool, keys: list[int], data: st.DataObject
) -> None:
    """By a kill within a put, which left the header as it was, or by lost power: any part of it."""
    left = data.draw(st.integers(1, len(keys)))
    index = an_index(a_disk(), slots=3)
    for number, key in enumerate(keys):
        index.put_requests([request(100 * number + 100, str(key))])
        if number + 1 == left:
            before = index._files[-1].header
            index.sync()
    (file,) = index._files
    file.is_dirty = False
    if is_killed:
        file.header = before
        file.undo_half_put()
    else:
        file.restore(before.index_count)
    assert file.is_dirty is (left < len(keys) or not is_killed), "what is taken back is synced"
    newest = NOW + 100 * left
    assert newest <= file.header.end_timestamp < newest + 1000
    assert file.header[4:] == before[4:] == (before.hash_slot_count, left + 1)
    for key in range(10):
        there = [100 * n + 100 for n, known in enumerate(keys[:left]) if known == key]
        assert sorted(find(index, str(key))) == there
