"""
Reads ledgers: files in which producers and consumers record their messages.

A ledger is JSON lines or Parquet, from any program. Its rows become rows of one schema, and counts.
Rows that cannot be read are skipped and counted.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_ha.base.store_format.commitlog import CRC_MASK
from rmq_ha.lake.scan.arrays import filled, grouped, schema
from rmq_ha.lake.scan.ledger_rows import DELIVERED, PRODUCED, TOLD, keys_hashes, pack
from rmq_ha.lake.scan.log.columns import snake_case
from rmq_ha.lake.scan.reducing import LATEST_MS

STORED_STATUSES = ("SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
"""
Send statuses that mean that the message is stored. A row without a status counts as acknowledged as
well.
"""
UNNAMED = "(unnamed)"
LINE = "value"
"""The column that has the JSON lines, as bytes."""

COUNT, PACKED, OUTSIDE, UNUSABLE = range(4)
"""
Kinds of rows: COUNT: how many rows a topic, a group and a window of time have; PACKED: the rows
themselves as one value; OUTSIDE: how many rows are outside of the scope; UNUSABLE: how many rows
are no JSON, or have no id.
"""

_BY = ("topic", "group", "window")
SCHEMA = schema(
    "kind:int topic:string group:string window:long n:long acknowledged:long since:long until:long"
    " data:binary"
)

# The columns, and other names that they may have; each name may also be spelt like_this.
_COLUMNS = (
    "topic", "msgId", "keys", "status", "transactionState", "brokerName", "queueId", "queueOffset",
    "orderKey", "sequence", "bodyCrc", "group", "reconsumeTimes", "sentAt", "deliveredAt",
)  # fmt: skip
_ALSO = {
    "msgId": ("uniqKey", "messageId"), "keys": ("key",), "status": ("sendStatus",),
    "transactionState": ("localTransactionState",), "group": ("consumerGroup",),
    "deliveredAt": ("consumedAt",),
}  # fmt: skip
_NAMES = {
    name: list(
        dict.fromkeys(
            spelt for alias in (name, *_ALSO.get(name, ())) for spelt in (alias, snake_case(alias))
        )
    )
    for name in _COLUMNS
}
SPELLINGS = frozenset(chain.from_iterable(_NAMES.values()))
"""All column names that a ledger may use."""

_TIMES = {PRODUCED: "sentAt", DELIVERED: "deliveredAt"}
_NUMBERS = ("queueId", "queueOffset", "sequence", "bodyCrc", "reconsumeTimes")
_KINDS = dict.fromkeys(_COLUMNS, pa.string()) | dict.fromkeys(
    (*_TIMES.values(), *_NUMBERS), pa.int64()
)

_INTEGER = re.compile(r"\s*[+-]?0*[0-9]{1,19}\s*")
_TOO_LARGE = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_EVERY = msgspec.json.Decoder(dict[str, Any])


class LedgerScope(NamedTuple):
    """The wanted rows of a ledger, by topic, broker and time; an empty set means all."""

    topics: Collection[str] = ()
    brokers: Collection[str] = ()
    from_ms: int | None = None
    to_ms: int | None = None


class LedgerReading(NamedTuple):
    """
    How a ledger is read.

    :ivar side: the side that wrote the ledger, `PRODUCED` or `DELIVERED`.
    :ivar id_column: the column that identifies a message, `msgId` or `keys`.
    """

    side: int
    id_column: str
    window_ms: int
    scope: LedgerScope = LedgerScope()

    def batches(self, raw: Iterable[Any]) -> Iterator[Any]:
        """
        Yield rows of all kinds, with the schema `SCHEMA`.

        :param raw: Arrow batches of JSON lines (`LINE`), or of columns named as in `SPELLINGS`.
        """
        for batch in raw:
            rows = self._rows(_columns(batch), len(batch))
            known = rows.filter(pc.not_equal(rows["id"], ""))
            asked = known.filter(self._is_asked(known))
            unusable = len(batch) - len(pc.unique(known["row"]))
            for kind, count in (UNUSABLE, unusable), (OUTSIDE, len(known) - len(asked)):
                if count:
                    yield filled({"kind": kind, "n": pa.array([count])}, SCHEMA)
            if len(asked):
                yield self._count_rows(asked)
                yield filled({"kind": PACKED, "data": pack(asked, self.side)}, SCHEMA)

    def _rows(self, given: dict[str, Any], count: int) -> Any:
        """Return rows as `TOLD`, with the source row's number `row`: a batch has several ids."""

        def column(name: str) -> Any:
            spelt = [given[spelling] for spelling in _NAMES[name] if spelling in given]
            return pc.coalesce(*spelt) if spelt else pa.nulls(count, _KINDS[name])

        columns = {name: column(name) for name in _COLUMNS}
        lists = pc.split_pattern(columns[self.id_column], ",")
        parents = pc.list_parent_indices(lists)
        at = columns[_TIMES[self.side]]
        is_known = pc.and_(pc.greater_equal(at, 0), pc.less_equal(at, LATEST_MS))
        columns["atMs"] = pc.if_else(is_known, at, None)  # e.g. nanoseconds are out of range
        columns["order"] = pc.coalesce(columns["sequence"], columns["atMs"])
        columns["group"] = columns["group"].fill_null(UNNAMED)
        columns["reconsumeTimes"] = columns["reconsumeTimes"].fill_null(0)
        columns["bodyCrc"] = pc.bit_wise_and(columns["bodyCrc"], CRC_MASK)
        columns["keysHash"] = keys_hashes(columns["keys"])
        narrow = columns["queueId"].cast(pa.int32(), safe=False)  # this cuts the highest bits off
        columns["queueId"] = pc.if_else(pc.equal(narrow, columns["queueId"]), narrow, None)
        # One row of a batch has one CRC and one text of keys, which are of no single message, and
        # the queue offset of its first message.
        is_alone = pc.equal(pc.list_value_length(lists), 1)
        for name in ("bodyCrc", "keysHash"):
            columns[name] = pc.if_else(is_alone, columns[name], None)
        taken = {
            name: values.take(parents) for name, values in columns.items() if name in TOLD.names
        }
        rows = parents.to_numpy()
        number = np.arange(len(rows)) - np.searchsorted(rows, rows)
        taken["queueOffset"] = pc.add(taken["queueOffset"], pa.array(number, pa.int64()))
        return pa.RecordBatch.from_pydict(taken | {"id": pc.list_flatten(lists), "row": parents})

    def _is_asked(self, rows: Any) -> Any:
        """Return which rows lie in the scope. A row without a topic or a time does."""
        scope, at = self.scope, rows["atMs"]
        asked = pa.repeat(True, len(rows))
        if scope.topics:
            asked = pc.and_(asked, _is_in(rows["topic"], [*scope.topics, None]))
        if scope.brokers:
            asked = pc.and_(asked, _is_in(rows["brokerName"], scope.brokers))
        if scope.from_ms is not None:
            asked = pc.and_(asked, pc.greater_equal(at, scope.from_ms).fill_null(True))
        if scope.to_ms is not None:
            asked = pc.and_(asked, pc.less(at, scope.to_ms).fill_null(True))
        return asked

    def _count_rows(self, rows: Any) -> Any:
        at, width = rows["atMs"], self.window_ms
        acknowledged = _is_in(rows["status"], [*STORED_STATUSES, None]).cast(pa.int64())
        columns = {
            "topic": rows["topic"],
            "group": rows["group"],
            "window": pc.multiply(pc.divide(at, width), width),
            "n": pa.repeat(1, len(rows)),
            "acknowledged": acknowledged,
            "since": at,
            "until": at,
        }
        how = {"n": "sum", "acknowledged": "sum", "since": "min", "until": "max"}
        return filled(grouped(columns, _BY, how) | {"kind": COUNT}, SCHEMA)


def _is_in(texts: Any, names: Iterable[str | None]) -> Any:
    return pc.is_in(texts, pa.array(names, pa.string()))


def _columns(batch: Any) -> dict[str, Any]:
    """Return a batch's columns as Arrow arrays, by their names in the file."""
    columns: dict[str, Any] = {}
    for name in batch.schema.names:
        if name == LINE:
            columns |= _of_lines(batch[name].to_pylist())
        else:
            columns[name] = _MAKERS[name](batch[name].to_pylist())
    return columns


def _of_lines(lines: list[bytes]) -> dict[str, Any]:
    """Return the columns of JSON lines, as `_columns` does."""
    try:
        rows = _EVERY.decode_lines(b"\n".join(lines))
    except _NO_JSON:
        rows = []
    if len(rows) != len(lines):
        rows = list(map(_decode_line, lines))
    names = SPELLINGS.intersection(chain.from_iterable(rows))
    return {name: _MAKERS[name]([row.get(name) for row in rows]) for name in names}


def _decode_line(line: bytes) -> dict[str, Any]:
    """Return the members of a line; none if the line is no JSON object."""
    try:
        return _EVERY.decode(line)
    except _NO_JSON:
        pass
    try:  # accepts NaN, which Python's own writer emits
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _array(kind: type, make: Callable[[Any], Any], of: Any, values: list[Any]) -> Any:
    """Make an Arrow array; `make` turns values of other kinds than `kind` into it, or into None."""
    if set(map(type, values)) <= {kind, NoneType}:
        try:
            return pa.array(values, of)
        except (OverflowError, pa.ArrowInvalid, UnicodeEncodeError):
            pass  # a value is too large, or a text that is not valid UTF-8
    return pa.array([None if value is None else make(value) for value in values], of)


def _number(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # many tools store a column with gaps as floats
    text = str(value)
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -_TOO_LARGE <= number < _TOO_LARGE else None


def _ms(value: Any) -> int | None:
    """Return ms since the epoch of ms, a timestamp, or ISO 8601 text (UTC by default)."""
    if isinstance(value, datetime):
        at = value
    elif (number := _number(value)) is not None:
        return number
    else:
        try:
            at = datetime.fromisoformat(str(value).strip())
        except ValueError:
            return None
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _text(value: Any) -> str:
    """Return a value as text; a value that is not text is returned as JSON."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, bool | dict | list):
        return json.dumps(value)
    return str(value).encode(errors="replace").decode()


_OF_TIMES = partial(_array, int, _ms, pa.int64())
_OF_NUMBERS = partial(_array, int, _number, pa.int64())
_OF_TEXTS = partial(_array, str, _text, pa.string())
_MAKERS = {
    spelt: _OF_TIMES if name in _TIMES.values() else _OF_NUMBERS if name in _NUMBERS else _OF_TEXTS
    for name, spellings in _NAMES.items()
    for spelt in spellings
}
