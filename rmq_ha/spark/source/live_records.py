"""What brokers answer to a pull, as Arrow: records one after the other, from anywhere in a log.

Spec: remoting.md, section 7.4; store.md, section 2.
"""

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

import numpy as np

from rmq_ha.scan.log.records import Records
from rmq_ha.store.format.commitlog import MESSAGE_MAGIC, RECORD_OVERHEAD

_HEAD = Struct(">II12xq")


class Piece(NamedTuple):
    """
    The records of one answer.

    :ivar positions: where they begin in `data`.
    :ivar queue_offsets: of each.
    """

    data: bytes
    positions: list[int]
    queue_offsets: list[int]

    def check_order(self) -> None:
        """
        Each message is there once.

        :raises ValueError: one is there twice, or in another place.
        """
        for before, after in pairwise(self.queue_offsets):
            if after <= before:
                raise ValueError(f"offset {after} behind offset {before}")

    def within(self, start: int, stop: int) -> "Piece":
        """Only the records whose offsets are in [start, stop)."""
        offsets = self.queue_offsets
        if all(start <= offset < stop for offset in offsets):
            return self
        kept = [index for index, offset in enumerate(offsets) if start <= offset < stop]
        return Piece(
            self.data,
            [self.positions[index] for index in kept],
            [offsets[index] for index in kept],
        )


def piece_of(data: bytes) -> Piece:
    """
    Find the records.

    :raises ValueError: something else is in it.
    """
    positions: list[int] = []
    offsets: list[int] = []
    position, end = 0, len(data)
    while position < end:
        if end - position < RECORD_OVERHEAD:
            raise ValueError(f"{end - position} bytes after the last record")
        size, magic, offset = _HEAD.unpack_from(data, position)
        if magic != MESSAGE_MAGIC or not RECORD_OVERHEAD <= size <= end - position:
            raise ValueError(f"no record at byte {position} of {end}")
        positions.append(position)
        offsets.append(offset)
        position += size
    return Piece(data, positions, offsets)


def records_of(pieces: Sequence[Piece]) -> Records:
    """
    The records of several answers.

    :raises ValueError: the parts of a record do not add up.
    """
    positions: list[int] = []
    start = 0
    for piece in pieces:
        positions += [start + position for position in piece.positions]
        start += len(piece.data)
    records = Records(b"".join(piece.data for piece in pieces), 0, np.array(positions, np.int64))
    if not records.shape.fits.all():
        raise ValueError("the parts of a record do not add up")
    return records
