"""The epochs of a log, which tell which master wrote which part, and their file (EpochFileCache).

Spec: controller.md, sections 4.1 and 7.5.
"""

from binascii import crc32
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.seams import Disk

T = TypeVar("T")

OPEN_END = (1 << 63) - 1
"""The end of the last epoch, which is still open."""
BEFORE_CONTROLLERS = 0
"""The epoch of a log that a classic pair wrote; elections begin at 1."""
_POSITIVE = 0x7FFFFFFF
_MOST_DIGITS = 19


class Epoch(NamedTuple):
    """
    The part of a log that one master wrote.

    :ivar epoch: number of the election.
    :ivar start: physical offset of its first byte.
    """

    epoch: int
    start: int

    def __str__(self) -> str:
        """Return the epoch as people read it: `epoch 4 from 8192`."""
        return f"epoch {self.epoch} from {self.start}"


class Epochs:
    """
    The epochs of one log, ascending; an immutable value.

    Differs from 5.3.3 on purpose: an epoch in which nothing was written is replaced by the next one
    with the same start. Java's list refuses that next one.

    :ivar entries: the epochs; both number and start rise strictly.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Epoch] = ()) -> None:
        """:raises ProtocolViolation: the epochs do not rise, or are negative."""
        self.entries = tuple(entries)
        before = Epoch(-1, -1)
        for entry in self.entries:
            if entry.epoch <= before.epoch or entry.start <= before.start:
                raise ProtocolViolation(f"epochs do not rise: {before} is followed by {entry}")
            before = entry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epochs) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"Epochs({', '.join(f'{entry.epoch}-{entry.start}' for entry in self.entries)})"

    @property
    def last_entry(self) -> Epoch | None:
        """Return the newest epoch; None without any."""
        return self.entries[-1] if self.entries else None

    @property
    def last_epoch(self) -> int:
        """Return the number of the newest epoch; -1 without any."""
        return self.entries[-1].epoch if self.entries else -1

    def appended(self, epoch: int, start: int) -> "Epochs":
        """
        Return these epochs and a new one, which begins at `start`. Epochs that begin at `start` or
        later are left out, since nothing was written in them.

        :raises ProtocolViolation: the new epoch is not newer than all others.
        """
        if epoch <= self.last_epoch:
            raise ProtocolViolation(f"epoch {epoch} does not follow epoch {self.last_epoch}")
        kept = [entry for entry in self.entries if entry.start < start]
        return Epochs([*kept, Epoch(epoch, start)])

    def led(self, epoch: int, end: int) -> "Epochs":
        """
        Return these epochs and the one that this log's broker leads from now on, which begins at
        `end`.

        A broker that restarts may still lead the last epoch, which then goes on. Other brokers may
        have bytes that this log lost in a crash. The handshake tells them where the lost bytes
        begin (`SyncState.led_from`).

        :param end: end of the log.
        :raises ProtocolViolation: the log has a newer epoch already.
        """
        return self if epoch == self.last_epoch else self.appended(epoch, end)

    def cut(self, end: int) -> "Epochs":
        """Return the epochs of the log after it was cut at `end`."""
        return Epochs(entry for entry in self.entries if entry.start < end)

    def epoch_at(self, offset: int) -> tuple[Epoch, int] | None:
        """
        Return the epoch that holds this byte, and its end; None: the byte is older than all epochs.
        """
        end = OPEN_END
        for entry in reversed(self.entries):
            if entry.start <= offset:
                return entry, end
            end = entry.start
        return None

    def consistent_point(self, end: int, other: "Epochs", other_end: int) -> int | None:
        """
        Return the offset up to which two logs are equal: the end of the newest epoch that both have
        with the same start.

        :param end: end of this broker's log.
        :param other_end: end of the other log.
        :returns: the offset; None: the logs have no epoch in common.
        """
        theirs = dict(other._with_ends(other_end))
        for entry, ours in reversed(list(self._with_ends(end))):
            if entry in theirs:
                return min(ours, theirs[entry])
        return None

    def is_proven(self, point: int) -> bool:
        """
        Whether an election's epoch, which both logs have, proves that they are equal up to `point`.

        The epoch of a log from before controller mode proves nothing, because all such logs have
        the same epoch number, `BEFORE_CONTROLLERS`.
        """
        holder = self.epoch_at(point - 1)
        return holder is None or holder[0].epoch != BEFORE_CONTROLLERS

    def _with_ends(self, end: int) -> Iterable[tuple[Epoch, int]]:
        ends = [entry.start for entry in self.entries[1:]] + [end]
        return zip(self.entries, ends, strict=bool(self.entries))


def encode_epochs(epochs: Epochs) -> bytes:
    """Encode the file epochFileCheckpoint: a count, a checksum, and a line for each epoch."""
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs.entries).encode()
    return b"%d\n%d\n%b" % (len(epochs), crc32(lines) & _POSITIVE, lines)


def decode_epochs(data: bytes) -> Epochs:
    """
    Decode the file epochFileCheckpoint.

    :raises ProtocolViolation: it is not such a file, or a damaged one.
    """
    first, _, rest = data.partition(b"\n")
    second, _, lines = rest.partition(b"\n")
    count, checksum = read_number(first), read_number(second)
    entries = []
    for line in lines.splitlines():
        epoch, _, start = line.partition(b"-")
        entries.append(Epoch(read_number(epoch), read_number(start)))
    if len(entries) != count:
        raise ProtocolViolation(f"{count} epochs were announced, {len(entries)} are there")
    if checksum and checksum != crc32(lines) & _POSITIVE:
        raise ProtocolViolation("the checksum does not fit")
    return Epochs(entries)


def read_number(text: bytes) -> int:
    """
    Read a number in a file of controller mode. It is not negative and fits into 8 bytes.

    :raises ProtocolViolation: the text is no such number.
    """
    if not text.isdigit() or len(text) > _MOST_DIGITS or int(text) > OPEN_END:
        raise ProtocolViolation(f"{text[:40]!r} is no number")
    return int(text)


def read_decoded(disk: Disk, path: str, decode: Callable[[bytes], T]) -> T | None:
    """Decode a file of controller mode; None: it is missing or empty."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode(data) if data else None
