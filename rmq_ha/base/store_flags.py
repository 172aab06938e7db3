"""Why a store may not be written just now.

Spec: store.md, section 2.7 (running flags).
"""

from enum import Enum
from errno import EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC

_PASSING = frozenset({ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM})


class Flag(Enum):
    """What can be wrong; the value is what a person reads."""

    COMMIT_LOG = "commit log error"
    CONSUME_QUEUE = "consume queue error"
    INDEX_FILE = "index file error"
    QUEUES_BEHIND = "queues behind the log"
    DISK_FULL = "disk full"
    ANOTHER_MASTER = "another master"


class RunningFlags:
    """What is wrong, each with the reason that a person should know; all of it refuses puts."""

    def __init__(self) -> None:
        self._reasons: dict[Flag, str] = {}
        self.is_writable = True

    def hoist(self, flag: Flag, reason: str) -> bool:
        """Put a flag up, or give it another reason; whether it was down."""
        was_down = flag not in self._reasons
        self._reasons[flag] = reason
        self.is_writable = False
        return was_down

    def lower(self, flag: Flag) -> bool:
        """Take this one flag down; whether it was up."""
        was_up = self._reasons.pop(flag, None) is not None
        self.is_writable = not self._reasons
        return was_up

    def is_up(self, flag: Flag) -> bool:
        """Whether there is a reason at present to show this flag."""
        return flag in self._reasons

    @property
    def may_be_closed_cleanly(self) -> bool:
        """Nothing is wrong with what is on the disk; a full disk does not count."""
        return self._reasons.keys() <= {Flag.DISK_FULL, Flag.ANOTHER_MASTER}

    @property
    def reasons(self) -> list[str]:
        """What is wrong, for the log and the status page."""
        return [f"{flag.value}: {reason}" for flag, reason in self._reasons.items()]


def may_pass(error: BaseException) -> bool:
    """
    The disk refused for want of space, descriptors or memory, so the same call may succeed later.

    Only for calls whose failure tells that nothing was done, or that can be done again from the
    start: opening, reading, writing. After a failed sync the kernel counts the lost pages as
    written, and a second sync succeeds without them.
    """
    return isinstance(error, OSError) and error.errno in _PASSING
