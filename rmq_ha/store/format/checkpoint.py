"""
The checkpoint file: up to which store time log, queues and index are surely on the disk.

======  ====  =====  ==================================================================
offset  size  type   meaning
======  ====  =====  ==================================================================
0       8     int64  physicMsgTimestamp, ms: newest message of the flushed commit log
8       8     int64  logicsMsgTimestamp, ms: newest message of the flushed queues
16      8     int64  indexMsgTimestamp, ms: end of the last full index file
24      4072         zero
======  ====  =====  ==================================================================

Big-endian. Spec: store.md, section 5.1.
"""

from struct import Struct
from typing import NamedTuple

_CHECKPOINT = Struct(">qqq")
CHECKPOINT_SIZE = 4096
_GRACE_MS = 3000


class CheckpointTimes(NamedTuple):
    """The three store times, ms; 0 where nothing is known."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0

    @property
    def min_timestamp(self) -> int:
        """Log and queues are complete on the disk up to here; three seconds of grace taken off."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _GRACE_MS)

    @property
    def min_timestamp_index(self) -> int:
        """The same when the index has to be complete, too."""
        return min(self.min_timestamp, self.index_msg_timestamp)

    def encode(self) -> bytes:
        """The first bytes of the file; the rest stays zero."""
        return _CHECKPOINT.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> "CheckpointTimes":
        """From the start of a file; a short one counts as zeros (recovery then reads all)."""
        if len(data) < _CHECKPOINT.size:
            return cls()
        return cls(*_CHECKPOINT.unpack_from(data))
