"""Makes the `Host` of a real process."""

import os
import time
from collections.abc import Callable
from random import SystemRandom
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from rmq_ha.base.host.admission import Admission
from rmq_ha.base.host.clock import boot_clock, steady_clock
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.host.network import RealNetwork
from rmq_ha.base.host.turns import soon_of
from rmq_ha.base.seams import Host

T = TypeVar("T")


class RealWorker:
    """
    A small pool of threads, which starts with the first call.

    :param reactor: results arrive in its thread; the pool stops with it.
    """

    def __init__(self, reactor: Any, threads: int = 4) -> None:
        self._reactor = reactor
        self._pool = ThreadPool(minthreads=0, maxthreads=threads, name="rmq-ha-worker")

    def call(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        """Run a function in a thread; the Deferred fires in the reactor's thread."""
        if not self._pool.started:
            self._pool.start()
            self._reactor.addSystemEventTrigger("during", "shutdown", self.stop)
        return deferToThreadPool(self._reactor, self._pool, function, *args)

    def stop(self) -> None:
        """Wait for the running calls and end the threads; the next call starts new ones."""
        if self._pool.started:
            self._pool.stop()
            self._pool = ThreadPool(minthreads=0, maxthreads=self._pool.max, name="rmq-ha-worker")


def now_ms() -> int:
    """Return the time of day, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def physical_memory() -> int:
    """Return the memory of this machine in bytes. The store regards a part of it as page cache."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def make_host(
    reactor: Any, admission: Admission | None = None, *, are_files_private: bool = True
) -> Host:
    """
    Return clock, network, disk, worker and random numbers of this machine.

    :param reactor: a reactor of this program uses the monotonic clock already (`make_steady`).
    :param admission: limits the connections that are taken; None: there is no limit.
    :param are_files_private: see `RealDisk`.
    """
    clock = steady_clock(reactor)
    return Host(
        clock=clock,
        now_ms=now_ms,
        network=RealNetwork(reactor, clock, admission),
        disk=RealDisk(are_files_private),
        worker=RealWorker(reactor),
        random=SystemRandom(),
        memory_bytes=physical_memory(),
        processors=os.cpu_count() or 1,
        connections=admission,
        boot_clock=boot_clock,
        open_files=1024 if admission is None else admission.for_files,
        soon=soon_of(reactor, clock),
    )
