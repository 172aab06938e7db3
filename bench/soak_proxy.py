"""The line between a slave and its master's HA port: forwards, and does what a network may do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

_CHUNK = 1 << 16


class Link:
    """
    A TCP proxy in a thread of its own.

    :ivar target: port on loopback that new connections are forwarded to.
    :ivar delay: seconds that each piece waits.
    :ivar is_black: nothing is read or forwarded, and nobody is told.
    """

    def __init__(self) -> None:
        self.target = 0
        self.port = 0
        self.delay = 0.0
        self.is_black = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        if not self._listens.wait(10):
            raise RuntimeError("the proxy does not listen")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(there[1])
        both = self._pump(reader, there[1]), self._pump(there[0], writer)
        await asyncio.gather(*both, return_exceptions=True)
        for end in (writer, there[1]):
            end.transport.abort()
            self._writers.discard(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                while self.is_black:
                    await asyncio.sleep(0.05)
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def reset(self) -> None:
        """Every connection is gone, at both ends."""

        def abort() -> None:
            for writer in list(self._writers):
                transport: Any = writer.transport
                transport.abort()

        self._loop.call_soon_threadsafe(abort)

    def close(self) -> None:
        self.reset()
        self._loop.call_soon_threadsafe(self._loop.stop)
