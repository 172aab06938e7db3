"""A bounded cache of blocks of objects."""

from collections import OrderedDict, deque
from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.seams import Worker
from rmq_ha.server.tiered.objects import ObjectStore

BLOCK = 1 << 20
"""How many bytes of an object are read with one request, and kept or dropped together."""
_AT_ONCE = 2
"""Blocks that are read at the same time. The worker has four threads, and the disk needs some."""

_Name = tuple[str, int]
"""The key of an object, and the number of a block in it."""


class BlockCache:
    """
    Reads objects in blocks, and keeps the blocks that were used last.

    :param capacity: most bytes that are kept.
    :ivar read_bytes: bytes that were read from the object store.
    """

    def __init__(self, worker: Worker, objects: ObjectStore, capacity: int) -> None:
        self._worker = worker
        self._objects = objects
        self._most = max(1, capacity // BLOCK)
        self._blocks: OrderedDict[_Name, bytes] = OrderedDict()
        self._waiting: dict[_Name, list[Deferred[None]]] = {}
        self._queue: deque[_Name] = deque()
        self._reading = 0
        self.read_bytes = 0

    def peek(self, key: str, start: int, size: int) -> bytes | None:
        """Return a part of an object; None if a block of it is not here."""
        pieces: list[bytes] = []
        for number, begin, end in _cuts(start, size):
            block = self._blocks.get((key, number))
            if block is None:
                return None
            self._blocks.move_to_end((key, number))
            pieces.append(block[begin:end])
        return b"".join(pieces)

    def fetch(self, key: str, start: int, size: int) -> "Deferred[None]":
        """
        Bring a part of an object here.

        :returns: fires when the first block that was missing is here, so that a caller peeks and
            fetches again; fails with `TierError`.
        """
        done: Deferred[None] = Deferred()
        for number, *_ in _cuts(start, size):
            name = (key, number)
            if name not in self._blocks:
                if name not in self._waiting:
                    self._waiting[name] = []
                    self._queue.append(name)
                self._waiting[name].append(done)
                self._read_next()
                return done
        done.callback(None)
        return done

    def _read_next(self) -> None:
        while self._queue and self._reading < _AT_ONCE:
            key, number = name = self._queue.popleft()
            self._reading += 1
            reading = self._worker.call(self._objects.get, key, number * BLOCK, BLOCK)
            reading.addBoth(self._ended, name)

    def _ended(self, result: "bytes | Failure", name: _Name) -> None:
        self._reading -= 1
        waiting = self._waiting.pop(name)
        if not isinstance(result, Failure):
            self.read_bytes += len(result)
            self._blocks[name] = result
            while len(self._blocks) > self._most:
                self._blocks.popitem(last=False)
        self._read_next()
        for done in waiting:
            done.callback(result if isinstance(result, Failure) else None)


def _cuts(start: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Return number, begin and end within the block of each block that a range touches."""
    position, end = start, start + size
    while position < end:
        number = position // BLOCK
        until = min(end, (number + 1) * BLOCK)
        yield number, position - number * BLOCK, until - number * BLOCK
        position = until
