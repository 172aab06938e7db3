"""
The checkpoint file: up to which store time log, queues and index are surely on the disk.

======  ====  =====  ==================================================================
offset  size  type   meaning
======  ====  =====  ==================================================================
0       8     int64  physicMsgTimestamp, ms: newest message of the flushed commit log
8       8     int64  logicsMsgTimestamp, ms: newest message of the flushed queues
16      8     int64  indexMsgTimestamp, ms: end of the last full index file
24      8     int64  ours: up to this physical offset the commit log is flushed; 0: not known
32      4     uint32 ours: CRC-32 of the first and the fourth number; Java lets both stay, but
                     changes the first one, and then the fourth counts for nothing
36      4060         zero
======  ====  =====  ==================================================================

Big-endian. Spec: store.md, section 5.1.
"""

from struct import Struct
from typing import NamedTuple
from zlib import crc32

_CHECKPOINT = Struct(">qqq")
_OURS = Struct(">qI")
_OFFSETS = Struct(">qq")
CHECKPOINT_BYTES = _CHECKPOINT.size + _OURS.size
CHECKPOINT_SIZE = 4096
_GRACE_MS = 3000


class CheckpointTimes(NamedTuple):
    """
    The three store times, ms; 0 where nothing is known.

    :ivar flushed_offset: of the commit log, bytes; 0 where nothing is known.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    flushed_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Log and queues are complete on the disk up to here; three seconds of grace taken off."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _GRACE_MS)

    @property
    def min_timestamp_index(self) -> int:
        """The same when the index has to be complete, too."""
        return min(self.min_timestamp, self.index_msg_timestamp)

    def at_most(self, most: "CheckpointTimes") -> "CheckpointTimes":
        """Of each number the lower one."""
        return CheckpointTimes(*map(min, self, most))

    def encode(self) -> bytes:
        """The first bytes of the file; the rest stays zero."""
        physic, logics, index, flushed = self
        checksum = crc32(_OFFSETS.pack(physic, flushed)) if flushed else 0
        return _CHECKPOINT.pack(physic, logics, index) + _OURS.pack(flushed, checksum)

    @classmethod
    def decode(cls, data: bytes) -> "CheckpointTimes":
        """From the start of a file; a short one counts as zeros (recovery then reads all)."""
        if len(data) < _CHECKPOINT.size:
            return cls()
        times = cls(*_CHECKPOINT.unpack_from(data))
        if len(data) < CHECKPOINT_BYTES:
            return times
        flushed, checksum = _OURS.unpack_from(data, _CHECKPOINT.size)
        is_ours = checksum == crc32(_OFFSETS.pack(times.physic_msg_timestamp, flushed))
        return times._replace(flushed_offset=flushed) if flushed and is_ours else times
