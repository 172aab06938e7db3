"""
The facts of one store as files in `DIR/<broker>-<id>/`; the last file to be written is
`state.json`.

A file that `state.json` does not name is ignored. Windows lie on a grid that is the same on all
replicas.
"""

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.files import listing, put, read_small, remove
from rmq_ha.lake.scan.arrays import schema
from rmq_ha.ops.offsets.findings import COLUMNS, Finding

FORMAT = 1
STATE = "state.json"
WINDOW = 4 << 20
"""Bytes of the log that one digest stands for. A log of 1 TiB has 262,144 digests, some 6 MB."""
HOUR = 3_600_000
_SMALL = 100_000
"""A file with fewer rows is written again, together with the new rows."""

WINDOWS, SUMS, FINDINGS, IDS = "windows", "sums", "findings", "ids"
SCHEMAS = {
    WINDOWS: schema("low:long high:long", ("digest", pa.binary(16)), ("readAt", pa.int64())),
    SUMS: schema(
        "topic:string queueId:int hour:long n:long bytes:long bad:long least:long most:long"
    ),
    FINDINGS: schema(
        "severity:string code:string detail:string broker:string topic:string queueId:int"
        " group:string physicalOffset:long queueOffset:long msgId:string expected:string"
        " actual:string observedAt:long"
    ),
    IDS: schema("hash:long place:long"),
}
"""
Columns of the kinds of files: windows, with the time in ms when each was read (null: version 0.1
did not keep it); messages by queue and hour of birth; findings; and, on request, ids with their
places.
"""
_CHECK = b',"check":"'


class FactFile(msgspec.Struct, rename="camel", frozen=True):
    """
    A Parquet file of facts.

    :ivar is_tail: the file has facts of a part that was not complete; the next scan replaces it.
    :ivar digest: digest of the file's bytes; empty: version 0.1 wrote none.
    """

    kind: str
    name: str
    rows: int
    is_tail: bool = False
    digest: str = ""


class State(msgspec.Struct, rename="camel", frozen=True):
    """
    A store, and the part of its log that was scanned.

    :ivar place: the store as it is seen on the machine that scanned it: an absolute path, or a URI.
    :ivar end: physical offset at which the last whole window ended.
    :ivar identity: device and number of the store's directory, which a link does not change; empty:
        not known.
    :ivar oldest_look: when the window was read that has not been read for longest, in ms since the
        epoch; 0: not known.
    :ivar read_again: number of windows of earlier scans that the last scan read again.
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
    identity: str = ""
    oldest_look: int = 0
    read_again: int = 0

    def is_same_store(self, other: "State") -> bool:
        """Return whether both scans read one directory of one machine."""
        is_same_place = self.place == other.place
        is_same_directory = bool(self.identity) and self.identity == other.identity
        return self.host == other.host and (is_same_place or is_same_directory)


class ReplicaFacts(NamedTuple):
    """
    The facts of one store: their directory and state.

    :ivar fault: why the state cannot be used; empty: it can. The state of facts with a fault has
        the broker and the id that the directory's name gives, and nothing else.
    """

    directory: str
    state: State
    fault: str = ""

    def table(self, kind: str, *, tail: bool = True) -> Any:
        """
        Return all facts of a kind, as an Arrow table.

        :param tail: whether facts of a part that was not complete are returned too.
        :raises CannotDecide: a file is missing or damaged.
        """
        parts = [
            _read(self.directory, file)
            for file in self.state.files
            if file.kind == kind and (tail or not file.is_tail)
        ]
        return pa.concat_tables(parts) if parts else SCHEMAS[kind].empty_table()

    def paths(self, kind: str) -> list[str]:
        """Return the paths of the files of a kind that the state names."""
        return [f"{self.directory}/{file.name}" for file in self.state.files if file.kind == kind]

    def named(self, broker: str) -> "ReplicaFacts":
        """Return facts with a fault under the name of their broker, if it is known."""
        if not self.fault or not broker:
            return self
        return self._replace(state=msgspec.structs.replace(self.state, broker=broker))

    def faults(self, kinds: Collection[str]) -> list[str]:
        """Return a sentence for each file of these kinds that is missing or damaged."""
        faults = []
        for file in self.state.files:
            try:
                if file.kind in kinds:
                    _read(self.directory, file)
            except CannotDecide as error:
                faults.append(str(error))
        return faults

    def findings(self) -> Iterator[Finding]:
        """Yield the faults that the scan found in the store by itself."""
        for row in self.table(FINDINGS).to_pylist():
            yield Finding(*(row[name] for name in COLUMNS))


def directory_of(to: str, broker: str, broker_id: int) -> str:
    """Return the directory of a store's facts. Other characters in the broker's name become `_`."""
    name = "".join(char if char.isalnum() or char in "-_." else "_" for char in broker)
    return f"{to.rstrip('/')}/{name}-{broker_id}"


def state_in(directory: str) -> State | None:
    """
    Read the state of a directory; None: it has none.

    :raises CannotDecide: the state is damaged, or of another version.
    """
    path = f"{directory}/{STATE}"
    try:
        data = read_small(path)
        state = msgspec.json.decode(data, type=State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise CannotDecide(f"{path} cannot be read: {error}. Remove it, and scan again") from None
    if state.format != FORMAT:
        raise CannotDecide(f"{path} has format {state.format}: another rmq-ha wrote it")
    told, is_checked, check = data.rpartition(_CHECK)
    if is_checked and check != _digest(told).encode() + b'"}':
        raise CannotDecide(f"{path} was changed or damaged. Remove it, and scan again")
    return state


def replicas_in(directory: str) -> list[ReplicaFacts]:
    """
    Return all stores that have facts in a directory, the replicas of a broker next to each other,
    its master first. Damaged facts of one store do not hide those of the others.

    :raises CannotDecide: the directory has no facts.
    """
    root = directory.rstrip("/")
    paths = [f"{root}/{entry.name}" for entry in listing(root) if entry.is_directory]
    replicas = [replica for path in paths if (replica := _replica_in(root, path)) is not None]
    if not replicas:
        raise CannotDecide(f"{directory} holds no facts: `rmqha-scan STORE --to {directory}` does")
    # The name of a directory has other letters than the broker's name, if that has a "/" or so.
    names = {
        _broker_part(replica.directory): replica.state.broker
        for replica in replicas
        if not replica.fault
    }
    replicas = [
        replica.named(names.get(_broker_part(replica.directory), "")) for replica in replicas
    ]
    return sorted(replicas, key=lambda replica: (replica.state.broker, replica.state.broker_id))


def _replica_in(root: str, path: str) -> ReplicaFacts | None:
    """Return the facts in a directory, damaged or not; None: it has none."""
    try:
        state = state_in(path)
        if state is None:
            return None
        if directory_of(root, state.broker, state.broker_id) != path:
            raise CannotDecide(
                f"{path} has the facts of broker {state.broker}, id {state.broker_id}: it was"
                " copied or renamed. Remove it, and scan that store again"
            )
        return ReplicaFacts(path, state)
    except CannotDecide as error:
        number = path.rpartition("-")[2]
        name = _broker_part(path).rpartition("/")[2]
        broker_id = int(number) if number.isdecimal() else 0
        return ReplicaFacts(path, State(name, broker_id, path, "", 0, 0, 0, 0, 0), str(error))


def _broker_part(path: str) -> str:
    """Return the path of a directory of facts without the broker id at its end."""
    stem, _, number = path.rpartition("-")
    return stem if number.isdecimal() else path


def keep(
    directory: str, known: Sequence[FactFile], tables: Sequence[tuple[str, bool, Any]], span: str
) -> tuple[FactFile, ...]:
    """
    Write new tables, and return the files that the next state has to name.

    :param known: files that the last state named. Tails are left out, and so are windows, because
        each scan writes all windows.
    :param tables: for each table its kind, whether it is a tail, and its rows.
    :param span: a part of the new files' names that differs from scan to scan.
    """
    files = [file for file in known if not file.is_tail and file.kind != WINDOWS]
    for kind, is_tail, table in tables:
        if not table.num_rows:
            continue
        last = next((file for file in reversed(files) if file.kind == kind), None)
        if not is_tail and kind != WINDOWS and last is not None and last.rows < _SMALL:
            files.remove(last)
            table = pa.concat_tables([_read(directory, last), table])
        name = f"{kind}-{'tail-' if is_tail else ''}{span}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        put(f"{directory}/{name}", data)
        files.append(FactFile(kind, name, table.num_rows, is_tail, _digest(data)))
    return tuple(files)


def keep_state(directory: str, state: State, before: Sequence[FactFile] = ()) -> None:
    """
    Write `state.json`; from then on readers use the files that it names.

    :param before: the files that the former state named. They stay, because a reader may have them
        open; older files are removed.
    """
    told = msgspec.json.encode(state)[:-1]
    put(f"{directory}/{STATE}", told + _CHECK + _digest(told).encode() + b'"}')
    counted = {file.name for file in (*before, *state.files)}
    for entry in listing(directory):
        if entry.name.endswith(".parquet") and entry.name not in counted:
            remove(f"{directory}/{entry.name}")


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _read(directory: str, file: FactFile) -> Any:
    """
    Return a file of facts as an Arrow table.

    :raises CannotDecide: the file is missing or damaged.
    """
    path = f"{directory}/{file.name}"
    try:
        data = read_small(path)
        if file.digest and _digest(data) != file.digest:
            raise CannotDecide(f"{path} was changed or damaged. Scan that store --again")
        table = pq.read_table(pa.BufferReader(data))
        for field in SCHEMAS[file.kind]:
            if field.name not in table.schema.names:  # version 0.1 did not keep it
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        return table.select(SCHEMAS[file.kind].names)
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise CannotDecide(f"{path} cannot be read: {error}. Scan that store --again") from None
