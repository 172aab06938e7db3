"""Consume queues: appending, bounds, recovery, cleaning. Spec: store.md, 3 and 9.3."""

from errno import EIO, EMFILE
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.store_format.consumequeue import (
    FILLER,
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    count_valid,
    decode_units,
    is_extension_address,
)
from rmq_ha.server.store.queues.search import WALK_SIZE
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.testing.disk import SimDisk

FILE = 800
UNITS = 40


def a_disk() -> SimDisk:
    return SimDisk(Random(1), lambda: 1000)


def a_table(disk: SimDisk, most_open: int = 256) -> ConsumeQueueTable:
    return ConsumeQueueTable(disk, "/store", FILE, most_open)


def reopened(disk: SimDisk, last_exit_ok: bool = True) -> ConsumeQueueTable:
    table = a_table(disk)
    table.load()
    table.recover(last_exit_ok)
    return table


def request(
    queue_offset: int,
    physical_offset: int,
    size: int = 100,
    topic: str = "T",
    queue_id: int = 0,
    tags_code: int = 7,
    sys_flag: int = 0,
) -> DispatchRequest:
    return DispatchRequest(
        topic, queue_id, physical_offset, size, tags_code, 1, queue_offset, "", "", sys_flag, 0, ""
    )


def run_of(count: int, first: int = 0, physical: int = 0) -> list[DispatchRequest]:
    return [request(first + i, physical + 100 * i) for i in range(count)]


def files_of(disk: SimDisk, directory: str = "/store/consumequeue/T/0") -> list[str]:
    return [str(int(name)) for name in disk.list_dir(directory)]


# The layout


def test_unit_vector() -> None:
    """Spec: store.md, 15.2."""
    data = bytes.fromhex("0000000000022656000000870000000000000064")
    assert decode_units(data) == [(140886, 135, 100)]
    assert UNIT.pack(140886, 135, 100) == data
    assert FILLER.hex() == "00000000000000007fffffff0000000000000000"


@example([(3 << 30, 9), (-(1 << 40), 5)])
@example([(5, 9), (-1, 0)])
@given(
    st.lists(
        st.sampled_from(
            [
                (5, 9),
                (3 << 30, 9),
                (0, FILLER_SIZE),
                (0, 1),
                (0, 0),
                (-1, 5),
                (5, -3),
                (-(1 << 40), 5),
            ]
        )
    )
)
def test_count_valid_is_the_definition(pairs: list[tuple[int, int]]) -> None:
    """`phy >= 0 and size > 0`, up to the first that is not."""
    data = b"".join(UNIT.pack(*pair, 3) for pair in pairs)
    valid = 0
    while valid < len(pairs) and pairs[valid][0] >= 0 and pairs[valid][1] > 0:
        valid += 1
    assert count_valid(data) == valid
    assert count_valid(data + b"\x01" * 19) == valid
    assert len(decode_units(data + b"\x01" * 19)) == len(pairs)


def test_extension_addresses() -> None:
    """No 32-bit hash is taken for one."""
    assert is_extension_address(-9223372036854775780)
    assert is_extension_address(-(2**31) - 1)
    assert not is_extension_address(-(2**31))
    assert not is_extension_address(1795245782261)


# Appending


def test_units_follow_each_other_over_files() -> None:
    """The next file starts where the last one ends; reads stop there."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(100))
    queue = table.queue("T", 0)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 100, 10000)
    assert files_of(disk) == ["0", "800", "1600"]
    assert queue.units(35, 32) == [(100 * i, 100, 7) for i in range(35, 40)]
    assert queue.units(79, 32) == [(7900, 100, 7)]
    assert len(queue.units(80, 32)) == 20
    assert queue.units(100, 1) == []
    assert queue.units(-1, 1) == []
    assert queue.unit_bytes(3, 39) == UNIT.pack(300, 100, 7)
    assert queue.next_file_offset(39) == 40
    assert queue.next_file_offset(40) == 80
    assert table.topic_queue_table() == {("T", 0): 100}


def test_prepared_and_rolled_back_records_are_not_for_consumers() -> None:
    """Only types none and commit get a unit."""
    table = a_table(a_disk())
    table.put_requests(
        [
            request(number, 100 * i, sys_flag=flag)
            for i, (number, flag) in enumerate(((0, 0), (0, 4), (0, 0xC), (1, 8), (2, 0x301)))
        ]
    )
    assert [unit[0] for unit in table.queue("T", 0).units(0, 9)] == [0, 300, 400]


def test_what_was_built_is_not_built_again() -> None:
    """What lies below the physical offset that the queue has reached."""
    table = a_table(a_disk())
    table.put_requests(run_of(10))
    table.put_requests(run_of(12))
    assert table.queue("T", 0).max_offset == 12
    table.put_requests([request(5, 500)])
    assert table.queue("T", 0).max_offset == 12
    assert table.max_physical_offset == 1200


def test_a_queue_that_begins_late_is_filled() -> None:
    """Queue offset 100 with 40-unit files: file 1600 with 20 fillers (as Java)."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests([request(100, 5000), request(101, 5100)])
    queue = table.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (100, 102)
    assert files_of(disk) == ["1600"]
    content = disk.read_bytes("/store/consumequeue/T/0/00000000000000001600")
    assert content[:400] == FILLER * 20
    assert queue.units(99, 5) == []
    assert len(queue.units(100, 5)) == 2
    assert queue.first_record() > 1 << 60, "a filler points nowhere"


def test_min_offset_never_moves_onto_fillers() -> None:
    """A restart with a log that starts at 0 keeps 100 (Java: 80)."""
    disk = a_disk()
    a_table(disk).put_requests([request(100, 5000)])
    table = reopened(disk)
    table.correct_min_offsets(0)
    queue = table.queue("T", 0)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (100, 101, 5100)


def test_fillers_alone_leave_no_physical_offset() -> None:
    """2147483647 would stop the dispatcher after the real units are cut off."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests([request(100, 5000)])
    table.truncate(5000)
    assert table.max_physical_offset == 5000
    assert reopened(disk).max_physical_offset == -1


def test_a_jump_inside_a_queue_is_not_honoured() -> None:
    """As Java: the unit comes next."""
    table = a_table(a_disk())
    table.put_requests([request(0, 0), request(1, 100), request(10, 200), request(11, 300)])
    assert [unit[0] for unit in table.queue("T", 0).units(0, 9)] == [0, 100, 200, 300]


def test_an_emptied_queue_may_begin_anew() -> None:
    """A kept but empty file does not hold a queue to its old numbers."""
    disk = a_disk()
    disk.open("/store/consumequeue/T/0/00000000000000000000", FILE)
    table = reopened(disk)
    table.put_requests([request(45, 5000)])
    queue = table.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (45, 46)
    assert files_of(disk) == ["800"]


@pytest.mark.parametrize("queue_offset", [-1, -(2**63), 2**63 - 1])
def test_impossible_queue_offsets_are_left_out(queue_offset: int) -> None:
    """A hostile record cannot make a file name of it."""
    table = a_table(a_disk())
    table.put_requests([request(queue_offset, 0), request(0, 100)])
    assert table.queue("T", 0).units(0, 9) == [(100, 100, 7)]
    table.put_requests([request(queue_offset, 200)])
    assert table.queue("T", 0).max_offset == 1
    table.put_requests([request(1, 300)])
    assert table.queue("T", 0).units(0, 9) == [(100, 100, 7), (300, 100, 7)]


def test_a_delivery_time_beyond_64_bits_is_no_failure() -> None:
    """It becomes 0: due at once."""
    table = a_table(a_disk())
    table.put_requests([request(0, 0, tags_code=2**63)])
    assert table.queue("T", 0).units(0, 1) == [(0, 100, 0)]


def test_a_full_disk_leaves_no_trace() -> None:
    """StoreError names the file; the same requests succeed when there is room again."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(30))
    disk.is_full = True
    with pytest.raises(StoreError, match="00000000000000000800"):
        table.put_requests(run_of(50))
    assert table.queue("T", 0).max_offset == 30
    disk.is_full = False
    table.put_requests(run_of(50))
    assert [unit[0] // 100 for unit in table.queue("T", 0).units(0, 40)] == list(range(40))
    assert table.queue("T", 0).max_offset == 50


def test_looking_up_makes_nothing_on_the_disk() -> None:
    """`get` makes nothing at all."""
    disk = a_disk()
    table = a_table(disk)
    assert table.get("T", 0) is None
    assert table.queue("T", 0) is table.get("T", 0)
    assert table.queue("T", 0).units(0, 1) == []
    assert not disk.exists("/store/consumequeue")


# Loading and recovery


def test_load_ignores_what_java_ignores() -> None:
    """Plain files among the topics, and directories that are no queue id."""
    disk = a_disk()
    a_table(disk).put_requests(run_of(1))
    disk.replace("/store/consumequeue/readme", b"x")
    disk.make_dirs("/store/consumequeue/T/backup")
    disk.replace("/store/consumequeue/T/7", b"x")
    assert [key for key, _ in reopened(disk).items()] == [("T", 0)]


@pytest.mark.parametrize(
    "name", ["00000000000000000810", "stray", "800", "0000000000000000080\u0660", "x" * 20]
)
def test_load_refuses_strange_files(name: str) -> None:
    """Of a name that no queue gives; the message says which."""
    disk = a_disk()
    a_table(disk).put_requests(run_of(1))
    disk.replace(f"/store/consumequeue/T/0/{name}", b"x")
    with pytest.raises(StoreError, match=f"T/0/{name}"):
        a_table(disk).load()


def test_every_file_of_a_wrong_size_goes_where_others_have_the_right_one() -> None:
    """They are built anew from the log."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(3))
    table.close()
    whole = disk.paths("/store/consumequeue")
    for queue_id in (1, 2):
        disk.replace(f"/store/consumequeue/T/{queue_id}/{0:020d}", b"cut")
    again = a_table(disk)
    again.load()
    assert disk.paths("/store/consumequeue") == whole
    damage = [again.queue("T", queue_id).damage for queue_id in range(3)]
    assert ["3 bytes" in text for text in damage] == [False, True, True]


def test_load_removes_a_file_whose_making_was_cut_short() -> None:
    """Of no bytes at all."""
    disk = a_disk()
    a_table(disk).put_requests(run_of(1))
    disk.replace("/store/consumequeue/T/0/00000000000000000800", b"")
    assert reopened(disk).queue("T", 0).max_offset == 1
    assert files_of(disk) == ["0"]


def test_recovery_stops_at_the_first_hole() -> None:
    """What lies behind it goes, files too, and nothing of it comes back."""
    disk = a_disk()
    a_table(disk).put_requests(run_of(110))
    name = "/store/consumequeue/T/0/00000000000000000800"
    disk.open(name, FILE).pwrite(bytes(20), 200)
    table = reopened(disk, last_exit_ok=False)
    queue = table.queue("T", 0)
    assert (queue.max_offset, queue.max_physical_offset) == (50, 5000)
    assert files_of(disk) == ["0", "800"]
    assert disk.read_bytes(name)[200:] == bytes(600)


def test_the_first_message_is_looked_for_again_when_the_queue_was_cut() -> None:
    """What is known of the one that was cut away says nothing of the one in its place."""
    table = a_table(a_disk())
    table.put_requests(run_of(5))
    queue = table.queue("T", 0)
    queue.correct_min_offset(300)
    assert queue.min_offset == 3
    queue.truncate(200)
    assert queue.min_offset == 2
    table.put_requests(run_of(2, 2, 200))
    queue.correct_min_offset(250)
    assert queue.min_offset == 3


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=130), st.integers(0, 300))
def test_the_first_message_of_a_time(steps: list[int], ms: int) -> None:
    """Over several files, with many messages of one time: none of that time is left out."""
    stamps = [sum(steps[: i + 1]) for i in range(len(steps))]
    table, by_offset = stamped(*stamps)
    queue = table.queue("T", 0)
    begun = queue.offset_by_time(ms, lambda offset, size: by_offset[offset], 0)
    assert begun == next((i for i, stamp in enumerate(stamps) if stamp >= ms), len(stamps))


def test_a_search_in_time_where_records_are_gone_or_unreadable() -> None:
    """What the log has lost at its beginning is old; what cannot be read hides no message."""
    table, stamps = stamped(*range(1000, 1100, 10))
    queue = table.queue("T", 0)

    def begun(ms: int, low: int = 0) -> int:
        return queue.offset_by_time(ms, lambda offset, size: stamps.get(offset, -1), low)

    assert [begun(ms) for ms in (0, 1000, 1001, 1090, 1091)] == [0, 0, 1, 9, 10]
    assert begun(0, low=300) == 3
    del stamps[500], stamps[600]
    assert [begun(ms) for ms in (1040, 1050, 1070)] == [4, 5, 5]
    del stamps[900]
    assert begun(1085) == 9
    stamps.clear()
    assert begun(1040) == 0
    assert table.queue("U", 0).offset_by_time(0, lambda offset, size: 5, 0) == 0


@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_what_a_crash_left_far_behind_the_end_does_not_come_back(last_exit_ok: bool) -> None:
    """Units that were written before those in front of them are none, however far they are."""
    disk, size = a_disk(), 2 * WALK_SIZE
    ConsumeQueueTable(disk, "/store", size).put_requests(run_of(5))
    name = "/store/consumequeue/T/0/00000000000000000000"
    disk.open(name, size).pwrite(b"x" * 20, WALK_SIZE + 200)
    table = ConsumeQueueTable(disk, "/store", size)
    table.load()
    table.recover(last_exit_ok)
    assert table.queue("T", 0).max_offset == 5
    assert (disk.read_bytes(name)[100:] == bytes(size - 100)) is not last_exit_ok


def test_a_deleted_queue_begins_with_the_record_of_its_place() -> None:
    """Those before it are the old life's; it itself is the first of the new one."""
    key = ("T", 0)
    table = ConsumeQueueTable(a_disk(), "/store", FILE, begins={key: 300})
    assert [table.is_deleted(key, offset) for offset in (299, 300, 301)] == [True, False, False]
    assert not table.is_deleted(("T", 1), 0)
    table.put_requests(run_of(5))
    assert [unit[0] for unit in table.queue(*key).units(3, 9)] == [300, 400]


@pytest.mark.parametrize("torn", range(1, 20))
def test_a_filler_that_a_crash_cut_is_none(torn: int) -> None:
    """It said that all of the first 2 GiB of the log were dispatched."""
    disk = a_disk()
    a_table(disk).put_requests([request(7, 5000)])
    path = "/store/consumequeue/T/0/00000000000000000000"
    disk.damage(path, (FILLER * 3 + FILLER[:torn]).ljust(FILE, b"\0"))
    table = reopened(disk, last_exit_ok=False)
    assert table.max_physical_offset == -1
    table.put_requests([request(7, 5000)])
    assert table.queue("T", 0).units(7, 1) == [(5000, 100, 7)]


def test_a_queue_that_cannot_be_read_at_a_start_is_removed_and_said() -> None:
    """It is built anew from the log; a disk that only has no room for it now stops the start."""
    for number, is_removed in ((EIO, True), (EMFILE, False)):
        disk = a_disk()
        made = a_table(disk)
        made.put_requests(run_of(60))
        made.close()
        table = a_table(disk)
        table.load()
        faulty(disk, number)
        if is_removed:
            table.recover(True)
            queue = table.queue("T", 0)
            assert (queue.max_offset, bool(queue.damage)) == (0, True)
        else:
            with pytest.raises(StoreError):
                table.recover(True)
        disk.fault = lambda operation, path: None
        assert (files_of(disk) == []) == is_removed


def faulty(disk: SimDisk, number: int) -> None:
    """Reads fail."""
    disk.fault = lambda operation, path: number if operation == "pread" else None


def test_a_queue_that_lost_a_file_to_a_wrong_size_ends_before_it() -> None:
    """At once, and not only after `recover`: those behind it are gone from the disk as well."""
    disk = a_disk()
    made = a_table(disk)
    made.put_requests(run_of(150))
    made.close()
    name = f"/store/consumequeue/T/0/{800:020d}"
    disk.remove(name)
    disk.open(name, 400).close()
    table = a_table(disk)
    table.load()
    queue = table.queue("T", 0)
    assert (files_of(disk), queue.max_offset, queue.min_offset) == (["0"], UNITS, 0)
    table.recover(True)
    assert (queue.max_offset, queue.max_physical_offset) == (UNITS, 100 * UNITS)


def test_a_destroyed_queue_knows_nothing_of_before() -> None:
    """Records of its next life may stand anywhere in the log."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(60))
    queue = table.queue("T", 0)
    queue.destroy()
    assert disk.paths("/store/consumequeue/T/0") == []
    fresh = a_table(a_disk()).queue("T", 0)
    for known in (queue, fresh):
        assert (known.max_offset, known.min_offset, known.max_physical_offset) == (0, 0, -1)


def test_recovery_looks_at_the_last_three_files() -> None:
    """As Java, unless a file in the middle is damaged: the end is where it shows."""
    disk = a_disk()
    a_table(disk).put_requests(run_of(160))
    disk.open("/store/consumequeue/T/0/00000000000000001600", FILE).zero(0)
    assert reopened(disk, False).queue("T", 0).max_offset == 80
    assert files_of(disk) == ["0", "800", "1600"]
    disk.open("/store/consumequeue/T/0/00000000000000000000", FILE).zero(0)
    table = reopened(disk)
    assert table.queue("T", 0).max_offset == 0
    assert "800, that lies behind a gap" in table.queue("T", 0).damage
    assert files_of(disk) == []


def test_recovery_looks_at_all_of_a_large_file() -> None:
    """It is read in pieces: a queue that ended with the first one lost what followed."""
    disk = a_disk()
    count = 2 * WALK_SIZE // UNIT_SIZE + 7
    table = ConsumeQueueTable(disk, "/store", 4 * WALK_SIZE)
    table.put_requests(run_of(count))
    table.close()
    table = ConsumeQueueTable(disk, "/store", 4 * WALK_SIZE)
    table.load()
    table.recover(True)
    queue = table.queue("T", 0)
    assert (queue.max_offset, queue.max_physical_offset) == (count, 100 * count)


def test_a_queue_ends_before_the_first_of_its_files_that_is_missing() -> None:
    """What is left behind the gap goes, and none of it counts as read."""
    disk = a_disk()
    made = a_table(disk)
    made.put_requests(run_of(160))
    made.close()
    disk.remove(f"/store/consumequeue/T/0/{800:020d}")
    queue = reopened(disk).queue("T", 0)
    assert (queue.max_offset, queue.max_physical_offset) == (UNITS, 100 * UNITS)
    assert "1600, that lies behind a gap" in queue.damage
    assert files_of(disk) == ["0"]


def test_bounds_that_are_good_cost_no_read() -> None:
    """They are looked at every ten seconds, in all queues."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests([request(5, 1000)])
    table.correct_min_offsets(900)
    asked: list[str] = []
    disk.fault = lambda operation, path: asked.append(operation)
    for low in (900, 1000):
        table.correct_min_offsets(low)
    assert asked == []
    table.correct_min_offsets(1001)
    assert asked == ["pread"] * len(asked) != []


@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_lost_files_do_not_take_the_ones_before_along(last_exit_ok: bool) -> None:
    """The last three files lost their units with the power: the end is in an older one."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(5 * UNITS))
    table.close()
    for start in files_of(disk)[2:]:
        disk.open(f"/store/consumequeue/T/0/{int(start):020d}", FILE).zero(0)
    queue = reopened(disk, last_exit_ok).queue("T", 0)
    assert (queue.max_offset, queue.max_physical_offset) == (2 * UNITS, 200 * UNITS)
    assert queue.units(0, 1) == [(0, 100, 7)]


@pytest.mark.parametrize("cut", [0, 1, 39, 40, 41, 79, 80, 81, 99])
def test_truncation(cut: int) -> None:
    """Records at and behind the end of the log go, with the files that held nothing else."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(100))
    table.truncate(100 * cut)
    queue = table.queue("T", 0)
    assert (queue.max_offset, queue.max_physical_offset) == (cut, 100 * cut)
    assert len(files_of(disk)) == -(-cut // UNITS)
    assert reopened(disk).queue("T", 0).max_offset == cut
    for name in files_of(disk):
        content = disk.read_bytes(f"/store/consumequeue/T/0/{int(name):020d}")
        kept = min(FILE, cut * UNIT_SIZE - int(name))
        assert content[kept:] == bytes(FILE - kept)
    table.put_requests(run_of(5, cut, 100 * cut))
    assert queue.max_offset == cut + 5


def test_truncation_spares_queues_that_end_before() -> None:
    """Their bounds stay as they are."""
    table = a_table(a_disk())
    table.put_requests([*run_of(3), request(0, 300, topic="U")])
    table.truncate(300)
    assert table.topic_queue_table() == {("T", 0): 3, ("U", 0): 0}
    assert table.queue("T", 0).max_physical_offset == 300


def test_truncation_behind_a_queue_spares_the_numbers_it_has_left_out() -> None:
    """They belonged to messages that the log lost: given again, consumers would miss the new."""
    table = a_table(a_disk())
    table.put_requests(run_of(3))
    table.queue("T", 0).leave_out(7)
    table.truncate(300)
    assert table.topic_queue_table() == {("T", 0): 7}


# Cleaning


def test_expired_files_go_and_bounds_follow() -> None:
    """Never the last file; the min offset is the first message that the log still has."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(100))
    assert table.delete_expired(3900) == 0
    assert table.queue("T", 0).min_offset == 39
    assert table.delete_expired(4050) == 1
    assert table.queue("T", 0).min_offset == 41
    assert files_of(disk) == ["800", "1600"]
    assert table.delete_expired(100000) == 1
    assert files_of(disk) == ["1600"]
    assert table.queue("T", 0).min_offset == 80
    assert table.queue("T", 0).max_offset == 100


def test_a_queue_whose_last_file_is_exactly_full_can_expire() -> None:
    """Where Java throws."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests([*run_of(40), request(0, 9000, topic="SCHEDULE_TOPIC_XXXX")])
    table.queue("U", 0)
    assert table.expired_queues(4000) == []
    assert table.expired_queues(99999) == [("T", 0)]
    table.remove_queue("T", 0)
    assert table.get("T", 0) is None
    assert not disk.exists("/store/consumequeue/T")
    table.remove_queue("T", 0)
    table.remove_all()
    assert disk.list_dir("/store/consumequeue") == []
    assert table.topic_queue_table() == {}


# Descriptors and flushing


def test_few_descriptors_serve_many_queues() -> None:
    """The least used one is given back; what was written stays."""
    disk = a_disk()
    table = a_table(disk, most_open=3)
    for round_ in range(2):
        for queue_id in range(10):
            offset = round_ * 10 + queue_id
            table.put_requests([request(round_, 100 * offset, queue_id=queue_id)])
    assert len(table._files._open) <= 3
    assert all(len(queue.units(0, 9)) == 2 for _, queue in table.items())
    table.sync()
    assert table.dirty_bytes == 0
    table.close()
    after = disk.crash()
    assert set(reopened(after).topic_queue_table().values()) == {2}


def test_sync_makes_safe_what_was_put_before() -> None:
    """And only that survives for sure when the power fails."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(50))
    assert table.dirty_bytes == 1000
    table.sync()
    assert table.dirty_bytes == 0
    after = disk.crash()
    assert reopened(after, last_exit_ok=False).queue("T", 0).max_offset == 50


def test_a_failed_sync_is_tried_again() -> None:
    """Nothing counts as flushed that was not."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests([request(0, 0), request(0, 100, topic="U")])
    disk.sync_fails = True
    with pytest.raises(StoreError, match="cannot flush"):
        table.sync()
    assert table.dirty_bytes == 40
    disk.sync_fails = False
    table.sync()
    assert table.dirty_bytes == 0


def test_sync_does_not_bring_removed_files_back() -> None:
    """A queue that was removed stays removed."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(50))
    table.sync()
    table.put_requests(run_of(60))
    dirty = table._files._dirty
    table.remove_all()
    assert dirty == {}
    table._files._dirty["/store/consumequeue/T/0/00000000000000000000"] = 20
    table.sync()
    assert not disk.exists("/store/consumequeue/T")


# Offset by time


def stamped(*stamps: int) -> tuple[ConsumeQueueTable, dict[int, int]]:
    table = a_table(a_disk())
    table.put_requests(run_of(len(stamps)))
    return table, {100 * i: stamp for i, stamp in enumerate(stamps)}


def test_nearest_message_by_time() -> None:
    """Java: stamps 0, 109, 209: +40 gives 0, +60 gives 1; ties go to the earlier."""
    table, stamps = stamped(1000, 1109, 1209)
    queue = table.queue("T", 0)

    def find(ms: int, low: int = 0) -> int:
        def time_of(offset: int, size: int) -> int:
            return stamps.get(offset, -1)

        return queue.offset_by_time(ms, time_of, low, nearest=True)

    assert [find(ms) for ms in (0, 1040, 1060, 1109, 1159, 1160, 9999)] == [0, 0, 1, 1, 1, 2, 2]
    assert find(0, low=100) == 1
    stamps.clear()
    assert find(1109) == 0
    assert table.queue("U", 0).offset_by_time(0, lambda offset, size: 5, 0) == 0


@settings(max_examples=60)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=130), st.integers(0, 26000))
def test_time_search_over_files(steps: list[int], ms: int) -> None:
    """The message found is nearest within its file, and no later file begins before the time."""
    stamps = [sum(steps[: i + 1]) for i in range(len(steps))]
    table, by_offset = stamped(*stamps)
    queue = table.queue("T", 0)
    found = queue.offset_by_time(ms, lambda offset, size: by_offset[offset], 0, nearest=True)
    start = next(
        (i for i in range(0, len(stamps), 40) if stamps[min(i + 39, len(stamps) - 1)] >= ms),
        (len(stamps) - 1) // 40 * 40,
    )
    inside = range(start, min(start + 40, len(stamps)))
    assert found in inside
    assert abs(stamps[found] - ms) == min(abs(stamps[i] - ms) for i in inside)


@pytest.mark.parametrize("last_exit_ok", [True, False])
@pytest.mark.parametrize("first", [5, UNITS + 5, 3 * UNITS + 7])
def test_a_queue_of_which_only_fillers_are_left_is_empty(first: int, last_exit_ok: bool) -> None:
    """Lost power kept what stood before its first message: the next one begins it where it is."""
    disk = a_disk()
    a_table(disk).put_requests([request(first, 0)])
    for name in disk.list_dir("/store/consumequeue/T/0"):
        path = f"/store/consumequeue/T/0/{name}"
        end = max(0, first * UNIT_SIZE - int(name))
        data = disk.content(path)[:end]
        disk.damage(path, data + bytes(FILE - len(data)))
    table = reopened(disk, last_exit_ok)
    queue = table.queue("T", 0)
    assert (queue.max_offset, queue.min_offset, queue.max_physical_offset) == (0, 0, -1)
    assert disk.list_dir("/store/consumequeue/T/0") == []
    table.put_requests([request(first + 2, 50)])
    assert (queue.min_offset, queue.max_offset) == (first + 2, first + 3)


@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_the_last_message_is_found_before_files_of_fillers(last_exit_ok: bool) -> None:
    """However many there are: without it the queue would pass for one that has nothing."""
    disk, far = a_disk(), 7 + 5 * UNITS
    a_table(disk).put_requests([*run_of(7), request(far, 1_000_000)])
    last = far * UNIT_SIZE
    path = f"/store/consumequeue/T/0/{last - last % FILE:020d}"
    data = disk.content(path)[: last % FILE]
    disk.damage(path, data.ljust(FILE, b"\0"))
    queue = reopened(disk, last_exit_ok).queue("T", 0)
    assert (queue.min_offset, queue.last_record()) == (0, (600, 100))
    assert queue.units(6, 1) == [(600, 100, 7)]


def test_a_file_of_a_wrong_size_alone_stops_the_load() -> None:
    """The setting may be wrong: nothing is removed, and the message says what to do."""
    disk = a_disk()
    disk.replace(f"/store/consumequeue/T/0/{0:020d}", b"cut")
    with pytest.raises(StoreError, match=r"has 3 bytes.*no queue has a file of that size"):
        a_table(disk).load()
    assert files_of(disk) == ["0"]


def test_what_was_odd_is_removed_once() -> None:
    """A load after that, of files that were built anew, takes none of them."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(3))
    disk.replace(f"/store/consumequeue/T/1/{0:020d}", b"cut")
    again = a_table(disk)
    again.load()
    again.put_requests([request(0, 300, queue_id=1)])
    again.forget()
    assert list(again.items()) == []
    again.load()
    again.recover()
    assert again.topic_queue_table() == {("T", 0): 3, ("T", 1): 1}


def test_a_deleted_queue_that_is_made_again_tells_of_its_new_life() -> None:
    """With its first number, and once; a queue that goes on tells nothing."""
    told: list[tuple[str, int, int]] = []
    table = ConsumeQueueTable(a_disk(), "/store", FILE, begins={("T", 0): 500, ("T", 1): 500})
    table.restarted = lambda *life: told.append(life)
    table.put_requests([request(0, 0), request(1, 400)])
    assert told == []
    assert table.get("T", 0) is None
    table.put_requests([request(3, 500), request(4, 600)])
    assert told == [("T", 0, 3)]
    table.put_requests([request(5, 700)])
    assert told == [("T", 0, 3)]


@pytest.mark.parametrize(("begin", "files"), [(2, 1), (50, 2)])
def test_a_new_life_leaves_nothing_of_the_old_one_behind_it(begin: int, files: int) -> None:
    """On the disk, too: the next start would serve the old messages again."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(100))
    table.put_requests([request(begin, 10_000)])
    assert len(files_of(disk)) == files
    for found in (table, reopened(disk)):
        queue = found.queue("T", 0)
        assert queue.max_offset == begin + 1
        assert queue.units(begin - 1, 9) == [(100 * (begin - 1), 100, 7), (10_000, 100, 7)]


def test_a_queue_expires_when_the_log_begins_at_its_end() -> None:
    """Not while its last byte is there; nor one of which no record is known."""
    table = a_table(a_disk())
    table.put_requests([request(0, 0, size=100)])
    table.queue("T", 1)
    assert table.expired_queues(100) == []
    assert table.expired_queues(101) == [("T", 0)]


def test_a_unit_of_a_later_file_is_mended_there() -> None:
    table = a_table(a_disk())
    queue = table.queue("T", 0)
    assert (queue.first_offset, queue.first_file) == (0, "")
    table.put_requests(run_of(100))
    assert queue.first_file.endswith("/00000000000000000000")
    before = queue.units(0, UNITS), queue.units(UNITS, UNITS)
    queue.mend(53, (7, 8, 9))
    assert queue.units(53, 1) == [(7, 8, 9)]
    queue.mend(53, (5300, 100, 7))
    assert (queue.units(0, UNITS), queue.units(UNITS, UNITS)) == before


@pytest.mark.parametrize("lost", [0, FILE, 2 * FILE])
def test_a_lost_file_goes_with_those_behind_it(lost: int) -> None:
    disk = a_disk()
    table = a_table(disk)
    table.put_requests(run_of(100))
    queue = table.queue("T", 0)
    assert files_of(disk) == ["0", "800", "1600"]
    queue.drop_from(lost)
    assert files_of(disk) == ["0", "800", "1600"][: lost // FILE]
    end = lost // UNIT_SIZE
    assert queue.max_offset == end
    queue.recover(True)
    assert queue.max_offset == end
    assert queue.last_record() == ((100 * (end - 1), 100) if lost else None)


@pytest.mark.parametrize("missing", [FILE, 2 * FILE, 3 * FILE])
@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_a_queue_ends_at_its_first_gap(missing: int, last_exit_ok: bool) -> None:
    disk = a_disk()
    a_table(disk).put_requests(run_of(4 * UNITS + 5))
    disk.remove(f"/store/consumequeue/T/0/{missing:020d}")
    queue = reopened(disk, last_exit_ok).get("T", 0)
    assert queue is not None
    assert queue.max_offset == missing // UNIT_SIZE
    assert len(files_of(disk)) == missing // FILE
    assert bool(queue.damage) is last_exit_ok


@pytest.mark.parametrize("hole", [0, UNITS - 1])
def test_an_old_file_with_a_hole_at_either_end_is_the_last_one(hole: int) -> None:
    """Units are looked at in the last three only: what lies behind it would pass for good."""
    disk = a_disk()
    a_table(disk).put_requests([request(n, 100 * n, tags_code=0) for n in range(6 * UNITS)])
    disk.open(f"/store/consumequeue/T/0/{FILE:020d}", FILE).pwrite(bytes(20), 20 * hole)
    queue = reopened(disk).queue("T", 0)
    assert queue.max_offset == UNITS + hole
    assert "1600, that lies behind a gap" in queue.damage


def test_a_long_hole_in_a_file_is_damage() -> None:
    """Near the end of what is left nothing shows it, but the file that lies behind does."""
    disk, size = a_disk(), 4 * WALK_SIZE
    ConsumeQueueTable(disk, "/store", size).put_requests(run_of(size // UNIT_SIZE + 5))
    disk.open(f"/store/consumequeue/T/0/{0:020d}", size).pwrite(bytes(2 * WALK_SIZE), WALK_SIZE)
    table = ConsumeQueueTable(disk, "/store", size)
    table.load()
    table.recover(True)
    queue = table.queue("T", 0)
    assert queue.max_offset == WALK_SIZE // UNIT_SIZE
    assert f"{size}, that lies behind a gap" in queue.damage
    assert files_of(disk) == ["0"]


@pytest.mark.parametrize("hole", [3, UNITS + 3, 2 * UNITS + 3])
def test_what_lies_behind_a_hole_goes_is_said_and_does_not_come_back(hole: int) -> None:
    """After a clean stop, whichever file has it; the next messages stand there instead."""
    disk, end = a_disk(), 2 * UNITS + 20
    a_table(disk).put_requests(run_of(end))
    position = hole * UNIT_SIZE
    start = position - position % FILE
    path = f"/store/consumequeue/T/0/{start:020d}"
    disk.open(path, FILE).pwrite(bytes(20), position - start)
    table = reopened(disk)
    queue = table.queue("T", 0)
    assert (queue.max_offset, queue.max_physical_offset) == (hole, 100 * hole)
    assert queue.damage
    assert files_of(disk) == [str(at) for at in range(0, start + 1, FILE)]
    assert not any(disk.content(path)[position - start :])
    assert queue._starts == [*range(0, start + 1, FILE)]
    table.put_requests(run_of(end - hole, hole, 100 * hole))
    again = reopened(disk)
    assert again.queue("T", 0).damage == ""
    assert [again.queue("T", 0).units(n, 1)[0][0] for n in range(end)] == [
        *range(0, 100 * end, 100)
    ]


def test_files_without_a_message_behind_a_queue_are_no_damage() -> None:
    """Java makes the next one ahead."""
    disk = a_disk()
    a_table(disk).put_requests(run_of(UNITS + 3))
    for start in (2 * FILE, 4 * FILE):
        disk.replace(f"/store/consumequeue/T/0/{start:020d}", bytes(FILE))
    queue = reopened(disk).queue("T", 0)
    assert (queue.max_offset, queue.damage) == (UNITS + 3, "")
    assert files_of(disk) == ["0", "800"]


@pytest.mark.parametrize("first", [0, UNITS])
def test_a_queue_of_which_nothing_fits_is_empty(first: int) -> None:
    """It is asked for each of its units, and for nothing before them."""
    table = a_table(a_disk())
    table.put_requests(run_of(50, first))
    queue = table.queue("T", 0)
    asked: list[int] = []
    queue.cut_back(lambda queue_offset, offset, size: asked.append(queue_offset) or False)
    assert asked == [*reversed(range(first, first + 50))]
    assert (queue.max_offset, queue.max_physical_offset) == (0, -1)


@pytest.mark.parametrize("step", [1, 17, UNITS, 90])
def test_the_first_message_is_the_first_that_the_log_has_however_it_expires(step: int) -> None:
    """Also where numbers were left out, and files hold nothing else."""
    disk = a_disk()
    table = a_table(disk)
    table.put_requests([*run_of(30), *run_of(100, 30 + 2 * UNITS, 1_000_000)])
    queue = table.queue("T", 0)
    places = [*range(0, 3000, 100), *range(1_000_000, 1_010_000, 100)]
    for low in places[::step]:
        queue.delete_expired(low)
        assert queue.units(queue.min_offset, 1)[0][0] == low
        assert queue.first_offset <= queue.min_offset < queue.first_offset + UNITS


def test_units_that_lead_into_an_extension_expire_also_without_it() -> None:
    """The key was switched off since they were written."""
    table = a_table(a_disk())
    table.put_requests([request(n, 100 * n, tags_code=28 - (1 << 63)) for n in range(100)])
    assert table.delete_expired(8500) == 2
    assert table.queue("T", 0).min_offset == 85
