"""Frames of sends, property strings in Java's order, batches."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.properties import UNIQ_KEY, decode_properties
from rmq_ha.base.wire.batch import read_batch
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY
from rmq_ha.base.wire.frame import FrameReader, decode_frame
from rmq_ha.base.wire.send_header import decode_fast_v2, decode_send_header
from rmq_ha.client.rules import send_frames
from rmq_ha.client.rules.batches import check_batch, split
from rmq_ha.client.rules.errors import IllegalMessage
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.send_frames import (
    Destination,
    Outgoing,
    java_map_order,
    properties_text,
    send_command,
)

TEXTS = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1
)


@settings(deadline=None)
@given(
    st.sampled_from([RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]),
    TEXTS,
    TEXTS,
    st.integers(-1, 2**31 - 1),
    st.dictionaries(TEXTS, TEXTS, max_size=20),
    st.binary(max_size=100),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 100)),
)
def test_the_fast_frame_is_the_plain_one(
    code: int,
    group: str,
    broker: str,
    queue_id: int,
    properties: dict[str, str],
    body: bytes,
    oneway: bool,
    most: int | None,
) -> None:
    """Template or command: a broker reads the same."""
    to = Destination(code, group, "T%s", broker, "TBW102", 4, False)
    outgoing = Outgoing(0x301, -5, properties_text(properties), body, 3, most)
    frame = to.frame(queue_id, outgoing, 1_700_000_000_000, 77, oneway=oneway)
    (cut,) = FrameReader().receive_data(frame)
    fast = decode_fast_v2(cut[1])
    command = decode_frame(*cut)
    plain = send_command(to, queue_id, outgoing, 1_700_000_000_000)
    plain.opaque, plain.flag = 77, FLAG_ONEWAY if oneway else 0
    assert command == plain
    assert fast.ext == decode_send_header(plain)
    assert decode_properties(fast.ext.properties) == properties


@settings(deadline=None)
@given(st.dictionaries(TEXTS, TEXTS, max_size=40))
def test_properties_keep_their_values(properties: dict[str, str]) -> None:
    """Only the order is Java's."""
    assert decode_properties(properties_text(properties)) == properties


@pytest.mark.parametrize(
    "properties",
    [{"a": ""}, {"": "a"}, {"a": "b\x01"}, {"a\x02": "b"}, {"a": "x" * 40_000}, {"a": "\x02"}],
)
def test_properties_that_would_not_arrive(properties: dict[str, str]) -> None:
    """They are refused, with the reason."""
    with pytest.raises(IllegalMessage):
        properties_text(properties)


def test_java_map_order() -> None:
    """What a Java 17 HashMap printed for these names (it grows once, with the 13th)."""
    assert java_map_order(tuple(f"name-{n}" for n in range(12))) == [
        *("name-1", "name-11", "name-0", "name-10"),
        *(f"name-{n}" for n in range(9, 1, -1)),
    ]
    assert java_map_order(tuple(f"name-{n}" for n in range(13))) == [
        *("name-11", "name-12", "name-10"),
        *(f"name-{n}" for n in range(9, -1, -1)),
    ]
    assert java_map_order(("KEYS", "UNIQ_KEY", "WAIT", "TAGS")) == [
        "KEYS",
        "UNIQ_KEY",
        "WAIT",
        "TAGS",
    ]
    assert java_map_order(tuple(f"name-{n}" for n in range(14))) == [
        *("name-11", "name-12", "name-10", "name-13"),
        *(f"name-{n}" for n in range(9, -1, -1)),
    ]


def made(count: int, size: int) -> list[Message]:
    messages = [Message("T", bytes([n % 256]) * size, f"tag{n}") for n in range(count)]
    for n, message in enumerate(messages):
        message.properties[UNIQ_KEY] = f"{n:032X}"
    return messages


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 200), st.integers(300, 2000))
def test_split_keeps_order_and_size(count: int, size: int, most: int) -> None:
    """All messages, in order, in parts of the allowed size; a part is as full as it can be."""
    messages = made(count, size)
    parts = split(messages, most)
    assert all(len(part.body) <= most for part in parts)
    members = [member for part in parts for member in read_batch(part.body)]
    assert [body for _, body, _ in members] == [message.body for message in messages]
    assert [decode_properties(text) for _, _, text in members] == [
        message.properties for message in messages
    ]
    assert ",".join(part.message_ids for part in parts).split(",") == [
        message.unique_id for message in messages
    ]
    assert sum(part.length for part in parts) == count
    for part, following in itertools.pairwise(parts):
        first = next(read_batch(following.body))
        assert len(part.body) + 22 + len(first[1]) + len(first[2].encode()) > most


def test_properties_that_are_too_long_in_bytes_are_no_batch() -> None:
    """Their length has 16 bits; a text of so many characters may have three times as many bytes."""
    message = Message("T", b"x", properties={"name": "\u4e2d" * 20_000, UNIQ_KEY: "1"})
    with pytest.raises(IllegalMessage, match="60026 bytes"):
        split([message], 4 << 20)


@pytest.mark.parametrize(("waits", "text"), [(True, "true"), (False, "false")])
def test_a_batch_that_need_not_wait_for_disk_and_slave_says_so(waits: bool, text: str) -> None:
    messages = [Message("T", b"x", wait_store_msg_ok=waits, properties={UNIQ_KEY: "1"})]
    (part,) = split(messages, 1000)
    assert decode_properties(part.properties) == {"WAIT": text}


def test_one_message_may_fill_a_batch() -> None:
    messages = made(2, 100)
    (longest,) = {len(split([message], 1000)[0].body) for message in messages}
    assert len(split(messages, longest)) == 2
    with pytest.raises(IllegalMessage, match=f"takes {longest} bytes"):
        split(messages, longest - 1)


def test_a_frame_is_as_long_as_a_broker_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    to = Destination(RequestCode.SEND_MESSAGE_V2, "g", "T", "a", "TBW102", 4, False)

    def frame() -> bytes:
        return to.frame(0, Outgoing(0, 0, "", b"x" * 100), 0, 7)

    longest = len(frame())
    monkeypatch.setattr(send_frames, "MAX_FRAME_SIZE", longest)
    assert len(frame()) == longest
    monkeypatch.setattr(send_frames, "MAX_FRAME_SIZE", longest - 1)
    with pytest.raises(ProtocolViolation, match="cannot be sent"):
        frame()


def test_what_is_no_batch() -> None:
    """Java's own rules."""
    with pytest.raises(IllegalMessage, match="without messages"):
        check_batch([])
    with pytest.raises(IllegalMessage, match="one topic"):
        check_batch([Message("T", b"x"), Message("U", b"x")])
    with pytest.raises(IllegalMessage, match="delayed"):
        check_batch([Message("T", b"x", delay_time_level=1)])
    with pytest.raises(IllegalMessage, match="retry"):
        check_batch([Message("%RETRY%g", b"x")])
    with pytest.raises(IllegalMessage, match="wait_store_msg_ok"):
        check_batch([Message("T", b"x"), Message("T", b"x", wait_store_msg_ok=False)])
    with pytest.raises(IllegalMessage, match="at most"):
        split(made(1, 500), 300)
