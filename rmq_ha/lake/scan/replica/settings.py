"""What `verify-replica` was asked, and the stores that it looks at."""

from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.replica.auditing import CHECKS, Side
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.lake.scan.store.directory import StoreDirectory, open_store
from rmq_ha.ops.offline.chain import Layout

SPLIT = 64 << 20
"""Bytes of the log that one task looks at."""
WINDOW = 16 << 20


class StoreAt(NamedTuple):
    """
    Where a store is.

    :ivar commit_log: `storePathCommitLog`, where that is set.
    """

    uri: str
    commit_log: str | None = None


class Settings(NamedTuple):
    """
    Of one run.

    :ivar start: physical offset from which on logs are compared; 0: all.
    :ivar window: bytes that are read at once.
    :ivar checks: some of `auditing.CHECKS`: what else is looked at.
    :ivar index_sizes: `maxHashSlotNum` and `maxIndexNum` of both, if not the default.
    :ivar pause_ms: before what a moving store seems to have done wrong is looked at again.
    """

    master: StoreAt
    slave: StoreAt
    start: int = 0
    window: int = WINDOW
    split: int = SPLIT
    checks: frozenset[str] = frozenset(CHECKS)
    index_sizes: tuple[int, int] | None = None
    pause_ms: float = 1500.0


class OpenedStore(NamedTuple):
    """
    A store, and how far it is looked at.

    :ivar low: where its log begins.
    :ivar high: where its last record ended when it was opened.
    """

    store: StoreDirectory
    low: int
    high: int

    @property
    def log(self) -> Log:
        return Log(self.store.files, self.store.log_files(), self.high)

    def side(self, name: str, dispatched: int) -> Side:
        return Side(name, self.store, self.log, dispatched)

    @property
    def is_quorum(self) -> bool:
        """It is a member of a DLedger."""
        return self.store.layout is Layout.DLEDGER


def opened(at: StoreAt, index_sizes: tuple[int, int] | None) -> OpenedStore:
    """
    Open a store and fix the bound up to which it is looked at.

    :raises CannotDecide: there is none, or it is empty.
    """
    store = open_store(at.uri, commit_log=at.commit_log, index_sizes=index_sizes, damaged=True)
    low, high = store.min_offset(), store.max_offset()
    if high <= low:
        raise CannotDecide(f"{at.uri} has no message: is it the right directory?")
    return OpenedStore(store, low, high)


def open_pair(settings: Settings) -> list[OpenedStore]:
    """
    Both stores, master first.

    :raises CannotDecide: one is missing or empty, or they have no byte in common.
    """
    # The slave first: while both move, the master is ahead of what was seen of the slave.
    slave = opened(settings.slave, settings.index_sizes)
    master = opened(settings.master, settings.index_sizes)
    for store, other in ((master.store, slave.store), (slave.store, master.store)):
        sizes = [(file.slots, file.items) for file in other.index_parts()[0] if file.count]
        store.index_hint = sizes[0] if sizes else None
    low, high = common_of([master, slave], settings.start)
    if low >= high:
        raise CannotDecide(
            f"the logs have nothing in common from offset {settings.start} on: the master's is "
            f"[{master.low}, {master.high}), the slave's [{slave.low}, {slave.high}). Is it its "
            "slave? Has it begun to replicate?"
        )
    return [master, slave]


def common_of(pair: list[OpenedStore], start: int) -> tuple[int, int]:
    """What all of them have, from an offset on."""
    return max(start, *(replica.low for replica in pair)), min(replica.high for replica in pair)
