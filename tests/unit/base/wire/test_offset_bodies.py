"""Bodies about offsets, byte for byte as RocketMQ 4.9.7 writes them. Spec: remoting.md, app. B."""

import json
import re
from pathlib import Path

from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import MessageQueue, decode_queue_table
from rmq_ha.base.wire.offset_bodies import (
    ConsumeQueueBody,
    ConsumerStatusBody,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueEntry,
    QueueTimeSpan,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)

VECTORS = Path(__file__).parents[3] / "vectors" / "remoting"
GOLDEN = {
    name: text.encode() for name, text in json.loads((VECTORS / "relays.json").read_text()).items()
}


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", queue_id)


def _pieces(body: bytes) -> tuple[int, list[bytes]]:
    """Without the order of queues, which in Java is that of a hash."""
    return len(body), sorted(re.findall(rb'\{"brokerName[^}]*\}:\d+', body))


def test_reset_offsets() -> None:
    """Compact, with bare object keys: the Go client splits this text."""
    table = {queue(1): 1, queue(0): 3}
    body = ResetOffsetBody(table).encode()
    assert _pieces(body) == _pieces(GOLDEN["reset_body"])
    assert decode_queue_table(body) == table


def test_reset_offsets_as_a_list() -> None:
    body = ResetOffsetBodyForC.from_table({queue(1): 0, queue(0): 0}).encode()
    assert body == GOLDEN["reset_list_body"]


def test_consumer_status() -> None:
    body = ConsumerStatusBody({"c1": {queue(0): 5}}).encode()
    assert body == GOLDEN["status_body"]
    assert ConsumerStatusBody({}).encode() == GOLDEN["status_body_of_nobody"]


def test_time_spans() -> None:
    """The texts are local time, as the Java broker's are."""
    spans = [
        QueueTimeSpan(queue(0), 1795276829820, 1795276830026, 1795276829820, 12344),
        QueueTimeSpan(queue(1), 1795276830029, 1795276830029, 1795276830029, 0),
    ]
    ours = fastjson.parse(ConsumeTimeSpans(spans).encode())
    golden = fastjson.parse(GOLDEN["time_span_body"])
    for mine, theirs in zip(ours["consumeTimeSpanSet"], golden["consumeTimeSpanSet"], strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in theirs.items():
            if name.endswith("Str"):
                assert len(mine[name]) == len(value)
                assert mine[name][-6:] == value[-6:]  # seconds and ms are the same everywhere
            else:
                assert mine[name] == value


def test_a_queue_without_messages_has_times() -> None:
    """-1 is a moment before 1970, also as text."""
    span = QueueTimeSpan(queue(0), -1, -1, -1, 0)
    assert span.min_time_stamp_str.endswith(":59:999")


def test_a_time_that_no_calendar_has_is_said_as_it_is() -> None:
    span = QueueTimeSpan(queue(0), -1, 1 << 61, -1, 0)
    assert span.max_time_stamp_str == str(1 << 61)


def test_correction_offsets() -> None:
    assert CorrectionOffsets({0: 1, 1: 1}).encode() == GOLDEN["correction_body"]


def test_consume_queue() -> None:
    entries = [QueueEntry(119, 119, 65), QueueEntry(238, 119, 65)]
    body = ConsumeQueueBody(0, 3, entries)
    assert body.encode() == GOLDEN["queue_body"]
    subscription = SubscriptionData.for_tags("T", "*", 1)
    body = ConsumeQueueBody(0, 3, entries[:1], subscription, "null")
    assert body.encode() == GOLDEN["queue_body_with_group"]


def test_an_entry_with_an_extension_is_told_as_java_tells_it() -> None:
    """What 4.9.7 makes of such units."""
    unit = ExtensionUnit(-5, 1234567, bytes([1, 0x82, 3, 0]))
    entry = QueueEntry(119, 119, -(1 << 63)).add_extension(unit, is_wanted=True)
    assert entry.extension == (
        '{"filterBitMap":"AYIDAA==","msgStoreTime":1234567,"size":24,"tagsCode":-5}'
    )
    assert entry.bit_map == "00000000000000111000001000000001\n"
    assert entry.is_wanted
    entry = QueueEntry(119, 119, 0).add_extension(ExtensionUnit(7, 1, None), is_wanted=False)
    assert entry.extension == '{"msgStoreTime":1,"size":20,"tagsCode":7}'
    assert entry.bit_map is None
    bits = bytearray(20)
    bits[19], bits[8] = 5, 1
    entry = QueueEntry(0, 0, 0).add_extension(ExtensionUnit(7, 1, bytes(bits)), is_wanted=False)
    assert entry.bit_map == f"{5:08b}{0:024b}\n{1:064b}\n{0:064b}\n"
