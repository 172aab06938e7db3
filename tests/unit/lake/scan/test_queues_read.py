"""Units of a queue, over its files, and the tags of those that are in its extension."""

from pathlib import Path

from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.store_format.consumequeue_ext import address_of, encode_extension
from rmq_ha.lake.scan.store.parts import Queue
from rmq_ha.ops.offline.queues import RowFile
from tests.unit.lake.scan.parts_kit import Unit, queue_of

UNITS: list[Unit] = [(100 + at, 10 + at, 1000 + at) for at in range(10)]


def test_units_are_read_over_files_and_as_far_as_there_are_any(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, UNITS[:4], UNITS[4:8], UNITS[8:], first=20)
    for start in range(18, 32):
        for stop in range(start, 33):
            found = queue.units(start, stop).tolist()
            assert found == UNITS[max(0, start - 20) : max(0, stop - 20)], (start, stop)


def extension(folder: Path, base: int, *codes: int) -> tuple[RowFile, list[int]]:
    """A file of it, and the addresses of its units."""
    data, places = b"", []
    for code in codes:
        unit = encode_extension(ExtensionUnit(code, 5, b"\x01\x02"))
        assert unit is not None
        places.append(address_of(base + len(data)))
        data += unit
    path = folder / f"e{base:019}"
    path.write_bytes(data)
    return RowFile(str(path), base, len(data)), places


def test_tags_are_looked_up_where_they_are_in_the_extension(tmp_path: Path) -> None:
    """What is not found there stays an address, and what is none is taken as it is."""
    first, one = extension(tmp_path, 200, 7, -8)
    second, other = extension(tmp_path, 1000, 9)
    codes = [5, one[0], one[1], other[0], address_of(100), address_of(1 << 30), -(1 << 31), 6]
    units = [(at, 1, code) for at, code in enumerate(codes)]
    mine = queue_of(tmp_path, units)
    queue = Queue(LocalFiles(), "T", 0, mine.row, [first, second])
    found = queue.tags_codes(queue.units(0, len(units)))
    assert found.tolist() == [5, 7, -8, 9, *codes[4:]]
