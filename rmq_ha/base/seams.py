"""Interfaces to the outside: time, network, disk, threads and random numbers.

Assemblies take a `Host`; the classes below them take only the parts that they use.
`rmq_ha.base.host` has the real parts, `rmq_ha.testing` simulated ones. No other module opens a
file, reads a clock, starts a thread or draws a random number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IReactorTime,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)

T = TypeVar("T")
Soon = Callable[[Callable[[], object]], object]
"""
The type of `Host.soon`: takes a function, and calls it at the end of this turn of the reactor.
"""


class File(Protocol):
    """A file of fixed size, sparse until written. Any of its calls may raise OSError."""

    @property
    def size(self) -> int:
        """Size in bytes, fixed when the file was created."""

    def pread(self, size: int, position: int) -> bytes:
        """Read `size` bytes; fewer only at the end of the file."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`; after an OSError (disk full) any part of it may be there."""

    def reserve(self, position: int, size: int) -> None:
        """Allocate disk space, so that writing this range through `map` cannot run out of it."""

    def map(self) -> Any:
        """
        Return the whole file as one writable buffer (mmap or bytearray).

        Write only ranges that were reserved. Keep no view of the buffer after the call.
        """

    def next_data(self, position: int) -> int:
        """Return where data may begin from `position` on; the bytes up to there are zeros."""

    def zero(self, position: int) -> None:
        """Set all bytes from `position` to the end of the file to zero."""

    def sync(self) -> None:
        """
        Block until all written bytes are on the disk; call it in the worker.

        :raises NotNow: the sync could not begin for want of a descriptor or memory. No sync has
            failed, so try again.
        """

    def forget(self, position: int, size: int) -> None:
        """Tell the system, as a hint, that mapped pages need not stay in the process's memory."""

    def close(self) -> None:
        """Close the descriptor and the map. A second call changes nothing."""


class Times(NamedTuple):
    """
    The steady clock of a host and its time of day, for parts that need nothing else of the host.

    :ivar clock: a steady clock in seconds, for durations and timers.
    :ivar now_ms: returns ms since the epoch, for timestamps; operators may set this time.
    """

    clock: IReactorTime
    now_ms: Callable[[], int]

    def steady_ms(self) -> int:
        """Return the time of the steady clock in ms, for durations."""
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
        """Whether the path is a file or directory."""

    def is_dir(self, path: str) -> bool:
        """Whether the path is a directory."""

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""

    def mtime_ms(self, path: str) -> int:
        """Return when a file was last modified, in ms since the epoch."""

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""

    def read_bytes(self, path: str) -> bytes:
        """
        Return the content of a small file.

        :raises FileNotFoundError: the file does not exist.
        """

    def replace(self, path: str, data: bytes, *, backup: bool = False) -> None:
        """
        Put `data` in the place of a small file: write `.tmp`, fsync, keep the old content as `.bak`
        if `backup` is set, rename, fsync the directory. It blocks, so a running server calls it in
        the worker.
        """

    def boot_id(self, path: str) -> bytes:
        """
        Return an id that stays the same while the machine runs and `path` is the same directory. It
        differs after a reboot and for a copy of the directory; empty if the system has no such id.
        """

    def place_of(self, path: str) -> bytes:
        """Return an id of the file, which a copy of it does not have; empty if it is not known."""

    def sync_tree(self, path: str) -> None:
        """
        Block until all files below a directory, and their names, are on the disk, even if another
        process wrote them.

        :raises OSError: the disk refuses, or has lost written data.
        """

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents; do nothing if it exists."""

    def remove(self, path: str) -> None:
        """Delete a file; do nothing if it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it; do nothing if it does not exist."""

    def move(self, path: str, new_path: str) -> None:
        """
        Give a file or directory another name on the same partition, durably.

        :param new_path: a path that does not exist yet; its directory is created.
        """

    def lock(self, path: str) -> Lock:
        """
        Take RocketMQ's lock (a POSIX record lock on byte 0) and write `lock` into the file.

        :param path: a file, which is made; or a folder that exists, in which nothing is written.
        :raises StoreLocked: another process holds it.
        """

    def may_write(self, path: str) -> bool:
        """Whether this process may create the path, in its directory or the nearest one above."""

    def usage(self, path: str) -> DiskUsage | None:
        """Return the usage of the partition that holds `path`; None if `path` does not exist."""


class Worker(Protocol):
    """The threads of the process, for calls that block on the disk."""

    def call(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        """Run a function in a thread; fires in the reactor with its result or failure."""


class Network(Protocol):
    """Makes endpoints of connections and ports."""

    def client(self, host: str, port: int, timeout: float = 3.0) -> IStreamClientEndpoint:
        """Return an endpoint that connects to a peer, with a timeout in seconds."""

    def server(self, port: int, interface: str = "") -> IStreamServerEndpoint:
        """Return an endpoint that listens; port 0 picks a free port."""

    def look_up(self, name: str) -> "Deferred[list[str]]":
        """Look up the addresses of a name; empty if the name is not known. Never fails."""


class Connections(Protocol):
    """
    The connections that the listening ports of a process have accepted.

    :ivar taken: how many connections are open.
    :ivar refused: how many connections were refused, by the configuration key of the limit.
    """

    taken: int
    refused: dict[str, int]

    @property
    def places(self) -> int | None:
        """How many connections may be open; None without a limit."""

    def know(self, host: str) -> None:
        """Note the address of a broker of this cluster, which is accepted where others are not."""


def _not_set(function: Callable[[], object]) -> object:
    """The default of `Host.soon`, which `Host` replaces by a timer of 0 seconds."""
    raise NotImplementedError


@dataclass(frozen=True)
class Host:
    """
    The outside of a broker, name server or client.

    :ivar clock: a steady clock in seconds, for durations and `callLater`.
    :ivar boot_clock: returns a steady time in seconds that also counts while the machine is
        suspended; None if the machine has no such clock.
    :ivar now_ms: returns ms since the epoch, for timestamps that are stored, sent or shown.
        Operators may set this time, so the difference of two timestamps is no duration.
    :ivar random: random numbers for jitter, ids and choices.
    :ivar memory_bytes: the machine's memory in bytes; a part of it counts as page cache.
    :ivar processors: how many processors the machine has, for operators.
    :ivar connections: counts connections; None if they are not limited.
    :ivar open_files: how many files may be open at once, besides connections.
    :ivar soon: has a function called once, at the end of this turn of the reactor, when all bytes
        that have arrived are read. A call between two turns, or from such a function, has its
        function called at the end of the next turn, before which the reactor does not wait.
        Functions are called in the order in which they were given, and an exception of one is
        logged. Nobody can cancel a call. Without another implementation it is `callLater` of
        `clock` with 0 seconds.
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
    soon: Soon = _not_set

    def __post_init__(self) -> None:
        if self.soon is _not_set:
            object.__setattr__(self, "soon", partial(self.clock.callLater, 0))

    @property
    def times(self) -> Times:
        """Return both clocks of this host, for parts that need nothing else of it."""
        return Times(self.clock, self.now_ms)

    def boot_seconds(self) -> float:
        """Return a steady time in seconds that counts on while the machine sleeps, for leases."""
        return self.clock.seconds() if self.boot_clock is None else self.boot_clock()

    def steady_ms(self) -> int:
        """Return the time of `clock` in ms, for durations; it has no meaning to other machines."""
        return int(self.clock.seconds() * 1000)
