"""A running digest of all events of a simulation: equal seeds give equal digests."""

from collections.abc import Callable
from hashlib import sha256
from struct import Struct
from zlib import crc32

_EVENT = Struct(">BBdqI")
_FOLD_AT = 65536

TIMER, DELIVERY, CONNECTED, CLOSED, SYNC, REPLACED, WORKED, CRASHED, FAULT, NOTE = range(10)
_NAMES = [
    "timer",
    "delivery",
    "connected",
    "closed",
    "sync",
    "replaced",
    "worked",
    "crashed",
    "fault",
    "note",
]


class Trace:
    """
    Takes one event after the other; `digest` sums them up.

    :param write: also called with each event as a line of text; None: not called.
    """

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self.count = 0
        self._write = write
        self._hash = sha256()
        self._buffer = bytearray()

    def add(
        self, kind: int, host: int, time: float, number: int, data: bytes | bytearray = b""
    ) -> None:
        """
        Count one event.

        :param host: index of the machine, 0 to 255.
        :param time: simulated seconds.
        :param data: bytes of the event; only their checksum is counted.
        """
        self.count += 1
        self._buffer += _EVENT.pack(kind, host, time, number, crc32(data))
        if len(self._buffer) >= _FOLD_AT:
            self._fold()
        if self._write is not None:
            text = f" {bytes(data[:48])!r}" if data else ""
            self._write(f"{time:12.6f} host {host} {_NAMES[kind]} {number}{text}")

    def _fold(self) -> None:
        self._hash.update(self._buffer)
        self._buffer.clear()

    @property
    def digest(self) -> str:
        """Hex digits over all events so far."""
        self._fold()
        return self._hash.hexdigest()
