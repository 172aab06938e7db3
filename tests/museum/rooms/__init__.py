"""The rooms, in the order of the table."""

from __future__ import annotations

from . import (
    acks,
    catch_up,
    clock,
    connections,
    damage,
    delay_tx,
    dledger,
    offsets,
    operations,
    security,
)

ROOMS = {
    "acks": acks.room,
    "catch_up": catch_up.room,
    "damage": damage.room,
    "connections": connections.room,
    "clock": clock.room,
    "offsets": offsets.room,
    "delay_tx": delay_tx.room,
    "dledger": dledger.room,
    "security": security.room,
    "operations": operations.room,
}
