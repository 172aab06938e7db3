"""Requests and answers of pop, as a Java broker 5.3.3 got and gave them.

Spec: pop.md, section 2.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.model.pop_topics import TopicKind, kind_of, original_topic, real_topic, retry_topic
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.pop_bodies import (
    AssignmentQuery,
    Assignments,
    BatchAck,
    RequestMode,
    RequestModeTable,
    decode_bit_set,
    encode_bit_set,
)
from rmq_ha.base.wire.pop_headers import (
    AckHeader,
    ChangeInvisibleAnswer,
    ChangeInvisibleHeader,
    NotificationAnswer,
    NotificationHeader,
    PeekHeader,
    PollingInfoAnswer,
    PollingInfoHeader,
    PopAnswerHeader,
    PopFields,
    PopHeader,
)
from rmq_ha.base.wire.pop_places import (
    PoppedOffsets,
    msg_offset_info,
    order_count_info,
    parse_msg_offsets,
    parse_order_counts,
    parse_start_offsets,
    start_offset_info,
)
from rmq_ha.base.wire.pop_receipt import PopReceipt

FIXTURES = Path(__file__).parents[3] / "fixtures" / "pop"
HEADERS: dict[int, tuple[type[PopFields], type[PopFields] | None]] = {
    RequestCode.POP_MESSAGE: (PopHeader, PopAnswerHeader),
    RequestCode.ACK_MESSAGE: (AckHeader, None),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (ChangeInvisibleHeader, ChangeInvisibleAnswer),
    RequestCode.PEEK_MESSAGE: (PeekHeader, PopAnswerHeader),
    RequestCode.NOTIFICATION: (NotificationHeader, NotificationAnswer),
    RequestCode.POLLING_INFO: (PollingInfoHeader, PollingInfoAnswer),
}


@cache
def recorded() -> list[dict[str, Any]]:
    """All requests with their answers, in order of time within each file."""
    return [
        item
        for path in sorted(FIXTURES.glob("pop-*.json"))
        for item in json.loads(path.read_text())
    ]


def with_code(code: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for item in recorded():
        if item["request"]["code"] == code and item["response"]:
            yield item["request"], item["response"]


def texts(fields: dict[str, Any]) -> dict[str, str]:
    """As they are sent: every value is text."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
    }


@pytest.mark.parametrize("code", HEADERS)
def test_headers_are_read_and_written_as_recorded(code: int) -> None:
    request_form, answer_form = HEADERS[code]
    seen = 0
    for request, response in with_code(code):
        fields = texts(request["extFields"])
        written = request_form.read(fields).ext()
        assert fields.items() <= written.items()
        if answer_form is not None:
            fields = texts(response["extFields"])
            assert answer_form.read(fields).ext() == fields
        seen += 1
    assert seen


def test_missing_and_wrong_numbers_are_refused_and_booleans_read_as_java_does() -> None:
    least = {"consumerGroup": "G", "topic": "T", "queueId": "-1"}
    assert not PopHeader.read(least | {"order": "yes"}).order
    assert PopHeader.read(least | {"order": "TRUE", "pollTime": ""}).order
    for wrong in ({"queueId": "x"}, {"bornTime": str(1 << 63)}, {"queueId": ""}):
        with pytest.raises(RequestRejected) as refused:
            PopHeader.read(least | wrong)
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(RequestRejected):
        AckHeader.read(None)


def test_receipts_are_read_and_written_as_recorded() -> None:
    found = [
        (request["extFields"]["extraInfo"], request["extFields"]["offset"])
        for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        for request, _ in with_code(code)
    ]
    sound = [text for text, _ in found if len(text.split(" ")) == 8]
    assert len(sound) > 20
    assert [PopReceipt.parse(text).encode() for text in sound] == sound
    assert any(PopReceipt.parse(text).is_orderly for text in sound)
    (short,) = {text for text, _ in found} - set(sound)
    with pytest.raises(RequestRejected, match="2 items"):
        PopReceipt.parse(short)


def test_receipts_of_the_proxy_and_of_old_clients() -> None:
    of_proxy = "0 1795883444356 10000 2 1 broker-p 0 7 16294"
    receipt = PopReceipt.parse(of_proxy)
    assert receipt == PopReceipt(
        0, 1795883444356, 10000, 2, TopicKind.RETRY, "broker-p", 0, 7, 16294
    )
    assert receipt.encode() == of_proxy
    assert PopReceipt.parse("0 1 10000 2 0 broker-p 3")[-3:] == (3, -1, None)
    assert PopReceipt.parse("0 1 10000 2 0 broker-p")[-3:] == (-1, -1, None)
    for wrong in (
        "a 1 10000 2 0 b 0 0",
        f"0 {1 << 63} 1 2 0 b 0 0",
        "0 1  2 0 b 0 0",
        "",
        "- 1 1 2 0 b",
    ):
        with pytest.raises(RequestRejected):
            PopReceipt.parse(wrong)


def test_places_in_answers_are_read_and_written_as_recorded() -> None:
    seen = 0
    for _, response in with_code(RequestCode.POP_MESSAGE):
        answer = PopAnswerHeader.read(texts(response["extFields"]))
        if not answer.start_offset_info or answer.msg_offset_info is None:
            continue
        starts = parse_start_offsets(answer.start_offset_info)
        offsets = parse_msg_offsets(answer.msg_offset_info)
        counts = parse_order_counts(answer.order_count_info or "")
        queues = [
            PoppedOffsets(
                *key,
                start,
                offsets[key],
                [counts.get((key[0], f"qo{key[1]}%{offset}"), 0) for offset in offsets[key]],
            )
            for key, start in starts.items()
        ]
        assert start_offset_info(queues) == answer.start_offset_info
        assert msg_offset_info(queues) == answer.msg_offset_info
        if answer.order_count_info:
            assert order_count_info(queues) == answer.order_count_info
        seen += 1
    assert seen > 15


def test_a_queue_that_comes_twice_and_entries_that_are_none() -> None:
    for text in ("0 1 0;0 1 0", "0 1", "0 x 0", "0 1 -1"):
        with pytest.raises(ProtocolViolation):
            parse_start_offsets(text)
    assert parse_msg_offsets("") == {}


def test_recorded_batch_acks() -> None:
    bodies = [request["body"] for request, _ in with_code(RequestCode.BATCH_ACK_MESSAGE)]
    first, empty = (BatchAck.decode(body.encode()) for body in bodies)
    (entry,) = first.acks
    assert (entry.consumer_group, entry.real_topic, entry.queue_id) == ("PopG3", "PopT3", 1)
    assert entry.offsets() == [0, 1]
    assert empty.acks == []
    assert BatchAck.decode(b'{"brokerName":"b","acks":null}').acks == []


def test_long_names_retry_kinds_and_bit_sets() -> None:
    data = {
        "consumerGroup": "G", "topic": "T", "retry": "1", "startOffset": 5, "queueId": 0,
        "reviveQueueId": 3, "popTime": 9, "invisibleTime": 8,
        "bitSet": encode_bit_set([0, 8, 31]),
    }  # fmt: skip
    (entry,) = BatchAck.decode(json.dumps({"acks": [data]}).encode()).acks
    assert entry.real_topic == "%RETRY%G_T"
    assert entry.offsets() == [5, 13, 36]
    assert decode_bit_set("Aw==") == [0, 1]
    for wrong in ({"b": "*"}, {"b": encode_bit_set([1 << 17])}):
        with pytest.raises(ProtocolViolation):
            BatchAck.decode(json.dumps({"acks": [wrong]}).encode())
    (entry,) = BatchAck.decode(b'{"acks":[{"r":"x"}]}').acks
    with pytest.raises(ProtocolViolation):
        _ = entry.real_topic
    full = {"b": encode_bit_set(range(60_000))}
    with pytest.raises(ProtocolViolation, match="20000"):
        BatchAck.decode(json.dumps({"acks": [full]}).encode())


def test_assignments_and_modes_are_read_and_written_as_recorded() -> None:
    answers = 0
    for request, response in with_code(RequestCode.QUERY_ASSIGNMENT):
        query = AssignmentQuery.decode(request["body"].encode())
        assert (query.client_id, query.message_model) == ("c1", "CLUSTERING")
        body = response["body"].encode()
        assert Assignments.decode(body).encode() == body
        answers += 1
    assert answers >= 4
    for request, _ in with_code(RequestCode.SET_MESSAGE_REQUEST_MODE):
        assert RequestMode.decode(request["body"].encode()).mode == "POP"
    ((_, response),) = with_code(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    body = response["body"].encode()
    table = RequestModeTable.decode(body)
    assert table.modes["JPush"]["JPushG"].pop_share_queue_num == 0
    assert json.loads(table.encode()) == json.loads(body)


def test_names_of_retry_topics() -> None:
    for v2, kind in ((False, TopicKind.RETRY), (True, TopicKind.RETRY_V2)):
        name = retry_topic("G", "T", v2=v2)
        assert kind_of(name) is kind
        assert real_topic("G", "T", kind) == name
        assert original_topic("G", name) == "T"
        assert original_topic("Other", name) == name
    assert kind_of("T") is TopicKind.NORMAL
    assert real_topic("G", "T", TopicKind.NORMAL) == original_topic("G", "T") == "T"
    assert original_topic("G", "%RETRY%G_") == "%RETRY%G_"
