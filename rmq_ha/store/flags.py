"""Why a store may not be written or read just now.

Spec: store.md, section 2.7 (running flags).
"""

NOT_READABLE = "not readable"
LOG_ERROR = "commit log error"
QUEUE_ERROR = "consume queue error"
INDEX_ERROR = "index file error"
DISK_FULL = "disk full"


class RunningFlags:
    """What is wrong, by subject, each with the reason that a person should know."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def set(self, flag: str, reason: str) -> bool:
        """Raise a flag; whether it was down."""
        was_down = flag not in self._reasons
        self._reasons[flag] = reason
        return was_down

    def clear(self, flag: str) -> bool:
        """Lower a flag; whether it was up."""
        return self._reasons.pop(flag, None) is not None

    @property
    def is_readable(self) -> bool:
        """Messages may be read."""
        return NOT_READABLE not in self._reasons

    @property
    def is_writable(self) -> bool:
        """Messages may be put."""
        return not self._reasons or self._reasons.keys() <= {NOT_READABLE}

    @property
    def may_be_closed_cleanly(self) -> bool:
        """Nothing is wrong with what is on the disk; a full disk alone does not count."""
        return self._reasons.keys() <= {NOT_READABLE, DISK_FULL}

    @property
    def reasons(self) -> list[str]:
        """What is wrong, for the log and the status page."""
        return [f"{flag}: {reason}" for flag, reason in self._reasons.items()]
