"""The commit log as replication and readers see it. Spec: store.md, section 2.9; ha.md, 5."""

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import DivergedLog, StoreError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.message import Address, AppendResult, BrokerMessage, MessageBatch, draft_of
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.store_format.commitlog import (
    BLANK_SIZE,
    RECORD_OVERHEAD,
    decode_record,
    dispatch_request_at,
)
from rmq_ha.server.store.log import commitlog
from rmq_ha.server.store.log.append import GroupEncoder
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.testing.disk import SimDisk
from tests.kits.descriptors import open_descriptors
from tests.unit.server.store.appends import append_group

SIZE = 4096
HOST = Address.parse("127.0.0.1", 1)


def make_log(path, size=SIZE):
    log = CommitLog(MessageStoreConfig(), FileRow(RealDisk(), [str(path)], size), [1000])
    log.row.load()
    return log


@pytest.fixture
def log(tmp_path):
    made = make_log(tmp_path / "commitlog")
    yield made
    made.row.close()


def message_of(size, queue_id=0, properties=""):
    return BrokerMessage("T", queue_id, b"b" * size, HOST, HOST, properties_string=properties)


def test_what_recovery_found_is_read_from_the_files(log):
    """The bytes of the last write are kept for replication, and may be others after a repair."""
    log.append_raw(0, b"x" * 10)
    log.row.file(0).pwrite(b"y" * 10, 0)
    log.recovered(10, 10)
    assert log.read(0, 100) == b"y" * 10


def test_a_part_of_the_last_write(log):
    """No more than is asked for, though all of it is at hand."""
    log.append_raw(0, b"x" * 10)
    log.append_raw(10, b"y" * 40)
    assert log.read(10, 20) == b"y" * 20
    assert log.read(10, 40) == b"y" * 40


def test_a_log_that_ends_with_its_file(log):
    """There is nothing at its end, and no file to look for it."""
    log.append_raw(0, b"x" * SIZE)
    assert log.read(SIZE, 10) == b""
    assert log.record_at(SIZE) is None


@pytest.mark.parametrize(("most", "is_good"), [(96, True), (95, False)])
def test_a_batch_that_is_laid_out_in_slices_is_as_long_as_all_of_them(log, most, is_good):
    layout = log.encoder.lay_out(MessageBatch("T", 0, HOST, HOST, []), most)
    for size in (1, 3, 4):  # and 22 for what else a client counts, and one that is empty
        layout.add([(0, b"b" * size, "")])
    assert layout.fault is None
    layout.add([(0, b"", "")])
    assert (layout.fault is None) is is_good


@pytest.mark.parametrize("is_batch", [False, True])
def test_stamps_never_go_back(log, is_batch):
    """Whatever the clock does: searches by time rest on it. 0 is no stamp."""
    stamps = []
    for now in (0, 9, 7):
        if is_batch:
            layout = log.encoder.lay_out(MessageBatch("T", 0, HOST, HOST, []), 1 << 20)
            layout.add([(0, b"b", "")])
            result = log.append_batch(layout, now)
        else:
            (result,) = append_group(log, [message_of(1)], now)
        stamps.append((result.store_timestamp, log.last_store_timestamp))
    assert stamps == [(1, 1), (9, 9), (9, 9)]


def test_an_empty_log(log):
    """No files: -1 and 0, nothing to read."""
    assert (log.min_offset, log.max_offset, log.flushed_offset) == (-1, 0, 0)
    assert (log.fault, log.may_resume, log.last_store_timestamp) == (None, False, 0)
    assert log.read(0, 100) == b""
    assert log.record_at(0) is None


def test_a_slave_takes_bytes_as_they_are(log):
    """Chunks may end anywhere; readers and subscribers see them at once."""
    told = []
    for _ in range(2):
        log.subscribe(lambda: told.append(log.max_offset))
    log.append_raw(0, b"abc")
    log.append_raw(3, b"defgh")
    log.append_raw(8, b"")
    assert told == [3, 3, 8, 8]
    assert log.read(0, 100) == b"abcdefgh"
    assert log.read(2, 3) == b"cde"
    assert log.read(8, 3) == b""
    assert log.read(-1, 3) == b""


def test_the_first_append_chooses_the_first_file(log):
    """Even a heartbeat does; the log then starts at that file."""
    log.append_raw(3 * SIZE + 100, b"")
    assert (log.min_offset, log.max_offset) == (3 * SIZE, 3 * SIZE)
    assert log.flushed_offset == 3 * SIZE
    log.append_raw(3 * SIZE, b"x" * SIZE)
    log.append_raw(4 * SIZE, b"y")
    assert log.row.starts == [3 * SIZE, 4 * SIZE]
    assert log.read(3 * SIZE, 1 << 20) == b"x" * SIZE
    assert log.read(4 * SIZE, 1 << 20) == b"y"


def test_an_empty_file_that_a_crash_left(log):
    """A slave with no byte reports 0; the master then begins at its last file."""
    log.append_raw(0, b"")
    log.append_raw(2 * SIZE, b"abc")
    assert (log.row.starts, log.max_offset) == ([2 * SIZE], 2 * SIZE + 3)


def test_several_empty_files_that_a_crash_left(log):
    """None of them stays before or behind the one in which the log begins."""
    for start in (0, SIZE, 2 * SIZE):
        log.row.create(start)
    log.append_raw(4 * SIZE, b"abc")
    assert log.row.starts == [4 * SIZE]


def test_the_file_in_which_a_log_begins_is_no_spare_one(log):
    """Without it the log would begin at 0 at its next start."""
    log.append_raw(3 * SIZE, b"")
    log.drop_spare()
    assert (log.row.starts, log.min_offset) == ([3 * SIZE], 3 * SIZE)


@pytest.mark.parametrize(
    ("offset", "size"), [(11, 1), (9, 1), (10, SIZE - 9), (0, 1), (SIZE, 1), (5 * SIZE, 0)]
)
def test_what_does_not_continue_the_log(log, offset, size):
    """A gap, an overlap, bytes over the end of a file: refused, and nothing changes."""
    log.append_raw(0, b"x" * 10)
    with pytest.raises(DivergedLog):
        log.append_raw(offset, b"y" * size)
    assert log.max_offset == 10
    assert log.read(0, 100) == b"x" * 10


def test_a_slave_whose_disk_has_failed_takes_no_more():
    """Nobody knows what of the last bytes is there: not until its next start."""
    disk = SimDisk(Random(1), lambda: 0)
    log = CommitLog(MessageStoreConfig(), FileRow(disk, ["/log"], SIZE), [1000])
    log.row.load()
    log.append_raw(0, b"x" * 10)
    disk.fault = lambda operation, path: 5 if operation == "pwrite" else None
    with pytest.raises(StoreError):
        log.append_raw(10, b"y")
    disk.fault = lambda operation, path: None
    with pytest.raises(StoreError, match="no more writes"):
        log.append_raw(10, b"y")
    assert (log.max_offset, log.may_resume) == (10, False)


def test_a_log_that_refuses_writes_takes_none(log):
    """After a flush that failed nobody knows what is on the disk: neither message nor batch."""
    append_group(log, [message_of(10)], 5)
    end = log.max_offset
    log.refuse_writes("the disk is broken")
    refused = PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert append_group(log, [message_of(10)] * 2, 6) == [refused] * 2
    assert append_batch(log, [message_of(10)], {}) is refused
    assert log.max_offset == end


@pytest.mark.parametrize("with_wipe", [False, True])
def test_a_failed_flush_of_a_full_disk_is_for_good(with_wipe):
    """Room alone would have let it take writes again; the pages that were lost do not come back."""
    disk = SimDisk(Random(1), lambda: 0)
    log = CommitLog(MessageStoreConfig(), FileRow(disk, ["/log"], SIZE), [1000])
    log.row.load()
    append_group(log, [message_of(10)], 5)
    refusing = ("pwrite",) if with_wipe else ("pwrite", "zero")
    disk.fault = lambda operation, path: 28 if operation in refusing else None
    assert append_group(log, [message_of(10)], 5) == [PutMessageStatus.SERVICE_NOT_AVAILABLE]
    assert log.may_resume
    log.refuse_writes("a flush failed")
    assert (log.fault, log.may_resume) == ("a flush failed", False)


def test_a_log_that_took_writes_again_has_nothing_to_resume():
    """Nor does it while the disk does not let go of what the failed write left."""
    disk = SimDisk(Random(1), lambda: 0)
    log = CommitLog(MessageStoreConfig(), FileRow(disk, ["/log"], SIZE), [1000])
    log.row.load()
    append_group(log, [message_of(10)], 5)
    disk.fault = lambda operation, path: 28 if operation in ("pwrite", "zero") else None
    append_group(log, [message_of(10)], 5)
    log.resume()
    assert (log.fault is None, log.may_resume) == (False, True)
    disk.fault = lambda operation, path: None
    log.resume()
    assert (log.fault, log.may_resume) == (None, False)


def test_a_file_that_cannot_be_made_ahead_is_made_when_it_is_needed():
    """The message that began the file before it is in the log, and nobody hears of a failure."""
    disk = SimDisk(Random(1), lambda: 0)
    log = CommitLog(MessageStoreConfig(), FileRow(disk, ["/log"], SIZE), [1000])
    log.row.load()
    disk.fault = lambda operation, path: 28 if path.endswith(f"{SIZE:020d}") else None
    (small,) = append_group(log, [message_of(10)], 5)
    assert (small.physical_offset, log.row.starts) == (0, [0])
    disk.fault = lambda operation, path: None
    (large,) = append_group(log, [message_of(SIZE - 200)], 5)
    assert (large.physical_offset, log.row.starts) == (SIZE, [0, SIZE, 2 * SIZE])


@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_record_leaves_eight_bytes_of_its_file(log, more):
    """For the mark of the file's end; one byte more never fits any file."""
    (small,) = append_group(log, [message_of(0)], 5)
    (found,) = append_group(log, [message_of(SIZE - 8 - small.size + more)], 5)
    assert isinstance(found, AppendResult) is not bool(more)
    assert log.max_offset == (small.size if more else 2 * SIZE - 8)


def test_a_record_fills_its_file(log):
    """Up to the eight bytes for the mark of its end: none of the room is given away."""
    (small,) = append_group(log, [message_of(0)], 5)
    (found,) = append_group(log, [message_of(SIZE - 8 - 2 * small.size)], 5)
    assert (found.physical_offset, log.max_offset) == (small.size, SIZE - 8)


def test_an_unaligned_start(log):
    """An empty log cannot begin inside a file."""
    with pytest.raises(DivergedLog):
        log.append_raw(SIZE + 5, b"x")


def test_records_by_offset(log):
    """With or without the size; never beyond the end, never from the middle."""
    first, second = append_group(log, [message_of(10), message_of(20)], 5)
    assert len(log.record_at(0)) == first.size
    assert log.record_at(first.next_offset, second.size) == log.record_at(first.next_offset)
    assert decode_record(log.record_at(0)).store_timestamp == 5
    for offset in (1, second.next_offset, second.next_offset + 5, -1, 1 << 60):
        assert log.record_at(offset) is None
    assert log.record_at(0, second.next_offset + 1) is None


def test_the_bytes_of_each_record(log):
    """For a log that puts something between them."""
    messages = [message_of(size) for size in (200, 300, 250)]
    group = log.encoder.encode([draft_of(one) for one in messages], 0, 1 << 22, 1)
    records = group.records()
    assert b"".join(records) == group.segments[0].data
    assert [decode_record(record).size for record in records] == [len(item) for item in records]
    assert [len(decode_record(record).body) for record in records] == [
        len(item.body) for item in messages
    ]


def test_the_bytes_of_each_record_of_a_batch(log):
    """They are those of the batch, cut where its members meet."""
    layout = log.encoder.lay_out(MessageBatch("T", 0, HOST, HOST, []), 1 << 22)
    layout.add([(0, b"b" * size, "") for size in (200, 300, 250)])
    records = layout.records()
    assert b"".join(records) == layout.data()
    assert [len(record) for record in records] == layout.sizes
    assert [len(decode_record(record).body) for record in records] == [200, 300, 250]


def test_a_log_that_puts_something_before_each_record():
    """Each place leaves its room, in this file or at the beginning of the next."""
    gap, size = 48, 4096
    group = GroupEncoder(size, [], gap).encode([draft_of(message_of(1200))] * 7, gap, 1 << 22, 1)
    end = 0
    for row in group.rows:
        start = row[2] - gap
        assert start in (end, end - end % size + size)
        end = row[2] + row[3]
        assert end <= start - start % size + size - BLANK_SIZE
    assert [row[2] // size for row in group.rows] == [0, 0, 0, 1, 1, 1, 2]
    assert group.segments[-1].end == end + gap


@pytest.mark.parametrize("gap", [0, 48])
def test_a_record_that_fills_a_file_is_the_largest_one(gap):
    """With what the log puts before it, and room for a blank behind it; one byte more is none."""
    size = 4096
    encoder = GroupEncoder(size, [], gap)
    (smallest,) = encoder.encode([draft_of(message_of(0))], gap, 1 << 22, 1).rows
    room = size - BLANK_SIZE - smallest[2] - smallest[3]
    (largest,) = encoder.encode([draft_of(message_of(room))], gap, 1 << 22, 1).rows
    assert (largest[2], largest[2] + largest[3]) == (gap, size - BLANK_SIZE)
    refused = encoder.encode([draft_of(message_of(room + 1))], gap, 1 << 22, 1)
    assert (refused.rows, list(refused.faults)) == ([], [0])


def test_each_record_of_a_group_has_room_for_its_own_hosts(log):
    """Also where one of the two stays the same; two hosts that are equal need not be one object."""
    six, other = Address(b"\x20" * 16, 7), Address.parse("127.0.0.1", 1)
    pairs = [(HOST, HOST), (six, HOST), (HOST, HOST), (other, six), (six, six), (other, HOST)]
    messages = [BrokerMessage("T", 0, b"body", born, store) for born, store in pairs]
    results = append_group(log, messages, 5)
    for (born, store), result in zip(pairs, results, strict=True):
        record = decode_record(log.record_at(result.physical_offset, result.size), check_crc=True)
        assert (record.born_host, record.store_host) == (born, store)
    assert log.max_offset == results[-1].next_offset


@pytest.mark.parametrize("is_born_there", [True, False])
def test_a_batch_has_room_for_its_hosts(log, is_born_there):
    six = Address(b"\x20" * 16, 7)
    born, store = (six, HOST) if is_born_there else (HOST, six)
    result = append_batch(log, [BrokerMessage("T", 0, b"body", born, store)] * 2, {})
    record = decode_record(log.record_at(result.physical_offset), check_crc=True)
    assert (record.born_host, record.store_host) == (born, store)


def test_what_did_not_get_into_the_log_is_no_row_of_its_group():
    """A disk that is full in the second of three files: the records of the first are there."""
    encoder = GroupEncoder(SIZE, [])
    group = encoder.encode([draft_of(message_of(1200))] * 7, 0, 1 << 22, 1)
    rows, size = list(group.rows), group.rows.size
    lost = group.give_up(1, PutMessageStatus.SERVICE_NOT_AVAILABLE)
    assert [row[2] // SIZE for row in group.rows] == [0, 0, 0]
    assert group.rows + lost == rows
    assert group.rows.size == size - sum(row[3] for row in lost)
    assert list(group.faults) == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("more", "status"),
    [(0, PutMessageStatus.MESSAGE_ILLEGAL), (1, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)],
)
def test_why_a_message_is_refused_whose_properties_are_the_longest(more, status):
    """They may be so long; its body may not."""
    longest = MAX_PROPERTIES_SIZE - 2
    item = message_of(101, properties="v" * longest + "\u00e9" + "v" * more)
    group = GroupEncoder(1 << 20, []).encode([draft_of(item)], 0, 100, 1)
    assert group.faults == {0: status}


def test_the_smallest_record(log):
    """Nothing but the parts that all have: no body, no topic, no properties."""
    append_group(log, [message_of(0)], 5)
    data = bytearray(log.record_at(0))
    assert len(data) == RECORD_OVERHEAD + 1
    data[:4] = RECORD_OVERHEAD.to_bytes(4, "big")
    topic_at = data.rindex(b"\x01T")
    data[topic_at : topic_at + 2] = b"\x00"
    slave = CommitLog(
        MessageStoreConfig(), FileRow(SimDisk(Random(1), lambda: 0), ["/slave"], SIZE), [1000]
    )
    slave.append_raw(0, bytes(data))
    assert slave.record_at(0) == slave.record_at(0, RECORD_OVERHEAD) == data
    assert slave.record_at(0, RECORD_OVERHEAD - 1) is None


def test_the_largest_record(log, monkeypatch):
    """One byte more is never read, as a damaged size would have all the memory."""
    (first,) = append_group(log, [message_of(10)], 5)
    for most, is_served in ((first.size, True), (first.size - 1, False)):
        monkeypatch.setattr(commitlog, "MAX_RECORD_SIZE", most)
        assert (log.record_at(0) is not None) is is_served
        assert (log.record_at(0, first.size) is not None) is is_served


def test_the_next_file_is_there_before_it_is_needed(log):
    """Created ahead when a file begins; deleted again at a clean stop."""
    append_group(log, [message_of(10)], 5)
    assert log.row.starts == [0, SIZE]
    assert log.max_offset < SIZE
    log.drop_spare()
    assert log.row.starts == [0]


def test_many_files(tmp_path):
    """Only so many descriptors stay open; all can be read."""
    log = make_log(tmp_path, 1024)
    for _ in range(300):
        append_group(log, [message_of(900)], 5)
        log.flushed_offset = log.max_offset
    assert len(log.row._open) < 70
    for start in log.row.starts[:300]:
        assert log.record_at(start) is not None
    open_files = len(open_descriptors())
    count = len(log.row._open)
    log.row.close()
    assert len(open_descriptors()) == open_files - count


def test_a_slave_that_is_fed_many_files_keeps_few_open(tmp_path):
    log = make_log(tmp_path, 1024)
    for start in range(0, 200 * 1024, 1024):
        log.append_raw(start, bytes(1024))
        log.flushed_offset = log.max_offset - 1024
    assert len(log.row._open) < 70
    assert log.row.starts[-1] in log.row._open
    log.row.close()


texts = st.sampled_from(["", "TAGS\x01a\x02KEYS\x01k"])
sizes = st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 2), texts), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(sizes, st.booleans()), min_size=1, max_size=8))
def test_what_is_announced_is_what_is_written(tmp_path_factory, groups):
    """The dispatch requests at hand equal those parsed from the log; the chain has no hole."""
    log = make_log(tmp_path_factory.mktemp("log"))
    numbers = {}
    for group, contiguous in groups:
        messages = [message_of(*item) for item in group]
        if contiguous:
            append_batch(log, messages, numbers)
            continue
        results = append_group(log, messages, 7)
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, AppendResult):
                key = message.queue_id
                assert result.queue_offset == numbers.get(key, 0)
                numbers[key] = result.queue_offset + 1
    position = 0
    while position < log.max_offset:
        run = log.pending.take(position, log.max_offset)
        if run is None:  # a batch, which whoever dispatches reads
            position = walk(log, position, position + 1)
            continue
        assert run.rows.work == sum(len(row[7]) for row in run.rows)
        for row in run.rows:
            position = walk(log, position, row[2])
            data = log.record_at(position, row[3])
            assert dispatch_request_at(data, 0, len(data), [1000], True) == row
            position += row[3]
        position = run.end
    assert walk(log, position, log.max_offset) == log.max_offset
    log.row.close()


def append_batch(log, messages, numbers):
    """All in one file, or nothing."""
    first, end = messages[0], log.max_offset
    batch = MessageBatch(first.topic, first.queue_id, first.born_host, first.store_host, [])
    layout = log.encoder.lay_out(batch, 4 << 20)
    layout.add([(one.flag, one.body, one.properties_string) for one in messages])
    result = log.append_batch(layout, 7)
    if not isinstance(result, AppendResult):
        assert log.max_offset == end
        return result
    assert result.message_count == len(messages)
    assert result.physical_offset // SIZE == (log.max_offset - 1) // SIZE
    assert result.queue_offset == numbers.get(first.queue_id, 0)
    numbers[first.queue_id] = result.queue_offset + len(messages)
    place = result.physical_offset
    for number, one in enumerate(messages):
        record = decode_record(log.record_at(place), check_crc=True)
        assert (record.queue_offset, record.store_timestamp) == (result.queue_offset + number, 7)
        assert record.prepared_transaction_offset == 0
        assert (record.body, record.properties_string) == (one.body, one.properties_string)
        assert result.msg_id.split(",")[number] == record.msg_id
        place = record.physical_offset + record.size
    assert place == log.max_offset
    return result


def walk(log, position, end):
    """Over records that nobody announced, and blanks."""
    while position < end:
        rest = log.read(position, SIZE)
        found = dispatch_request_at(rest, 0, len(rest), [1000], True)
        assert found == 0 or found.physical_offset == position
        position += found.size if found else SIZE - position % SIZE
    return position


def test_a_file_that_is_there_twice(tmp_path):
    """Copied by hand to a second directory: nobody knows which of them is the log."""
    folders = [str(tmp_path / name) for name in "ab"]
    for folder in folders:
        os.mkdir(folder)
        (Path(folder) / f"{0:020d}").write_bytes(bytes(SIZE))
    with pytest.raises(StoreError, match="is there twice"):
        FileRow(RealDisk(), folders, SIZE).load()


def test_strange_files(tmp_path):
    """What does not belong there, or is missing, stops the start with its path."""

    def load(*names):
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        directory.mkdir()
        for name, size in names:
            (directory / name).write_bytes(bytes(size))
        make_log(directory)

    load((f"{0:020d}", SIZE), (f"{SIZE:020d}", 0))
    load((f"{0:020d}", SIZE), (f"{3 * SIZE:020d}", 0))
    with pytest.raises(StoreError, match=r"notes\.txt does not belong"):
        load(("notes.txt", 5))
    with pytest.raises(StoreError, match="has 5 bytes"):
        load((f"{0:020d}", 5))
    with pytest.raises(StoreError, match=r"between .* is not one file"):
        load((f"{0:020d}", SIZE), (f"{2 * SIZE:020d}", SIZE))
    with pytest.raises(StoreError, match="multiple"):
        load((f"{5:020d}", SIZE))


@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_batch_leaves_eight_bytes_of_its_file(log, more):
    """As one record does: side by side in one file, or not at all."""
    (small,) = append_group(log, [message_of(0)], 5)
    rest = SIZE - 8 - 2 * small.size
    result = append_batch(log, [message_of(100), message_of(rest - 100 + more)], {0: 1})
    if more:
        assert result is PutMessageStatus.MESSAGE_ILLEGAL
        assert log.max_offset == small.size
    else:
        assert (result.physical_offset, result.message_count) == (SIZE, 2)
        assert log.max_offset == 2 * SIZE - 8


def test_a_message_that_fits_no_field_leaves_its_file_unmade(log):
    """It would have begun the next file: no more is made than the end of the one before says."""
    (large,) = append_group(log, [message_of(SIZE - 300)], 5)
    small, odd = message_of(10), message_of(600, queue_id=1 << 40)
    results = append_group(log, [small, odd], 5)
    assert results[1] is PutMessageStatus.MESSAGE_ILLEGAL
    assert results[0].physical_offset == large.next_offset
    assert (log.max_offset, log.row.starts) == (SIZE, [0, SIZE])
