"""Receipts that a client builds from the answers to pops, and requests that carry them.

Spec: pop.md, sections 2.2 to 2.6.
"""

from typing import Any

import pytest

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import POP_CK
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import BatchAck
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.client.lookup.pops import (
    ALL_QUEUES,
    Pop,
    batch_ack_request,
    changed_receipt,
    lease_of,
    pop_request,
    read_popped,
)
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import MessageExt

ALL = SubscriptionData.for_tags("T", "*")
POP = Pop("T", "broker-p", ALL_QUEUES, ALL, 32, 10_000, 15_000, False)
EXT = {"popTime": "1795883444356", "invisibleTime": "10000", "reviveQid": "2", "restNum": "0"}


def record(queue_id: int, offset: int, properties: str = "", topic: str = "T") -> bytes:
    here = Address(bytes((10, 0, 0, 1)), 10911)
    fields = (0, 1, queue_id, 0, offset, 900 + offset, 0, 5, here, 6, here, 0, 0, b"x", topic)
    return encode_record(Record(*fields, properties))


def answer(starts: str, offsets: str, *records: bytes, **more: str) -> RemotingCommand:
    ext = {**EXT, "startOffsetInfo": starts, "msgOffsetInfo": offsets, **more}
    return RemotingCommand(0, ext, b"".join(records))


def read(response: RemotingCommand) -> list[MessageExt]:
    return read_popped(response, "G", POP, "b:1").messages


def receipts(messages: list[MessageExt]) -> list[str]:
    return [message.properties[POP_CK] for message in messages]


def test_receipts_are_those_of_the_java_client() -> None:
    response = answer("0 1 0;0 0 8", "0 1 0,2;0 0 8", record(1, 2), record(0, 8), record(1, 0))
    assert receipts(read(response)) == [
        "0 1795883444356 10000 2 0 broker-p 1 2",
        "8 1795883444356 10000 2 0 broker-p 0 8",
        "0 1795883444356 10000 2 0 broker-p 1 0",
    ]


def test_a_retried_message_keeps_the_receipt_that_its_broker_wrote() -> None:
    written = "5 1795883444356 10000 2 1 broker-p 0 6"
    ours, v2 = read(
        answer(
            "1 0 5;2 0 1",
            "1 0 6;2 0 1",
            record(0, 6, f"POP_CK\1{written}\2"),
            record(0, 1, topic="%RETRY%G+T"),
        )
    )
    assert receipts([ours, v2]) == [written, "1 1795883444356 10000 2 2 broker-p 0 1"]
    assert [ours.topic, v2.topic] == ["T", "T"]
    topics = [lease.topic for message in (ours, v2) if (lease := lease_of(message, "G", "T"))]
    assert topics == ["%RETRY%G_T", "%RETRY%G+T"]


def test_a_receipt_that_was_forwarded_with_its_message_is_replaced() -> None:
    (message,) = read(answer("0 0 1", "0 0 1", record(0, 1, "POP_CK\x010 7 10000 2 0 other 0 1\2")))
    assert receipts([message]) == ["1 1795883444356 10000 2 0 broker-p 0 1"]


def test_ordered_messages_say_how_often_they_came() -> None:
    response = answer(
        "0 0 2", "0 0 2,3", record(0, 2), record(0, 3), orderCountInfo="0 qo0%2 2;0 0 1"
    )
    assert [message.reconsume_times for message in read(response)] == [2, 1]


@pytest.mark.parametrize(
    ("starts", "offsets"), [("0 0 1;0 0 1", "0 0 1"), ("0 1 1", "0 0 1"), ("0 0 1", "0 0 1,2")]
)
def test_an_answer_that_does_not_fit_its_messages_is_an_error(starts: str, offsets: str) -> None:
    with pytest.raises(ProtocolViolation):
        read(answer(starts, offsets, record(0, 1)))


def test_codes_say_whether_a_broker_has_nothing_is_full_or_refuses() -> None:
    for code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
        assert read_popped(RemotingCommand(code), "G", POP, "b:1") == ([], False)
    full = read_popped(RemotingCommand(ResponseCode.POLLING_FULL), "G", POP, "b:1")
    assert full.is_full
    with pytest.raises(BrokerRefused) as told:
        read(RemotingCommand(ResponseCode.SYSTEM_BUSY))
    assert told.value.retriable


def test_requests_carry_the_fields_of_java() -> None:
    ordered: dict[str, Any] = pop_request("G", POP, 17).ext or {}
    assert ordered == {
        "consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "10000", "pollTime": "15000", "bornTime": "17", "initMode": "0",
        "expType": "TAG", "exp": "*", "order": "false", "bname": "broker-p",
    }  # fmt: skip


def test_a_batch_has_one_entry_for_each_pop_of_a_queue() -> None:
    one = PopReceipt(8, 17, 1000, 2, 0, "broker-p", 1, 8)
    retried = one._replace(kind=1, queue_id=0)
    leases = [("T", one), ("T", one._replace(offset=17)), ("T", retried)]
    batch = BatchAck.decode(batch_ack_request("G", "broker-p", leases).body or b"")
    assert batch.broker_name == "broker-p"
    assert [(entry.real_topic, entry.queue_id, entry.offsets()) for entry in batch.acks] == [
        ("T", 1, [8, 17]),
        ("%RETRY%G_T", 0, [8]),
    ]


def test_a_change_gives_a_receipt_that_begins_at_its_message() -> None:
    ext = {"popTime": "99", "invisibleTime": "5000", "reviveQid": "3"}
    receipt = PopReceipt(5, 17, 1000, 2, 0, "broker-p", 1, 8, 912)
    assert (
        changed_receipt(RemotingCommand(0, ext), receipt).encode() == "8 99 5000 3 0 broker-p 1 8"
    )
