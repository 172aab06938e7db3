"""
DLedger's files: entries, blanks, the index and the two small property files.

An entry is 48 bytes and its body, as upstream leaves them on the disk (both CRCs always 0):

======  ====  =====  ========================================================
offset  size  type   meaning
======  ====  =====  ========================================================
0       4     int32  magic, 1
4       4     int32  size of the whole entry
8       8     int64  index
16      8     int64  term
24      8     int64  pos: where the entry begins, over all data files
32      4     int32  channel, 0
36      4     int32  chainCrc, 0
40      4     int32  bodyCrc, 0
44      4     int32  length of the body
48            bytes  the body: a commit-log record
======  ====  =====  ========================================================

Where an entry does not fit, the rest of a file is a blank: int32 -1, int32 its length, zeros.

An index entry, at 32 times the index: int32 magic, int64 pos, int32 size, int64 index, int64 term.

rmq-ha also writes checksum files, which Java does not read. At 8 times the index they have two
CRC-32 values: of the 48 bytes with the term of the previous entry, and of the body. They show a
torn or changed body, and an old entry that a crash left behind an entry of another history.

Big-endian. Spec: dledger.md, chapter 3.
"""

import re
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.store_format.dledger_values import (
    ENTRY_HEADER_SIZE,
    MAX_ENTRY_SIZE,
    Entry,
    TermVote,
)

MAGIC = 1
BLANK_MAGIC = -1
BLANK_SIZE = 8
INDEX_UNIT = 32
INDEX_FILE_SIZE = 5_242_880 * INDEX_UNIT

CHECKSUM_UNIT = 8

HEADER = Struct(">iiqqqiiii")
BLANK = Struct(">ii")
INDEX = Struct(">iqiqq")
CHECKSUMS = Struct(">II")
PREVIOUS_TERM = Struct(">q")
assert (HEADER.size, BLANK.size) == (ENTRY_HEADER_SIZE, BLANK_SIZE)
assert (INDEX.size, CHECKSUMS.size) == (INDEX_UNIT, CHECKSUM_UNIT)

_MAX_NUMBER = (1 << 63) - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}")


class EntryHeader(NamedTuple):
    """The first 48 bytes of an entry; the fields are named as in the entry's table."""

    magic: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_length: int

    def __str__(self) -> str:
        """Return the fields that tell an entry from other bytes, for people."""
        return f"magic {self.magic}, size {self.size}, index {self.index}, term {self.term}"

    @property
    def is_sound(self) -> bool:
        """Whether the fields fit together, as far as one entry alone can show."""
        return (
            self.magic == MAGIC
            and ENTRY_HEADER_SIZE + self.body_length == self.size
            and ENTRY_HEADER_SIZE <= self.size <= MAX_ENTRY_SIZE
            and self.index >= 0
            and self.term >= 0
        )

    def encode(self) -> bytes:
        """Return the 48 bytes of the header."""
        return HEADER.pack(*self)


class IndexEntry(NamedTuple):
    """The place of an entry; the fields are named as in the table of the index."""

    magic: int
    pos: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int

    def __str__(self) -> str:
        """Return the place as people read it."""
        return f"index {self.index}, term {self.term}, size {self.size} at {self.pos}"


def encode_header(entry: Entry) -> bytes:
    """Return the 48 bytes before an entry's body."""
    length = len(entry.body)
    return HEADER.pack(
        entry.magic,
        ENTRY_HEADER_SIZE + length,
        entry.index,
        entry.term,
        entry.pos,
        entry.channel,
        0,
        0,
        length,
    )


def decode_header(data: bytes | memoryview, offset: int = 0) -> EntryHeader:
    """Read a header from at least 48 bytes. `EntryHeader.is_sound` says whether it makes sense."""
    return EntryHeader(*HEADER.unpack_from(data, offset))


def decode_entry(data: bytes, offset: int = 0) -> Entry:
    """
    Return the whole entry at `offset`.

    :raises CorruptRecord: the bytes are no entry.
    """
    if len(data) - offset < ENTRY_HEADER_SIZE:
        raise CorruptRecord(f"{len(data) - offset} bytes are no entry: its header has 48")
    header = decode_header(data, offset)
    if not header.is_sound or len(data) - offset < header.size:
        raise CorruptRecord(f"these bytes are no entry: {header}")
    body = data[offset + ENTRY_HEADER_SIZE : offset + header.size]
    return Entry(header.index, header.term, header.pos, body, header.magic, header.channel)


def decode_index(data: bytes, offset: int = 0) -> IndexEntry:
    """Read an entry of the index from at least 32 bytes."""
    return IndexEntry(*INDEX.unpack_from(data, offset))


def encode_checksums(
    header: bytes | memoryview, body: bytes | memoryview, previous_term: int
) -> bytes:
    """
    Return the checksums by which it is found later whether an entry is whole and in its place.

    :param previous_term: term of the entry before; -1: there is none, or it is not known.
    """
    return CHECKSUMS.pack(crc32(PREVIOUS_TERM.pack(previous_term), crc32(header)), crc32(body))


def place_after(pos: int, size: int, file_size: int) -> int:
    """
    Return the position of an entry that follows another one.

    Spec: dledger.md, section 3.3

    :param pos: the position where the entry before it ends.
    :param size: size of the whole entry.
    """
    remaining = file_size - pos % file_size
    return pos if size + BLANK_SIZE <= remaining else pos + remaining


def encode_term(state: TermVote) -> bytes:
    """Return the content of the file `currterm`."""
    return b"voteLeader=%b\ncurrTerm=%d\n" % ((state.voted_for or "").encode(), state.term)


def decode_term(data: bytes) -> TermVote:
    """
    Read the content of the file `currterm`; an empty vote counts as none.

    :raises CorruptRecord: there is no term in it.
    """
    values = _properties(data)
    return TermVote(_number(values, "currTerm"), values.get("voteLeader") or None)


class DLedgerCheckpoint(NamedTuple):
    """
    The values of the file `checkpoint`.

    :ivar committed_index: -1: not known.
    :ivar end_index: for people; recovery does not use it.
    :ivar synced: a value of rmq-ha, which upstream does not read; None: upstream wrote the file.
    """

    committed_index: int = -1
    end_index: int = -1
    synced: "SyncedUpTo | None" = None


class SyncedUpTo(NamedTuple):
    """
    The last entry of which data, index and checksums are on the disk.

    :ivar index: -1: there is no such entry.
    """

    index: int = -1  # type: ignore[assignment]  # hides tuple.index
    term: int = -1
    pos: int = -1


def encode_checkpoint(checkpoint: DLedgerCheckpoint) -> bytes:
    """
    Return the content of `checkpoint`. Upstream drops the key `rmqHaSynced` when it writes the
    file.
    """
    text = f"committedIndex={checkpoint.committed_index}\nendIndex={checkpoint.end_index}\n"
    if checkpoint.synced is not None:
        text += "rmqHaSynced={},{},{}\n".format(*checkpoint.synced)
    return text.encode()


def decode_checkpoint(data: bytes) -> DLedgerCheckpoint:
    """
    Read the content of `checkpoint`.

    :raises CorruptRecord: it has no committed index.
    """
    values = _properties(data)
    end_index = _number(values, "endIndex") if "endIndex" in values else -1
    synced = None
    if "rmqHaSynced" in values:
        try:
            index, term, pos = map(int, values["rmqHaSynced"].split(","))
        except ValueError:
            raise CorruptRecord(f"rmqHaSynced is {values['rmqHaSynced'][:100]!r}") from None
        synced = SyncedUpTo(index, term, pos)
    return DLedgerCheckpoint(_number(values, "committedIndex"), end_index, synced)


def _properties(data: bytes) -> dict[str, str]:
    values = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, separator, value = line.partition("=")
        if separator:  # a comment is a key of which nobody asks
            values[key.strip()] = value.strip()
    return values


def _number(values: dict[str, str], key: str) -> int:
    text = values.get(key, "")
    if _NUMBER.fullmatch(text) is None:
        raise CorruptRecord(f"{key} is {text[:100]!r} and not a number")
    number = int(text)
    if not -1 <= number <= _MAX_NUMBER:
        raise CorruptRecord(f"{key} is {number}")
    return number
