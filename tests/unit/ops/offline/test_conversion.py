"""The log of a member whose broker was a classic one before: both parts become one log."""

from __future__ import annotations

from pathlib import Path

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.ops.offline.conversion import (
    ConversionState,
    convert,
    moved_offset,
    read_state,
    shift_of,
)
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.ledger import LedgerPaths, end_of_ledger, member_log
from rmq_ha.ops.offline.records import Damage, records
from tests.unit.server.dledger.test_dledger_classic import FILE_SIZE, Upgraded, put

FILES = LocalFiles()


def bodies(root: Path) -> list[tuple[bytes, int]]:
    found = []
    for piece in records(StoreFiles("s", FILES, str(root))):
        assert not isinstance(piece, Damage), piece
        record = decode_record(piece.data)
        found.append((record.body.rstrip(b"."), record.physical_offset))
    return found


def test_what_was_before_the_group_keeps_its_place_in_its_file(tmp_path: Path) -> None:
    machine = Upgraded(3000, 3000, 3000)
    log = machine.start()
    put(log, b"a", b"b")
    log.ledger.sync(thorough=True)
    for path in [*machine.disk.paths("/commitlog"), *machine.disk.paths("/d/data")]:
        made = tmp_path / path[1:]
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(machine.disk.content(path))
    paths = LedgerPaths(
        str(tmp_path), "n0", (f"{tmp_path}/d/data",), (f"{tmp_path}/commitlog",), FILE_SIZE
    )
    target, shift = tmp_path / "new", shift_of(FILE_SIZE)
    state = ConversionState("g", FILE_SIZE)
    assert convert(FILES, paths, RealDisk(), str(target), state, 0) > 3 * 3000
    assert state.source_end == 2 * FILE_SIZE + log.ledger.files.header_at(2 * FILE_SIZE).size
    row = member_log(FILES, paths)
    assert end_of_ledger(FILES, row) == (3, 1)
    assert end_of_ledger(FILES, row, state.source_end, state.last_entry) == (3, 1)
    state = read_state(FILES, str(target), "g", FILE_SIZE)
    assert convert(FILES, paths, RealDisk(), str(target), state, 1) < 200
    made_of = bodies(target)
    assert [body for body, _ in made_of] == [b"0", b"1", b"2", b"a", b"b"]
    assert [offset - shift for _, offset in made_of[::2]] == [
        0,
        FILE_SIZE,
        2 * FILE_SIZE + made_of[4][1] - made_of[3][1],
    ]
    second = log.ledger.entry(1)
    assert second is not None
    for old, new in ((made_of[1][1] - shift, made_of[1][1]), (second.pos + 48, made_of[4][1])):
        assert moved_offset(FILES, row, state, old) == new
    assert moved_offset(FILES, row, state, log.max_offset) == state.end
    assert convert(FILES, paths, RealDisk(), str(target), state, 1) == 0
