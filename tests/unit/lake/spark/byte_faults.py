"""
Faults planted byte by byte into a store of Java's: nothing here knows how the readers read.

The store has three log files, three index files, a committed transaction, delayed messages, and one
that was sent back; all of its hosts are IPv4.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack_into, unpack_from
from zlib import crc32

FIXTURE = Path(__file__).parents[3] / "fixtures" / "store" / "clean.tar.gz"
FILE_SIZE = 65536
MAGIC = 0xDAA320A7
BODY = 88
"""Where the body begins in a record, behind its length."""


def equal_pair(folder: Path) -> tuple[Path, Path]:
    """A master and its slave."""
    shutil.unpack_archive(FIXTURE, folder)
    shutil.copytree(folder / "clean", folder / "slave")
    return folder / "clean", folder / "slave"


def placed(store: Path) -> Iterator[tuple[Path, int, int]]:
    """File, place in it and size of each record, in their order."""
    for file in sorted((store / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = unpack_from(">iI", data, at)
            if magic != MAGIC:
                break
            yield file, at, size
            at += size


def offset(file: Path, at: int) -> int:
    """In the log."""
    return int(file.name) + at


def change(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def body_of(file: Path, at: int) -> bytes:
    data = file.read_bytes()
    (length,) = unpack_from(">i", data, at + BODY - 4)
    return data[at + BODY : at + BODY + length]


def damage(file: Path, at: int) -> None:
    """A bit of the body; the CRC is what it was."""
    change(file, at + BODY, bytes([body_of(file, at)[0] ^ 1]))


def forge(file: Path, at: int) -> None:
    """Another body, and the CRC that fits it."""
    head = bytearray(file.read_bytes()[at : at + 12])
    body = bytes(byte ^ 1 for byte in body_of(file, at))
    pack_into(">I", head, 8, crc32(body) & 0x7FFFFFFF)
    change(file, at, bytes(head))
    change(file, at + BODY, body)


def with_ids(store: Path, wanted: Callable[[bytes], bool] = bool) -> dict[int, bytes]:
    """Ids that producers gave, by the numbers of their records."""
    found: dict[int, bytes] = {}
    for number, (file, at, size) in enumerate(placed(store)):
        record = file.read_bytes()[at : at + size]
        _, mark, rest = record.partition(b"UNIQ_KEY\x01")
        if mark and wanted(record):
            found[number] = rest.split(b"\x02")[0]
    return found


def in_topic(topic: bytes) -> Callable[[bytes], bool]:
    """Whether a record is of this topic, whose name stands behind the body."""

    def is_of(record: bytes) -> bool:
        (length,) = unpack_from(">i", record, BODY - 4)
        return record[BODY + length :].startswith(bytes([len(topic)]) + topic)

    return is_of


def give_another_id(store: Path, topic: bytes, key: bytes) -> None:
    """The message with this unique id in a topic gets one that nobody knows."""
    (number,) = (n for n, each in with_ids(store, in_topic(topic)).items() if each == key)
    file, at, size = list(placed(store))[number]
    where = file.read_bytes()[at : at + size].index(key)
    change(file, at + where + len(key) - 1, b"F")
