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

    def combined(self, other: "Health") -> "Health":
        """Of a process that runs two servers: ready when both are; what the other says, too."""
        return Health(self.is_ready and other.is_ready, f"{self.reason}; {other.reason}")

    def line(self) -> str:
        """For a person and for `curl`."""
        return f"{'ready' if self.is_ready else 'not ready'}: {self.reason}\n"


def follows_nobody(text: str, seconds: float | None, most: int, state: str = "") -> Health:
    """
    A broker that serves reads, and gets nothing new: ready, as consumers may have no other one.

    :param text: what it is.
    :param seconds: for how long; None: not known.
    :param most: slaveAloneSeconds: for how long it is ready; 0: for ever.
    """
    since = "" if seconds is None else f" for {seconds:.0f} s"
    text = f"{text}{since} ({state})" if state else f"{text}{since}"
    if most and seconds is not None and seconds >= most:
        return Health(False, f"{text}; slaveAloneSeconds={most}")
    return Health(True, text)
