"""The rooms, in the order of the table."""

from __future__ import annotations

from . import acks

ROOMS = {
    "acks": acks.room,
}
