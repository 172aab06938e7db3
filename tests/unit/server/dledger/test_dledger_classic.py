"""A classic broker's log before the entries of a group. Spec: dledger.md, section 15.4."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.store_format.commitlog import decode_record, encode_blank
from rmq_ha.server.dledger.classic import ClassicPart
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.journal import LedgerJournal
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.tail import LedgerTail
from rmq_ha.server.store.log.boot import LastExit
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.testing.host import World
from tests.unit.server.store.appends import append_group

HOST = Address.parse("10.1.2.3", 10911)
FILE_SIZE = 8192
NOW = 1_700_000_000_000


def message(body: bytes, size: int = 0) -> BrokerMessage:
    return BrokerMessage("T", 0, body.ljust(size, b"."), HOST, HOST)


class Upgraded:
    """
    A machine on which a classic broker stopped, and a member of a group starts.

    :param sizes: of the bodies that it had.
    :ivar end: of its log.
    """

    def __init__(self, *sizes: int) -> None:
        self.disk = World(1).add("n0").disk
        log = self._classic_log()
        log.row.load()
        append_group(log, [message(b"%d" % n, size) for n, size in enumerate(sizes)], NOW)
        self.end = log.max_offset
        log.drop_spare()
        for start in log.row.starts:
            log.row.file(start).sync()
        log.row.close()

    def _classic_log(self) -> CommitLog:
        row = FileRow(self.disk, ["/commitlog"], FILE_SIZE)
        return CommitLog(MessageStoreConfig(), row, [1000])

    def start(self, last_exit_ok: bool = True, known: int = -1) -> DLedgerCommitLog:
        """
        As a store does.

        :param known: the last physical offset in its queues.
        """
        ledger = Ledger(self.disk, "/d", FILE_SIZE, index_file_size=32 * 1024)
        config = MessageStoreConfig()
        log = DLedgerCommitLog(config, ledger, [1000], ClassicPart(self._classic_log()))
        log.leadership = SimpleNamespace(term_to_append=lambda: 3)
        log.admits = True
        self.store = Mock()
        self.store.configuration = BrokerConfiguration()
        self.store.queues.last_record.return_value = None
        self.store.queues.max_physical_offset = known
        journal = LedgerJournal(log, config)
        journal.attach(self.store)
        journal.load()
        journal.recover(LastExit.CLEAN if last_exit_ok else LastExit.CRASHED)
        return log


def bodies(log: DLedgerCommitLog) -> list[bytes]:
    """All that is dispatched, in order, read by the places that are told."""
    tail, found = LedgerTail(log), []
    position = max(log.min_offset, 0)
    while position < max(log.max_offset, log.classic.end):
        part = tail.next_slice(position, False)
        assert part is not None
        for row in part.rows:
            record = log.record_at(row[2], row[3])
            assert record is not None
            found.append(decode_record(record).body.rstrip(b"."))
        position = part.end
    return found


def put(log: DLedgerCommitLog, *sent: bytes) -> None:
    append_group(log, [message(body) for body in sent], NOW)
    log.ledger.commit(log.ledger.end_index)


def test_a_classic_log_is_closed_and_entries_begin_behind_it() -> None:
    """With a file of their own; old and new are one log, at this start and at the next one."""
    machine = Upgraded(3000, 3000, 3000)
    log = machine.start()
    assert (log.classic.end, log.ledger.begin_pos) == (2 * FILE_SIZE, 2 * FILE_SIZE)
    assert log.last_store_timestamp == NOW
    assert log.flushed_offset == 2 * FILE_SIZE
    blank = encode_blank(2 * FILE_SIZE - machine.end)
    file = machine.disk.open(f"/commitlog/{FILE_SIZE:020}", FILE_SIZE)
    assert file.pread(len(blank), machine.end - FILE_SIZE) == blank
    file.close()
    at = machine.end - FILE_SIZE
    assert machine.disk.is_safe(f"/commitlog/{FILE_SIZE:020}", at, at + len(blank))
    machine.disk = machine.disk.crash()
    log = machine.start()
    put(log, b"a", b"b")
    assert bodies(log) == [b"0", b"1", b"2", b"a", b"b"]
    again = machine.start()
    assert again.flushed_offset == again.ledger.end_pos
    again.ledger.commit(1)
    assert bodies(again) == [b"0", b"1", b"2", b"a", b"b"]
    assert again.min_offset == 0


@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_stamps_go_on_from_the_newest_record_though_the_clock_was_set_back(
    last_exit_ok: bool,
) -> None:
    """What a start after lost power believes of the queues rests on it, as do searches by time."""
    machine = Upgraded(3000)
    log = machine.start()
    for clock, stamp in ((NOW - 7, NOW), (NOW + 5, NOW + 5)):
        (result,) = append_group(log, [message(b"new")], clock)
        assert result.store_timestamp == log.last_store_timestamp == stamp
    log = machine.start(last_exit_ok)
    assert append_group(log, [message(b"newer")], NOW)[0].store_timestamp == NOW + 5


@pytest.mark.parametrize(("more", "is_cut"), [(-1, False), (0, True), (500, True)])
@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_queues_know_nothing_behind_the_last_entry(
    more: int, is_cut: bool, last_exit_ok: bool
) -> None:
    """Others will come there."""
    machine = Upgraded(3000)
    log = machine.start()
    put(log, b"a", b"b")
    end = log.ledger.end_pos
    machine.start(last_exit_ok, known=end + more)
    cuts = [call.args[0] for call in machine.store.queues.truncate.call_args_list]
    assert cuts == [log.ledger.begin_pos] * (not last_exit_ok) + [end] * is_cut


def test_the_classic_files_expire_before_the_first_entry() -> None:
    machine = Upgraded(5000, 5000, 5000)
    log = machine.start()
    put(log, *[b"x" * 5000] * 3)
    log.ledger.sync()
    begin = log.ledger.begin_pos
    assert (log.min_offset, begin) == (0, 3 * FILE_SIZE)
    data = log.read(FILE_SIZE, 40)
    assert any(data)
    assert data == log.classic.log.read(FILE_SIZE, 40)
    assert log.record_at(FILE_SIZE) is not None
    for count, low in ((1, FILE_SIZE), (2, begin)):
        log.drop_oldest(count)
        assert (log.min_offset, log.ledger.begin_pos) == (low, begin)


def test_a_classic_log_that_ends_with_its_file_is_closed_already() -> None:
    """The disk was full when the next file was to be made."""
    machine = Upgraded(3000)
    file = machine.disk.open(f"/commitlog/{0:020}", FILE_SIZE)
    file.pwrite(encode_blank(FILE_SIZE - machine.end), machine.end)
    file.close()
    log = machine.start()
    put(log, b"a")
    assert log.ledger.begin_pos == FILE_SIZE
    assert bodies(log) == [b"0", b"a"]


def test_entries_begin_right_behind_a_classic_log_whose_last_file_was_empty() -> None:
    """That file goes; a hole in its place would stop the dispatcher for good."""
    machine = Upgraded(3000)
    machine.disk.open(f"/commitlog/{FILE_SIZE:020}", FILE_SIZE).close()
    log = machine.start()
    put(log, b"a")
    assert (log.classic.end, log.ledger.begin_pos) == (FILE_SIZE, FILE_SIZE)
    assert bodies(log) == [b"0", b"a"]


def test_a_record_that_ends_with_its_file_needs_no_blank() -> None:
    """Neither broker writes one, and whoever did would have its log read."""
    large = CommitLog(
        MessageStoreConfig(), FileRow(World(2).add("n0").disk, ["/large"], 2 * FILE_SIZE), [1000]
    )
    large.row.load()
    append_group(large, [message(b"0", FILE_SIZE - 92)], NOW)
    machine = Upgraded()
    log = machine._classic_log()
    log.append_raw(0, large.read(0, FILE_SIZE))
    log.drop_spare()
    assert log.max_offset == FILE_SIZE == large.max_offset
    log.row.close()
    started = machine.start()
    put(started, b"a")
    assert bodies(started) == [b"0", b"a"]


def test_a_classic_log_that_was_not_closed_cleanly_is_refused_until_there_are_entries() -> None:
    """What one member would cut, the others keep; later starts have the ledger to go by."""
    machine = Upgraded(3000)
    with pytest.raises(StoreError, match="not closed cleanly"):
        machine.start(last_exit_ok=False)
    put(machine.start(), b"a")
    machine.start(last_exit_ok=False)


@pytest.mark.parametrize(("known", "cut"), [(-1, False), (FILE_SIZE - 1, False), (FILE_SIZE, True)])
def test_queues_know_nothing_behind_a_classic_log_without_entries(known: int, cut: bool) -> None:
    """And keep what they know of it."""
    machine = Upgraded(3000)
    machine.start(known=known)
    queues = machine.store.queues
    assert [call.args for call in queues.truncate.call_args_list] == [(FILE_SIZE,)] * cut
    queues.remove_all.assert_not_called()


def test_without_either_the_queues_are_empty() -> None:
    machine = Upgraded()
    machine.start(known=100)
    machine.store.queues.remove_all.assert_called_once_with()


def test_damage_in_a_classic_log_is_passed_over() -> None:
    """As a master does: nobody will send that place anew."""
    machine = Upgraded(1000, 1000, 1000)
    log = machine.start()
    second = machine.end // 3
    machine.disk.open(f"/commitlog/{0:020}", FILE_SIZE).pwrite(bytes(50), second)
    assert bodies(log) == [b"0", b"2"]
