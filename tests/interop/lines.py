"""Lines between processes that can be cut, each direction by itself."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable

_CHUNK = 1 << 16
_LOOK_S = 0.02


class Line:
    """
    A port that forwards to another one.

    :param address: where it listens.
    :param target: where it forwards to.
    :param hides: what the target says of where it is; replaced by `address`, which is as long.
    :ivar is_cut_there: what comes from whoever connected stays here.
    :ivar is_cut_back: what the target says stays here.
    """

    def __init__(self, address: str, target: str, hides: str | None = None) -> None:
        self.address, self.target = address, target
        self.is_cut_there = self.is_cut_back = False
        self._hides = (hides or "").encode()
        assert hides is None or len(hides) == len(address)

    async def listen(self) -> None:
        """Begin."""
        host, _, port = self.address.rpartition(":")
        await asyncio.start_server(self._accepted, host, int(port))

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self.is_cut_there or self.is_cut_back:
            await asyncio.sleep(_LOOK_S)
        host, _, port = self.target.rpartition(":")
        try:
            back, there = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        pumps = [
            asyncio.ensure_future(self._pump(reader, there, "is_cut_there", b"")),
            asyncio.ensure_future(self._pump(back, writer, "is_cut_back", self._hides)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, there):
            end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: str, hides: bytes
    ) -> None:
        """What a cut line holds back comes when it is mended, as TCP sends it again."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                while getattr(self, cut):
                    await asyncio.sleep(_LOOK_S)
                writer.write(data.replace(hides, self.address.encode()) if hides else data)
                await writer.drain()
            while getattr(self, cut):
                await asyncio.sleep(_LOOK_S)


class Lines:
    """Some of them, in a thread of their own."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        for line in lines:
            asyncio.run_coroutine_threadsafe(line.listen(), self._loop).result(10)

    def close(self) -> None:
        """No port listens any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
