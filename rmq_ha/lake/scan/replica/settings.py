"""The settings of `verify-replica`, and the stores that it opens."""

from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.replica.auditing import CHECKS, Side
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.lake.scan.store.directory import StoreDirectory, open_store
from rmq_ha.ops.offline.chain import Layout

SPLIT = 64 << 20
"""Bytes of the log that one task reads."""
WINDOW = 16 << 20


class StoreAt(NamedTuple):
    """The place of a store, and its `storePathCommitLog`, if that is set."""

    uri: str
    commit_log: str | None = None


class Settings(NamedTuple):
    """
    The settings of one run.

    :ivar slave: the other store; the same place as `master`: one store is compared with itself.
    :ivar start: physical offset from which on logs are compared; 0: from their beginning.
    :ivar index_sizes: `maxHashSlotNum` and `maxIndexNum` of both stores, if not the default.
    :ivar pause_ms: time to wait before a fault of a store in use is looked at again.
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
    A store, and the part of its log that is read.

    :ivar low: physical offset at which its log begins.
    :ivar high: physical offset at which its last record ended when it was opened.
    """

    store: StoreDirectory
    low: int
    high: int

    @property
    def log(self) -> Log:
        return Log(self.store.files, self.store.log_files(), self.high)

    def side(self, name: str, dispatched: int) -> Side:
        """Return the store as a task reads it; its queues were built up to `dispatched`."""
        return Side(name, self.store, self.log, dispatched)

    @property
    def is_quorum(self) -> bool:
        """Whether the store belongs to a member of a DLedger group."""
        return self.store.layout is Layout.DLEDGER


def opened(at: StoreAt, index_sizes: tuple[int, int] | None) -> OpenedStore:
    """
    Open a store and fix the bound up to which it is read.

    :raises CannotDecide: there is no store, or it is empty.
    """
    store = open_store(at.uri, commit_log=at.commit_log, index_sizes=index_sizes, damaged=True)
    low, high = store.min_offset(), store.max_offset()
    if high <= low:
        raise CannotDecide(f"{at.uri} has no message: is it the right directory?")
    return OpenedStore(store, low, high)


def open_pair(settings: Settings) -> list[OpenedStore]:
    """
    Open both stores, master first.

    :raises CannotDecide: a store is missing or empty, or they have no byte in common.
    """
    # The slave is opened first, so that the master is ahead of the slave's bound while both grow.
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
    """Return the part of the log that all stores have, from an offset on."""
    return max(start, *(replica.low for replica in pair)), min(replica.high for replica in pair)
