"""Threads for calls that block on the disk."""

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

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
