"""Which record a message with a timer becomes. Spec: timer.md, sections 3, 4 and 13.1."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.model.unserved_properties import asks_for_timer
from rmq_ha.server.store.timer.request import (
    RESERVE,
    asked_due,
    drop_written_by_brokers,
    has_room,
    recall_record,
    waiting_record,
)

NOW = 1_795_883_376_243
RECORDS = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "timer" / "records.json").read_text()
)
HOST = Address(bytes([127, 0, 0, 1]), 10911)
OF_JAVA_5 = {"MSG_REGION", "TRACE_ON", "WAIT", "TRACE_CONTEXT"}
"""Properties that RocketMQ 5 stores in all messages, and 4.9 in none."""


def java_record(name: str) -> dict[str, Any]:
    (record,) = [item for item in RECORDS if item["name"] == name]
    found: dict[str, Any] = record
    return found


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({"TIMER_DELAY_SEC": "5"}, NOW + 5000),
        ({"TIMER_DELAY_SEC": "+5"}, NOW + 5000),
        ({"TIMER_DELAY_SEC": "-5"}, NOW - 5000),
        ({"TIMER_DELAY_MS": "5300"}, NOW + 5300),
        ({"TIMER_DELIVER_MS": "1795883381743"}, 1795883381743),
        ({"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "7"}, NOW + 3000),
        ({"TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "7"}, NOW + 9),
        ({"TIMER_DELAY_SEC": "abc"}, None),
        ({"TIMER_DELAY_SEC": "1.5"}, None),
        ({"TIMER_DELAY_SEC": " 5"}, None),
        ({"TIMER_DELAY_SEC": "5_0"}, None),
        ({"TIMER_DELAY_SEC": "9223372036854775"}, None),
        ({"TIMER_DELIVER_MS": "9223372036854775807"}, 9223372036854775807),
        ({"TIMER_DELIVER_MS": "9223372036854775808"}, None),
        ({"TIMER_DELAY_MS": "9" * 5000}, None),
    ],
)
def test_the_due_time(properties: dict[str, str], due: int | None) -> None:
    """Seconds win over ms, and both over a time. A time that would wrap around is no time."""
    assert asks_for_timer(properties)
    assert asked_due(properties, NOW) == due


@pytest.mark.parametrize("level", ["1", "18", "+3", " 2"])
def test_a_level_wins(level: str) -> None:
    properties = {"DELAY": level, "TIMER_DELAY_SEC": "60", "KEYS": "k"}
    assert not asks_for_timer(properties)
    drop_written_by_brokers(properties)
    assert properties == {"DELAY": level, "KEYS": "k"}


@pytest.mark.parametrize("level", ["0", "-1", "x"])
def test_no_level_does_not_win(level: str) -> None:
    assert asks_for_timer({"DELAY": level, "TIMER_DELAY_SEC": "60"})


def test_a_message_that_is_sent_on_asks_anew() -> None:
    """It has the properties of its own delivery, and RocketMQ delivers it at once."""
    received = java_record("D: of the one at 206")["props"]
    drop_written_by_brokers(received)
    assert set(received) == {"TIMER_DELAY_SEC", "UNIQ_KEY", "CLUSTER"} | OF_JAVA_5 - {
        "TRACE_CONTEXT"
    }
    assert asks_for_timer(received)


def test_tags_of_brokers_stay_in_messages_without_a_timer() -> None:
    """Only TIMER_SRC goes, since it would settle a waiting message."""
    properties = {"TIMER_OUT_MS": "1", "REAL_TOPIC": "T", "TIMER_SRC": "1-1"}
    drop_written_by_brokers(properties)
    assert properties == {"TIMER_OUT_MS": "1", "REAL_TOPIC": "T"}


@pytest.mark.parametrize(
    "name",
    [
        "T: TIMER_DELAY_SEC=5",
        "T: TIMER_DELAY_MS=5300",
        "T: TIMER_DELIVER_MS at a whole second (OUT is one second earlier)",
        "T: to a retry topic (no recall handle)",
    ],
)
def test_a_waiting_record_is_as_javas(name: str) -> None:
    """But for TIMER_OUT_MS, which is exact here, and for what only RocketMQ 5 stores."""
    of_java = java_record(name)
    props = {name: text for name, text in of_java["props"].items() if name not in OF_JAVA_5}
    own = dict(props)
    topic, queue_id = own.pop("REAL_TOPIC"), int(own.pop("REAL_QID"))
    del own["TIMER_OUT_MS"]
    message = BrokerMessage(topic, queue_id, b"x", HOST, HOST, properties={**own, "WAIT": "true"})
    due = asked_due(own, of_java["stored"])
    assert due is not None
    record = waiting_record(message, due)
    assert (record.topic, record.queue_id) == (of_java["topic"], of_java["queueId"])
    stored = decode_properties(record.properties_string)
    out = int(stored["TIMER_OUT_MS"])
    assert 0 < due - out <= 1 or due % 100 == 1
    assert out % 100  # so nobody takes it for a record of Java
    assert stored == {**props, "TIMER_OUT_MS": str(out)}


def test_a_recall_is_as_javas() -> None:
    of_java = java_record("R: delete mark of 370")
    props = {name: text for name, text in of_java["props"].items() if name != "TRACE_CONTEXT"}
    record = recall_record(
        "TT",
        props["UNIQ_KEY"],
        int(props["TIMER_OUT_MS"]),
        now_ms=of_java["born"],
        born=HOST,
        store=HOST,
        group="G",
        source="7887-9",
    )
    assert (record.topic, record.queue_id, record.body) == ("rmq_sys_wheel_timer", 0, b"0")
    stored = decode_properties(record.properties_string)
    assert stored == {**props, "TIMER_SRC": "7887-9"}
    bare = recall_record("TT", "K", 1, now_ms=1, born=HOST, store=HOST, with_topic=False)
    assert bare.properties["TIMER_DEL_UNIQKEY"] == "K"


def test_a_delivery_has_room_for_its_properties() -> None:
    """It has more of them than the waiting record, and could not be stored otherwise."""
    assert has_room("x" * (32767 - RESERVE))
    assert not has_room("x" * (32768 - RESERVE))
    assert not has_room("ü" * 16384)
