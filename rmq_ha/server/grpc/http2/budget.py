"""Budgets against floods of frames, which cost this side work and the peer little.

Each frame that is useless for a call takes from a budget, which refills with time. Calls and
their bytes add to the budget, because clients send some PING and WINDOW_UPDATE frames with them.

Spec: grpc.md, section 14.1.
"""

from rmq_ha.server.grpc.http2.frames import Http2Error, Http2Violation

CONTROL_FRAMES = "control frames"
RESETS = "resets"
HEADER_BLOCKS = "header blocks"
BUDGETS = (CONTROL_FRAMES, RESETS, HEADER_BLOCKS)
"""The names of all budgets, for metrics."""

STREAMS_A_FRAME = 4
"""So many streams whose window a SETTINGS frame changes are as much work as one frame."""
_PER_CALL = 4.0
_PER_BYTE = 1 / 4096


class Bucket:
    """A number that refills with time up to `most`; spending below zero is a violation."""

    __slots__ = ("_level", "_most", "_name", "_per_second", "_since")

    def __init__(self, name: str, most: float, per_second: float) -> None:
        self._name = name
        self._most = self._level = most
        self._per_second = per_second
        self._since = 0.0

    def spend(self, now: float, amount: float = 1.0) -> None:
        """
        Take an amount from the bucket.

        :param now: the time in seconds; the bucket refills by the time since the last refill.
        :raises Http2Violation: less than the amount is left.
        """
        if self._level < amount:
            gained = (now - self._since) * self._per_second
            self._level = min(self._most, self._level + max(0.0, gained))
            self._since = now
        self._level -= amount
        if self._level < 0:
            raise Http2Violation(
                Http2Error.ENHANCE_YOUR_CALM,
                f"it sends more than {self._most:.0f} at once or {self._per_second:.0f} a second: "
                f"{self._name}",
                self._name,
            )

    def give(self, amount: float) -> None:
        """Add to the bucket, at most until it is full."""
        self._level = min(self._most, self._level + amount)


class FloodBudget:
    """The budgets of one connection."""

    def __init__(self) -> None:
        self._control = Bucket(CONTROL_FRAMES, 5000, 500)
        self._resets = Bucket(RESETS, 1000, 33)

    def note_control(self, now: float, amount: float = 1.0) -> None:
        """Note a frame that carries no part of a call, or is empty, or the work of some such."""
        self._control.spend(now, amount)

    def note_reset(self, now: float) -> None:
        """Note that the peer reset a call before its answer, or broke a rule within it."""
        self._resets.spend(now)

    def note_call(self) -> None:
        """Note that a call was answered."""
        self._control.give(_PER_CALL)

    def note_bytes(self, size: int) -> None:
        """Note bytes of messages, in either direction."""
        self._control.give(size * _PER_BYTE)
