"""Whom a set gets as its master.

Spec: controller.md, section 10.4.
"""

from collections.abc import Iterable, Mapping

from rmq_ha.server.controller.liveness import Heartbeat


def best_candidate(candidates: Iterable[int], heartbeats: Mapping[int, Heartbeat]) -> int | None:
    """
    The one with the newest and then longest log; among equals the smaller priority, then the id.

    :param candidates: without a heartbeat one is passed over.
    """
    living = [number for number in candidates if number in heartbeats]
    return min(living, key=lambda number: _rank(number, heartbeats[number]), default=None)


def _rank(number: int, heartbeat: Heartbeat) -> tuple[int, int, int, int]:
    return -heartbeat.epoch, -heartbeat.max_offset, heartbeat.priority, number


def is_behind(heartbeat: Heartbeat | None, other: Heartbeat) -> bool:
    """The other one has what this one lacks; of one that is not known it is to be feared."""
    has_data = other.epoch >= 0 and other.max_offset > 0
    if heartbeat is None:
        return has_data
    return has_data and (heartbeat.epoch, heartbeat.max_offset) < (other.epoch, other.max_offset)
