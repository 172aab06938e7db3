"""Ledger lines from what the client's hooks see."""

import json
import zlib

from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import UNIQ_KEY
from rmq_ha.client.connection.hooks import SendContext
from rmq_ha.client.ledgers import delivered_lines, produced_lines
from rmq_ha.client.rules.messages import Message, MessageExt, MessageQueue, SendResult, SendStatus

QUEUE = MessageQueue("orders", "broker-a", 3)


def sent(result: SendResult | None) -> SendContext:
    messages = tuple(
        Message("orders", b"x", properties={UNIQ_KEY: f"K{n}", "customer": "7"}) for n in range(2)
    )
    return SendContext("p", messages, QUEUE, "127.0.0.1:10911", "c", 1_000, result)


def test_a_batch_that_is_stored_has_a_line_for_each_message() -> None:
    result = SendResult(SendStatus.FLUSH_SLAVE_TIMEOUT, "K0,K1", QUEUE, 40, "")
    lines = [json.loads(line) for line in produced_lines(sent(result), "customer")]
    assert lines == [
        {
            "topic": "orders",
            "msgId": f"K{n}",
            "sentAt": 1_000,
            "status": "FLUSH_SLAVE_TIMEOUT",
            "brokerName": "broker-a",
            "queueId": 3,
            "bodyCrc": zlib.crc32(b"x"),
            "queueOffset": 40 + n,
            "orderKey": "7",
        }
        for n in range(2)
    ]


def test_an_attempt_without_an_answer_is_written_down_as_such() -> None:
    lines = [json.loads(line) for line in produced_lines(sent(None))]
    assert [line["status"] for line in lines] == ["FAILED", "FAILED"]
    assert all("queueOffset" not in line and "orderKey" not in line for line in lines)


def test_a_delivery_names_group_and_place() -> None:
    address = Address.parse("127.0.0.1", 1)
    message = MessageExt(
        "orders", b"", {}, "broker-a", 3, 41, "K1", "off", 0, 1, address, 2, address, 9,
        reconsume_times=1,
    )  # fmt: skip
    (line,) = map(json.loads, delivered_lines("billing", [message], 5_000, "customer"))
    assert line == {
        "topic": "orders",
        "group": "billing",
        "msgId": "K1",
        "deliveredAt": 5_000,
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 41,
        "reconsumeTimes": 1,
        "bodyCrc": 0,
    }
