"""A ledger against a model, with power cuts, torn writes, full disks and interleaved syncs.

What was synced is there after any crash, and what is there is whole and in an order in which it was
once written.
"""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import InconsistentLedger, LedgerFull
from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.ledger_sync import SyncJob
from rmq_ha.testing.disk import SimDisk

FILE = 4096
INDEX_FILE = 32 * 16
LARGEST = FILE - 8 - 48


class World:
    """One member's ledger, what it should hold, and everything that was ever written."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(seed + 1), lambda: 0)
        self.entries: list[Entry] = []
        self.followed: set[tuple[Entry | None, Entry]] = set()
        self.used: set[tuple[int, int]] = set()
        self.count = 0
        self.synced = -1  # index up to which `entries` are on the disk
        self.committed = -1
        self.job: tuple[SyncJob, int] | None = None
        self.open()

    def open(self) -> None:
        self.job = None
        self.ledger = Ledger(
            self.disk, "/m/dledger-n0", FILE, index_file_size=INDEX_FILE, cached_bytes=3000
        )
        self.ledger.load()

    def body(self) -> bytes:
        self.count += 1
        size = self.random.choice((0, 40, 300, 300, 1200, self.random.randrange(LARGEST)))
        filling = self.random.choice((b"\0", b"\1", self.count.to_bytes(2, "big")))
        return (b"%d," % self.count + filling * size)[:LARGEST]

    def term(self, index: int) -> int:
        """One in which this index was never written, at times an old one."""
        least = self.entries[-1].term if self.entries else 0
        term = self.random.randint(least, least + 3)
        while (index, term) in self.used:
            term += 1
        return term

    def note(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.followed.add((self.entries[-1] if self.entries else None, entry))
            self.used.add((entry.index, entry.term))
            self.entries.append(entry)

    # What may happen

    def append(self) -> None:
        index = self.ledger.end_index + 1
        bodies = [self.body() for _ in range(self.random.choice((1, 1, 3, 8)))]
        term = self.term(index)
        bodies = [
            body for at, body in enumerate(bodies) if not at or (index + at, term) not in self.used
        ]
        try:
            if self.random.random() < 0.5:
                entries = self.ledger.append(term, bodies)
            else:
                entries, pos = [], None
                for at, body in enumerate(bodies):
                    pos = self.ledger.place(len(body), pos)
                    entries.append(Entry(index + at, term, pos, body))
                    pos += entries[-1].size
                self.ledger.append_entry(entries)
        except LedgerFull:
            assert self.disk.is_full
            # A part may have been written and come back: it was wiped, but not durably.
            self.check()
            return
        self.note(entries)

    def refuse(self) -> None:
        ledger = self.ledger
        body = self.body()
        end, pos = ledger.end_index, ledger.place(len(body))
        for entry in (
            Entry(end + 2, 1 << 20, pos, body),
            Entry(end + 1, 1 << 20, pos + 1, body),
            Entry(end + 1, ledger.end_term - 1, pos, body),
            Entry(end + 1, 1 << 20, pos, bytes(LARGEST + 1)),
        ):
            with pytest.raises(InconsistentLedger):
                ledger.append_entry([entry])

    def shorten(self) -> None:
        if self.entries:
            at = self.random.randrange(len(self.entries))
            try:
                self.ledger.truncate_to(self.entries[at])
            except LedgerFull:  # the checkpoint has to be written first
                assert self.disk.is_full
            else:
                self.cut(self.entries[at].index)

    def cut(self, index: int) -> None:
        self.entries = [entry for entry in self.entries if entry.index <= index]
        self.synced = min(self.synced, index)
        self.committed = min(self.committed, index)
        if self.job:
            self.job = (self.job[0], min(self.job[1], index))

    def replace(self) -> None:
        """TRUNCATE with another entry, where one is or anywhere."""
        body = self.body()
        if self.entries and self.random.random() < 0.5:
            old = self.random.choice(self.entries)
            index, pos = old.index, old.pos
        else:
            index = self.random.randrange(200)
            pos = FILE * self.random.randrange(50) + self.random.choice((0, 0, 0, 77))
        if pos % FILE + 48 + len(body) + 8 > FILE:
            return
        term = next(term for term in range(1 << 30) if (index, term) not in self.used)
        entry = Entry(index, max(term, self.random.randrange(5)), pos, body)
        if (index, entry.term) in self.used:
            return
        try:
            self.ledger.truncate_to(entry)
        except LedgerFull:
            assert self.disk.is_full
            self.cut(self.ledger.end_index)
            self.committed = self.ledger.committed_index
        else:
            keeps = self.ledger.begin_index < index
            self.cut(index - 1 if keeps else -1)
            self.note([entry])
        self.check()

    def commit(self) -> None:
        index = self.random.randrange(-1, self.ledger.end_index + 5)
        self.ledger.commit(index)
        if min(index, self.ledger.end_index) >= max(self.ledger.begin_index, 0):
            self.committed = max(self.committed, min(index, self.ledger.end_index))

    def begin_sync(self) -> None:
        if self.job is None:
            job = self.ledger.sync_job(self.random.random() < 0.4)
            self.job = (job, self.ledger.end_index)

    def end_sync(self) -> None:
        if self.job is not None:
            job, index = self.job
            if self.random.random() < 0.7:
                job.run()
            else:  # cut, appended, ... between the two halves
                job.run()
                self.random.choice((self.append, self.shorten, self.replace))()
                index = self.job[1]
            self.job = None
            self.synced = max(self.synced, index)
            found = self.ledger.synced(job)
            assert found >= self.synced, (found, self.synced)

    def fill_disk(self) -> None:
        self.disk.is_full = not self.disk.is_full

    def expire(self) -> None:
        if self.job is None:
            for path in self.ledger.drop_files(self.random.randrange(3)):
                self.disk.remove(path)
            self.entries = [e for e in self.entries if e.index >= self.ledger.begin_index]

    def restart(self) -> None:
        self.disk = self.disk.crash(power=False)
        kept = self.entries
        self.open()
        self.check_entries(kept)
        self.committed = self.ledger.committed_index

    def crash(self) -> None:
        synced = [entry for entry in self.entries if entry.index <= self.synced]
        self.disk = self.disk.crash()
        self.open()
        found = self.found()
        assert set(synced) <= set(found)  # dropped files may come back, too
        for before, entry in pairwise(found):
            assert (before, entry) in self.followed
        assert all(any(entry == other for _, other in self.followed) for entry in found[:1])
        self.entries = found
        # A start vouches for what it has found.
        self.synced = self.ledger.synced_index
        assert self.synced == self.ledger.end_index
        self.committed = self.ledger.committed_index
        assert self.committed <= self.ledger.end_index

    # What has to be true

    def found(self) -> list[Entry]:
        ledger = self.ledger
        found: list[Entry] = []
        if ledger.end_index >= 0:
            index = ledger.begin_index
            while index <= ledger.end_index:
                some = ledger.entries(index, 2000, 5)
                assert some
                found += some
                index = found[-1].index + 1
        return found

    def check(self) -> None:
        self.check_entries(self.entries)
        assert self.ledger.committed_index == self.committed

    def check_entries(self, wanted: list[Entry]) -> None:
        ledger = self.ledger
        assert self.found() == wanted
        if not wanted:
            assert (ledger.begin_index, ledger.end_index, ledger.end_term) == (-1, -1, -1)
            return
        first, last = wanted[0], wanted[-1]
        assert (ledger.begin_index, ledger.begin_pos) == (first.index, first.pos)
        assert (ledger.end_index, ledger.end_term) == (last.index, last.term)
        assert ledger.end_pos == last.pos + last.size
        some = self.random.choice(wanted)
        assert ledger.entry(some.index) == some
        assert ledger.term_at(some.index) == some.term
        assert ledger.read(some.pos + 48, len(some.body)) == some.body
        assert ledger.entry(last.index + 1) is None

    def run(self, steps: int, *, may_crash: bool = True) -> None:
        weights = {
            self.append: 30,
            self.refuse: 2,
            self.shorten: 4,
            self.replace: 3,
            self.commit: 5,
            self.begin_sync: 6,
            self.end_sync: 6,
            self.fill_disk: 1,
            self.expire: 2,
            self.restart: 2,
            self.crash: 4 if may_crash else 0,
        }
        for step in self.random.choices([*weights], [*weights.values()], k=steps):
            step()
            self.check()


@pytest.mark.parametrize("part", range(8))
def test_what_was_synced_is_there_and_what_is_there_was_written_so(part: int) -> None:
    for seed in range(20 * part, 20 * part + 20):
        World(seed).run(60)


@settings(max_examples=30, deadline=None)
@given(st.integers(min_value=1 << 20))
def test_any_other_history(seed: int) -> None:
    World(seed).run(40)
