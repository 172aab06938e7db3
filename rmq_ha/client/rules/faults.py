"""LatencyFaults: which slow or failed brokers a producer avoids, and for how long.

Spec: remoting.md, section 11.1 (MQFaultStrategy).
"""

from typing import NamedTuple

_LATENCIES_MS = (50, 100, 550, 1000, 2000, 3000, 15000)
_ABSENCES_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
ISOLATED_MS = 30_000


class _FaultItem(NamedTuple):
    latency_ms: float
    until_ms: float


class LatencyFaults:
    """The latency of each broker's last answer, by broker name; times are in ms of one clock."""

    def __init__(self, first: int = 0) -> None:
        """:param first: start value of the counter by which `least_bad` takes turns."""
        self._items: dict[str, _FaultItem] = {}
        self._turn = first

    def update(self, broker: str, latency_ms: float, now_ms: float, *, isolated: bool) -> None:
        """
        Note the latency of a send to a broker.

        :param isolated: whether the send failed, which counts as a latency of 30 s.
        """
        counted = ISOLATED_MS if isolated else latency_ms
        self._items[broker] = _FaultItem(latency_ms, now_ms + absence_ms(counted))

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Whether the last send to a broker was fast enough, or its absence time is over."""
        item = self._items.get(broker)
        return item is None or item.until_ms <= now_ms

    def least_bad(self, now_ms: float) -> str | None:
        """
        Return, in turn, one of the better half of the brokers that were ever sent to; None if no
        broker was.
        """
        ranked = sorted(
            self._items,
            key=lambda name: (
                not self.is_available(name, now_ms),
                self._items[name].latency_ms,
                self._items[name].until_ms,
            ),
        )
        if not ranked:
            return None
        half = len(ranked) // 2
        if half == 0:
            return ranked[0]
        self._turn += 1
        return ranked[self._turn % half]

    def remove(self, broker: str) -> None:
        """Forget a broker that has no queues of the topic any more."""
        self._items.pop(broker, None)


def absence_ms(latency_ms: float) -> int:
    """Return how long, in ms, to avoid a broker whose answer took `latency_ms`."""
    away_ms = 0
    for latency, absence in zip(_LATENCIES_MS, _ABSENCES_MS, strict=True):
        if latency_ms >= latency:
            away_ms = absence
    return away_ms
