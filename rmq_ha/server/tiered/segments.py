"""The objects of the tier, and the description of a segment.

A segment is one sealed file of the log. It has three objects below
`<prefix>/<brokerClusterName>/<brokerName>/`, each named by the physical offset of the file's first
byte in 20 digits:

- `log/<offset>` has the bytes of the file;
- `units/<offset>` has the consume queue units of its messages, queue after queue;
- `segments/<offset>` has a `TierSegment` in JSON. It is written last and deleted first, so each
  segment that has one is whole.
"""

from collections.abc import Iterable, Sequence

import msgspec

from rmq_ha.base.store_format.consumequeue import UNIT_SIZE

FORMAT = 1


class QueuePart(msgspec.Struct, frozen=True, array_like=True):
    """
    The messages of one queue in one segment.

    :ivar first: queue offset of the first one.
    :ivar count: how many queue offsets follow, the first one included.
    :ivar at: position of its units in `units/`, in bytes.
    """

    topic: str
    queue_id: int
    first: int
    count: int
    at: int

    @property
    def end(self) -> int:
        """The queue offset after the last one."""
        return self.first + self.count


class TierSegment(msgspec.Struct, frozen=True):
    """
    One sealed file of the log.

    :ivar start: physical offset of its first byte.
    :ivar size: size of the file in bytes.
    :ivar crc: CRC-32 of the file.
    :ivar first_ms: store time of its first message, ms.
    :ivar last_ms: store time of its last message, ms.
    :ivar format: version of this format.
    """

    start: int
    size: int
    crc: int
    first_ms: int
    last_ms: int
    queues: list[QueuePart]
    format: int = FORMAT

    @property
    def end(self) -> int:
        """Physical offset after its last byte."""
        return self.start + self.size

    @property
    def units_size(self) -> int:
        """Size of `units/` in bytes."""
        return sum(part.count for part in self.queues) * UNIT_SIZE


class SegmentKeys:
    """
    The keys of the objects of one broker name.

    :param prefix: what all keys begin with; may be empty.
    """

    def __init__(self, prefix: str, cluster: str, broker_name: str) -> None:
        self._root = "/".join(part for part in (prefix.strip("/"), cluster, broker_name) if part)

    def log(self, start: int) -> str:
        return f"{self._root}/log/{start:020d}"

    def units(self, start: int) -> str:
        return f"{self._root}/units/{start:020d}"

    def segment(self, start: int) -> str:
        return f"{self.segments}{start:020d}"

    @property
    def segments(self) -> str:
        """The prefix of all descriptions."""
        return f"{self._root}/segments/"

    def starts(self, keys: Iterable[str]) -> list[int]:
        """Return the physical offsets of descriptions, rising; other keys are left out."""
        names = [key.removeprefix(self.segments) for key in keys]
        return sorted(int(name) for name in names if len(name) == 20 and name.isdigit())


def encode_segment(segment: TierSegment) -> bytes:
    return msgspec.json.encode(segment)


def decode_segment(data: bytes) -> TierSegment:
    """:raises ValueError: this is no description of a segment, or one of a later version."""
    try:
        segment = msgspec.json.decode(data, type=TierSegment)
    except msgspec.DecodeError as error:
        raise ValueError(f"no description of a segment: {error}") from error
    if segment.format != FORMAT:
        raise ValueError(f"its format is {segment.format}, and this version knows {FORMAT}")
    return segment


def parts_of(units: Sequence[tuple[str, int, int, bytes]]) -> tuple[list[QueuePart], bytes]:
    """
    Lay out the units of a segment.

    :param units: topic, queue id, queue offset of the first unit, and units of each queue.
    :returns: the parts, and the bytes of `units/`.
    """
    parts: list[QueuePart] = []
    at = 0
    for topic, queue_id, first, data in units:
        parts.append(QueuePart(topic, queue_id, first, len(data) // UNIT_SIZE, at))
        at += len(data)
    return parts, b"".join(data for *_, data in units)
