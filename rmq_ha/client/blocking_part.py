"""BlockingPart: an event loop in a thread of its own, for programs without an event loop."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from rmq_ha.base.host.loop_thread import LoopThread, ThreadStopped, new_lock
from rmq_ha.client.aio import Client
from rmq_ha.client.rules.errors import ForkedClient, NotStarted
from rmq_ha.client.rules.settings import ClientConfig

T = TypeVar("T")


class BlockingPart(ABC):
    """
    A producer or consumer in a thread that begins with `start` or `with`, so that the object may be
    made before a fork.

    :ivar group: the group's name, which errors name too.
    """

    def __init__(self, group: str, settings: ClientConfig | str) -> None:
        self.group = group
        self._settings = settings
        self._thread: LoopThread | None = None
        self._client: Client | None = None
        self._was_stopped = False
        self._is_stopping = False
        self._lock = new_lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """
        Join the group and begin; do nothing if it has begun already.

        :raises ConfigurationError: no name server is set, or a setting is not valid.
        """
        with self._lock:
            if self._thread is not None:
                return
            thread = LoopThread(f"rmq-ha-{self.group}")
            try:
                thread.run(self._begin())
            except BaseException:
                thread.stop()
                raise
            self._thread = thread
            self._was_stopped = False

    def stop(self) -> None:
        """
        Stop in an orderly way.

        Any thread may call this; a second call changes nothing. In a forked process the parent's
        thread and connections are left alone.
        """
        with self._lock:
            thread = self._thread
            if thread is None or self._is_stopping:
                return
            self._was_stopped = self._is_stopping = True
            try:
                if thread.is_ours:
                    self._stop(thread)
            finally:
                self._thread = None
                self._is_stopping = False

    def _stop(self, thread: LoopThread) -> None:
        """End the part and its thread; other threads may finish their calls meanwhile."""
        try:
            thread.run(self._end())
        except ThreadStopped:
            pass
        finally:
            thread.stop()

    @abstractmethod
    async def _make(self, client: Client) -> None:
        """Make and start the producer or consumer; called in the thread's event loop."""

    async def _begin(self) -> None:
        client = self._client = Client(self._settings)
        try:
            await client.start()
            await self._make(client)
        except BaseException:
            await client.stop()
            raise

    async def _end(self) -> None:
        if self._client is not None:
            await self._client.stop()

    def _run(self, steps: Coroutine[Any, Any, T]) -> T:
        thread = self._thread
        try:
            if thread is None:
                raise NotStarted(f"{self.group}: call `start()` first, or use `with`")
            if not thread.is_ours:
                raise ForkedClient(
                    f"{self.group} was started before this process was forked: start one in each"
                    " process"
                )
        except NotStarted:
            steps.close()
            raise
        return thread.run(steps)
