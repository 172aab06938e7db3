"""
What is known of one store, as files: `DIR/<broker>-<id>/`, and `state.json`, which comes last.

A file that no state names does not count. Windows lie on a grid that is the same on all replicas.
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
"""Rows below which a file is written again, with what is new."""

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
"""Windows; messages by queue and hour of birth; what is wrong; on request ids and their places."""


class FactFile(msgspec.Struct, rename="camel", frozen=True):
    """
    A Parquet file.

    :ivar name: in the store's directory.
    :ivar is_tail: of what was not whole yet; the next scan takes its place.
    """

    kind: str
    name: str
    rows: int
    is_tail: bool = False


class State(msgspec.Struct, rename="camel", frozen=True):
    """
    One store, and how far it is known.

    :ivar broker_id: 0: the master.
    :ivar place: of the store, as it is seen where it was scanned: a whole path, or a URI.
    :ivar host: that it was scanned on.
    :ivar window: bytes of a window.
    :ivar low: where the log began; `high`: where it ended; `end`: behind the last whole window.
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
    """A store's facts: where they lie, and what they say of themselves."""

    directory: str
    state: State

    def table(self, kind: str) -> Any:
        """
        All rows of a kind.

        :raises CannotDecide: a file is missing or damaged.
        """
        parts = [
            _read(f"{self.directory}/{file.name}") for file in self.state.files if file.kind == kind
        ]
        return pa.concat_tables(parts) if parts else SCHEMAS[kind].empty_table()

    def paths(self, kind: str) -> list[str]:
        """Of the files of a kind that count."""
        return [f"{self.directory}/{file.name}" for file in self.state.files if file.kind == kind]

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the store by itself."""
        for row in self.table(FINDINGS).to_pylist():
            yield Finding(*(row[name] for name in COLUMNS))


def directory_of(to: str, broker: str, broker_id: int) -> str:
    name = "".join(char if char.isalnum() or char in "-_." else "_" for char in broker)
    return f"{to.rstrip('/')}/{name}-{broker_id}"


def state_in(directory: str) -> State | None:
    """
    What is known; None: nothing.

    :raises CannotDecide: it is damaged, or of another version.
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
    All stores whose facts lie there, those of a broker beside each other, its master first.

    :raises CannotDecide: there are none.
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
    Write what is new beside what is known.

    :param known: files that count so far; of tails only the new ones will.
    :param tables: kind, whether it is a tail, and rows.
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
    """From here on its files count."""
    put(f"{directory}/{STATE}", msgspec.json.encode(state))


def _read(path: str) -> Any:
    try:
        return pq.read_table(pa.BufferReader(read_small(path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise CannotDecide(f"{path} cannot be read: {error}. Scan that store --again") from None
