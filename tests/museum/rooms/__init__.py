"""The rooms, in the order of the table."""

from __future__ import annotations

from . import acks, catch_up, clock, damage

ROOMS = {
    "acks": acks.room,
    "catch_up": catch_up.room,
    "clock": clock.room,
    "damage": damage.room,
}
