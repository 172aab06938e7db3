"""
Plants faults of former versions and of RocketMQ 4.9, to show that the simulator finds them.

`python -m tests.sim_kit.simulate --mutant all --seeds 2000` makes the table. Ordinary seeds find
each mutant: a mutant only says whether the simulation needs whole brokers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.broker.transactions.lookup import HalfMessages
from rmq_ha.server.replication.classic import feed
from rmq_ha.server.replication.classic.comparing import LogComparison, StartSearch
from rmq_ha.server.replication.classic.feed import Feed
from rmq_ha.server.replication.classic.replica import ClassicReplica
from rmq_ha.server.replication.waiting import GroupTransfer
from rmq_ha.server.store.local.damaged_log import DamagedLog
from rmq_ha.server.store.log import flush
from rmq_ha.server.store.log.boot import BootMark
from rmq_ha.server.store.log.flush import CommitLogFlusher
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.store.queues.queue import ConsumeQueue
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.testing.host import SimHost
from tests.sim_kit.controlled_mutants import OF_CONTROLLER_MODE
from tests.sim_kit.planting import CLUSTER, Mutant, Patches

# Replication


def _compare_nothing(patches: Patches) -> None:
    """Let a slave ask for the bytes after its end without comparing the logs, as in 4.9."""
    patches.put(StartSearch, "place", lambda self, unreadable_at: int(self._log.max_offset))
    patches.put(ClassicReplica, "_check_readable", lambda self, same=False: None)


def _see_no_difference(patches: Patches) -> None:
    def take(self: Any, body: memoryview) -> memoryview:
        own = self._log.read(self.place, len(body))
        self.place += len(own)
        return body[len(own) :]

    patches.put(LogComparison, "take", take)


def _believe_greeting(patches: Patches) -> None:
    greeted = Feed._greeted

    def believe(self: Any, greeting: Any) -> None:
        inner = Patches()
        inner.put(feed, "log_checksum", lambda *_: greeting.checksum)
        greeted(self, greeting)
        inner.undo()

    patches.put(Feed, "_greeted", believe)


def _vouch_by_first_report(patches: Patches) -> None:
    """Let a master believe the first offset that a slave reports, as in 4.9."""
    greeted, begin = Feed._greeted, Feed._begin

    def believe_greeting(self: Any, greeting: Any) -> None:
        greeted(self, greeting)
        self.acked = self.proven = greeting.place

    def believe_report(self: Any, offset: int) -> None:
        begin(self, offset)
        self.acked = self.proven = offset

    patches.put(Feed, "_greeted", believe_greeting)
    patches.put(Feed, "_begin", believe_report)


def _one_byte_early(patches: Patches) -> None:
    reached = GroupTransfer.reached
    patches.put(
        GroupTransfer, "reached", lambda self, offset, *rest: reached(self, offset + 1, *rest)
    )


# The disk


def _sync_first_file(patches: Patches) -> None:
    patches.put(flush, "_sync_all", lambda files: [file.sync() for file in list(files)[:1]])


def _vouch_for_page_cache(patches: Patches) -> None:
    """Let a start trust bytes that a killed process wrote, without syncing them."""
    look = BootMark.how_it_was_left

    def believe(self: Any, directories: Any) -> Any:
        disk = self._disk
        disk.sync_tree = lambda path: None
        try:
            return look(self, directories)
        finally:
            del disk.sync_tree

    patches.put(BootMark, "how_it_was_left", believe)


def _never_wait_for_disk(patches: Patches) -> None:
    patches.put(CommitLogFlusher, "when_flushed", lambda *arguments: PutMessageStatus.PUT_OK)


def _wipe_behind_damage(patches: Patches) -> None:
    patches.put(DamagedLog, "settle", lambda self, end, newest, promise, now_ms: None)


# Queues


def _never_cut_queues(patches: Patches) -> None:
    patches.put(ConsumeQueueTable, "truncate", lambda self, physical_offset: None)


def _forget_numbers(patches: Patches) -> None:
    patches.put(DefaultMessageStore, "renumber", lambda self: None)


def _ignore_new_life(patches: Patches) -> None:
    append = ConsumeQueue.append

    def deaf(self: Any, requests: Any) -> None:
        append(self, [request for request in requests if request[6] >= self.max_offset])

    patches.put(ConsumeQueue, "append", deaf)


# Time


def _wall_clock(patches: Patches) -> None:
    """Let timers follow the wall clock, as those of an unchanged Twisted reactor do."""
    step = SimHost.step_clock

    def step_timers(self: SimHost, ms: int) -> None:
        step(self, ms)
        for call in self.clock.getDelayedCalls():
            left = call.getTime() - self.clock.seconds()
            call.delay(max(-left, -ms / 1000))

    patches.put(SimHost, "step_clock", step_timers)


# Transactions


def _end_again(patches: Patches) -> None:
    async def believe(self: Any, half: Any) -> Any:
        return half

    patches.put(HalfMessages, "_successor", believe)


MUTANTS = (
    Mutant(
        "compares-nothing",
        "a slave goes on at its end, whatever the master's log has there",
        "F1, field problems 17 and 18",
        1,
        _compare_nothing,
    ),
    Mutant(
        "sees-no-difference",
        "a slave compares, and takes everything for equal",
        "F1",
        8,
        _see_no_difference,
    ),
    Mutant(
        "greeting-believed",
        "the checksum with which a slave greets is not compared",
        "F1, between two of ours",
        23984,
        _believe_greeting,
    ),
    Mutant(
        "first-report-vouches",
        "the first report of a connection acknowledges what it claims",
        "N1",
        1552,
        _vouch_by_first_report,
    ),
    Mutant(
        "one-byte-early",
        "a put is acknowledged with its last byte still missing on the slave",
        "ha.md, section 7.2",
        2,
        _one_byte_early,
    ),
    Mutant(
        "first-file-synced",
        "of all files of a flush only the first one is synced",
        "S1 of the mutation tests",
        0,
        _sync_first_file,
    ),
    Mutant(
        "page-cache-vouched-for",
        "what a killed process left counts as flushed, and is not brought to the disk",
        "S3 of the mutation tests",
        43,
        _vouch_for_page_cache,
    ),
    Mutant(
        "disk-not-waited-for",
        "SYNC_FLUSH answers before the disk has it",
        "store.md, section 5.1",
        59,
        _never_wait_for_disk,
    ),
    Mutant(
        "wiped-behind-damage",
        "the log is cut at its first damage, with whole records behind it",
        "F3",
        560,
        _wipe_behind_damage,
    ),
    Mutant(
        "queues-not-cut",
        "where the log is cut the queues keep what they had",
        "store.md, section 5.6",
        1,
        _never_cut_queues,
    ),
    Mutant(
        "numbers-forgotten",
        "after a start queues are numbered from 0 again",
        "F6, field problem 33",
        2,
        _forget_numbers,
    ),
    Mutant(
        "new-life-ignored",
        "of a topic that was made again the slave serves the old life",
        "F5, field problem 24",
        0,
        _ignore_new_life,
    ),
    Mutant("wall-clock", "timers wait for the wall clock", "F2", 204, _wall_clock),
    Mutant(
        "end-again",
        "the END of a transaction that was moved or ended is carried out again",
        "F4",
        3,
        _end_again,
        CLUSTER,
    ),
)
"""The mutants that CI plants."""

ALL_MUTANTS = (*MUTANTS, *OF_CONTROLLER_MODE)


def mutant_named(name: str) -> Mutant:
    """
    Return a mutant by its name.

    :raises KeyError: there is no mutant of that name.
    """
    return {mutant.name: mutant for mutant in ALL_MUTANTS}[name]


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a fault while the block runs; None: plant none."""
    patches = Patches()
    if name is not None:
        mutant_named(name).plant(patches)
    try:
        yield
    finally:
        patches.undo()
