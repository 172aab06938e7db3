"""Chooses the master of a set.

Spec: controller.md, section 10.4.
"""

from collections.abc import Iterable, Mapping

from rmq_ha.server.controller.liveness import Heartbeat


def best_candidate(candidates: Iterable[int], heartbeats: Mapping[int, Heartbeat]) -> int | None:
    """
    Return the candidate with the newest epoch; among equals that with the longest log, then the
    smallest priority, then the smallest id.

    :param candidates: ids; those without a heartbeat are skipped.
    :returns: None: no candidate has a heartbeat.
    """
    living = [number for number in candidates if number in heartbeats]
    return min(living, key=lambda number: _rank(number, heartbeats[number]), default=None)


def _rank(number: int, heartbeat: Heartbeat) -> tuple[int, int, int, int]:
    return -heartbeat.epoch, -heartbeat.max_offset, heartbeat.priority, number


def is_behind(heartbeat: Heartbeat | None, other: Heartbeat) -> bool:
    """
    Whether the other broker has data that this one lacks. Without a heartbeat of this one, any data
    of the other count.
    """
    has_data = other.epoch >= 0 and other.max_offset > 0
    if heartbeat is None:
        return has_data
    return has_data and (heartbeat.epoch, heartbeat.max_offset) < (other.epoch, other.max_offset)
