"""Windows of a log: where they lie, which are read together, and from where a scan goes on."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from rmq_ha.base.store_format.commitlog import encode_blank
from rmq_ha.lake.scan.fleet.facts import SCHEMAS, WINDOWS, State, keep
from rmq_ha.lake.scan.fleet.scanning import _chunks, _goes_on, digest_of, windows_of
from rmq_ha.lake.scan.replica.logs import Log
from tests.unit.lake.scan.parts_kit import log_of
from tests.unit.lake.scan.test_comparing import log_at

RECORD = {"body": b"x" * (100 - len(log_of({"body": b""})))}
"""Of 100 bytes."""


def file_of(count: int, base: int, size: int | None = None) -> bytes:
    """Records, and a blank up to the file's end."""
    data = log_of(*[RECORD] * count, base=base)
    if size is None:
        return data
    blank = encode_blank(size - len(data))
    return data + blank + bytes(size - len(data) - len(blank))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two files of 500 bytes with 400 and 300 of records, and one that is written."""
    return log_at(tmp_path, file_of(4, 0, 500), file_of(3, 500, 500), file_of(2, 1000) + bytes(50))


@pytest.mark.parametrize(
    ("low", "high", "size", "spans"),
    [
        # The grid is that of offsets, whatever the files; behind the eight bytes of a blank
        # that say so nothing has a meaning.
        (0, 1200, 256, [
            (0, 256), (256, 408), (500, 512), (512, 768), (768, 808), (1000, 1024), (1024, 1200),
        ]),
        (0, 1200, 4096, [(0, 408), (500, 808), (1000, 1200)]),
        (0, 1100, 100, [
            (0, 100), (100, 200), (200, 300), (300, 400), (400, 408), (500, 600), (600, 700),
            (700, 800), (800, 808), (1000, 1100),
        ]),
        (300, 600, 256, [(300, 408), (500, 512), (512, 600)]),
        (500, 500, 256, []),
        (408, 500, 256, []),
        (400, 500, 256, [(400, 408)]),
    ],
)  # fmt: skip
def test_windows_lie_on_one_grid_on_all_replicas(
    log: Log, low: int, high: int, size: int, spans: list[tuple[int, int]]
) -> None:
    assert list(windows_of(log, low, high, size)) == spans


def test_neighbours_of_one_file_are_read_together(log: Log) -> None:
    spans = list(windows_of(log, 0, 1200, 256))
    assert list(_chunks(log, spans)) == [
        (0, 408, spans[:2]),
        (500, 808, spans[2:5]),
        (1000, 1200, spans[5:]),
    ]
    apart = [spans[0], (300, 408), *spans[2:4]]
    assert [chunk[:2] for chunk in _chunks(log, apart)] == [(0, 256), (300, 408), (500, 768)]
    assert list(_chunks(log, [])) == []


def test_a_digest_is_of_these_bytes_and_no_others(log: Log, tmp_path: Path) -> None:
    before = [digest_of(log, *span) for span in ((0, 100), (1, 100), (0, 99), (100, 200))]
    assert len(set(before)) == 4
    assert all(len(digest) == 16 for digest in before)
    path = Path(log.row[0].path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    again = Log(log.files, log.row, log.stop)
    assert digest_of(again, 0, 100) == before[0]
    assert digest_of(again, 100, 200) != before[3]


def state_with(folder: Path, log: Log, windows: list[tuple[int, int]], end: int) -> State:
    """Facts of these windows, as they are now."""
    rows: list[Any] = [(*span, digest_of(log, *span), 0) for span in windows]
    table = pa.table([*zip(*rows, strict=True)] or [[], [], [], []], SCHEMAS[WINDOWS])
    files = keep(str(folder), (), [(WINDOWS, False, table)], "0")
    return State("b", 0, "x", "", 256, 0, end, end, 0, files)


@pytest.mark.parametrize(
    ("end", "harm", "goes_on"),
    [
        (1024, None, True),
        (1200, None, True),
        (1201, None, False),  # the log has become shorter
        (1024, 1010, False),  # the last window is another one
        (768, 1010, True),  # what is behind what is known does not matter
        (768, 600, False),
        (1024, 600, True),  # only the last one is looked at
    ],
)
def test_a_scan_goes_on_where_the_last_window_still_is_what_it_was(
    log: Log, tmp_path: Path, end: int, harm: int | None, goes_on: bool
) -> None:
    log = Log(log.files, log.row, 1200)
    spans = list(windows_of(log, 0, 1200, 256))
    known = state_with(tmp_path / "facts", log, spans, end)
    if harm is not None:
        file = log.file_at(harm)
        data = bytearray(Path(file.path).read_bytes())
        data[harm - file.base] ^= 1
        Path(file.path).write_bytes(data)
    found = _goes_on(known, str(tmp_path / "facts"), Log(log.files, log.row, 1200))
    assert found is goes_on


def test_what_the_log_has_lost_at_its_start_is_no_reason_to_begin_anew(
    log: Log, tmp_path: Path
) -> None:
    spans = list(windows_of(log, 0, 500, 256))
    known = state_with(tmp_path / "facts", log, spans, 500)
    later = Log(log.files, log.row[1:], 1200)
    assert _goes_on(known, str(tmp_path / "facts"), later)
    nothing = msgspec.structs.replace(known, files=())
    assert not _goes_on(nothing, str(tmp_path / "facts"), later)
