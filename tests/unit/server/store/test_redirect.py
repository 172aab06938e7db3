"""Where messages that ask for a delay go. Spec: store.md, section 10."""

from dataclasses import replace

import pytest

from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.server.store.delay.redirect import (
    asks_for_delay,
    redirect,
    redirect_delayed,
    stored_place,
)

HOST = Address(b"\x7f\0\0\1", 10911)


def delayed(level: str, topic: str = "T", sys_flag: int = 0) -> BrokerMessage:
    return BrokerMessage(
        topic, 7, b"", HOST, HOST, 1, sys_flag=sys_flag, properties={"DELAY": level}
    )


@pytest.mark.parametrize(
    ("level", "queue_id"), [("1", 0), ("2", 1), ("18", 17), ("19", 17), ("1000", 17)]
)
def test_a_delayed_message_is_stored_in_the_queue_of_its_level(level: str, queue_id: int) -> None:
    """The highest level there is for those above; as it is told beforehand, so it is done."""
    message = delayed(level)
    assert stored_place(message, 18) == (SCHEDULE_TOPIC, queue_id)
    (ready,) = redirect_delayed([message], 18)
    assert ready is not None
    assert (ready.topic, ready.queue_id) == (SCHEDULE_TOPIC, queue_id)
    assert ready.properties["REAL_QID"] == "7"


@pytest.mark.parametrize("level", ["0", "-1", "x"])
def test_what_asks_for_no_delay_stays(level: str) -> None:
    """Neither does what is no number; whoever stores it refuses it."""
    assert stored_place(delayed(level), 18) == ("T", 7)
    (ready,) = redirect_delayed([delayed(level)], 18)
    assert (ready is None) is (level == "x")


@pytest.mark.parametrize(("topic", "sys_flag"), [(HALF_TOPIC, 0), ("T", 4)])
def test_a_half_message_is_not_delayed_before_its_end(topic: str, sys_flag: int) -> None:
    """The delay counts from the commit."""
    assert stored_place(delayed("3", topic, sys_flag), 18) == (topic, 7)


@pytest.mark.parametrize(
    ("properties", "text", "asks"),
    [
        ({"DELAY": "1"}, "", True),
        ({}, "DELAY\x011\x02", True),
        ({"KEYS": "k"}, "DELAY\x011\x02", False),  # the dict counts where there is one
        ({"KEYS": "k"}, "KEYS\x01k\x02", False),
        ({}, "KEYS\x01k\x02", False),
        ({}, "", False),
    ],
)
def test_whether_a_message_asks_for_a_delay(message, properties, text, asks):
    plain = message()
    found = replace(message(), properties=properties, properties_string=text)
    assert asks_for_delay([plain, found]) is asks
    assert not asks_for_delay([plain])


@pytest.mark.parametrize(
    ("properties", "text"),
    [({"KEYS": "k"}, ""), ({}, "KEYS\x01k\x02"), ({"KEYS": "k"}, "A\x01b\x02")],
)
def test_a_delayed_message_keeps_its_properties(message, properties, text):
    asked = replace(message(), properties=properties, properties_string=text)
    found = redirect(asked, 2, 18)
    assert found.properties == {"KEYS": "k", "DELAY": "2", "REAL_TOPIC": "TopicA", "REAL_QID": "0"}
    assert decode_properties(found.properties_string) == found.properties
