"""Tells from the heartbeats to this controller which brokers are alive.

Heartbeats are not in the log, since each controller receives all of them. Spec: controller.md,
sections 10.1 and 10.5.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from rmq_ha.server.controller.messages import LEAST_PRIORITY, HeartbeatRequest

DEFAULT_SILENCE_MS = 10_000
_MOST_SILENCE_MS = 3_600_000
_MOST_BROKERS = 10_000

Key = tuple[str, int]
"""The name and the id of a broker."""


class Heartbeat(NamedTuple):
    """
    The last heartbeat of a broker.

    :ivar heard: when it came, in milliseconds of a clock that nobody can set.
    :ivar silence_ms: time for which the broker may be silent, in milliseconds.
    :ivar epoch: epoch of the broker's last record; -1: the broker does not know it.
    :ivar channel: the connection that it came by.
    """

    heard: int
    silence_ms: int
    address: str
    epoch: int
    max_offset: int
    confirm_offset: int
    priority: int
    channel: Any


class Liveness:
    """
    Heartbeats by broker; the time is passed in.

    If no heartbeat of a broker came since `begin`, this controller knows nothing of it. The broker
    may be alive and believe that it leads, since the former leader may have received its
    heartbeats.

    :ivar dropped: number of heartbeats that were dropped, since too many brokers are known.
    """

    def __init__(self) -> None:
        self._last: dict[Key, Heartbeat] = {}
        self._heard: set[Key] = set()
        self._begun = 0
        self.dropped = 0

    def begin(self, now: int) -> None:
        """Forget which brokers were heard, since this controller leads from now on."""
        self._heard.clear()
        self._begun = now

    def hear(self, request: HeartbeatRequest, channel: Any, now: int) -> None:
        """
        Take a heartbeat. The last one counts, even if it tells of less than an earlier one. Spec:
        controller.md, chapter 14, hazard 19.

        :param channel: the connection; `bound_to` finds it again.
        """
        if request.broker_id is None:
            return
        key = request.broker_name, request.broker_id
        if key not in self._last and len(self._last) >= _MOST_BROKERS:
            self.dropped += 1
            return
        silence = request.heartbeat_timeout_mills
        self._heard.add(key)
        self._last[key] = Heartbeat(
            now,
            min(silence, _MOST_SILENCE_MS) if silence and silence > 0 else DEFAULT_SILENCE_MS,
            request.broker_addr,
            -1 if request.epoch is None else request.epoch,
            -1 if request.max_offset is None else request.max_offset,
            -1 if request.confirm_offset is None else request.confirm_offset,
            LEAST_PRIORITY if request.election_priority is None else request.election_priority,
            channel,
        )

    def last_heartbeat(self, broker_name: str, broker_id: int, now: int) -> Heartbeat | None:
        """Return the last heartbeat of a broker that is alive; otherwise None."""
        heartbeat = self._last.get((broker_name, broker_id))
        return (
            heartbeat
            if heartbeat is not None and now - heartbeat.heard <= heartbeat.silence_ms
            else None
        )

    def is_alive(self, broker_name: str, broker_id: int, now: int) -> bool:
        """Whether the broker's last heartbeat is recent enough."""
        return self.last_heartbeat(broker_name, broker_id, now) is not None

    def is_heard(self, broker_name: str, broker_id: int) -> bool:
        """Whether something is known of the broker since `begin`."""
        return (broker_name, broker_id) in self._heard

    def may_live(self, broker_name: str, broker_id: int, now: int, silence_ms: int) -> bool:
        """
        Whether the broker is alive, or may be alive because this controller has led too briefly to
        know.

        :param silence_ms: time for which it may be silent, as far as the log tells, in
            milliseconds.
        """
        key = broker_name, broker_id
        if key in self._heard:
            return self.is_alive(broker_name, broker_id, now)
        return now - self._begun <= max(silence_ms, DEFAULT_SILENCE_MS)

    def bound_to(self, channel: Any) -> list[Key]:
        """
        Return the brokers whose last heartbeat came by this connection.

        Java remembers the connection of the first heartbeat, and evicts a broker that has long
        reconnected. Spec: controller.md, chapter 14, hazard 16.
        """
        return [key for key, heartbeat in self._last.items() if heartbeat.channel is channel]

    def mark_dead(self, keys: Iterable[Key]) -> None:
        """
        Forget the last heartbeats of brokers that are certainly dead. They count as heard since
        `begin`, so `may_live` is false for them.
        """
        for key in keys:
            self._last.pop(key, None)
            self._heard.add(key)

    def expire(self, now: int) -> list[tuple[Key, Heartbeat]]:
        """Forget and return the brokers that were silent for too long."""
        dead = [
            (key, heartbeat)
            for key, heartbeat in self._last.items()
            if now - heartbeat.heard > heartbeat.silence_ms
        ]
        for key, _ in dead:
            del self._last[key]
        return dead
