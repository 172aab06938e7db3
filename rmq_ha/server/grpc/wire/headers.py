"""The headers of gRPC calls: those of a request, its deadline, and those that end an answer.

Spec: grpc.md, sections 2.1 and 2.2.
"""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote

from rmq_ha.server.grpc.wire.status import GrpcRefusal, GrpcStatus

_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MOST_DIGITS = 8
_MOST_TEXT = 1000
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

ANSWER_HEADERS = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-encoding", b"identity"),
    (b"grpc-accept-encoding", b"gzip"),
)


class CallHeaders(NamedTuple):
    """
    The content of the headers of a call.

    :ivar http_status: 200, or the HTTP status for a request that is no call of gRPC.
    :ivar service: the part of the path before the method.
    :ivar encoding: how compressed messages are compressed; `identity` if none is.
    :ivar metadata: all headers without those that begin with a colon.
    """

    http_status: int
    service: str
    method: str
    encoding: str
    metadata: dict[str, str]


def read_headers(headers: Iterable[tuple[str, str]]) -> CallHeaders:
    """Read the headers of a request of HTTP/2, also of one that is no call of gRPC."""
    pseudo: dict[str, str] = {}
    metadata: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(":"):
            pseudo[name] = value
        elif name in metadata:
            metadata[name] += f",{value}"
        else:
            metadata[name] = value
    service, _, method = pseudo.get(":path", "").removeprefix("/").rpartition("/")
    status = 200
    if pseudo.get(":method") != "POST":
        status = 405
    elif not metadata.get("content-type", "").startswith("application/grpc"):
        status = 415
    return CallHeaders(status, service, method, metadata.get("grpc-encoding", "identity"), metadata)


def parse_timeout(text: str) -> float:
    """
    Return the seconds of a header `grpc-timeout`, such as `9998613u`.

    :raises GrpcRefusal: the text is no timeout.
    """
    digits, unit = text[:-1], text[-1:]
    if not (digits.isascii() and digits.isdigit()) or unit not in _SECONDS:
        raise GrpcRefusal(GrpcStatus.INTERNAL, f"grpc-timeout is not a time: {text[:20]}")
    if len(digits) > _MOST_DIGITS:
        raise GrpcRefusal(GrpcStatus.INTERNAL, f"grpc-timeout has more than {_MOST_DIGITS} digits")
    return int(digits) * _SECONDS[unit]


def end_headers(status: GrpcStatus, text: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that end a call."""
    headers = [(b"grpc-status", b"%d" % status)]
    if text:
        quoted = quote(text.strip()[:_MOST_TEXT].strip(), _PRINTABLE, "utf-8", "replace")
        headers.append((b"grpc-message", quoted.encode()))
    return headers
