"""Attacks on a gRPC port, as the bytes that a hostile client writes.

Each attack is a generator of pieces of bytes, which go out one after the other. The tests feed them
to a connection; `bench/grpc_attacks.py` writes them to sockets.
"""

from collections.abc import Callable, Iterator
from itertools import count

from rmq_ha.server.grpc.wire import messages
from tests.kits.grpc_client import framed
from tests.unit.server.grpc.raw_frames import BEGIN, block, data, frame, headers, setting, word

Attack = Callable[[], Iterator[bytes]]

_NAMES = [
    (":method", "POST"),
    (":scheme", "http"),
    ("content-type", "application/grpc"),
    ("x-mq-client-id", "attacker"),
    ("x-mq-language", "PYTHON"),
]
CHUNK = 16384


def begin(method: str, stream: int, *, ends: bool = False, **more: str) -> bytes:
    """Return the frame that begins a call."""
    path = f"/apache.rocketmq.v2.MessagingService/{method}"
    made = block([(":path", path), *_NAMES, *more.items()])
    return headers(stream, 5 if ends else 4, made)


def call(method: str, payload: bytes, stream: int = 1) -> Iterator[bytes]:
    """Yield the frames of a call with one message."""
    yield begin(method, stream)
    packed = framed_bytes(payload)
    for at in range(0, len(packed), CHUNK):
        part = packed[at : at + CHUNK]
        yield data(stream, part, 1 if at + CHUNK >= len(packed) else 0)


def framed_bytes(payload: bytes) -> bytes:
    """Return a message with gRPC's five bytes before it."""
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def field(number: int, payload: bytes) -> bytes:
    """Return a field of protobuf that has a length."""
    size, length = len(payload), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + payload


def named(**fields: object) -> bytes:
    """Return a SendMessageRequest with one message, whose system properties are given."""
    request = messages.SendMessageRequest()
    message = request.messages.add(body=b"x")
    message.topic.name = "Normal"
    message.system_properties.message_id = "A"
    for name, value in fields.items():
        setattr(message.system_properties, name, value)
    packed: bytes = request.SerializeToString()
    return packed


_RESOURCE = field(1, field(2, b"G")) + field(2, field(2, b"Normal"))


def _sends(many: int) -> bytes:
    request = messages.SendMessageRequest()
    for number in range(many):
        message = request.messages.add(body=b"x")
        message.topic.name = "Normal"
        message.system_properties.message_id = f"A{number}"
    packed: bytes = request.SerializeToString()
    return packed


def _settings(topic: bytes) -> bytes:
    return field(2, field(5, topic))


REQUESTS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "a message of empty messages": ("SendMessage", lambda big: field(1, b"") * (big // 2)),
    "a message of empty keys": (
        "SendMessage",
        lambda big: field(1, field(1, field(2, b"Normal")) + field(3, field(2, b"") * (big // 2))),
    ),
    "a message of properties": (
        "SendMessage",
        lambda big: field(1, field(1, field(2, b"Normal")) + field(2, b"") * (big // 2)),
    ),
    "10,000 messages": ("SendMessage", lambda big: _sends(10_000)),
    "1,000 messages": ("SendMessage", lambda big: _sends(1000)),
    "a long message id": ("SendMessage", lambda big: named(message_id="x" * big)),
    "a long message group": ("SendMessage", lambda big: named(message_group="x" * big)),
    "a long host": ("SendMessage", lambda big: named(born_host="x" * big)),
    "a long trace context": ("SendMessage", lambda big: named(trace_context="x" * big)),
    "a long tag": ("SendMessage", lambda big: named(tag="x" * big)),
    "a long topic": ("QueryRoute", lambda big: field(1, field(2, b"x" * big))),
    "a long namespace": ("QueryRoute", lambda big: field(1, field(1, b"x" * big) + field(2, b"T"))),
    "a long group": ("Heartbeat", lambda big: field(1, field(2, b"x" * big)) + b"\x10\x02"),
    "a long transaction id": (
        "EndTransaction",
        lambda big: field(1, field(2, b"Normal")) + field(3, b"." * big),
    ),
    "a long recall handle": (
        "RecallMessage",
        lambda big: field(1, field(2, b"Normal")) + field(2, b"A" * big),
    ),
    "a long receipt": (
        "ChangeInvisibleDuration",
        lambda big: _RESOURCE + field(3, b"1" * big) + field(4, b"\x08\x0f"),
    ),
    "millions of acknowledgements": (
        "AckMessage",
        lambda big: _RESOURCE + field(3, b"") * (big // 2),
    ),
    "16,000 acknowledgements": ("AckMessage", lambda big: _RESOURCE + field(3, b"") * 16_000),
    "a long filter of tags": (
        "ReceiveMessage",
        lambda big: (
            field(1, field(2, b"G"))
            + field(2, field(1, field(2, b"Normal")))
            + field(3, b"\x08\x01" + field(2, b"a||" * (big // 3)))
        ),
    ),
    "a long filter of SQL": (
        "ReceiveMessage",
        lambda big: (
            field(1, field(2, b"G"))
            + field(2, field(1, field(2, b"Normal")))
            + field(3, b"\x08\x02" + field(2, b"a = 1 OR " * (big // 9) + b"a = 1"))
        ),
    ),
    "settings of many topics": (
        "Telemetry",
        lambda big: _settings(field(1, field(2, b"T")) * (big // 5)),
    ),
    "settings of 999 topics": (
        "Telemetry",
        lambda big: _settings(b"".join(field(1, field(2, b"T%d" % n)) for n in range(999))),
    ),
    "unknown fields": ("QueryRoute", lambda big: b"\x78\x00" * (big // 2)),
    "nested groups": ("QueryRoute", lambda big: b"\x7b" * big),
    "one endless number": ("QueryRoute", lambda big: b"\x78" + b"\xff" * big),
}
"""Method and message of the largest requests of their kind; the message of a given size."""


def again(piece: Callable[[int], bytes], before: bytes = b"") -> Attack:
    """Make an attack of pieces that depend on their number only."""

    def attack() -> Iterator[bytes]:
        yield BEGIN + before
        yield from map(piece, count())

    return attack


def _opened(streams: int = 1000) -> bytes:
    return b"".join(begin("SendMessage", 2 * n + 1) for n in range(streams))


_LISTED = block([("x" * 16, "y" * 16)] * 200)
_PING = frame(6, 0, 0, bytes(8))

FLOODS: dict[str, Attack] = {
    "rapid reset": again(
        lambda n: begin("SendMessage", 2 * n + 1) + frame(3, 0, 2 * n + 1, word(8))
    ),
    "rapid reset of telemetry": again(
        lambda n: begin("Telemetry", 2 * n + 1) + frame(3, 0, 2 * n + 1, word(8))
    ),
    "CONTINUATION": again(lambda n: frame(9, 0, 1, b""), headers(1, 0)),
    "PING": again(lambda n: _PING * 60),
    "SETTINGS": again(lambda n: (setting(4, 100) + setting(4, 101)) * 30),
    "SETTINGS with 1,000 calls": again(
        lambda n: (setting(4, 100) + setting(4, 101)) * 30, _opened()
    ),
    "header lists": again(lambda n: headers(2 * n + 1, 5, _LISTED)),
    "header list of references": again(
        lambda n: headers(2 * n + 1, 5, block([("x", "y")]) + b"\xbe" * 900)
    ),
    "table sizes": again(
        lambda n: headers(2 * n + 1, 5, b"\x20\x3f\xe1\x1f" + block()), headers(1, 5)
    ),
    "window overflow": again(lambda n: frame(8, 0, 0, word(0x7FFFFFFF))),
    "windows of one byte": again(
        lambda n: frame(8, 0, 2 * (n % 1000) + 1, word(1)) * 20, setting(4, 0) + _opened()
    ),
    "empty DATA": again(lambda n: data(1) * 100, begin("SendMessage", 1)),
    "unknown calls": again(lambda n: begin("Nothing", 2 * n + 1, ends=True)),
    "one byte a frame": again(lambda n: data(1, b"\0") * 100, begin("SendMessage", 1)),
    "calls without end": again(lambda n: begin("SendMessage", 2 * n + 1)),
    "polls": again(
        lambda n: (
            begin("ReceiveMessage", 2 * n + 1)
            + data(
                2 * n + 1,
                framed_bytes(field(1, field(2, b"G")) + field(2, field(1, field(2, b"Normal")))),
                1,
            )
        )
    ),
    "garbage": again(lambda n: bytes(range(256))),
}
"""Frames without end."""

__all__ = ["FLOODS", "REQUESTS", "Attack", "call", "framed"]
