"""Frames as a client of HTTP/2 writes them, right or wrong."""

from collections.abc import Iterator

from hpack import Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/apache.rocketmq.v2.MessagingService/SendMessage"),
    ("content-type", "application/grpc"),
]


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    size = len(payload).to_bytes(3, "big")
    return size + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


SETTINGS = frame(4)
BEGIN = PREFACE + SETTINGS


def block(headers: list[tuple[str, str]] = REQUEST) -> bytes:
    encoded: bytes = Encoder().encode(headers, huffman=False)
    return encoded


def headers(stream: int = 1, flags: int = 4, payload: bytes | None = None) -> bytes:
    return frame(1, flags, stream, block() if payload is None else payload)


def data(stream: int = 1, payload: bytes = b"", flags: int = 0) -> bytes:
    return frame(0, flags, stream, payload)


def setting(key: int, value: int) -> bytes:
    return frame(4, 0, 0, key.to_bytes(2, "big") + value.to_bytes(4, "big"))


def word(number: int) -> bytes:
    return number.to_bytes(4, "big")


def frames_in(output: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame."""
    at = 0
    while at < len(output):
        size = int.from_bytes(output[at : at + 3], "big")
        stream = int.from_bytes(output[at + 5 : at + 9], "big")
        yield output[at + 3], output[at + 4], stream, output[at + 9 : at + 9 + size]
        at += 9 + size
    assert at == len(output)
