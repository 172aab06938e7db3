"""Statuses and roles, in the order of RocketMQ's enums.

Spec: store.md, sections 2.7 and 8.1.
"""

from collections.abc import Callable
from enum import Enum


class BrokerRole(Enum):
    """Whether a broker takes messages, and whether a put waits for a replica."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(Enum):
    """Whether a put waits for the disk."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class PutMessageStatus(Enum):
    """The result of a put. The first four statuses mean that the message is stored."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPEDFILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGECACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 10

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the commit log and will be delivered."""
        return self.value <= 3


Decided = Callable[[PutMessageStatus, float], None]
"""
The type of a function that is called once, when a put has waited for a disk or a replica. It gets
the resulting status and the time in seconds of the clock. The call may come before the function
that begins the wait returns.
"""


class GetMessageStatus(Enum):
    """The result of a look into a queue."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
