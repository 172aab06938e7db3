"""The snapshot of the state of POP consumption: `config/popState`.

A snapshot is made over several turns, while the journal grows. So each image of a queue has the
queue offset of the first journal record that is not in it. A start reads the journal from the first
of these offsets on, and applies to each queue the records from that queue's own offset on.
A snapshot only saves time: without it a start applies the whole journal.

The file is an 8-byte mark, a CRC-32 of the rest, and the numbers and images as in journal records.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.server.pop.entries import ImageEntry, NumbersEntry
from rmq_ha.server.pop.records import put_entry, take_entry
from rmq_ha.server.pop.varints import NumberReader, put_number

_MARK = b"RHPOPS\x00\x01"
_CRC = Struct(">I")


class SnapshotEnd(NamedTuple):
    """
    The last journal record that is in a snapshot, by which a start knows its log again.

    :ivar end: the queue offset behind the record.
    :ivar physical_offset: where the record is in the log. If it is not there, the snapshot is of
        another log.
    :ivar size: bytes of the record.
    """

    end: int
    physical_offset: int
    size: int


class PopSnapshot(NamedTuple):
    """
    The content of a snapshot.

    :ivar begin: queue offset of the first journal record that a start applies.
    :ivar images: yields each image behind the queue offset of the first journal record that is not
        in it. Images are decoded one by one, which may raise `CorruptRecord`.
    :ivar images_begin: see `PopState`.
    """

    place: SnapshotEnd
    begin: int
    numbers: NumbersEntry
    images_begin: int
    images: Iterator[tuple[int, ImageEntry]]


def encode_image(since: int, image: ImageEntry) -> bytes:
    """
    Return the bytes of one image in a snapshot.

    :param since: queue offset of the first journal record that is not in the image.
    """
    out = bytearray()
    put_number(out, since)
    put_entry(out, image, 0)
    return bytes(out)


def encode_snapshot(
    place: SnapshotEnd,
    begin: int,
    numbers: NumbersEntry,
    images_begin: int,
    images: Sequence[bytes],
) -> bytes:
    """
    Return the bytes of the file.

    :param images: as `encode_image` returned them.
    """
    out = bytearray()
    for number in (*place, begin, images_begin + 1, len(images)):
        put_number(out, number)
    put_entry(out, numbers, 0)
    rest = b"".join((bytes(out), *images))
    return b"".join((_MARK, _CRC.pack(crc32(rest)), rest))


def decode_snapshot(data: bytes) -> PopSnapshot:
    """
    Read the bytes of a file.

    :raises CorruptRecord: they are damaged, or a newer broker wrote them.
    """
    head = len(_MARK) + _CRC.size
    if data[: len(_MARK)] != _MARK or len(data) < head:
        raise CorruptRecord("it is no snapshot that this version knows")
    if crc32(data[head:]) != _CRC.unpack(data[len(_MARK) : head])[0]:
        raise CorruptRecord("its CRC is wrong")
    source = NumberReader(data, head)
    place = SnapshotEnd(source.number(), source.number(), source.number())
    begin, images_begin, count = source.number(), source.number() - 1, source.count()
    numbers = take_entry(source, 0)
    if not isinstance(numbers, NumbersEntry):
        raise CorruptRecord("its numbers are something else")
    return PopSnapshot(place, begin, numbers, images_begin, _images(source, count))


def _images(source: NumberReader, count: int) -> Iterator[tuple[int, ImageEntry]]:
    """Yield the images one by one, because decoding those of a million messages takes a second."""
    for _ in range(count):
        since, image = source.number(), take_entry(source, 0)
        if not isinstance(image, ImageEntry):
            raise CorruptRecord("an image is something else")
        yield since, image
    if not source.is_over:
        raise CorruptRecord("it has bytes behind its images")
