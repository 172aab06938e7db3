"""Ready, or why not: one line."""

from typing import NamedTuple


class Health(NamedTuple):
    """
    What /healthz says.

    :ivar is_ready: clients can be served.
    :ivar reason: one line: why not, or what is not as it should be all the same.
    """

    is_ready: bool
    reason: str

    def beside(self, other: "Health") -> "Health":
        """Of a process that runs two servers: ready when both are; what the other says, too."""
        return Health(self.is_ready and other.is_ready, f"{self.reason}; {other.reason}")

    def line(self) -> str:
        """For a person and for `curl`."""
        return f"{'ready' if self.is_ready else 'not ready'}: {self.reason}\n"
