"""What happens to a store while nobody looks: damage at rest, drawn from the seed."""

from random import Random
from typing import NamedTuple

from rmq_ha.testing.disk import PAGE, SimDisk

LOG, QUEUE, INDEX, CHECKPOINT = "commitlog", "consumequeue", "index", "checkpoint"
_PARTS = {LOG: 4, QUEUE: 4, INDEX: 1, CHECKPOINT: 1}
BIT, ZERO, CUT, LOST = "bit", "zero", "cut", "lost"
_FORMS = {BIT: 3, ZERO: 3, CUT: 2, LOST: 2}
UNIT_SIZE = 20


class Damage(NamedTuple):
    """
    What was spoilt.

    :ivar part: which kind of file it is.
    :ivar form: what was done to it.
    :ivar start: the first byte that is spoilt, in the file.
    :ivar end: behind the last one; the file's size where it was cut or lost.
    :ivar good: the bytes from `start` to `end` before, where they were flipped or zeroed.
    :ivar bad: those bytes now.
    """

    part: str
    form: str
    path: str
    start: int
    end: int
    good: bytes = b""
    bad: bytes = b""

    def __str__(self) -> str:
        return f"{self.form} of {self.path}, {self.start} to {self.end}"

    @property
    def name(self) -> int:
        """Offset of the file's first byte, where files are named by that; else 0."""
        text = self.path.rpartition("/")[2]
        return int(text) if self.part in (LOG, QUEUE) else 0

    @property
    def log_range(self) -> tuple[int, int]:
        """Physical offsets whose bytes are not what was written; nothing where it is no log."""
        if self.part != LOG:
            return 0, 0
        return self.name + self.start, self.name + self.end

    def mend(self, data: bytes, physical_offset: int) -> bytes:
        """Bytes of the log from an offset on, as they were written, where they are spoilt still."""
        start, end = self.log_range
        low, high = max(start, physical_offset), min(end, physical_offset + len(data))
        bad, good = self.bad[low - start : high - start], self.good[low - start : high - start]
        before, behind = low - physical_offset, high - physical_offset
        if low >= high or not bad or data[before:behind] != bad:
            return data
        return data[:before] + good + data[behind:]

    def spoils_unit(self, topic: str, queue_id: int, number: int) -> bool:
        """Whether a queue's unit stands, in part, where bytes were flipped or zeroed."""
        if self.part != QUEUE or self.form not in (BIT, ZERO):
            return False
        if not self.path.startswith(f"{self.path.split(QUEUE)[0]}{QUEUE}/{topic}/{queue_id}/"):
            return False
        at = number * UNIT_SIZE - self.name
        return at < self.end and self.start < at + UNIT_SIZE


def spoil(disk: SimDisk, root: str, random: Random) -> Damage | None:
    """
    Damage one file of a store that nobody has open.

    :returns: what was done; None: there is nothing to damage.
    """
    part = random.choices(list(_PARTS), list(_PARTS.values()))[0]
    paths = [path for path in disk.paths(f"{root}/{part}") if disk.read_bytes(path).strip(b"\0")]
    if not paths:
        return None
    path = random.choice(paths)
    form = random.choices(list(_FORMS), list(_FORMS.values()))[0]
    data = bytearray(disk.read_bytes(path))
    used = len(data.rstrip(b"\0"))
    at = random.randrange(used)
    if form == LOST:
        disk.damage(path, None)
        return Damage(part, form, path, 0, len(data))
    if form == CUT:
        disk.damage(path, bytes(data[:at]))
        return Damage(part, form, path, at, len(data))
    before = bytes(data)
    if form == BIT:
        data[at] ^= 1 << random.randrange(8)
        end = at + 1
    else:
        at -= at % 512
        end = min(len(data), at + random.choice((512, PAGE)))
        data[at:end] = bytes(end - at)
    disk.damage(path, bytes(data))
    return Damage(part, form, path, at, end, before[at:end], bytes(data[at:end]))
