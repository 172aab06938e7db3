"""
The facts of one store as files: `DIR/<broker>-<id>/`, and `state.json`, which is written last.

A file that `state.json` does not name is ignored. Windows lie on a grid that is the same on all
replicas.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.files import listing, put, read_small
from rmq_ha.ops.offsets.findings import COLUMNS, Finding

FORMAT = 1
STATE = "state.json"
WINDOW = 4 << 20
"""Bytes that one digest stands for: 262,144 digests, some 6 MB, for a log of 1 TiB."""
HOUR = 3_600_000
_SMALL = 100_000
"""Rows below which a file is written again together with the new rows."""

WINDOWS, SUMS, FINDINGS, IDS = "windows", "sums", "findings", "ids"
_NUMBERS = {"queueId": pa.int32(), "physicalOffset": pa.int64(), "queueOffset": pa.int64()}
SCHEMAS = {
    WINDOWS: pa.schema([("low", pa.int64()), ("high", pa.int64()), ("digest", pa.binary(16))]),
    SUMS: pa.schema(
        [
            ("topic", pa.string()),
            ("queueId", pa.int32()),
            ("hour", pa.int64()),
            *((name, pa.int64()) for name in ("n", "bytes", "bad", "least", "most")),
        ]
    ),
    FINDINGS: pa.schema(
        [
            *((name, _NUMBERS.get(name, pa.string())) for name in COLUMNS[:-1]),
            (COLUMNS[-1], pa.int64()),
        ]
    ),
    IDS: pa.schema([("hash", pa.int64()), ("place", pa.int64())]),
}
"""
Columns of the kinds of files: windows; messages by queue and hour of birth; findings; and, on
request, ids with their places.
"""


class FactFile(msgspec.Struct, rename="camel", frozen=True):
    """
    A Parquet file.

    :ivar name: name of the file in the store's directory.
    :ivar is_tail: the file has facts of a part that was not complete; the next scan replaces it.
    """

    kind: str
    name: str
    rows: int
    is_tail: bool = False


class State(msgspec.Struct, rename="camel", frozen=True):
    """
    A store, and how far it was scanned.

    :ivar broker_id: id of the broker; 0: the master.
    :ivar place: the store as it is seen on the machine that scanned it: an absolute path, or a URI.
    :ivar host: the machine that scanned it.
    :ivar window: bytes of a window.
    :ivar low: where the log began.
    :ivar high: where the log ended.
    :ivar end: end of the last whole window.
    :ivar scanned_at: ms since the epoch.
    """

    broker: str
    broker_id: int
    place: str
    host: str
    window: int
    low: int
    end: int
    high: int
    scanned_at: int
    files: tuple[FactFile, ...] = ()
    format: int = FORMAT


class Replica(NamedTuple):
    """The facts of one store: their directory and state."""

    directory: str
    state: State

    def table(self, kind: str) -> Any:
        """
        Return all rows of a kind.

        :raises CannotDecide: a file is missing or damaged.
        """
        parts = [
            _read(f"{self.directory}/{file.name}") for file in self.state.files if file.kind == kind
        ]
        return pa.concat_tables(parts) if parts else SCHEMAS[kind].empty_table()

    def paths(self, kind: str) -> list[str]:
        """Return the paths of the files of a kind that the state names."""
        return [f"{self.directory}/{file.name}" for file in self.state.files if file.kind == kind]

    def findings(self) -> Iterator[Finding]:
        """Yield the faults that the scan found in the store by itself."""
        for row in self.table(FINDINGS).to_pylist():
            yield Finding(*(row[name] for name in COLUMNS))


def directory_of(to: str, broker: str, broker_id: int) -> str:
    name = "".join(char if char.isalnum() or char in "-_." else "_" for char in broker)
    return f"{to.rstrip('/')}/{name}-{broker_id}"


def state_in(directory: str) -> State | None:
    """
    Read the state of a directory; None: it has none.

    :raises CannotDecide: the state is damaged, or of another version.
    """
    path = f"{directory}/{STATE}"
    try:
        state = msgspec.json.decode(read_small(path), type=State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise CannotDecide(f"{path} cannot be read: {error}. Remove it, and scan again") from None
    if state.format != FORMAT:
        raise CannotDecide(f"{path} has format {state.format}: another rmq-ha wrote it")
    return state


def replicas_in(directory: str) -> list[Replica]:
    """
    Return all stores that have facts in a directory, the replicas of a broker next to each other,
    its master first.

    :raises CannotDecide: the directory has no facts.
    """
    root = directory.rstrip("/")
    paths = [f"{root}/{entry.name}" for entry in listing(root) if entry.is_directory]
    replicas = [Replica(path, state) for path in paths if (state := state_in(path)) is not None]
    if not replicas:
        raise CannotDecide(f"{directory} holds no facts: `rmqha-scan STORE --to {directory}` does")
    return sorted(replicas, key=lambda replica: (replica.state.broker, replica.state.broker_id))


def keep(
    directory: str, known: Sequence[FactFile], tables: Sequence[tuple[str, bool, Any]], span: str
) -> tuple[FactFile, ...]:
    """
    Write new tables and return the files that count from now on.

    :param known: files that counted so far; a tail is dropped.
    :param tables: for each table its kind, whether it is a tail, and its rows.
    :param span: part of the new files' names that no scan before had.
    """
    files = [file for file in known if not file.is_tail]
    for kind, is_tail, table in tables:
        if not table.num_rows:
            continue
        last = next((file for file in reversed(files) if file.kind == kind), None)
        if not is_tail and last is not None and last.rows < _SMALL:
            files.remove(last)
            table = pa.concat_tables([_read(f"{directory}/{last.name}"), table])
        name = f"{kind}-{'tail-' if is_tail else ''}{span}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        put(f"{directory}/{name}", sink.getvalue().to_pybytes())
        files.append(FactFile(kind, name, table.num_rows, is_tail))
    return tuple(files)


def keep_state(directory: str, state: State) -> None:
    """Write the state; from then on its files count."""
    put(f"{directory}/{STATE}", msgspec.json.encode(state))


def _read(path: str) -> Any:
    try:
        return pq.read_table(pa.BufferReader(read_small(path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise CannotDecide(f"{path} cannot be read: {error}. Scan that store --again") from None
