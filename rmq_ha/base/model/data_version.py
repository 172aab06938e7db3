"""DataVersion: slaves and name servers notice a change of a table by it.

Spec: remoting.md, chapter 8; store.md, section 12.1.
"""

from typing import ClassVar

import msgspec


class DataVersion(msgspec.Struct, rename="camel"):
    """
    The version of a table. Two versions are equal if all their numbers are equal.

    :ivar state_version: the epoch of a broker in controller mode, which name servers compare. In
        any other mode it is 0 and is not sent, since 4.9 knows no such member.
    """

    UNWRITTEN_ZEROS: ClassVar[tuple[str, ...]] = ("state_version",)

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def next_version(self, now_ms: int) -> None:
        """Count a change of the content at a time in ms since the epoch."""
        self.timestamp = now_ms
        self.counter += 1

    def assign(self, other: "DataVersion") -> None:
        """Take over the version of another table, whose content is taken over, too."""
        self.timestamp = other.timestamp
        self.counter = other.counter
        self.state_version = other.state_version
