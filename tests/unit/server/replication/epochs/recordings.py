"""What Java 5.3.3 brokers said to each other over the HA port. Spec: controller.md, section 15."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

VECTORS = Path(__file__).parents[4] / "vectors" / "autoswitch"


class Chunk(NamedTuple):
    """As TCP brought it; `>` goes to the master."""

    way: str
    data: bytes


def connections(name: str) -> dict[tuple[str, int], list[Chunk]]:
    """
    Of one recording, by link and number, in order.

    What came in one millisecond was sorted by its bytes when the recording was written down: a
    handshake's head of 20 bytes belongs before its epochs.
    """
    found: dict[tuple[str, int], list[Chunk]] = {}
    for _, link, number, way, data in json.loads((VECTORS / f"{name}.ha.json").read_text()):
        chunks = found.setdefault((link, number), [])
        if way not in "<>":
            continue
        chunks.append(Chunk(way, bytes.fromhex(data)))
        if len(data) == 40 and [(c.way, len(c.data)) for c in chunks[-2:-1]] == [("<", 12)]:
            chunks[-2:] = reversed(chunks[-2:])
    return found


def said(chunks: list[Chunk], way: str) -> bytes:
    """All that one end said."""
    return b"".join(chunk.data for chunk in chunks if chunk.way == way)
