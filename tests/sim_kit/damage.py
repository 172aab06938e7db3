"""Damages the files of a store that no broker has open, as the seed says."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import NamedTuple, Protocol

from rmq_ha.testing.disk import PAGE
from rmq_ha.testing.images import LogImage

LOG, QUEUE, INDEX, CHECKPOINT = "commitlog", "consumequeue", "index", "checkpoint"
_PARTS = {LOG: 4, QUEUE: 4, INDEX: 1, CHECKPOINT: 1}
BIT, ZERO, CUT, LOST = "bit", "zero", "cut", "lost"
_FORMS = {BIT: 3, ZERO: 3, CUT: 2, LOST: 2}
UNIT_SIZE = 20
_AROUND = 16


class Damage(NamedTuple):
    """
    One damage of a file.

    :ivar part: the kind of the file.
    :ivar form: the kind of the damage.
    :ivar start: position in the file of the first byte that is damaged.
    :ivar end: position after the last damaged byte; the file's size if the file was cut or removed.
    :ivar good: the former bytes from `start` to `end`, if they were flipped or zeroed.
    :ivar bad: the bytes that replaced them.
    :ivar around: the bytes just before and just after them.
    """

    part: str
    form: str
    path: str
    start: int
    end: int
    good: bytes = b""
    bad: bytes = b""
    around: tuple[bytes, bytes] = (b"", b"")

    def __str__(self) -> str:
        return f"{self.form} of {self.path}, {self.start} to {self.end}"

    @property
    def name(self) -> int:
        """Return the offset of the file's first byte if the file is named by it; otherwise 0."""
        text = self.path.rpartition("/")[2]
        return int(text) if self.part in (LOG, QUEUE) else 0

    @property
    def log_range(self) -> tuple[int, int]:
        """
        Return the range of physical offsets whose bytes are damaged; an empty range if the file is
        no log.
        """
        if self.part != LOG:
            return 0, 0
        return self.name + self.start, self.name + self.end

    def is_in(self, image: LogImage) -> bool:
        """Return whether the damaged bytes are still in the log, and were not overwritten since."""
        start, end = self.log_range
        before, behind = self.around
        if not self.bad or image.start > start:
            return False
        low = max(image.start, start - len(before))
        damaged = before[len(before) - (start - low) :] + self.bad + behind
        return image.slice(low, end + len(behind)) == damaged

    def mend(self, data: bytes, physical_offset: int) -> bytes:
        """Return bytes of the log from an offset on, with the damage undone."""
        start, end = self.log_range
        low, high = max(start, physical_offset), min(end, physical_offset + len(data))
        if low >= high:
            return data
        good = self.good[low - start : high - start]
        return data[: low - physical_offset] + good + data[high - physical_offset :]

    def spoils_unit(self, topic: str, queue_id: int, number: int) -> bool:
        """Return whether a unit of a queue has bytes that were flipped or zeroed."""
        if self.part != QUEUE or self.form not in (BIT, ZERO):
            return False
        if not self.path.startswith(f"{self.path.split(QUEUE)[0]}{QUEUE}/{topic}/{queue_id}/"):
            return False
        at = number * UNIT_SIZE - self.name
        return at < self.end and self.start < at + UNIT_SIZE


def mended(image: LogImage, damages: Iterable[Damage]) -> tuple[LogImage, list[tuple[int, int]]]:
    """
    Return a log with its damage undone, and the ranges of the damage.

    A slave that fetches damaged bytes from a master has the same damage.
    """
    places = []
    for damage in damages:
        if damage.is_in(image):
            image = replace(image, data=damage.mend(image.data, image.start))
            places.append(damage.log_range)
    return image, places


class SpoiltDisk(Protocol):
    """
    Files that can be damaged: a `SimDisk`, or those of a real store (`bench/soak_victims.py`).

    :ivar boot: the number of the machine's boot; `spoil` adds one, as the machine was down.
    """

    boot: int

    def paths(self, prefix: str) -> list[str]: ...

    def read_bytes(self, path: str) -> bytes: ...

    def damage(self, path: str, data: bytes | None) -> None:
        """Replace the bytes of a file; None: remove it."""


def spoil(disk: SpoiltDisk, root: str, random: Random) -> Damage | None:
    """
    Damage one file of a store that no broker has open. The machine is down meanwhile, because its
    page cache would hide the damage.

    :returns: the damage; None: the store has no file to damage.
    """
    disk.boot += 1
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
    around = before[max(0, at - _AROUND) : at], before[end : min(used, end + _AROUND)]
    return Damage(part, form, path, at, end, before[at:end], bytes(data[at:end]), around)
