"""Messages of a gRPC stream: each is a flag, a length, and the message, perhaps packed by gzip.

Spec: grpc.md, section 2.1.
"""

import zlib
from struct import Struct

from rmq_ha.server.grpc.wire.status import GrpcRefusal, GrpcStatus

_HEAD = Struct(">BI")
HEAD_SIZE = _HEAD.size
_GZIP = 16 + zlib.MAX_WBITS


class PrefixReader:
    """
    Puts the messages of one direction of a call together.

    :ivar missing: bytes that are still to come of the message that has begun; 0 if none has.
    """

    def __init__(self, most: int, encoding: str = "identity") -> None:
        """
        :param most: bytes that a message may have, packed and unpacked.
        :param encoding: the header `grpc-encoding` of the call.
        """
        self._most = most
        self._encoding = encoding
        self._buffer = bytearray()
        self.missing = 0

    @property
    def unfinished(self) -> int:
        """Bytes of a message that is not whole yet."""
        return len(self._buffer)

    def receive(self, data: bytes) -> list[bytes]:
        """
        Take bytes and return the messages that are whole now, unpacked.

        :raises GrpcRefusal: a message is too large, and was not buffered; or it cannot be unpacked.
        """
        buffer = self._buffer
        if self.missing and len(data) < self.missing:
            buffer += data
            self.missing -= len(data)
            return []
        buffer += data
        messages = []
        at, end = 0, len(buffer)
        self.missing = 0
        while end - at >= HEAD_SIZE:
            flag, size = _HEAD.unpack_from(buffer, at)
            self._check(flag, size)
            if end - at < HEAD_SIZE + size:
                self.missing = HEAD_SIZE + size - (end - at)
                break
            start = at + HEAD_SIZE
            at = start + size
            message = bytes(memoryview(buffer)[start:at])
            messages.append(self._unpack(message) if flag else message)
        del buffer[:at]
        return messages

    def _check(self, flag: int, size: int) -> None:
        if size > self._most:
            raise _too_large(size, self._most)
        if flag > 1:
            raise GrpcRefusal(GrpcStatus.INTERNAL, f"a message has the flag {flag}")
        if flag and self._encoding not in ("gzip", "identity"):
            text = f"messages packed by {self._encoding} are not taken, only by gzip"
            raise GrpcRefusal(GrpcStatus.UNIMPLEMENTED, text)
        if flag and self._encoding == "identity":
            text = "a message is packed, and grpc-encoding does not say how"
            raise GrpcRefusal(GrpcStatus.INTERNAL, text)

    def _unpack(self, message: bytes) -> bytes:
        reader = zlib.decompressobj(_GZIP)
        try:
            data = reader.decompress(message, self._most + 1)
        except zlib.error:
            text = "a message packed by gzip cannot be unpacked"
            raise GrpcRefusal(GrpcStatus.INTERNAL, text) from None
        if len(data) > self._most:
            raise _too_large(len(data), self._most)
        if not reader.eof:
            raise GrpcRefusal(GrpcStatus.INTERNAL, "a message packed by gzip has no end")
        return data


def encode_message(message: bytes) -> bytes:
    """Return a message with flag and length before it; answers are never packed."""
    return _HEAD.pack(0, len(message)) + message


def _too_large(size: int, most: int) -> GrpcRefusal:
    text = f"a message of {size} bytes is larger than grpcMaxInboundMessageSize, {most}"
    return GrpcRefusal(GrpcStatus.RESOURCE_EXHAUSTED, text)
