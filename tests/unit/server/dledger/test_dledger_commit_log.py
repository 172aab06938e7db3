"""The commit log over a ledger. Spec: dledger.md, chapters 4 and 15."""

import sys
from typing import Any
from unittest.mock import Mock

import pytest
from twisted.logger import LogLevel, capturedLogs

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    BrokerMessage,
    DispatchRequest,
    MessageBatch,
)
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.runs import run
from rmq_ha.base.store_format.commitlog import Record, decode_record, encode_record
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, MAX_ENTRY_SIZE
from rmq_ha.server.dledger import tail
from rmq_ha.server.dledger.classic import ClassicPart
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.journal import LedgerJournal
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.ledger_reader import RecentEntries
from rmq_ha.server.dledger.tail import TERM_TOPIC, LedgerTail
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.boot import LastExit
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.host import World
from tests.unit.server.store.appends import append_group

HOST = Address.parse("10.1.2.3", 10911)
FILE_SIZE = 8192
NOW = 1_700_000_000_000


class Leads:
    """A leadership that can end."""

    term: int | None = 3

    def term_to_append(self) -> int | None:
        return self.term


class Rig:
    def __init__(self, file_size: int = FILE_SIZE) -> None:
        self.world = World(1)
        self.host = self.world.add("n0")
        self.file_size = file_size
        self.leads = Leads()
        self.open()

    def open(self, *, is_loaded: bool = True) -> None:
        """:param is_loaded: else whoever gets the log does it."""
        ledger = Ledger(self.host.disk, "/d", self.file_size, index_file_size=32 * 1024)
        if is_loaded:
            ledger.load()
        config = MessageStoreConfig()
        row = FileRow(self.host.disk, ["/commitlog"], self.file_size)
        classic = ClassicPart(CommitLog(config, row, [1000]))
        self.log = DLedgerCommitLog(config, ledger, [1000], classic)
        self.log.leadership = self.leads
        self.log.admits = True

    def put(self, *bodies: bytes, topic: str = "T") -> list[Any]:
        messages = [BrokerMessage(topic, 0, body, HOST, HOST, NOW) for body in bodies]
        return append_group(self.log, messages, NOW)

    def lay_out(self, *bodies: bytes) -> BatchLayout:
        layout = self.log.encoder.lay_out(MessageBatch("T", 0, HOST, HOST, [], NOW), 1 << 22)
        layout.add([(0, body, "") for body in bodies])
        return layout

    def put_batch(self, *bodies: bytes) -> Any:
        return self.log.append_batch(self.lay_out(*bodies), NOW)

    def commit(self) -> None:
        self.log.ledger.commit(self.log.ledger.end_index)

    def dispatched(self, position: int = 0) -> list[DispatchRequest]:
        tail, found = LedgerTail(self.log), []
        position = max(position, self.log.min_offset)
        while position < self.log.max_offset:
            part = tail.next_slice(position, False)
            assert part is not None
            found += [DispatchRequest._make(row) for row in part.rows]
            position = part.end
        return found


def recover(log: DLedgerCommitLog, store: Any, left: LastExit) -> None:
    """As a store around it does."""
    journal = LedgerJournal(log, store.configuration.store)
    journal.attach(store)
    journal.recover(left)


def test_a_record_lies_48_bytes_behind_the_start_of_its_entry() -> None:
    """Spec: dledger.md, chapter 4: physical offset = pos + 48, patched into the record."""
    rig = Rig()
    results = rig.put(b"one", b"two")
    entries = [rig.log.ledger.entry(index) for index in (0, 1)]
    for entry, result in zip(entries, results, strict=True):
        assert entry is not None
        assert result.physical_offset == entry.pos + 48
        assert decode_record(entry.body).physical_offset == entry.pos + 48
        assert result.msg_id.endswith(f"{entry.pos + 48:016X}")
        assert entry.term == 3
    assert [result.queue_offset for result in results] == [0, 1]


def test_a_run_over_the_end_of_a_file_lands_where_the_ledger_puts_it() -> None:
    """Spec: dledger.md, section 3.3."""
    rig = Rig()
    results = rig.put(*[b"x" * 700 for _ in range(40)])
    ledger = rig.log.ledger
    for index, result in enumerate(results):
        entry = ledger.entry(index)
        assert entry is not None
        assert entry.pos == result.physical_offset - 48
        assert len(entry.body) == result.size
    assert ledger.end_pos > 3 * FILE_SIZE


def test_what_is_too_large_for_an_entry_is_refused_before_the_ledger_is_asked() -> None:
    """An entry has 4 MiB at most, also where messages may be as large and files larger."""
    rig = Rig(8 << 20)
    (small,) = rig.put(b"")
    largest = MAX_ENTRY_SIZE - ENTRY_HEADER_SIZE - small.size
    assert rig.put(bytes(largest + 1)) == [PutMessageStatus.MESSAGE_ILLEGAL]
    (found,) = rig.put(bytes(largest))
    assert found.size == MAX_ENTRY_SIZE - ENTRY_HEADER_SIZE
    assert rig.log.ledger.end_index == 1


def test_a_batch_is_appended_with_little_work_for_each_member() -> None:
    """All of it goes into one turn. There were 24 calls for each; 15 are left."""
    rig, calls = Rig(1 << 20), 0
    rig.log.ledger.recent = RecentEntries(20_000)  # which has to drop some
    rig.put(*[b"x"] * 200)

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    layout = rig.lay_out(*[b"x"] * 300)
    sys.setprofile(count)
    try:
        result = rig.log.append_batch(layout, NOW)
    finally:
        sys.setprofile(None)
    assert result.message_count == 300
    assert calls < 300 * 16


def test_whoever_subscribed_hears_of_each_append() -> None:
    """Nobody else has the turn begin that brings to the others what nobody waits for."""
    rig = Rig()
    heard: list[int] = []
    rig.log.subscribe(lambda: None)
    rig.log.subscribe(lambda: heard.append(rig.log.written_end))
    for append in (
        lambda: rig.put(b"one", b"two"),
        lambda: rig.put_batch(b"three", b"four"),
        lambda: rig.log.begin_term(3, HOST, NOW),
    ):
        append()
        assert heard.pop() == rig.log.written_end
        assert not heard
    rig.leads.term = None
    rig.put(b"five")
    rig.put_batch(b"six")
    assert not heard


def test_nothing_is_visible_before_it_is_committed() -> None:
    """Spec: dledger.md, section 15.3; single records can be read."""
    rig = Rig()
    (first,) = rig.put(b"one")
    assert rig.log.max_offset == 0
    rig.commit()
    (second,) = rig.put(b"two")
    assert rig.log.max_offset == first.physical_offset + first.size
    assert [request.physical_offset for request in rig.dispatched()] == [first.physical_offset]
    assert rig.log.record_at(second.physical_offset, second.size) is not None


def test_a_log_of_one_entry_begins_with_it() -> None:
    """And one without any nowhere."""
    rig = Rig()
    assert rig.log.min_offset == -1
    rig.put(b"a")
    assert rig.log.min_offset == 0


@pytest.mark.parametrize("read_size", [tail.READ_SIZE, 2000])
def test_dispatch_finds_the_same_in_memory_and_on_the_disk(
    read_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over blanks and the ends of reads, and with the first record of a term left out."""
    monkeypatch.setattr(tail, "READ_SIZE", read_size)
    rig = Rig()
    assert rig.log.begin_term(3, HOST, NOW)
    for _ in range(6):
        rig.put(*[b"x" * 700 for _ in range(5)])
    rig.commit()
    kept = rig.dispatched()
    rig.log.pending.clear()
    read = rig.dispatched()
    assert [request.physical_offset for request in kept] == [
        request.physical_offset for request in read
    ]
    assert [request.queue_offset for request in read] == list(range(30))
    assert {request.topic for request in read} == {"T"}
    for number in range(30):  # a slice may end anywhere
        begin = read[number].physical_offset - ENTRY_HEADER_SIZE
        assert [it.queue_offset for it in rig.dispatched(begin)] == list(range(number, 30))


def test_what_this_leader_appended_is_dispatched_without_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.put(b"one", b"two")
    rig.put(b"three")
    rig.commit()
    monkeypatch.setattr(rig.log, "read", None)
    assert [request.queue_offset for request in rig.dispatched()] == [0, 1, 2]


def test_what_this_leader_appended_is_there_from_where_a_slice_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    first, *_ = rig.put(b"one", b"two", b"three")
    rig.commit()
    second = first.physical_offset + first.size
    monkeypatch.setattr(rig.log, "read", None)
    assert [request.queue_offset for request in rig.dispatched(second)] == [1, 2]


def test_a_file_of_which_just_eight_bytes_are_left_is_dispatched_to_its_end() -> None:
    rig = Rig()
    (probe,) = rig.put(b"")
    (last,) = rig.put(b"x" * (FILE_SIZE - 8 - 2 * (48 + probe.size)))
    assert last.physical_offset + last.size == FILE_SIZE - 8
    rig.put(b"y")
    rig.commit()
    rig.log.pending.clear()
    assert [request.queue_offset for request in rig.dispatched()] == [0, 1, 2]


def test_what_was_appended_and_cut_again_is_not_dispatched_from_memory() -> None:
    """Another leader's entries stand in its place; the service clears what this one remembers."""
    rig = Rig()
    rig.put(b"kept")
    rig.put(b"lost")
    ledger = rig.log.ledger
    first = ledger.entry(0)
    assert first is not None
    ledger.truncate_to(first)
    rig.log.pending.clear()
    rig.put(b"new")
    rig.commit()
    bodies = [
        decode_record(rig.log.record_at(request.physical_offset, request.size) or b"").body
        for request in rig.dispatched()
    ]
    assert bodies == [b"kept", b"new"]


def test_the_first_record_of_a_term_belongs_to_no_queue() -> None:
    """Spec: dledger.md, section 18.2."""
    rig = Rig()
    assert rig.log.begin_term(3, HOST, NOW)
    entry = rig.log.ledger.entry(0)
    assert entry is not None
    record = decode_record(entry.body)
    assert (record.topic, record.queue_offset, record.sys_flag & 0xC) == (TERM_TOPIC, 0, 0xC)
    assert record.body == b"term 3"
    assert rig.log.encoder.queue_offsets == {}


def test_a_member_that_may_not_append_says_busy() -> None:
    """Spec: dledger.md, section 10.5: pos -1 for whatever reason."""
    rig = Rig()
    rig.leads.term = None
    assert rig.put(b"x") == [PutMessageStatus.OS_PAGECACHE_BUSY]
    rig.leads.term = 3
    rig.log.admits = False
    assert rig.put(b"x") == [PutMessageStatus.OS_PAGECACHE_BUSY]
    rig.log.fault = "sync failed"
    assert rig.put(b"x") == [PutMessageStatus.SERVICE_NOT_AVAILABLE]
    assert rig.log.ledger.end_index == -1


def test_an_entry_has_4_mib_at_most() -> None:
    """Spec: dledger.md, section 3.2: refused before anything is written."""
    rig = Rig(16 << 20)
    assert rig.put(b"x" * (4 << 20)) == [PutMessageStatus.MESSAGE_ILLEGAL]
    (result,) = rig.put(b"x" * ((4 << 20) - 1000))
    assert isinstance(result, AppendResult)


def test_a_batch_is_stored_whole_or_not_at_all() -> None:
    """Spec: dledger.md, chapter 4: it becomes several entries."""
    rig = Rig()
    assert rig.put_batch() is PutMessageStatus.MESSAGE_ILLEGAL
    assert rig.put_batch(b"small", b"x" * FILE_SIZE) is PutMessageStatus.MESSAGE_ILLEGAL
    layout = rig.lay_out()
    layout.add([(0, b"", "\u00e9" * 20000)])
    assert rig.log.append_batch(layout, NOW) is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    assert rig.log.ledger.end_index == -1
    rig.host.disk.is_full = True
    refused = rig.put_batch(*[b"x" * 3000 for _ in range(2)])
    assert refused is PutMessageStatus.SERVICE_NOT_AVAILABLE
    rig.host.disk.is_full = False
    assert rig.put_batch(b"a", b"b", b"c").message_count == 3
    assert rig.log.ledger.end_index == 2


@pytest.mark.parametrize("is_batch", [False, True])
def test_stamps_never_go_back_whatever_the_clock_does(is_batch: bool) -> None:
    """Searches by time rest on it, and a start after lost power; 0 is no stamp."""
    rig = Rig()
    stamps = []
    for now in (0, 9, 7):
        if is_batch:
            result = rig.log.append_batch(rig.lay_out(b"b"), now)
        else:
            (result,) = append_group(rig.log, [BrokerMessage("T", 0, b"b", HOST, HOST, NOW)], now)
        stamps.append((result.store_timestamp, rig.log.last_store_timestamp))
    assert stamps == [(1, 1), (9, 9), (9, 9)]


def test_a_record_that_came_elsewhere_than_it_says_is_the_last_one() -> None:
    """Nobody would find it, nor what follows."""
    rig = Rig()
    assert rig.log._write(3, [b"x" * 100], 999)
    assert "a mistake in rmq-ha" in (rig.log.fault or "")
    assert rig.put(b"x") == [PutMessageStatus.SERVICE_NOT_AVAILABLE]


def test_a_batch_is_dispatched_between_the_messages_around_it() -> None:
    """Its members are read from the log, over the end of a file as well."""
    rig = Rig()
    (before,) = rig.put(b"before")
    batch = rig.put_batch(*[b"x" * 1000] * 6)
    (after,) = rig.put(b"after")
    rig.commit()
    found = rig.dispatched()
    assert [request.queue_offset for request in found] == list(range(8))
    places = [request.physical_offset for request in found]
    assert (places[0], places[-1]) == (before.physical_offset, after.physical_offset)
    assert batch.queue_offset == 1
    ids = [id[-16:] for id in batch.msg_id.split(",")]
    assert [int(id, 16) for id in ids] == places[1:-1]
    for request in found:
        assert rig.log.record_at(request.physical_offset, request.size) is not None


def test_a_disk_that_refuses_loses_no_numbers_and_may_recover() -> None:
    rig = Rig()
    rig.put(b"a")
    rig.host.disk.is_full = True
    big = [b"x" * 3000 for _ in range(2)]
    assert rig.put(*big) == [PutMessageStatus.SERVICE_NOT_AVAILABLE] * 2
    rig.host.disk.is_full = False
    results = rig.put(b"b", b"c")
    assert [result.queue_offset for result in results] == [1, 2]
    rig.commit()
    assert len(rig.dispatched()) == 3


def test_a_refusing_disk_is_told_of_once_each_time() -> None:
    """Not with every put; and again when it takes some and then refuses again."""
    rig = Rig()
    with capturedLogs() as events:
        for _ in range(2):
            rig.log.ledger.full = "its disk is full"
            rig.put(b"a")
            rig.put(b"b")
            rig.log.ledger.full = None
            rig.put(b"c")
    assert [event["log_level"] for event in events] == [LogLevel.error] * 2


def test_only_starts_of_records_are_records() -> None:
    rig = Rig()
    (result,) = rig.put(b"hello")
    log = rig.log
    data = log.record_at(result.physical_offset)
    assert data is not None
    assert decode_record(data).body == b"hello"
    for offset in (-1, 0, 47, result.physical_offset + 1, 10**9):
        assert log.record_at(offset) is None
    assert log.record_at(result.physical_offset, 10**6) is None


def test_only_a_classic_log_is_cut() -> None:
    """What a group's log holds its leader says: nothing is set aside."""
    journal = LedgerJournal(Rig().log, MessageStoreConfig())
    failed: list[Any] = []
    journal.set_aside(0, "why").addErrback(failed.append)
    assert "only the end of a classic commit log" in str(failed)


def test_a_record_in_a_body_is_none_of_the_log() -> None:
    """Whoever sends such a body could have others shown what he likes as stored there."""
    rig = Rig()
    (result,) = rig.put(b"y" * 300)
    data = rig.log.record_at(result.physical_offset)
    assert data is not None
    place = result.physical_offset + data.index(b"y" * 300) + 100
    inner = Record(*(0, 1, 0, 0, 0, place, 0, 5, HOST, 6, HOST, 7, 8, b"forged", "T", ""))
    rig = Rig()
    rig.put(b"y" * 100 + encode_record(inner))
    assert b"forged" in (rig.log.record_at(result.physical_offset) or b"")
    assert rig.log.record_at(place, len(encode_record(inner))) is not None  # as a queue says
    assert rig.log.record_at(place) is None


def test_a_log_of_one_entry_is_no_empty_one() -> None:
    rig = Rig()
    rig.put(b"a")
    store = Mock()
    store.configuration = BrokerConfiguration()
    store.queues.max_physical_offset = 0
    recover(rig.log, store, LastExit.CLEAN)
    assert (rig.log.ledger.end_index, rig.log.last_store_timestamp) == (0, NOW)
    assert rig.log.flushed_offset == rig.log.ledger.end_pos


def test_damage_that_recovery_missed_stops_dispatch_and_says_where() -> None:
    """Nothing is skipped in silence."""
    rig = Rig()
    rig.put(b"a")
    rig.put(b"b")
    rig.commit()
    rig.log.pending.clear()
    second = rig.log.ledger.entry(1)
    assert second is not None
    rig.log.row.file(0).pwrite(bytes(48), second.pos)
    with pytest.raises(StoreError, match=f"at {second.pos}"):
        rig.dispatched()


def test_an_entry_without_a_record_is_left_out_alone() -> None:
    """Upstream drops the rest of what it can read. Spec: dledger.md, section 15.2."""
    rig = Rig()
    rig.put(b"a")
    rig.log.ledger.append(3, [b"no record at all"])
    rig.put(b"b")
    rig.commit()
    rig.log.pending.clear()
    assert [request.queue_offset for request in rig.dispatched()] == [0, 1]


@pytest.mark.parametrize(("sure", "file"), [(5, 0), (10, 1), (29, 2), (99, 3)])
def test_after_a_crash_the_queues_are_cut_to_a_file_that_is_surely_in_them(
    sure: int, file: int
) -> None:
    """Spec: dledger.md, section 15.2: what is cut is dispatched again, and nothing is left out."""
    rig = Rig()
    for number in range(4):
        message = BrokerMessage("T", 0, b"x" * 5000, HOST, HOST, NOW)
        append_group(rig.log, [message], NOW + 10 * number)
    assert rig.log.ledger.end_pos > 3 * FILE_SIZE
    store = Mock()
    store.configuration = BrokerConfiguration()
    store.sure_until_ms.return_value = NOW + sure
    store.queues.max_physical_offset = 0
    recover(rig.log, store, LastExit.CRASHED)
    store.queues.truncate.assert_called_once_with(file * FILE_SIZE)


@pytest.mark.parametrize("now", [1, NOW], ids=["clock-never-set", "today"])
def test_after_a_crash_a_file_that_begins_without_a_record_is_not_surely_in_the_queues(
    now: int,
) -> None:
    """Nothing says when its beginning was written: the newest file whose first record says it."""
    rig = Rig()
    for _ in range(2):
        append_group(rig.log, [BrokerMessage("T", 0, b"x" * 5000, HOST, HOST, now)], now)
    rig.log.ledger.append(3, [b"no record at all" * 300])
    assert 3 * FILE_SIZE > rig.log.ledger.end_pos > 2 * FILE_SIZE
    store = Mock()
    store.configuration = BrokerConfiguration()
    store.sure_until_ms.return_value = now
    store.queues.max_physical_offset = 0
    recover(rig.log, store, LastExit.CRASHED)
    store.queues.truncate.assert_called_once_with(FILE_SIZE)


def test_a_leader_that_cannot_be_sure_of_its_log_begins_no_term() -> None:
    rig = Rig()
    rig.log.fault = "sync failed: Input/output error"
    assert not rig.log.begin_term(3, HOST, NOW)
    assert rig.log.ledger.end_index == -1
    rig.log.fault = None
    assert rig.log.begin_term(3, HOST, NOW)
    entry = rig.log.ledger.entry(0)
    assert entry is not None
    record = decode_record(entry.body)
    assert (record.topic, record.body) == (TERM_TOPIC, b"term 3")
    assert (record.queue_id, record.flag) == (0, 0)


def test_a_read_ends_with_what_was_asked_for_with_its_file_or_with_the_log() -> None:
    rig = Rig()
    rig.put(*[b"x" * 3000 for _ in range(3)])
    log = rig.log
    end = log.ledger.end_pos
    assert FILE_SIZE < end < 2 * FILE_SIZE
    asked = [(0, 10), (100, 10), (FILE_SIZE - 5, 10), (FILE_SIZE, 10), (end - 5, 10), (end, 10)]
    assert [len(log.read(*one)) for one in asked] == [10, 10, 5, 10, 5, 0]
    assert log.read(-5, 10) == log.read(end + FILE_SIZE, 10) == Rig().log.read(0, 10) == b""


def test_a_slice_of_what_was_appended_holds_no_more_records_than_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "SLICE", 3)
    monkeypatch.setattr(tail, "SLICE", 3)
    rig = Rig()
    rig.put(*[b"%d" % number for number in range(7)])
    rig.commit()
    for _ in range(2):
        found = LedgerTail(rig.log).next_slice(0, False)
        assert found is not None
        assert len(found.rows) == 3
        rig.log.pending.clear()


@pytest.mark.parametrize("size", [0, 40, 1 << 20])
def test_an_entry_without_a_size_that_can_be_stops_dispatch_there(size: int) -> None:
    """What is behind it would be passed over, or be read where no entry begins."""
    rig = Rig()
    rig.put(b"a")
    rig.put(b"b")
    rig.commit()
    rig.log.pending.clear()
    second = rig.log.ledger.entry(1)
    assert second is not None
    rig.log.row.file(0).pwrite(size.to_bytes(4, "big"), second.pos + 4)
    found = LedgerTail(rig.log)
    if size > 40:
        before = found.next_slice(0, False)
        assert before is not None
        assert (len(before.rows), before.end) == (1, second.pos)
    with pytest.raises(StoreError, match=f"at {second.pos}:"):
        found.next_slice(second.pos if size > 40 else 0, False)


def test_a_deletion_outlives_a_crash_that_forgot_what_is_committed() -> None:
    """The checkpoint knows it seconds late: the old messages were deleted all the same."""
    rig = Rig()
    configuration = BrokerConfiguration()
    configuration.store.store_path_root_dir = "/s"

    def store() -> DefaultMessageStore:
        rig.open(is_loaded=False)
        made = DefaultMessageStore(
            rig.host.seams, configuration, LedgerJournal(rig.log, configuration.store)
        )
        made.load()
        return made

    before = store()
    rig.put(b"old", b"old")
    rig.commit()
    before.dispatcher.run_slice()
    assert before.clean_unused_topics(set()) == 1
    end = rig.log.max_offset
    rig.world.clock.run_until(rig.world.clock.seconds() + 1)
    before.close()
    after = store()
    assert rig.log.max_offset < end
    assert after.deleted.table == {("T", 0): end}
