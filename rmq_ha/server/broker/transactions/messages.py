"""Makes the messages and requests that settle half messages, from their records.

A copy of a half message is a half message with its own offsets, which the producer's answer names.

Spec: store.md, section 11; remoting.md, section 7.10.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rmq_ha.base.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK
from rmq_ha.base.model.message import Address, AppendResult, BrokerMessage
from rmq_ha.base.model.properties import (
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.server.broker.transactions.verdict import number_of
from rmq_ha.server.door import HalfMessage
from rmq_ha.server.store.delay.copies import copy_of, real_place

GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose consumer offsets are the progress in half and op queues."""

_DONE_TAG = "d"
_MOVED = "TRAN_MOVED"


class OpMark(NamedTuple):
    """
    The content of an op message.

    :ivar op_offset: queue offset of the op message itself.
    :ivar half_offset: queue offset of the half message that needs no more checks.
    :ivar is_moved: whether the broker replaced the half message by a copy; otherwise its producer
        ended it.
    :ivar stored_ms: store time of the op message, ms since the epoch.
    """

    op_offset: int
    half_offset: int
    is_moved: bool
    stored_ms: int


def read_mark(op: Record) -> OpMark:
    """
    Return the content of a record of the op topic.

    If it cannot be read, `half_offset` is -1, and the record settles nothing.
    """
    properties = op.properties
    offset = -1
    if properties.get(TAGS) == _DONE_TAG:
        offset = number_of(op.body.decode("ascii", "replace"))
    return OpMark(op.queue_offset, offset, _MOVED in properties, op.store_timestamp)


def op_mark(half: Record, host: Address, now_ms: int, *, is_moved: bool = False) -> BrokerMessage:
    """
    Return the op message that says that a half message is settled.

    :param host: this broker's address.
    :param is_moved: whether a copy of the half message is in the log. The op message then has a
        mark, which RocketMQ does not know: it reads the op message like any other.
    """
    properties = {WAIT: "true", TAGS: _DONE_TAG}
    if is_moved:
        properties[_MOVED] = "true"
    return BrokerMessage(
        OP_HALF_TOPIC,
        half.queue_id,
        str(half.queue_offset).encode("ascii"),
        host,
        host,
        now_ms,
        properties={TAGS: _DONE_TAG},
        properties_string=encode_properties(properties),
        wait_store_ok=False,
    )


def committed(half: Record) -> BrokerMessage:
    """
    Return the message for its real topic; its stored properties are the half message's, as in
    RocketMQ.

    :raises CorruptRecord: it does not name its real topic and queue.
    """
    properties = half.properties
    topic, queue_id = real_place(properties)
    for name in (REAL_TOPIC, REAL_QID, TRAN_MSG):
        properties.pop(name, None)
    message = copy_of(half, topic, queue_id, properties, half.properties_string)
    message.sys_flag = (half.sys_flag & ~TRANSACTION_MASK) | TRANSACTION_COMMIT
    message.prepared_transaction_offset = half.physical_offset
    return message


def put_back(half: Record, changes: Mapping[str, str]) -> BrokerMessage:
    """Return a copy of the half message with other properties; the copy is checked from now on."""
    properties = {**half.properties, **changes}
    return copy_of(half, HALF_TOPIC, half.queue_id, properties, encode_properties(properties))


def discarded(half: Record) -> BrokerMessage:
    """Return the half message for the topic of half messages that nobody settled, for operators."""
    return copy_of(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, half.properties, half.properties_string)


def half_message(copy: BrokerMessage, append: AppendResult, stored_ms: int) -> HalfMessage:
    """
    Return what the gRPC door tells a producer when it asks about the producer's transaction.

    The parameters and the error are those of `check_request`.
    """
    properties = decode_properties(copy.properties_string)
    topic, queue_id = real_place(properties)
    return HalfMessage(
        topic,
        queue_id,
        copy.body,
        copy.sys_flag,
        properties,
        copy.born_timestamp,
        copy.born_host,
        copy.store_host,
        stored_ms,
        append.physical_offset,
        append.queue_offset,
    )


def check_request(copy: BrokerMessage, append: AppendResult, stored_ms: int) -> RemotingCommand:
    """
    Return CHECK_TRANSACTION_STATE, which asks a producer about its transaction.

    :param copy: the half message as it was put back.
    :param append: its place now, which the producer's answer names.
    :param stored_ms: store time of the half message that it replaces, ms.
    :raises CorruptRecord: it does not name its real topic and queue.
    """
    properties = decode_properties(copy.properties_string)
    topic, queue_id = real_place(properties)
    properties[WAIT] = "false"
    # The order of the fields is Java's. Both `msgId` and `transactionId` are the unique key.
    ext = {"commitLogOffset": str(append.physical_offset)}
    unique_key = properties.get(UNIQ_KEY)
    if unique_key is not None:
        ext["msgId"] = unique_key
    ext["tranStateTableOffset"] = str(append.queue_offset)
    ext["offsetMsgId"] = append.msg_id
    if unique_key is not None:
        ext["transactionId"] = unique_key
    record = Record(
        size=0,
        body_crc=0,
        queue_id=queue_id,
        flag=copy.flag,
        queue_offset=append.queue_offset,
        physical_offset=append.physical_offset,
        sys_flag=copy.sys_flag,
        born_timestamp=copy.born_timestamp,
        born_host=copy.born_host,
        store_timestamp=stored_ms,
        store_host=copy.store_host,
        reconsume_times=copy.reconsume_times,
        prepared_transaction_offset=0,
        body=copy.body,
        topic=topic,
        properties_string=encode_properties(properties),
    )
    return RemotingCommand(
        RequestCode.CHECK_TRANSACTION_STATE, ext, encode_record(record), flag=FLAG_ONEWAY
    )
