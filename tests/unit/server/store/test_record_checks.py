"""What is taken for the message that a queue's unit stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.store_format.record_checks import (
    body_fits,
    is_of_topic,
    message_check,
    record_fits,
)

V4, V6 = Address.parse("10.0.0.1", 10911), Address.parse("2001:db8::1", 10911)
PLACE, NUMBER = 1 << 33, 7
HOSTS = [(born, store) for born in (V4, V6) for store in (V4, V6)]


def encoded(born=V4, store=V4, body=b"body", topic="TopicA", properties="K\x01v"):
    return encode_record(
        Record(0, 0, 3, 0, NUMBER, PLACE, 0, 1, born, 2, store, 0, 0, body, topic, properties)
    )


@pytest.mark.parametrize(("born", "store"), HOSTS)
@pytest.mark.parametrize("body", [b"", b"body"])
@pytest.mark.parametrize("properties", ["", "K\x01v"])
def test_the_message_itself(born, store, body, properties):
    data = encoded(born, store, body, properties=properties)
    assert message_check("TopicA", 3)(data, PLACE, len(data), NUMBER)
    assert record_fits(data, PLACE, len(data))
    assert body_fits(data)


@pytest.mark.parametrize(("born", "store"), HOSTS)
def test_the_topic_alone(born, store):
    """Of whole records; a name that is too long for any is none of theirs."""
    data = encoded(born, store, topic="T" * 127)
    assert is_of_topic(data, "T" * 127)
    for other in ("", "T", "T" * 126, "T" * 128, "U" * 127, "T" * 300):
        assert not is_of_topic(data, other)


@pytest.mark.parametrize(("born", "store"), HOSTS)
def test_anything_else(born, store):
    """Another queue, topic, number, place or size, or less than all of it."""
    data = encoded(born, store)
    size = len(data)
    fits = message_check("TopicA", 3)
    assert not message_check("TopicA", 4)(data, PLACE, size, NUMBER)
    assert not message_check("TopicB", 3)(data, PLACE, size, NUMBER)
    assert not message_check("TopicAA", 3)(data, PLACE, size, NUMBER)
    assert not message_check("Topic", 3)(data, PLACE, size, NUMBER)
    assert not fits(data, PLACE, size, NUMBER + 1)
    assert not fits(data, PLACE + 1, size, NUMBER)
    assert not fits(data, PLACE, size - 1, NUMBER)
    assert not fits(data[:-1], PLACE, size, NUMBER)
    assert not fits(b"", PLACE, size, NUMBER)


def test_a_body_of_more_than_16_mib():
    """All four bytes of its length count."""
    data = encoded(body=b"x" * (1 << 24))
    assert body_fits(data)
    assert is_of_topic(data, "TopicA")
    assert not body_fits(data[:-20] + b"?" + data[-19:])


@given(data=st.data())
def test_the_quick_judge_and_the_thorough_one_agree(data):
    """Over all single damaged bytes, up to the fields that only one of them knows."""
    sound = encoded(*data.draw(st.sampled_from(HOSTS)))
    at = data.draw(st.integers(0, len(sound) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = sound[:at] + bytes([sound[at] ^ flip]) + sound[at + 1 :]
    quick = message_check("TopicA", 3)(damaged, PLACE, len(sound), NUMBER)
    thorough = record_fits(damaged, PLACE, len(sound))
    assert not quick or thorough
    topic_at = sound.index(b"TopicA")
    if not (12 <= at < 16 or 20 <= at < 28 or topic_at <= at < topic_at + 6):
        assert quick == thorough


def test_a_light_queue_takes_any_record():
    """RocketMQ's multi dispatch: the record is another queue's."""
    data = encoded()
    fits = message_check("%LMQ%light", 0)
    assert fits(data, PLACE, len(data), 99)
    assert not fits(data, PLACE + 1, len(data), 99)
