"""
Runs of messages: what both makers cut from a connection, and what they read in a log.

Where `rmq_ha_kernel` is installed, the bytes go to both makers: the native one gives None, or what
the pure one gives, and whatever is made of it is the same.
"""

from contextlib import suppress
from random import Random
from zlib import crc32

from rmq_ha.base.runs import pure
from tests.fuzz.of_wire import RECORDS
from tests.fuzz.target import target
from tests.unit.base.runs.agreement import agree_on_chunk, agree_on_stretch
from tests.unit.base.runs.odd_records import stretch
from tests.unit.base.runs.odd_sends import ODDITIES, chunk, send_with

kernel = None
with suppress(ImportError):
    import rmq_ha_kernel as kernel

CHUNKS = [chunk(Random(seed), 3) for seed in range(20)]
ODD = [send_with(name, Random(name)) for name in sorted(ODDITIES)]
STRETCHES = [stretch(Random(seed), 3)[0] for seed in range(20)]


@target("runs.cut", [*CHUNKS, *ODD])
def cut_chunk(data: bytes) -> None:
    """Sends of strangers, before anybody has looked at who they are."""
    pure.cut(data, 0, 65_536)
    if kernel is not None:
        agree_on_chunk(kernel, data, Random(crc32(data)))


@target("runs.walk", [*STRETCHES, *RECORDS])
def walk_stretch(data: bytes) -> None:
    """A log, from the physical offset on that its first record tells."""
    position = int.from_bytes(data[28:36], "big", signed=True)
    pure.walk(data, 0, position, 1 << 30, 1 << 30, True, 0)
    if kernel is not None:
        agree_on_stretch(kernel, data, position, Random(crc32(data)))
