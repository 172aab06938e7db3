"""Messages by key and by commit-log offset: codes 12 and 33.

Spec: remoting.md, section 7.8.
"""

from struct import Struct
from typing import Protocol

from rmq_ha.broker.processors import fields
from rmq_ha.broker.processors.fields import Handler
from rmq_ha.config.store import MessageStoreConfig
from rmq_ha.remoting.channel import Channel
from rmq_ha.store.format.commitlog import MESSAGE_MAGIC, RECORD_OVERHEAD
from rmq_ha.store.reads import QueryResult
from rmq_ha.wire.codes import RequestCode, ResponseCode
from rmq_ha.wire.command import RemotingCommand

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_MSG_ID_SIZES = (16, 28)
_HEAD = Struct(">iI20xq")
"""Size, magic and physical offset of a record."""


class RecordReader(Protocol):
    """What queries need of the store."""

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The bytes that a record at this offset would have; None outside the log."""

    def query(self, topic: str, key: str, max_nums: int, begin_ms: int, end_ms: int) -> QueryResult:
        """By index."""


class QueryProcessor:
    """Finds messages for operators and their tools."""

    def __init__(self, *, store: RecordReader, config: MessageStoreConfig) -> None:
        self._store = store
        self._config = config

    def routes(self) -> dict[int, Handler]:
        """Request code to handler."""
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message_by_id,
        }

    def query_message(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_MESSAGE: records whose key's hash is in the index; the client compares keys."""
        header = fields.header(request)
        max_nums = fields.int32(header, "maxNum")
        if fields.flag(header, UNIQUE_KEY_QUERY):
            max_nums = self._config.default_query_max_num
        result = self._store.query(
            fields.text(header, "topic"),
            fields.text(header, "key"),
            max_nums,
            fields.int64(header, "beginTimestamp"),
            fields.int64(header, "endTimestamp"),
        )
        if not result.records:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"},
            )
        ext = {
            "indexLastUpdatePhyoffset": str(result.index_last_update_offset),
            "indexLastUpdateTimestamp": str(result.index_last_update_timestamp),
        }
        return request.response(ext=ext, body=b"".join(result.records))

    def view_message_by_id(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID: the record that starts at this commit-log offset."""
        offset = fields.int64(fields.header(request), "offset")
        record = record_that_starts_at(self._store, offset)
        if record is None:
            return request.response(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return request.response(body=record)


def record_by_id(store: RecordReader, message_id: str) -> bytes | None:
    """The record that an offsetMsgId means: the last 16 digits are its offset."""
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        return None
    if len(data) not in _MSG_ID_SIZES:
        return None
    return record_that_starts_at(store, int.from_bytes(data[-8:], "big"))


def record_that_starts_at(store: RecordReader, physical_offset: int) -> bytes | None:
    """The record, if one starts there: an offset from a client may point anywhere."""
    if physical_offset < 0:
        return None
    record = store.record_at(physical_offset)
    if record is None or len(record) < RECORD_OVERHEAD:
        return None
    if _HEAD.unpack_from(record) != (len(record), MESSAGE_MAGIC, physical_offset):
        return None
    return record
