"""The one door to the outside: time, network, disk, threads and chance.

Assemblies take a `Host`; below them a class takes only what it uses. `rmq_ha.base.host` has the
real ones, `rmq_ha.testing` the simulated ones; nobody else opens a file, asks for the time, starts
a thread or draws a random number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IReactorTime,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)

T = TypeVar("T")


class File(Protocol):
    """A file of fixed size, sparse until written. Any of its calls may raise OSError."""

    @property
    def size(self) -> int:
        """Size in bytes, fixed when the file was created."""

    def pread(self, size: int, position: int) -> bytes:
        """Exactly `size` bytes, or fewer at the end of the file."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`; after an OSError (disk full) any part of it may be there."""

    def reserve(self, position: int, size: int) -> None:
        """Make sure that writing this range through `map` cannot run out of disk."""

    def map(self) -> Any:
        """
        The whole file as one writable buffer (mmap or bytearray).

        Write only ranges that were reserved. Keep no view of it beyond the call.
        """

    def next_data(self, position: int) -> int:
        """Everything from `position` to the one returned, its size at most, is a hole: zeros."""

    def zero(self, position: int) -> None:
        """Everything from `position` to the end reads as zero."""

    def sync(self) -> None:
        """
        Blocks until what was written is on the disk: call it in the worker.

        :raises NotNow: what it needs besides could not be opened; no sync has failed, so another
            one may be tried.
        """

    def forget(self, position: int, size: int) -> None:
        """These mapped pages need not stay in this process's memory; a hint."""

    def close(self) -> None:
        """Give up the descriptor and the map. Twice is harmless."""


class Times(NamedTuple):
    """
    What tells the time.

    :ivar clock: for durations; seconds that nobody sets.
    :ivar now_ms: for timestamps, ms since the epoch; somebody may set them at any time.
    """

    clock: IReactorTime
    now_ms: Callable[[], int]

    def steady_ms(self) -> int:
        """The clock in milliseconds, for durations."""
        return int(self.clock.seconds() * 1000)


class DiskUsage(NamedTuple):
    """Bytes of a partition; `usable` is what this process may still take."""

    total: int
    used: int
    usable: int


class Lock(Protocol):
    """A lock on a store directory."""

    def release(self) -> None:
        """Release the lock, so that another process can open the store."""


class Disk(Protocol):
    """A file system. Paths are absolute strings."""

    def open(self, path: str, size: int) -> File:
        """
        Open a file of exactly `size` bytes; create it (and its directories), sparse, if missing.

        :raises StoreError: the file exists with another size.
        """

    def exists(self, path: str) -> bool:
        """A file or directory is there."""

    def is_dir(self, path: str) -> bool:
        """A directory is there."""

    def size(self, path: str) -> int:
        """Size of a file in bytes."""

    def mtime_ms(self, path: str) -> int:
        """Last modification, ms since the epoch."""

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""

    def read_bytes(self, path: str) -> bytes:
        """
        A small file, whole.

        :raises FileNotFoundError: it is not there.
        """

    def replace(self, path: str, data: bytes, *, backup: bool = False) -> None:
        """
        Put `data` in the place of a small file: write `.tmp`, fsync, keep the old content as
        `.bak` if asked, rename, fsync the directory. Blocks: use the worker when running.
        """

    def boot_id(self, path: str) -> bytes:
        """
        The same as long as the machine was not down and `path` is the same directory, no copy of
        it; empty where nobody can say.
        """

    def place_of(self, path: str) -> bytes:
        """The same as long as `path` is the same file, no copy of it; empty: nobody can say."""

    def sync_tree(self, path: str) -> None:
        """
        All files below a directory, and their names, are on the disk, whoever wrote them. Blocks.

        :raises OSError: the disk refuses, or lost something that was written.
        """

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents; harmless when there."""

    def remove(self, path: str) -> None:
        """Delete a file; harmless when missing."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it; harmless when missing."""

    def move(self, path: str, new_path: str) -> None:
        """
        Give a file or directory another name on the same partition, durably.

        :param new_path: nothing is there yet; its directory is created.
        """

    def lock(self, path: str) -> Lock:
        """
        Take RocketMQ's lock (a POSIX record lock on byte 0) and write `lock` into the file.

        :raises StoreLocked: another process holds it.
        """

    def may_write(self, path: str) -> bool:
        """Whether something can be made there, or in the nearest directory above that exists."""

    def usage(self, path: str) -> DiskUsage | None:
        """Of the partition that holds `path`; None when there is no such path."""


class Worker(Protocol):
    """The only threads there are: for calls that block on the disk."""

    def call(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        """Run it aside; fires in the reactor with its result or failure."""


class Network(Protocol):
    """Where endpoints come from."""

    def client(self, host: str, port: int, timeout: float = 3.0) -> IStreamClientEndpoint:
        """Connects to a peer; `timeout` in seconds."""

    def server(self, port: int, interface: str = "") -> IStreamServerEndpoint:
        """Listens; port 0 picks a free one."""

    def look_up(self, name: str) -> "Deferred[list[str]]":
        """The addresses that a name stands for; none: it is not known. Never fails."""


class Connections(Protocol):
    """
    How many connections the listening ports of a process have taken.

    :ivar taken: how many there are.
    :ivar refused: how many were refused, by the key that says so.
    """

    taken: int
    refused: dict[str, int]

    @property
    def places(self) -> int | None:
        """How many there may be; None: any number."""

    def know(self, host: str) -> None:
        """A broker of this cluster is at this address: it is let in where strangers are not."""


@dataclass(frozen=True)
class Host:
    """
    What a whole broker, name server or client stands on.

    :ivar clock: durations and `callLater`; seconds that nobody sets.
    :ivar boot_clock: seconds that nobody sets either, and that count on while the machine is
        suspended; None: it has no such clock.
    :ivar now_ms: for timestamps that are stored, sent or shown; ms since the epoch. Somebody may
        set them forward or back at any time, so no difference of two of them is a duration.
    :ivar random: jitter, ids, choices.
    :ivar memory_bytes: of the machine; a part of it counts as page cache.
    :ivar processors: of the machine, for operators.
    :ivar connections: None where nobody limits them.
    :ivar open_files: at once, beside connections.
    """

    clock: IReactorTime
    now_ms: Callable[[], int]
    network: Network
    disk: Disk
    worker: Worker
    random: Random
    memory_bytes: int = 8 << 30
    processors: int = 1
    connections: Connections | None = None
    open_files: int = 1024
    boot_clock: Callable[[], float] | None = None

    @property
    def times(self) -> Times:
        """What tells the time here."""
        return Times(self.clock, self.now_ms)

    def boot_seconds(self) -> float:
        """For what others do meanwhile, as with leases: time counts while this machine sleeps."""
        return self.clock.seconds() if self.boot_clock is None else self.boot_clock()

    def steady_ms(self) -> int:
        """Of `clock`, for durations; means nothing to anybody else."""
        return int(self.clock.seconds() * 1000)
