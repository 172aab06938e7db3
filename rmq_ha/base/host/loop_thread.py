"""A thread with an asyncio loop, for callers that have neither a loop nor a reactor."""

from asyncio import Event, Runner, SelectorEventLoop, run_coroutine_threadsafe
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from threading import Event as ThreadEvent
from threading import Lock, RLock, Thread, get_ident
from typing import Any, TypeVar

from rmq_ha.base.host.process import process_id

T = TypeVar("T")

new_lock = RLock
"""Makes a lock for an object that several threads call."""
this_thread = get_ident
"""Returns the number of the calling thread."""


class ThreadStopped(Exception):
    """The thread was stopped before there was an answer."""


class LoopThread:
    """
    Runs coroutines for other threads, all of them in one loop.

    The thread does not keep a process from ending, and belongs to the process that made it.
    """

    def __init__(self, name: str) -> None:
        self._pid = process_id()
        self._lock = Lock()
        self._is_over = False
        self._began = ThreadEvent()
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        self._began.wait()

    @property
    def is_ours(self) -> bool:
        """
        Whether the calling process made this thread. The thread does not run in a fork of that
        process.
        """
        return process_id() == self._pid

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """
        Run a coroutine in the thread, and wait for its result. If the waiting is interrupted, the
        coroutine is cancelled.

        :raises ThreadStopped: the thread is stopped, or stops before the coroutine has ended.
        """
        with self._lock:
            if self._is_over:
                coroutine.close()
                raise ThreadStopped
            waiting = run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return waiting.result()
        except CancelledError:
            raise ThreadStopped from None
        except BaseException:
            waiting.cancel()
            raise

    def stop(self) -> None:
        """
        Stop the thread and cancel its coroutines. A second call, or a call in a fork, changes
        nothing.
        """
        if not self.is_ours:
            return
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _serve(self) -> None:
        # Whatever policy the application has: sockets of ours need a selector.
        with Runner(loop_factory=SelectorEventLoop) as runner:
            self._loop = runner.get_loop()
            self._end = Event()
            self._began.set()
            runner.run(self._until_the_end())

    async def _until_the_end(self) -> None:
        await self._end.wait()
