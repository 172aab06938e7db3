"""
The rows of log and ledgers in one schema, and their packed form: many rows as one value, so that
Spark carries them without looking at each.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_ha.lake.scan.arrays import filled, schema, text_hashes
from rmq_ha.lake.scan.log.records import Records

STORED, PRODUCED, DELIVERED = 0, 1, 2
"""Sources of rows: the log, a ledger of producers, a ledger of consumers."""

RECORD = (
    "id:string brokerName:string topic:string queueId:int queueOffset:long commitLogOffset:long"
    " storedMs:long bodyCrc:long tags:string"
)
SAID = (
    "side:int group:string atMs:long status:string reconsumeTimes:long order:long orderKey:string"
)
"""
The columns that only a ledger fills. `order` is a number that grows with each message of an
`orderKey`.
"""
TOLD = schema(
    f"{RECORD} {SAID} bornMs:long sysFlag:int crcOk:boolean transactionState:string keysHash:long"
)
"""
The schema of the rows of log and ledgers. A record of the log has its place, flags, times (ms),
CRC, and a hash of its keys. A row of a ledger has those of these values that its writer recorded,
and the group and time (`atMs`) of the send or the delivery.
"""

_HALF = np.uint64(32)
PARTS = schema("part:int data:binary")


def keys_hashes(keys: Any) -> Any:
    """
    Return a number for each text of keys, as an Arrow array. Null stays null.

    Blanks, commas, quotes and brackets between the keys do not matter: ledgers also have lists.
    """
    plain = pc.utf8_trim_whitespace(pc.replace_substring_regex(keys, r'[\s,"\[\]]+', " "))
    hashes = text_hashes(plain.fill_null(""), np.zeros(len(plain), np.uint64)).view(np.int64)
    return pc.if_else(keys.is_valid(), pa.array(hashes), None)


def of_records(
    records: Records, label: str, id_column: str, *, tags: bool, keys: bool = False
) -> Any:
    """
    Return records as a batch of `TOLD` with their `storeSize`.

    :param id_column: the column that identifies a message, `msgId` or `keys`.
    """
    names = ["topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "crcOk"]
    named = [*names, "tags"] if tags else names
    more = ["keys"] if keys and id_column != "keys" else []
    batch = records.batch([*named, id_column, *more, "bodyCRC", "bornTimestamp", "storeTimestamp"])
    columns = {name: batch[name] for name in named}
    columns |= {"id": batch[id_column], "bodyCrc": batch["bodyCRC"]}
    for name, times in ("bornMs", "bornTimestamp"), ("storedMs", "storeTimestamp"):
        columns[name] = batch[times].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    # The stored flags: an audit need not know whether a body can be decompressed.
    columns["sysFlag"] = pa.array(records.stored_sys_flag)
    if keys:
        columns["keysHash"] = keys_hashes(batch["keys"].fill_null(""))
    columns["brokerName"] = pa.repeat(label, len(records))
    return pa.RecordBatch.from_pydict(columns)


def pack(batch: Any, side: int | None = None) -> Any:
    """
    Pack rows into one value, an Arrow array of length one.

    :param batch: some columns of `TOLD`; missing columns are null.
    :param side: the source of the rows; None: a column of `batch` says it.
    """
    columns = {
        name: column.cast(TOLD.field(name).type)
        for name, column in _saying(batch).items()
        if name in TOLD.names
    }
    if side is not None:
        columns["side"] = pa.repeat(pa.scalar(side, pa.int32()), len(batch))
    made = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as stream:
        stream.write_batch(made)
    return pa.array([sink.getvalue().to_pybytes()], pa.binary())


def unpack(data: bytes) -> Any:
    """Return the rows of a packed value."""
    with pa.ipc.open_stream(data) as stream:
        rows = stream.read_next_batch()
    return filled({name: rows[name] for name in rows.schema.names}, TOLD)


def divide(rows: Any, count: int) -> Iterator[Any]:
    """
    Divide rows of `TOLD` by id into `count` parts, and yield them as `PARTS`; without id none.
    """
    rows = pa.RecordBatch.from_pydict(_saying(rows)).filter(rows["id"].is_valid())
    hashes = text_hashes(rows["id"], np.zeros(len(rows), np.uint64))
    # Taken from the highest bits, because the lowest ones differ too little.
    parts = (hashes >> _HALF) * np.uint64(count) >> _HALF
    order = np.argsort(parts, kind="stable")
    ordered, parts = rows.take(pa.array(order)), parts[order]
    starts = np.flatnonzero(np.diff(parts, prepend=count)).tolist()
    for start, end in pairwise([*starts, len(parts)]):
        part = pa.array([int(parts[start])], pa.int32())
        data = pack(ordered.slice(start, end - start))
        yield pa.RecordBatch.from_arrays([part, data], schema=PARTS)


def _saying(rows: Any) -> dict[str, Any]:
    """Return the columns with a value, as empty ones take room; `id` tells the number of rows."""
    return {
        name: rows[name]
        for name in rows.schema.names
        if name == "id" or rows[name].null_count < len(rows)
    }
