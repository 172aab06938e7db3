"""
Records of a buffer, as columns.

Spec: store.md, sections 2.1 to 2.5. For the body and sysFlag of a compressed message see
`rmq_ha.client.rules.messages.message_of`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_ha.base.model.flags import COMPRESSED, COMPRESSION_MASK, COMPRESSION_ZLIB
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import KEYS, TAGS, UNIQ_KEY
from rmq_ha.base.store_format.commitlog import CRC_MASK
from rmq_ha.client.rules.compression import UndecodableBody, inflate
from rmq_ha.lake.scan.log.bodies import crcs_of, joined, joined_with_crcs
from rmq_ha.lake.scan.log.columns import binary, repeated, schema_of, text, text_of, times
from rmq_ha.lake.scan.log.pieces import Pieces, maps_of, pieces_of, text_values
from rmq_ha.lake.scan.log.shape import (
    HEAD_V4,
    Bytes,
    Flags,
    Ints,
    Shape,
    as_bytes,
    fields,
    head_field,
    shape_of,
    slices,
    windows,
)

MAX_BATCH_ROWS = 8192
MAX_BATCH_BYTES = 32 << 20


class Records:
    """
    Records that a walk has found whole and sound, except for their CRCs, which are checked on
    request.

    Each column is read when it is first used, and then kept.

    :ivar positions: where the records begin in the buffer.
    """

    def __init__(self, buffer: Any, base: int, positions: Ints, shape: Shape | None = None) -> None:
        """:param shape: the shape of the records, if a walk has determined it."""
        self.buffer = buffer
        self.base = base
        self.positions = positions
        if shape is not None:
            self.shape = shape

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, mask: Any) -> "Records":
        """Return some of the records, by flags or a slice."""
        known: Shape | None = self.__dict__.get("shape")
        shape = None if known is None else known.select(mask)
        return Records(self.buffer, self.base, self.positions[mask], shape)

    def tagged(self, tags: frozenset[str] | None) -> "Records":
        """Return the records with one of these tags; None: all records."""
        if tags is None or not len(self):
            return self
        mask = np.asarray(pc.is_in(_COLUMN["tags"](self), pa.array(sorted(tags), pa.string())))
        return self if mask.all() else self.select(mask)

    @cached_property
    def data(self) -> Bytes:
        return as_bytes(self.buffer)

    @cached_property
    def shape(self) -> Shape:
        sizes = fields(self.data, self.positions, ">i4").astype(np.int64)
        return shape_of(self.data, self.positions, sizes)

    def _field(self, at: int, dtype: str) -> Any:
        return head_field(self.shape.heads, at, dtype)

    def _field_after_hosts(self, at: int, dtype: str) -> Any:
        """Return a field after the hosts; `at` is its place if both hosts are IPv4."""
        if self._is_v4:
            return self._field(at, dtype)
        return fields(self.data, self.shape.body - (HEAD_V4 - at), dtype)

    @cached_property
    def _is_v4(self) -> bool:
        return not self.shape.hosts.any()

    @cached_property
    def sizes(self) -> Ints:
        """Size of each record in bytes."""
        return self.shape.end - self.positions

    @property
    def body_crc(self) -> Any:
        """The CRC of the body that is stored in the record."""
        return self._field(8, ">i4")

    @property
    def queue_id(self) -> Any:
        return self._field(12, ">i4")

    @property
    def flag(self) -> Any:
        return self._field(16, ">i4")

    @property
    def queue_offset(self) -> Any:
        """The place in the queue; 0 for prepared and rolled-back messages."""
        return self._field(20, ">i8")

    @property
    def physical_offset(self) -> Any:
        return self._field(28, ">i8")

    @cached_property
    def stored_sys_flag(self) -> Any:
        """The sysFlag as it is on the disk."""
        return self._field(36, ">i4")

    @property
    def sys_flag(self) -> Any:
        """The sysFlag as a consumer sees it: not compressed if the body was decompressed."""
        flags = self.stored_sys_flag.copy()
        for row in self._inflated_bodies:
            flags[row] &= ~COMPRESSED
        return flags

    @property
    def born_timestamp(self) -> Any:
        """Milliseconds since the epoch by the producer's clock."""
        return self._field(40, ">i8")

    @property
    def store_timestamp(self) -> Any:
        """Milliseconds since the epoch by the broker's clock."""
        if self._is_v4:
            return self._field(56, ">i8")
        return fields(self.data, self._after_born, ">i8")

    @property
    def reconsume_times(self) -> Any:
        """How often consumers sent the message back."""
        return self._field_after_hosts(72, ">i4")

    @property
    def prepared_transaction_offset(self) -> Any:
        """For a committed transaction: the offset of its half message."""
        return self._field_after_hosts(76, ">i8")

    @property
    def body_length(self) -> Ints:
        """Length of each body as it is stored, in bytes."""
        return self.shape.body_end - self.shape.body

    @property
    def _after_born(self) -> Ints:
        """Where the store timestamp of each record begins in the buffer: after the born host."""
        return self.positions + 56 + 12 * (self.shape.hosts & 1)

    @property
    def born_host(self) -> Any:
        """`host:port` of each producer, as Arrow texts."""
        return self._hosts(self.positions + 48, self.shape.hosts & 1 != 0)

    @property
    def store_host(self) -> Any:
        """`host:port` of the broker that stored each record, as Arrow texts."""
        return self._hosts(self._after_born + 8, self.shape.hosts & 2 != 0)

    def _hosts(self, at: Ints, is_v6: Flags) -> Any:
        """Return hosts as Arrow texts; `at` is where each begins in the buffer."""
        rows = np.zeros(len(self), np.int32)
        names: list[str] = []
        if not is_v6.all():
            v4 = ~is_v6
            raw = windows(self.data, at[v4], 8).view(">u8").ravel()
            if raw.min() == raw.max():  # usually so for the store host
                raw = raw[:1]
            else:
                raw, rows[v4] = np.unique(raw, return_inverse=True)
            names = list(map(_v4_text, raw.tolist()))
        for row in np.flatnonzero(is_v6).tolist():
            rows[row] = len(names)
            names.append(_host_text(self.data[at[row] : at[row] + 20].tobytes()))
        if len(names) == 1:
            return repeated(names[0], len(self))
        return pa.array(names, pa.string()).take(pa.array(rows))

    def topics(self) -> Any:
        """Return the topics as Arrow texts."""
        shape = self.shape
        return text(self.data, shape.topic, shape.topic_end - shape.topic)

    @cached_property
    def pieces(self) -> Pieces:
        """The properties of all records, as pieces."""
        return pieces_of(self.buffer, self.shape.properties, self.shape.end)

    @cached_property
    def uniq_key(self) -> Any:
        """Unique keys as Arrow texts; null if the producer set none."""
        return text_values(self.pieces, UNIQ_KEY.encode())

    @property
    def msg_id(self) -> Any:
        """Ids as Arrow texts: the producer's id, or without one the offsetMsgId."""
        uniq_key = self.uniq_key
        return pc.coalesce(uniq_key, self.offset_msg_id) if uniq_key.null_count else uniq_key

    @property
    def offset_msg_id(self) -> Any:
        """offsetMsgIds as Arrow texts: host, port and offset of each record in upper-case hex."""
        at, is_v6 = self._after_born + 8, self.shape.hosts & 2 != 0
        width = np.where(is_v6, 20, 8)
        lengths = (width + 8) * 2
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        content = np.empty(int(offsets[-1]), np.uint8)
        for size, mine in ((8, ~is_v6), (20, is_v6)):
            if mine.any():
                host = windows(self.data, at[mine], size)
                place = windows(self.data, self.positions[mine] + 28, 8)
                digits = _HEX[np.concatenate((host, place), axis=1)].view(np.uint8)
                index = offsets[:-1][mine][:, None] + np.arange((size + 8) * 2)
                content[index] = digits
        return text_of(content, offsets)

    @cached_property
    def _crcs(self) -> Any:
        return crcs_of(self.buffer, self.shape.body, self.shape.body_end)

    def crc_ok(self) -> Flags:
        """Return whether each body fits its CRC."""
        right: Flags = (self._crcs & CRC_MASK) == self.body_crc.view(np.uint32)
        right |= self.shape.body == self.shape.body_end
        return right

    def unreadable_rows(self) -> list[int]:
        """Return the rows whose flag says zlib, but whose body does not begin as its output."""
        flags = self.stored_sys_flag
        kind = flags & COMPRESSION_MASK
        is_zlib = (kind == 0) | (kind == COMPRESSION_ZLIB)
        rows = np.flatnonzero((flags & COMPRESSED != 0) & is_zlib & (self.body_length > 0))
        return [row for row in rows.tolist() if not self._has_zlib_head(row)]

    def _has_zlib_head(self, row: int) -> bool:
        start, end = int(self.shape.body[row]), int(self.shape.body_end[row])
        head = bytes(self.buffer[start : min(start + 2, end)])
        return len(head) == 2 and head[0] & 15 == 8 and int.from_bytes(head) % 31 == 0

    def bodies(self) -> list[Any]:
        """Return the bodies, decompressed if possible, otherwise views of the buffer."""
        bodies = slices(self.buffer, self.shape.body, self.shape.body_end)
        for row, body in self._inflated_bodies.items():
            bodies[row] = body
        return bodies

    def _body_column(self) -> Any:
        if self._inflated_bodies:
            lengths = self.body_length
            for row, body in self._inflated_bodies.items():
                lengths[row] = len(body)
            return binary(as_bytes(b"".join(self.bodies())), lengths)
        return binary(joined(self.buffer, self.shape.body, self.shape.body_end), self.body_length)

    def _body_and_crc(self) -> tuple[Any, Any]:
        """Return the columns `body` and `crcOk`, with one pass through the bodies."""
        if self._inflated_bodies or "_crcs" in self.__dict__:
            return self._body_column(), pa.array(self.crc_ok())
        shape = self.shape
        content, self._crcs = joined_with_crcs(self.buffer, shape.body, shape.body_end)
        return binary(content, self.body_length), pa.array(self.crc_ok())

    @cached_property
    def _inflated_bodies(self) -> dict[int, bytes]:
        """The decompressed bodies by row."""
        bodies = {row: self._inflate(row) for row in self._compressed_rows()}
        return {row: body for row, body in bodies.items() if body is not None}

    def _compressed_rows(self) -> list[int]:
        rows: list[int] = np.flatnonzero(self.stored_sys_flag & COMPRESSED).tolist()
        return rows

    def _inflate(self, row: int) -> bytes | None:
        """Return the decompressed body of a record; None: it stays as it is stored."""
        body = bytes(self.buffer[int(self.shape.body[row]) : int(self.shape.body_end[row])])
        try:
            return inflate(body, int(self.stored_sys_flag[row]))
        except UndecodableBody:
            return None

    def batch(self, columns: Sequence[str], broker_name: str | None = None) -> Any:
        """Return all records as one Arrow batch of these of `COLUMNS`."""
        schema = schema_of(columns)
        count = len(self)
        known: dict[str, Any] = {"brokerName": repeated(broker_name, count)}
        if "body" in columns and "crcOk" in columns:
            known["body"], known["crcOk"] = self._body_and_crc()
        arrays = [known[name] if name in known else _COLUMN[name](self) for name in columns]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def batches(
        self,
        columns: Sequence[str],
        broker_name: str | None = None,
        rows: int = MAX_BATCH_ROWS,
        size: int = MAX_BATCH_BYTES,
    ) -> Iterator[Any]:
        """
        Yield all records as batches of limited size.

        :param size: most bytes of the records of one batch, and of its decompressed bodies; a
            single record may be larger.
        """
        at = 0
        while at < len(self):
            ends = np.cumsum(self.sizes[at : at + rows])
            count = max(1, int(np.searchsorted(ends, size, "right")))
            yield from self.select(slice(at, at + count))._one_batch(columns, broker_name, size)
            at += count

    def _one_batch(
        self, columns: Sequence[str], broker_name: str | None, size: int
    ) -> Iterator[Any]:
        """Yield one batch, or several if its bodies grow too large when they are decompressed."""
        start = grown = 0
        held: dict[int, bytes] = {}
        is_needed = "body" in columns or "sysFlag" in columns
        for row in self._compressed_rows() if is_needed else ():
            body = self._inflate(row)
            if body is None:
                continue
            if grown and grown + len(body) > size:
                yield self._with_bodies(start, row, held).batch(columns, broker_name)
                start, grown, held = row, 0, {}
            held[row - start] = body
            grown += len(body)
        if is_needed:
            yield self._with_bodies(start, len(self), held).batch(columns, broker_name)
        else:
            yield self.batch(columns, broker_name)

    def _with_bodies(self, start: int, stop: int, inflated: dict[int, bytes]) -> "Records":
        """Return the records from `start` to `stop` with their decompressed bodies, by row."""
        part = self.select(slice(start, stop))
        part._inflated_bodies = inflated
        return part


_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)


@lru_cache(maxsize=1 << 16)
def _v4_text(raw: int) -> str:
    return _host_text(raw.to_bytes(8, "big"))


@lru_cache(maxsize=1 << 16)
def _host_text(raw: bytes) -> str:
    return str(Address(raw[:-4], int.from_bytes(raw[-4:], "big", signed=True)))


_COLUMN: dict[str, Callable[[Records], Any]] = {
    "topic": Records.topics,
    "queueId": lambda records: pa.array(records.queue_id),
    "queueOffset": lambda records: pa.array(records.queue_offset),
    "commitLogOffset": lambda records: pa.array(records.physical_offset),
    "msgId": lambda records: records.msg_id,
    "keys": lambda records: text_values(records.pieces, KEYS.encode()),
    "tags": lambda records: text_values(records.pieces, TAGS.encode()),
    "body": Records._body_column,
    "properties": lambda records: maps_of(records.pieces),
    "flag": lambda records: pa.array(records.flag),
    "sysFlag": lambda records: pa.array(records.sys_flag),
    "bornTimestamp": lambda records: times(records.born_timestamp),
    "bornHost": lambda records: records.born_host,
    "storeTimestamp": lambda records: times(records.store_timestamp),
    "storeHost": lambda records: records.store_host,
    "bodyCRC": lambda records: pa.array(records.body_crc),
    "reconsumeTimes": lambda records: pa.array(records.reconsume_times),
    "storeSize": lambda records: pa.array(records.sizes.astype(np.int32)),
    "crcOk": lambda records: pa.array(records.crc_ok()),
    "uniqKey": lambda records: records.uniq_key,
    "preparedTransactionOffset": lambda records: pa.array(records.prepared_transaction_offset),
}
