"""Large requests are looked at before protobuf makes objects of them."""

import pytest

pytest.importorskip("google.protobuf")

from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.shape import MOST_FIELDS, MOST_TEXT, shape_fault
from tests.kits.grpc_attacks import field

SEND = "SendMessageRequest"


def large(count: int) -> bytes:
    request = messages.SendMessageRequest()
    for number in range(count):
        message = request.messages.add(body=b"b" * 4000)
        message.topic.name = "T"
        message.user_properties["colour"] = "red"
        message.system_properties.keys.extend(["k1", "k2"])
        message.system_properties.message_id = f"A{number}"
        message.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
        message.system_properties.message_type = 1
    packed: bytes = request.SerializeToString()
    return packed


def test_an_honest_batch_is_taken() -> None:
    assert shape_fault(SEND, large(1000)) == ""


def test_as_many_fields_as_are_allowed() -> None:
    assert shape_fault(SEND, field(1, b"") * MOST_FIELDS) == ""
    assert "20000 fields" in shape_fault(SEND, field(1, b"") * (MOST_FIELDS + 1))


@pytest.mark.parametrize("inside", [3, 2])
def test_fields_of_inner_messages_count(inside: int) -> None:
    payload = field(1, field(inside, field(2, b"") * MOST_FIELDS))
    assert "fields" in shape_fault(SEND, payload)


def test_fields_that_nobody_knows_count() -> None:
    assert "fields" in shape_fault(SEND, b"\x78\x00" * (MOST_FIELDS + 1))


def test_texts_have_a_limit_and_bodies_do_not() -> None:
    assert shape_fault(SEND, field(1, field(4, b"x" * (1 << 20)))) == ""
    topic = field(1, field(1, field(2, b"x" * (MOST_TEXT + 1))))
    assert shape_fault(SEND, topic) == "a text of 65537 bytes; 65536 are the most"
    assert shape_fault(SEND, field(1, field(1, field(2, b"x" * MOST_TEXT)))) == ""


def test_the_threads_of_a_client_may_be_a_long_text() -> None:
    command = messages.TelemetryCommand()
    command.thread_stack_trace.thread_stack_trace = "at java.lang.Thread\n" * 20_000
    assert shape_fault("TelemetryCommand", command.SerializeToString()) == ""


def test_groups_of_fields_are_refused() -> None:
    assert "groups" in shape_fault(SEND, b"\x7b\x7c")


@pytest.mark.parametrize(
    "payload", [b"\x0a", b"\x0a\xff", b"\x0a\x05ab", b"\x08" + b"\xff" * 11, b"\x0d\x01"]
)
def test_bytes_that_protobuf_refuses_are_left_to_it(payload: bytes) -> None:
    assert shape_fault(SEND, payload) == ""
    with pytest.raises(Exception, match="parsing"):
        messages.SendMessageRequest.FromString(payload)
