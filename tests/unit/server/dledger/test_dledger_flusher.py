"""When a ledger reaches the disk. Spec: dledger.md, sections 2, 3.1 and 18.2."""

from errno import EMFILE
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_flags import RunningFlags
from rmq_ha.server.dledger.classic import ClassicPart
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.flush import LedgerCleaner, LedgerFlusher
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.testing.host import World


class Rig:
    def __init__(self) -> None:
        self.world = World(1)
        self.host = self.world.add("n0")
        config = MessageStoreConfig()
        ledger = Ledger(self.host.disk, "/d", 8192, index_file_size=32 * 1024)
        ledger.load()
        row = FileRow(self.host.disk, ["/commitlog"], 8192)
        self.log = DLedgerCommitLog(config, ledger, [], ClassicPart(CommitLog(config, row, [])))
        self.ledger = ledger
        self.flushes = 0
        self.store: Any = SimpleNamespace(
            host=self.host.seams,
            configuration=BrokerConfiguration(),
            checkpoint=SimpleNamespace(physic=0),
            root="/store",
            flags=RunningFlags(),
            log_flushed=self.flushed,
        )
        self.flusher = LedgerFlusher(self.log, self.store)

    def flushed(self) -> None:
        self.flushes += 1

    def append(self, count: int = 1) -> None:
        self.ledger.append(1, [b"x" * 100] * count)
        self.flusher.appended()

    def run(self, seconds: float) -> None:
        self.world.clock.run_until(self.world.clock.seconds() + seconds)


def test_it_is_synced_soon_after_an_append_and_once_for_many() -> None:
    """The 10 ms loop of upstream, without a timer while there is nothing to do."""
    rig = Rig()
    for _ in range(5):
        rig.append()
    assert rig.flushes == 0
    rig.log.last_store_timestamp = 77
    rig.run(0.2)
    assert rig.flushes == 1
    assert rig.ledger.synced_index == 4
    assert rig.log.flushed_offset == rig.ledger.end_pos
    assert rig.store.checkpoint.physic == 77


def test_who_waits_gets_a_sync_of_what_there_is_now() -> None:
    """Those that ask while one runs share the next one."""
    rig = Rig()
    heard: list[int] = []
    rig.ledger.append(1, [b"a"])
    rig.flusher.sync(heard.append)
    rig.ledger.append(1, [b"b"])
    rig.flusher.sync(heard.append)
    rig.flusher.sync(heard.append)
    rig.run(0.5)
    assert heard == [0, 1, 1]


def test_the_checkpoint_follows_within_seconds_also_of_a_mere_commit() -> None:
    """Spec: dledger.md, section 3.1."""
    rig = Rig()
    rig.append(3)
    rig.run(5)
    before = rig.flushes
    rig.ledger.commit(2)
    rig.flusher.appended()
    rig.run(5)
    assert rig.flushes == before + 1, "once, with the checkpoint"
    assert b"committedIndex=2" in rig.host.disk.read_bytes("/d/checkpoint")
    assert rig.host.clock.getDelayedCalls() == []


def test_a_sync_that_fails_ends_appends_for_good() -> None:
    """After it nobody knows what is on the disk."""
    rig = Rig()
    heard: list[int] = []
    rig.ledger.append(1, [b"a"])
    rig.host.disk.sync_fails = True
    rig.flusher.sync(heard.append)
    rig.run(0.5)
    assert heard == []
    assert "sync failed" in (rig.log.fault or "")
    rig.flusher.appended()
    assert rig.host.clock.getDelayedCalls() == []
    rig.host.disk.sync_fails = False
    with pytest.raises(StoreError, match="takes no more"):
        rig.ledger.append(1, [b"b"])
    rig.flusher.sync(heard.append)
    rig.run(10)
    assert (heard, rig.ledger.synced_index) == ([], -1)


def test_what_is_cut_while_it_is_synced_is_not_on_the_disk() -> None:
    """Nor what comes in its place, before it is synced as well."""
    rig = Rig()
    rig.append(3)
    first = rig.ledger.entry(0)
    assert first is not None
    heard: list[int] = []
    rig.flusher.sync(heard.append)
    rig.ledger.truncate_to(first)
    assert rig.world.clock.run_while(lambda: not heard, 1.0)
    assert (heard, rig.log.flushed_offset) == ([0], rig.ledger.end_pos)


def test_a_sync_that_somebody_asked_for_takes_the_place_of_the_one_that_was_due() -> None:
    """And does not keep the next one from coming."""
    rig = Rig()
    for _ in range(3):
        rig.append()
        rig.flusher.sync(lambda _: None)
        rig.run(0.2)
    rig.append()
    rig.run(0.2)
    assert (rig.flushes, rig.ledger.synced_index) == (4, 3)


def test_a_checkpoint_that_is_out_of_date_waits_for_its_time() -> None:
    rig = Rig()
    rig.run(5)
    rig.append()
    rig.run(0.2)  # with a checkpoint, as the last one is old
    seen = []
    rig.append()
    rig.ledger.commit(0)
    for seconds in (0.2, 2.4, 0.5, 5.0):
        rig.run(seconds)
        seen.append((rig.flushes, b"committedIndex=0" in rig.host.disk.read_bytes("/d/checkpoint")))
    assert seen == [(2, False), (2, False), (3, True), (3, True)]


def test_a_stop_brings_all_to_the_disk_with_the_checkpoint() -> None:
    from twisted.internet.defer import Deferred

    rig = Rig()
    rig.append(3)
    rig.ledger.commit(1)
    stopped: list[Any] = []
    Deferred.fromCoroutine(rig.flusher.stop()).addBoth(stopped.append)
    rig.run(1)
    assert stopped == [None]
    assert b"committedIndex=1\nendIndex=2\n" in rig.host.disk.read_bytes("/d/checkpoint")
    assert rig.host.clock.getDelayedCalls() == []
    assert rig.flushes == 1


def test_a_stop_is_over_though_no_file_can_be_opened() -> None:
    """Nothing is tried any more behind it."""
    rig = Rig()
    rig.append()
    rig.ledger.close()
    rig.host.disk.fault = lambda called, path: EMFILE if called == "open" else None
    rig.run(0.2)
    assert len(rig.host.clock.getDelayedCalls()) == 1
    stopped: list[Any] = []
    Deferred.fromCoroutine(rig.flusher.stop()).addBoth(stopped.append)
    assert stopped == [None]
    assert rig.host.clock.getDelayedCalls() == []


def test_what_is_committed_begins_no_sync_where_none_may_begin() -> None:
    """After a failed one nobody knows what is on the disk; after a stop the disk is another's."""
    for end in ("failed", "stopped"):
        rig = Rig()
        rig.append()
        rig.run(0.2)
        if end == "failed":
            rig.host.disk.sync_fails = True
            rig.append()
            rig.run(1)
            rig.host.disk.sync_fails = False
        else:
            Deferred.fromCoroutine(rig.flusher.stop())
            rig.run(1)
        flushes = rig.flushes
        rig.ledger.commit(0)
        rig.flusher.appended()
        assert rig.host.clock.getDelayedCalls() == []
        rig.run(10)
        assert rig.flushes == flushes


def test_a_full_disk_is_told_to_the_ledger() -> None:
    """Spec: dledger.md, section 13.1: a follower says 415, too."""
    rig = Rig()
    cleaner = LedgerCleaner(rig.log, rig.store)
    cleaner.check_disk()
    assert rig.ledger.full is None
    cleaner.log_ratio = lambda: 0.95  # type: ignore[method-assign]
    cleaner.check_disk()
    assert "95% full" in (rig.ledger.full or "")
    assert not rig.store.flags.is_writable


def test_files_are_kept_an_hour_longer_than_the_configuration_says() -> None:
    """As RocketMQ tells DLedger."""
    rig = Rig()
    rig.append(200)
    rig.ledger.commit(199)
    rig.run(1)
    rig.store.configuration.store.file_reserved_time = 1
    cleaner = LedgerCleaner(rig.log, rig.store)
    deleted: list[int] = []
    for minutes, expected in ((115, [0]), (10, [0, 3])):
        rig.host.step_clock(minutes * 60_000)
        cleaner.clean_manually()
        cleaner.clean().addCallback(deleted.append)
        rig.run(5)
        assert deleted == expected


def test_files_that_cannot_be_opened_for_a_sync_end_the_ledger_and_not_the_stop() -> None:
    """Nobody knows any more what of it is on the disk."""
    rig = Rig()
    rig.append()

    def no_descriptors(thorough: bool = False) -> Any:
        raise OSError(24, "Too many open files")

    rig.ledger.sync_job = no_descriptors  # type: ignore[method-assign]
    rig.run(0.2)
    assert rig.ledger.is_broken
    assert rig.log.fault is not None
    heard: list[int] = []
    rig.flusher.sync(heard.append)
    stopped = Deferred.fromCoroutine(rig.flusher.stop())
    assert stopped.called
    assert heard == []


def test_a_sync_whose_end_cannot_be_noted_ends_the_ledger() -> None:
    """It would else take entries that nothing brings to the disk any more."""
    rig = Rig()
    rig.append()

    def fails(job: Any) -> int:
        raise StoreError("cannot write the checkpoint")

    rig.ledger.synced = fails  # type: ignore[method-assign]
    rig.run(0.2)
    assert rig.log.fault is not None
    with pytest.raises(StoreError):
        rig.ledger.append(1, [b"x"])


@pytest.mark.parametrize("operation", ["open", "names"])
def test_files_that_cannot_be_opened_just_now_are_synced_later(operation: str) -> None:
    """No sync has failed: who waits goes on waiting, at two attempts a second."""
    rig = Rig()
    rig.append(2)
    rig.ledger.commit(0)
    rig.ledger.close()
    attempts = 0

    def fault(called: str, path: str) -> int | None:
        nonlocal attempts
        attempts += called == operation
        return EMFILE if called == operation else None

    rig.host.disk.fault = fault
    heard: list[int] = []
    rig.flusher.sync(heard.append)
    rig.run(4)
    rig.flusher.appended()
    assert len(rig.host.clock.getDelayedCalls()) == 1, "the next attempt is set already"
    assert heard == []
    assert not rig.ledger.is_broken
    assert 5 <= attempts <= 12
    rig.host.disk.fault = lambda called, path: None
    rig.run(1)
    assert heard == [1]
    rig.append()
    rig.flusher.sync(heard.append)
    rig.run(1)
    assert heard == [1, 2]
    assert rig.log.fault is None


def test_a_stop_is_over_when_all_is_on_the_disk_and_not_before() -> None:
    """Who closes the files sooner loses what the last sync was to bring there."""
    rig = Rig()
    rig.append(3)
    rig.run(0.2)
    rig.ledger.append(1, [b"last"])
    rig.flusher.sync(lambda _: None)
    rig.ledger.append(1, [b"behind it"])
    seen: list[int] = []
    stopped = Deferred.fromCoroutine(rig.flusher.stop())
    stopped.addCallback(lambda _: seen.append(rig.ledger.synced_index))
    assert seen == []
    rig.run(1)
    assert seen == [4]
