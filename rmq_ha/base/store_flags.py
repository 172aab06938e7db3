"""Running flags: the reasons why a store takes no writes at the moment.

Spec: store.md, section 2.7 (running flags).
"""

from collections.abc import Callable
from enum import Enum
from errno import EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC

_PASSING = frozenset({ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM})


class Flag(Enum):
    """A kind of fault; its value is the text for people."""

    COMMIT_LOG = "commit log error"
    CONSUME_QUEUE = "consume queue error"
    INDEX_FILE = "index file error"
    QUEUES_BEHIND = "queues behind the log"
    DISK_FULL = "disk full"
    ANOTHER_MASTER = "another master"
    HANDING_OVER = "handing over"


class RunningFlags:
    """
    The present faults of a store with their reasons. While any is up, puts are refused.

    :ivar is_writable: whether no fault is up.
    :ivar on_change: called when `is_writable` may have changed.
    """

    def __init__(self) -> None:
        self._reasons: dict[Flag, str] = {}
        self.is_writable = True
        self.on_change: Callable[[], object] = lambda: None

    def hoist(self, flag: Flag, reason: str) -> bool:
        """Put a flag up, or change its reason; return whether it was down before."""
        was_down = flag not in self._reasons
        self._reasons[flag] = reason
        self.is_writable = False
        self.on_change()
        return was_down

    def lower(self, flag: Flag) -> bool:
        """Take a flag down; return whether it was up before."""
        was_up = self._reasons.pop(flag, None) is not None
        self.is_writable = not self._reasons
        self.on_change()
        return was_up

    def is_up(self, flag: Flag) -> bool:
        """Whether a flag is up."""
        return flag in self._reasons

    @property
    def may_be_closed_cleanly(self) -> bool:
        """Whether the data on the disk is sound; a full disk, another master and a hand-over do not
        count.
        """
        return self._reasons.keys() <= {Flag.DISK_FULL, Flag.ANOTHER_MASTER, Flag.HANDING_OVER}

    @property
    def reasons(self) -> list[str]:
        """The present faults as texts, for the log and the status page."""
        return [f"{flag.value}: {reason}" for flag, reason in self._reasons.items()]


def may_pass(error: BaseException) -> bool:
    """
    Whether a call failed for want of space, descriptors or memory, so that it may succeed later.

    Use this only for calls that had no effect when they failed, or that can be repeated from the
    start: opening, reading, writing. Never use it for syncs: after a failed sync the kernel counts
    the lost pages as written, and a second sync succeeds without them.
    """
    return isinstance(error, OSError) and error.errno in _PASSING
