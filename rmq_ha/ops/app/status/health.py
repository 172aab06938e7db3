"""The health of a server: ready or not, with the reason in one line."""

from typing import NamedTuple


class Health(NamedTuple):
    """
    The answer of /healthz and /readyz.

    :ivar is_ready: clients can be served.
    :ivar reason: one line: why it is not ready, or which faults it has although it is.
    :ivar is_in_sync: whether the brokers beside this one may stop, as far as it is known here.
        False: this broker lacks messages, so it could not lead.
    """

    is_ready: bool
    reason: str
    is_in_sync: bool = True

    def combine(self, other: "Health") -> "Health":
        """
        Combine the health of two servers in one process: ready when both are, with both reasons.
        """
        return Health(
            self.is_ready and other.is_ready,
            f"{self.reason}; {other.reason}",
            self.is_in_sync and other.is_in_sync,
        )

    def placed(self) -> "Health":
        """Return the answer of /readyz: a broker that is not in sync is not ready."""
        if self.is_in_sync:
            return self
        return Health(False, f"{self.reason}; not in sync, as far as this broker knows", False)

    def line(self) -> str:
        """Return the line for a person or for `curl`."""
        return f"{'ready' if self.is_ready else 'not ready'}: {self.reason}\n"


def follows_nobody(text: str, seconds: float | None, most: int, state: str = "") -> Health:
    """
    Return the health of a broker that serves reads but gets no new messages. It is ready for some
    time, because consumers may have no other broker.

    :param text: describes the broker.
    :param seconds: for how many seconds the broker has been alone; None: not known.
    :param most: slaveAloneSeconds: for how many seconds it stays ready; 0: for ever.
    :param state: a further remark, for the reason in the result; empty: none.
    """
    since = "" if seconds is None else f" for {seconds:.0f} s"
    text = f"{text}{since} ({state})" if state else f"{text}{since}"
    if most and seconds is not None and seconds >= most:
        return Health(False, f"{text}; slaveAloneSeconds={most}")
    return Health(True, text)
