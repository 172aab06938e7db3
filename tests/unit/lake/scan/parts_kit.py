"""Records, a queue and index files, made by hand: as small as what is asked of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, body_crc, encode_record
from rmq_ha.base.store_format.consumequeue import UNIT
from rmq_ha.base.store_format.dledger import encode_header
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, Entry
from rmq_ha.base.store_format.index import HEADER, ITEM, SLOT
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.log.walk import walk
from rmq_ha.lake.scan.replica.facts import Facts
from rmq_ha.lake.scan.store.parts import Queue, StoredIndexFile
from rmq_ha.ops.offline.queues import RowFile

HOST = Address.parse("10.0.0.1", 10911)
Unit = tuple[int, int, int]
Item = tuple[int, int, int, int]


def log_of(*given: dict[str, Any], base: int = 0) -> bytes:
    """Records one behind the other; each is told apart by what is given of it."""
    data = b""
    for one in given:
        body = one.get("body", b"x")
        record = Record(
            0,
            body_crc(body),
            0,
            0,
            0,
            base + len(data),
            0,
            1,
            HOST,
            1000,
            HOST,
            0,
            0,
            body,
            "T",
            "",
        )._replace(**one)
        data += encode_record(record)
    return data


class HeldLog:
    """A log in memory, with as much of a store's interface as it takes to look records up."""

    holes = ()

    def __init__(self, data: bytes) -> None:
        self._data = data

    def min_offset(self) -> int:
        return 0

    def max_offset(self) -> int:
        return len(self._data)

    def bytes_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


def store_at(folder: Path, data: bytes, size: int = 4096) -> Path:
    """A store that has a log and nothing else: one file, of that size or as long as its data."""
    log = folder / "commitlog"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{0:020}").write_bytes(data.ljust(size, b"\0"))
    return folder


def records_of(*given: dict[str, Any], base: int = 0) -> Records:
    data = log_of(*given, base=base)
    found = walk(data, base)
    return Records(data, base, found.positions, found.shape)


def facts_of(*given: dict[str, Any], base: int = 0) -> Facts:
    return Facts(records_of(*given, base=base))


def queue_of(folder: Path, *files: Sequence[Unit], first: int = 0, damaged: bool = False) -> Queue:
    """Files of units, one behind the other; an empty one is missing, and as long as the first."""
    row, at = list[RowFile](), first * UNIT.size
    for units in files:
        data = b"".join(UNIT.pack(*unit) for unit in units)
        path = folder / f"{at:020}"
        if units:
            path.write_bytes(data)
            row.append(RowFile(str(path), at, len(data)))
        at += len(data) or len(files[0]) * UNIT.size
    return Queue(LocalFiles(), "T", 0, row, damaged=damaged)


def index_of(
    folder: Path,
    items: Sequence[Item],
    heads: dict[int, int],
    *,
    slots: int = 5,
    room: int | None = None,
    count: int | None = None,
    bounds: tuple[int, int] | None = None,
    begin_ms: int = 0,
) -> StoredIndexFile:
    """:param items: hash, physical offset, seconds and the item before, from number 1 on."""
    places = [item[1] for item in items] or [0]
    low, high = bounds or (places[0], places[-1])
    number = len(items) + 1 if count is None else count
    data = HEADER.pack(begin_ms, 0, low, high, len(heads), number)
    data += b"".join(SLOT.pack(heads.get(slot, 0)) for slot in range(slots))
    held = [(0, 0, 0, 0), *items]
    size = len(held) + 2 if room is None else room
    held += [(0, 0, 0, 0)] * (size - len(held))
    data += b"".join(ITEM.pack(*item) for item in held)
    path = folder / f"{len(list(folder.iterdir())):017}"
    path.write_bytes(data)
    return StoredIndexFile(LocalFiles(), str(path), len(data), (slots, size))


def ledger_of(*given: dict[str, Any], base: int = 0) -> tuple[bytes, list[int]]:
    """
    Entries of a DLedger one behind the other, and where each begins.

    :param given: `index` and `term` of an entry, `raw`: its bytes; else what its record has.
    """
    data, places = b"", []
    for one in given:
        at = base + len(data)
        rest = {name: value for name, value in one.items() if name not in ("index", "term", "raw")}
        body = one["raw"] if "raw" in one else log_of(rest, base=at + ENTRY_HEADER_SIZE)
        places.append(len(data))
        data += encode_header(Entry(one.get("index", 0), one.get("term", 0), at, body)) + body
    return data, places
