"""The extension of one consume queue: a file with the store time and the filter bit map of
messages.

Spec: store.md, section 3.6.
"""

from collections.abc import Callable

from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.model.message import DispatchRequest, Row
from rmq_ha.base.store_format.consumequeue_ext import (
    END_MARK,
    END_ROOM,
    MAX_UNIT_SIZE,
    address_of,
    decode_extension,
    encode_extension,
    position_of,
)
from rmq_ha.server.store.queues.files import QueueFiles

BitMapOf = Callable[[DispatchRequest], bytes | None]
_WINDOW = 4096
_NO_WINDOW = (0, b"")


class QueueExtension:
    """
    Units in files of their own, to which the consume queue points.

    A unit is staged with its request and written before the unit of the queue. `begin` forgets
    units that were staged and not written. A position to which a queue points is never used again,
    so an address leads to its own unit or to none.

    :param directory: `consumequeue_ext/<topic>/<queueId>` of the store.
    :param bit_map_of: returns the SQL92 filters that a message matches; None for no bit map.
    """

    __slots__ = ("_bit_map_of", "_directory", "_end", "_files", "_staged", "_starts", "_window")

    def __init__(self, files: QueueFiles, directory: str, bit_map_of: BitMapOf) -> None:
        self._files = files
        self._directory = directory
        self._bit_map_of = bit_map_of
        self._starts: list[int] = []
        self._end = 0
        self._staged: list[tuple[int, bytes]] = []
        self._window = _NO_WINDOW

    def load(self, starts: list[int]) -> None:
        """Take the files that were found. Until `settle`, the next unit goes into a new file."""
        self._starts = sorted(starts)
        self._end = self._starts[-1] + self._files.file_size if starts else 0
        self._window = _NO_WINDOW

    def settle(self, last_address: int | None) -> None:
        """
        Continue after the last unit to which the queue points, after the queue was cut or loaded.

        :param last_address: None if no recent unit of the queue points here; then a new file is
            begun.
        :raises StoreError: the disk refuses.
        """
        if last_address is None:
            self.load(self._starts)
            return
        position = position_of(last_address)
        unit = self._read(position)
        start = position - position % self._files.file_size
        self._window = _NO_WINDOW
        for later in [other for other in self._starts if other > start]:
            self._files.remove(self._path(later))
            self._starts.remove(later)
        if unit is None:
            self._end = start + self._files.file_size
            return
        self._end = position + unit[1]
        self._files.zero(self._path(start), self._end - start)

    def clear(self) -> None:
        """
        Delete all files, because the queue is empty.

        :raises StoreError: the disk refuses.
        """
        for start in self._starts:
            self._files.remove(self._path(start))
        self.load([])

    def begin(self) -> None:
        """Forget the units that were staged for a write that failed."""
        self._staged.clear()

    def stage(self, request: Row) -> int:
        """
        Prepare a unit for `write`.

        :returns: its address; the plain tag code if it does not fit into a unit.
        """
        bit_map = self._bit_map_of(DispatchRequest._make(request))
        unit = encode_extension(ExtensionUnit(request[4], request[5], bit_map))
        size = self._files.file_size
        if unit is None or len(unit) > size - END_ROOM:
            return request[4]
        position = self._end
        if self._staged:
            last, data = self._staged[-1]
            position = last + len(data)
        room = -position % size
        # At the start of a file the free rest is the whole file, not 0.
        if (room or size) - END_ROOM < len(unit):
            self._staged.append((position, END_MARK))
            position += room
        self._staged.append((position, unit))
        return address_of(position)

    def write(self) -> None:
        """
        Write the staged units, with one write for each file.

        :raises StoreError: the disk refuses; stage the same requests again later.
        """
        size = self._files.file_size
        by_file: dict[int, list[tuple[int, bytes]]] = {}
        for position, data in self._staged:
            by_file.setdefault(position - position % size, []).append((position, data))
        for start, pieces in by_file.items():
            is_new = not self._starts or self._starts[-1] < start
            data = b"".join([piece for _, piece in pieces])
            self._files.write(self._path(start), data, pieces[0][0] - start, is_new)
            if is_new:
                self._starts.append(start)
        if self._staged:
            position, data = self._staged[-1]
            self._end = position + len(data)
        self._staged.clear()

    def get(self, address: int) -> ExtensionUnit | None:
        """
        Return the unit at an address that the queue holds; None if the unit is lost.

        :raises StoreError: the disk refuses.
        """
        unit = self._read(position_of(address))
        return None if unit is None else unit[0]

    def delete_before(self, address: int) -> None:
        """
        Delete the files that end before the unit of the queue's first message.

        :raises StoreError: the disk refuses.
        """
        position = position_of(address)
        while len(self._starts) > 1 and self._starts[0] + self._files.file_size < position:
            self._files.remove(self._path(self._starts[0]))
            del self._starts[0]

    def destroy(self) -> None:
        """
        Delete all files.

        :raises StoreError: the disk refuses.
        """
        self._files.remove_tree(self._directory)
        self.load([])

    def _path(self, start: int) -> str:
        return f"{self._directory}/{start:020d}"

    def _read(self, position: int) -> tuple[ExtensionUnit, int] | None:
        """Return the unit and its size, from the bytes read last or from the file."""
        first, data = self._window
        unit = decode_extension(data, position - first)
        if unit is not None:
            return unit
        start = position - position % self._files.file_size
        if start not in self._starts:
            return None
        for size in (_WINDOW, MAX_UNIT_SIZE):
            self._window = (position, self._files.read(self._path(start), size, position - start))
            unit = decode_extension(self._window[1])
            if unit is not None:
                return unit
        return None
