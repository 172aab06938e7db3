"""Headers of sends: requests in their two forms, and the response.

Spec: remoting.md, sections 1.7, 4.1 and 4.2.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec import field

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.numbers import Int32, Int64
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import VERSION, RemotingCommand
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.base.wire.text import quote, to_bytes

V1_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})


class SendHeader(msgspec.Struct, gc=False, kw_only=True):
    """
    The ext fields of a send, by the short names of V2 (codes 310, 320, 325).

    :ivar queue_id: a negative one lets the broker pick a queue.
    :ivar born_timestamp: time of the send by the client's clock, ms.
    :ivar max_reconsume_times: None when the client did not say.
    :ivar batch: whether the body is a batch, whatever the code.
    """

    producer_group: str = field(name="a", default="")
    topic: str = field(name="b")
    default_topic: str = field(name="c", default="")
    default_topic_queue_nums: Int32 = field(name="d", default=0)
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f", default=0)
    born_timestamp: Int64 = field(name="g", default=0)
    flag: Int32 = field(name="h", default=0)
    properties: str = field(name="i", default="")
    reconsume_times: Int32 = field(name="j", default=0)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    batch: bool = field(name="m", default=False)
    broker_name: str | None = field(name="n", default=None)


class SendHeaderV1(SendHeader, gc=False, kw_only=True):
    """The ext fields of a send, by the long names of V1 (codes 10, 324)."""

    producer_group: str = field(name="producerGroup", default="")
    topic: str = field(name="topic")
    default_topic: str = field(name="defaultTopic", default="")
    default_topic_queue_nums: Int32 = field(name="defaultTopicQueueNums", default=0)
    queue_id: Int32 = field(name="queueId")
    sys_flag: Int32 = field(name="sysFlag", default=0)
    born_timestamp: Int64 = field(name="bornTimestamp", default=0)
    flag: Int32 = field(name="flag", default=0)
    properties: str = field(name="properties", default="")
    reconsume_times: Int32 = field(name="reconsumeTimes", default=0)
    unit_mode: bool = field(name="unitMode", default=False)
    max_reconsume_times: Int32 | None = field(name="maxReconsumeTimes", default=None)
    batch: bool = field(name="batch", default=False)
    broker_name: str | None = field(name="bname", default=None)


class _FastV2(msgspec.Struct, gc=False, kw_only=True):
    code: Int32
    ext: SendHeader = field(name="extFields")
    opaque: Int32
    flag: Int32 = 0
    version: Int32 = 0


class _FastV1(msgspec.Struct, gc=False, kw_only=True):
    code: Int32
    ext: SendHeaderV1 = field(name="extFields")
    opaque: Int32
    flag: Int32 = 0
    version: Int32 = 0


#: Straight from a JSON header to `code`, `opaque`, `flag`, `version` and `ext` (a `SendHeader`).
#: They raise one of `UNDECODABLE` for everything unusual, which then has to take the general way:
#: `decode_frame` and `decode_send_header`.
decode_fast_v2 = msgspec.json.Decoder(_FastV2, strict=False).decode
decode_fast_v1 = msgspec.json.Decoder(_FastV1, strict=False).decode
UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)

_BOOLEANS = {
    item.encode_name
    for form in (SendHeader, SendHeaderV1)
    for item in msgspec.structs.fields(form)
    if item.type is bool
}


def decode_send_header(command: RemotingCommand) -> SendHeader:
    """
    Return the typed header of a send request of either form.

    :raises RequestRejected: topic or queue id are missing, or a number cannot be read.
    """
    form = SendHeaderV1 if command.code in V1_CODES else SendHeader
    ext = command.ext or {}
    try:
        return msgspec.convert(ext, form, strict=False)
    except UNDECODABLE:
        return _decode_tolerant(ext, form)


def encode_send_header(header: SendHeader, *, v1: bool = False) -> dict[str, str]:
    """Return the ext fields of a send request, without absent ones."""
    return ext_fields(header, SendHeaderV1 if v1 else SendHeader)


@lru_cache(maxsize=64)
def answer_template(
    code: int, id_prefix: str, region: str = "DefaultRegion", trace_on: bool = True
) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """
    Return the header that answers a send whose message is stored, cut where its numbers go: queue
    id, physical offset (16 hexadecimal digits), queue offset, opaque.

    :param code: SUCCESS, or one of the codes for "stored, but": 10, 11, 12.
    :param id_prefix: beginning of the offsetMsgId, before the place in the log.
    """
    trace, place = b"true" if trace_on else b"false", to_bytes(quote(region))
    return (
        b'{"code":%d,"extFields":{"queueId":"' % code,
        b'","TRACE_ON":"%b","MSG_REGION":%b,"msgId":"%b' % (trace, place, id_prefix.encode()),
        b'","queueOffset":"',
        b'"},"flag":1,"language":"JAVA","opaque":',
        b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION,
    )


def _decode_tolerant(ext: Mapping[str, str], form: type[SendHeader]) -> SendHeader:
    """Decode with booleans as Java reads them: each text but `true` is false."""
    repaired = {
        name: (value.lower() == "true" if name in _BOOLEANS else value)
        for name, value in ext.items()
    }
    try:
        return msgspec.convert(repaired, form, strict=False)
    except UNDECODABLE as error:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"the request header cannot be read: {error}"
        ) from None
