"""What clients of the gRPC port write into headers, ids, messages and bodies."""

from google.protobuf.message import DecodeError

from rmq_ha.base.model.attributes import format_changes, parse_changes, with_changes
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.server.door import HalfMessage
from rmq_ha.server.grpc.front.callers import identity_of, signature_of
from rmq_ha.server.grpc.front.deliveries import half_message
from rmq_ha.server.grpc.front.limits import FrontSettings
from rmq_ha.server.grpc.front.names import group_of, topic_of
from rmq_ha.server.grpc.front.refusals import FrontRefusal
from rmq_ha.server.grpc.front.sends import MessageChecks
from rmq_ha.server.grpc.front.transactions import parse_transaction_id
from rmq_ha.server.grpc.wire import messages
from tests.fuzz.target import target

HOST = Address.parse("10.0.0.1", 1)
SIGNED = (
    b"MQv2-HMAC-SHA1 Credential=key/region/service, SignedHeaders=x-mq-date-time, Signature=0aFF"
)


def request() -> bytes:
    """A message with most of what it can have."""
    message = messages.Message(body=b"body")
    message.topic.name = "T"
    message.user_properties["colour"] = "red"
    system = message.system_properties
    system.message_id, system.tag, system.message_group = "01", "t", "g"
    system.keys.append("k")
    system.born_timestamp.seconds = system.delivery_timestamp.seconds = 1_800_000_000
    system.orphaned_transaction_recovery_duration.seconds = 9
    return bytes(messages.SendMessageRequest(messages=[message]).SerializeToString())


@target("door.transactions", [b"01AB.1F.3", b"a.b.c.0.0"], (FrontRefusal,))
def read_transaction_id(data: bytes) -> None:
    place = parse_transaction_id(data.decode("latin-1"))
    assert parse_transaction_id(str(place)) == place


@target("door.attributes", [b"+message.type=FIFO", b"-a,+queue.type=SimpleCQ"], (ValueError,))
def read_attributes(data: bytes) -> None:
    before = {"a": "1"}
    after = with_changes(before, parse_changes(data.decode("latin-1")))
    assert with_changes(before, parse_changes(format_changes(before, after))) == after


@target("door.headers", [SIGNED, b"vm@1@0@x"], (FrontRefusal,))
def read_door_headers(data: bytes) -> None:
    text = data.decode("latin-1")
    identity = identity_of({"x-mq-client-id": text, "x-mq-client-version": text})
    assert identity.version_number > 0
    signature_of({"authorization": text, "x-mq-date-time": text})


@target("door.messages", [request(), request() * 2], (FrontRefusal, DecodeError))
def read_sends(data: bytes) -> None:
    """What is stored has the properties of the message, and no others."""
    checks = MessageChecks(
        FrontSettings(), "T", TopicConfig("T"), serves_timers=True, now_ms=1_800_000_000_000
    )
    for message in messages.SendMessageRequest.FromString(data).messages:
        topic_of(message.topic)
        group_of(message.topic)
        header = checks.read(message, "10.0.0.9:1").header
        stored = decode_properties(header.properties)
        assert stored["UNIQ_KEY"] == message.system_properties.message_id
        assert {name for name in stored if name.islower()} <= set(message.user_properties)


@target("door.bodies", [b"\x1f\x8b", b"x\x9c\x03\0\0\0\0\1"], ())
def read_packed_body(data: bytes) -> None:
    """A body that cannot be unpacked goes out as it is."""
    properties = {"UNIQ_KEY": "k", "TIMER_DELIVER_MS": data.decode("latin-1"), "KEYS": "a b"}
    for flag in (0, 1, 0x101, 0x301):
        half = HalfMessage("T", 0, data, flag, properties, 1 << 60, HOST, HOST, -1, 0, 0)
        half_message(half, "ns")
