"""Messages as JSON bodies: written byte for byte like upstream, and read as tolerantly.

Spec: dledger.md, section 5 and chapter 6; remoting.md, section 1.9.
"""

from binascii import b2a_base64
from typing import Annotated, Any, TypeVar

import msgspec

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.numbers import Int32, Int64
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, Entry
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.text import quote, to_bytes
from rmq_ha.server.dledger.codes import PushType, VoteResult
from rmq_ha.server.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    GroupMessage,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
)

M = TypeVar("M", bound=GroupMessage)

_MAX = (1 << 63) - 1
Natural = Annotated[int, msgspec.Meta(ge=0, le=_MAX)]
# DLedger 0.1 (RocketMQ 4.7) spells this name with two underscores.
_OTHER_SPELLINGS = {"REJECT_ALREADY__HAS_LEADER": VoteResult.REJECT_ALREADY_HAS_LEADER}
_ENTRY = (
    b'{"body":"%b","bodyCrc":0,"chainCrc":0,"channel":%d,"index":%d,"magic":%d,"pos":%d,'
    b'"size":%d,"term":%d}'
)


def encode_entry(entry: Entry) -> bytes:
    """Encode one entry as JSON for a push. The bytes are the same for every peer."""
    body = entry.body
    return _ENTRY % (
        b2a_base64(body, newline=False),
        entry.channel,
        entry.index,
        entry.magic,
        entry.pos,
        ENTRY_HEADER_SIZE + len(body),
        entry.term,
    )


def encode_body(message: GroupMessage) -> bytes:
    """
    Encode a message as JSON: keys in alphabetical order, without nulls, with upstream's computed
    keys.
    """
    if isinstance(message, PushEntryRequest):
        return _encode_push(message)
    members = []
    for key, name in _KEYS[type(message)]:
        value = getattr(message, name)
        if value is None or value is False:
            continue
        members.append(b'"%b":%b' % (key, _encode_value(value)))
    return b"{" + b",".join(members) + b"}"


def _encode_value(value: Any) -> bytes:
    if value is True:
        return b"true"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, str):
        return to_bytes(quote(value))
    if isinstance(value, bytes):
        return b'"%b"' % b2a_base64(value, newline=False)
    if isinstance(value, dict):
        return fastjson.encode(value)
    return b"[" + b",".join(map(encode_entry, value)) + b"]"


def _encode_push(message: PushEntryRequest) -> bytes:
    batch, entry = message.batch_entry, message.entry
    count, first, last, total = 0, -1, -1, 0
    if batch:
        count, first, last = len(batch), batch[0].index, batch[-1].index
        total = ENTRY_HEADER_SIZE * count + sum([len(pushed.body) for pushed in batch])
    elif entry is not None:
        count, first, last = 1, entry.index, entry.index
    entries = b",".join(map(encode_entry, batch))
    single = b'"entry":' + encode_entry(entry) + b"," if entry is not None and not batch else b""
    return (
        b'{"batch":%b,"batchEntry":[%b],"code":%d,"commitIndex":%d,"count":%d,%b'
        b'"firstEntryIndex":%d,%b"lastEntryIndex":%d,%b%b%b"term":%d,"totalSize":%d,"type":"%b"}'
    ) % (
        b"true" if batch else b"false",
        entries,
        message.code,
        message.commit_index,
        count,
        single,
        first,
        _text(b"group", message.group),
        last,
        _text(b"leaderId", message.leader_id),
        _text(b"localId", message.local_id),
        _text(b"remoteId", message.remote_id),
        message.term,
        total,
        message.type.value.encode(),
    )


def _text(key: bytes, value: str | None) -> bytes:
    return b"" if value is None else b'"%b":%b,' % (key, to_bytes(quote(value)))


class _JsonEntry(msgspec.Struct, rename="camel"):
    """An entry in JSON. The JSON's size and CRCs are not read: they are computed, or always 0."""

    body: bytes = b""
    index: Natural = 0
    term: Natural = 0
    pos: Natural = 0
    magic: Int32 = 0
    channel: Int32 = 0

    def entry(self) -> Entry:
        return Entry(self.index, self.term, self.pos, self.body, self.magic, self.channel)


class _Push(GroupMessage, frozen=True, kw_only=True):
    type: PushType = PushType.APPEND
    commit_index: Int64 = -1
    entry: _JsonEntry | None = None
    batch_entry: list[_JsonEntry] = []

    def message(self) -> PushEntryRequest:
        """Return the request as the core knows it. It is a batch if `batch_entry` is not empty."""
        batch = tuple([entry.entry() for entry in self.batch_entry])
        return PushEntryRequest(
            group=self.group,
            remote_id=self.remote_id,
            local_id=self.local_id,
            leader_id=self.leader_id,
            term=self.term,
            code=self.code,
            type=self.type,
            commit_index=self.commit_index,
            entry=self.entry.entry() if self.entry is not None else None,
            batch_entry=batch,
        )


class _Entries(GroupMessage, frozen=True, kw_only=True):
    """The answer to a GET request in JSON."""

    entries: list[_JsonEntry] = []

    def message(self) -> GetEntriesResponse:
        return GetEntriesResponse(
            group=self.group,
            remote_id=self.remote_id,
            local_id=self.local_id,
            leader_id=self.leader_id,
            term=self.term,
            code=self.code,
            entries=tuple([entry.entry() for entry in self.entries]),
        )


_MESSAGES: tuple[type[GroupMessage], ...] = (
    VoteRequest,
    VoteResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    PushEntryRequest,
    PushEntryResponse,
    MetadataRequest,
    MetadataResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    AppendEntryRequest,
    AppendEntryResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
# Classes for messages whose JSON has another shape than the core's message.
_SHAPES: dict[type[GroupMessage], type[Any]] = {
    PushEntryRequest: _Push,
    GetEntriesResponse: _Entries,
}
_STRICT = {cls: msgspec.json.Decoder(_SHAPES.get(cls, cls)).decode for cls in _MESSAGES}
# By message class, the pairs of JSON key and attribute, in the order in which upstream writes them.
_KEYS = {
    cls: sorted((field.encode_name.encode(), field.name) for field in msgspec.structs.fields(cls))
    for cls in _MESSAGES
}


def decode_body(cls: type[M], data: bytes | None) -> M:
    """
    Read a body. Unknown keys are ignored, missing keys get their defaults.

    :param data: the body; None or an empty one raises ProtocolViolation.
    :raises ProtocolViolation: the body is empty or not JSON, or a value is not of the kind that its
        key needs, or the body has more values than a push of 10,000 entries.
    """
    if not data:
        raise ProtocolViolation(f"a {cls.__name__} without a body")
    fastjson.check_values(data, fastjson.BODY_VALUES)
    try:
        decoded = _STRICT[cls](data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        decoded = _lenient(_SHAPES.get(cls, cls), cls.__name__, data)
    return decoded.message() if cls in _SHAPES else decoded  # type: ignore[no-any-return]


def _lenient(shape: type[Any], name: str, data: bytes) -> Any:
    """
    Read a body as fastjson does: its JSON dialect, numbers in strings, and null or an unknown name
    as "absent".

    :raises ProtocolViolation: fastjson could not read the body either.
    """
    value = fastjson.parse(data)
    if not isinstance(value, dict):
        raise ProtocolViolation(f"a {name} that is no JSON object: {data[:100]!r}")
    try:
        return msgspec.convert(_settle(value), shape, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolViolation(f"a {name} that cannot be read: {error}") from error


def _settle(value: dict[Any, Any]) -> dict[str, Any]:
    """Change the values that `msgspec.convert` would read differently from fastjson."""
    settled: dict[str, Any] = {}
    for key, member in value.items():
        if member is None or not isinstance(key, str):
            continue
        if key == "voteResult":
            member = _vote_result(member)
        elif key in ("entry", "batchEntry", "entries"):
            member = _settle_entries(member)
        elif isinstance(member, float) and member == member and abs(member) < _MAX:
            member = int(member)
        settled[key] = member
    return settled


def _settle_entries(value: Any) -> Any:
    if isinstance(value, list):
        return [_settle_entries(entry) for entry in value if entry is not None]
    return _settle(value) if isinstance(value, dict) else value


def _vote_result(value: Any) -> VoteResult:
    if isinstance(value, str):
        if value in VoteResult.__members__:
            return VoteResult(value)
        return _OTHER_SPELLINGS.get(value, VoteResult.UNKNOWN)
    return VoteResult.UNKNOWN
