"""
The checkpoint file: up to which store time log, queues and index are surely on the disk.

======  ====  =====  ==================================================================
offset  size  type   meaning
======  ====  =====  ==================================================================
0       8     int64  physicMsgTimestamp, ms: newest message of the flushed commit log
8       8     int64  logicsMsgTimestamp, ms: newest message of the flushed queues
16      8     int64  indexMsgTimestamp, ms: end of the last full index file
24      8     int64  masterFlushedOffset of RocketMQ 5; rmq-ha always writes 0
32      8     int64  confirmPhyOffset of RocketMQ 5: no election loses the part of the log
                     below this physical offset; 0: not known
40      216          zero
256     8     int64  flushed offset: the log is flushed up to this physical offset; 0: not known
264     4     uint32 CRC-32 of the numbers at 0 and 256. Java keeps the bytes from 256 on, but
                     changes the number at 0. Then the flushed offset counts as not known.
268     8     int64  whole offset: log, queues and index are complete on the disk up to this
                     physical offset; 0: not known
276     8     int64  the name of the index file that was the newest at the whole offset, as a
                     number; 0: there was none; -1: no index was written
284     4     int32  the number of items that this index file had then
288     4     uint32 CRC-32 of the numbers at 0, 8 and 16, of those from 268 on, and of an id
                     that a copy of this file does not have
292     3804         zero
======  ====  =====  ==================================================================

Big-endian. The numbers from 256 on are rmq-ha's own. Early versions of rmq-ha wrote the flushed
offset and its CRC at 24 instead. They are read from there if those at 256 are not valid. If Java
has changed the number at 0 since, the rest of them looks like a confirmPhyOffset that is a multiple
of 4 GiB. So such a confirmPhyOffset counts as not known.

Spec: store.md, section 5.1; controller.md, section 4.3.
"""

from struct import Struct
from typing import NamedTuple
from zlib import crc32

_CHECKPOINT = Struct(">qqqqq")
_OURS = Struct(">qI")
_OURS_AT = 256
_ONCE_OURS_AT = 24
_OFFSETS = Struct(">qq")
_LOW_HALF = 0xFFFFFFFF
_WHOLE = Struct(">qqi")
_WHOLE_AT = _OURS_AT + _OURS.size
_CRC = Struct(">I")
_GUARDED = Struct(">qqqqqi")
CHECKPOINT_BYTES = _WHOLE_AT + _WHOLE.size + _CRC.size
CHECKPOINT_SIZE = 4096
_GRACE_MS = 3000


class CheckpointTimes(NamedTuple):
    """
    Three store times in ms, and two offsets of the log; 0 stands for an unknown value.

    :ivar flushed_offset: the log is flushed up to this physical offset.
    :ivar confirmed_offset: in controller mode, the log may be read below this physical offset.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    flushed_offset: int = 0
    confirmed_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """
        The store time up to which log and queues are complete on the disk, less three seconds.
        """
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _GRACE_MS)

    @property
    def min_timestamp_index(self) -> int:
        """
        The store time up to which log, queues and index are complete on the disk, less three
        seconds.
        """
        return min(self.min_timestamp, self.index_msg_timestamp)

    @classmethod
    def ending(cls, end: int, newest: int) -> "CheckpointTimes":
        """
        Return the highest values that can be true of a log that ends at `end`.

        :param newest: store time of its last record, ms.
        """
        return cls(newest, newest, newest, end, end)

    def at_most(self, most: "CheckpointTimes") -> "CheckpointTimes":
        """Return the lower one of both values for each of the numbers."""
        return CheckpointTimes(*map(min, self, most))

    def encode(self) -> bytes:
        """Return the first bytes of the file; the rest of the file stays zero."""
        physic, logics, index, flushed, confirmed = self
        checksum = crc32(_OFFSETS.pack(physic, flushed)) if flushed else 0
        javas = _CHECKPOINT.pack(physic, logics, index, 0, confirmed)
        return javas.ljust(_OURS_AT, b"\0") + _OURS.pack(flushed, checksum)

    @classmethod
    def decode(cls, data: bytes) -> "CheckpointTimes":
        """
        Read the start of a file. A file that is too short counts as zeros, so that recovery reads
        the whole log.
        """
        if len(data) < _WHOLE_AT:
            return cls()
        physic, logics, index, _, confirmed = _CHECKPOINT.unpack_from(data)
        once = _read_flushed_offset(data, _ONCE_OURS_AT, physic)
        if once or confirmed < 0 or not confirmed & _LOW_HALF:
            confirmed = 0
        flushed = _read_flushed_offset(data, _OURS_AT, physic) or once
        return cls(physic, logics, index, flushed, confirmed)


def _read_flushed_offset(data: bytes, at: int, physic: int) -> int:
    flushed, checksum = _OURS.unpack_from(data, at)
    return int(flushed) if checksum == crc32(_OFFSETS.pack(physic, flushed)) else 0


class CompletePositions(NamedTuple):
    """
    The part of the log for which log, queues and index are complete on the disk.

    :ivar offset: physical offset at which that part ends; 0: not known.
    :ivar index_file: the number that names the newest index file of that time; 0: there was none.
        See also `NO_INDEX`.
    :ivar index_count: the number of items that this index file had then.
    """

    offset: int = 0
    index_file: int = 0
    index_count: int = 0

    def encode(self, times: CheckpointTimes, place: bytes) -> bytes:
        """
        Return the bytes that follow those of the times; the rest of the file stays zero.

        :param place: an id that tells the file from a copy of it. If it is empty, the positions are
            not written.
        """
        if not place or self.offset <= 0:
            return bytes(_WHOLE.size + _CRC.size)
        return _WHOLE.pack(*self) + _CRC.pack(self._guard(times, place))

    @classmethod
    def decode(cls, data: bytes, place: bytes) -> "CompletePositions":
        """
        Read the positions. They are `NOTHING_WHOLE` if Java has written the file since, or if it is
        a copy.
        """
        if len(data) < CHECKPOINT_BYTES or not place:
            return NOTHING_WHOLE
        whole = cls._make(_WHOLE.unpack_from(data, _WHOLE_AT))
        (guard,) = _CRC.unpack_from(data, _WHOLE_AT + _WHOLE.size)
        times = CheckpointTimes._make(_CHECKPOINT.unpack_from(data))
        return whole if whole.offset > 0 and guard == whole._guard(times, place) else NOTHING_WHOLE

    def _guard(self, times: CheckpointTimes, place: bytes) -> int:
        return crc32(_GUARDED.pack(*times[:3], *self) + place)


NOTHING_WHOLE = CompletePositions()
NO_INDEX = -1
"""Stands for an index file: no index was written."""
