"""DataVersion: how slaves and name servers notice a change.

Spec: remoting.md, chapter 8; store.md, section 12.1.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class DataVersion:
    """
    Equal only when all numbers are.

    :ivar state_version: the epoch of a broker in controller mode, which name servers compare; 0
        in any other mode, and then it is not sent, as 4.9 knows no such member.
    """

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def next_version(self, now_ms: int) -> None:
        """The content changed."""
        self.timestamp = now_ms
        self.counter += 1

    def assign(self, other: "DataVersion") -> None:
        """Take over another's version together with its content."""
        self.timestamp = other.timestamp
        self.counter = other.counter
        self.state_version = other.state_version

    def to_json(self) -> dict[str, int]:
        """The form on the wire and on disk."""
        version = {"counter": self.counter, "timestamp": self.timestamp}
        return {**version, "stateVersion": self.state_version} if self.state_version else version

    @classmethod
    def from_json(cls, value: Any) -> "DataVersion":
        """Missing members are 0."""
        value = value or {}
        names = ("timestamp", "counter", "stateVersion")
        return cls(*(int(value.get(name, 0)) for name in names))
