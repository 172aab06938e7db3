"""DataVersion: how slaves and name servers notice a change.

Spec: remoting.md, chapter 8; store.md, section 12.1.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class DataVersion:
    """Equal only when both numbers are; order means nothing."""

    timestamp: int = 0
    counter: int = 0

    def next_version(self, now_ms: int) -> None:
        """The content changed."""
        self.timestamp = now_ms
        self.counter += 1

    def assign(self, other: "DataVersion") -> None:
        """Take over another's version together with its content."""
        self.timestamp = other.timestamp
        self.counter = other.counter

    def to_json(self) -> dict[str, int]:
        """The form on the wire and on disk."""
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def from_json(cls, value: Any) -> "DataVersion":
        """Missing members are 0."""
        value = value or {}
        return cls(int(value.get("timestamp", 0)), int(value.get("counter", 0)))
