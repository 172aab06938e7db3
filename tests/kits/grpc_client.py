"""A gRPC client without I/O, on the package h2: the other end of `rmq_ha.server.grpc` in tests."""

import gzip
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import pack, unpack_from
from typing import Any, NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes, Settings

SERVICE = "apache.rocketmq.v2.MessagingService"


class Goaway(NamedTuple):
    last_stream: int
    error_code: int


@dataclass
class Answer:
    """What came on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None
    has_ended: bool = False

    @property
    def status(self) -> int | None:
        """`grpc-status`, wherever it stands."""
        found = self.trailers.get("grpc-status", self.headers.get("grpc-status"))
        return None if found is None else int(found)

    @property
    def text(self) -> str:
        return self.trailers.get("grpc-message", self.headers.get("grpc-message", ""))

    @property
    def messages(self) -> list[bytes]:
        """All messages, which must be whole."""
        found, at = [], 0
        while at < len(self.data):
            flag, size = unpack_from(">BI", self.data, at)
            assert flag == 0
            at += 5
            found.append(self.data[at : at + size])
            at += size
        assert at == len(self.data)
        return found


def framed(message: bytes, *, packed: bool = False) -> bytes:
    payload = gzip.compress(message) if packed else message
    return pack(">BI", packed, len(payload)) + payload


class GrpcClient:
    """
    One connection.

    :ivar reads: whether windows are given back for what has come.
    :ivar answers: by stream.
    :ivar goaway: the server's GOAWAY.
    """

    def __init__(self, window: int | None = None, table: int | None = None) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        settings = {SettingCodes.ENABLE_PUSH: 0}
        if window is not None:
            settings[SettingCodes.INITIAL_WINDOW_SIZE] = window
        if table is not None:
            settings[SettingCodes.HEADER_TABLE_SIZE] = table
        self.h2.local_settings = Settings(client=True, initial_values=settings)
        self.h2.initiate_connection()
        self.reads = True
        self.answers: dict[int, Answer] = {}
        self.goaway: Goaway | None = None
        self._received = b""
        self.waiting: list[tuple[int, bytes, bool]] = []

    def begin(
        self,
        method: str,
        metadata: Iterable[tuple[str, str]] = (),
        *,
        ends: bool = False,
        service: str = SERVICE,
    ) -> int:
        stream = self.h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", f"/{service}/{method}"),
            (":authority", "IPAuthority"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *metadata,
        ]
        self.h2.send_headers(stream, headers, end_stream=ends)
        self.answers[stream] = Answer()
        return stream

    def send(self, stream: int, data: bytes, *, ends: bool = False) -> None:
        """Send bytes as windows allow, the rest when they grow."""
        self.waiting.append((stream, data, ends))
        self._send_waiting()

    def call(self, method: str, message: Any, metadata: Iterable[tuple[str, str]] = ()) -> int:
        stream = self.begin(method, metadata)
        self.send(stream, framed(message.SerializeToString()), ends=True)
        return stream

    def take(self) -> bytes:
        return self.h2.data_to_send()

    def receive(self, data: bytes) -> None:
        for event in self.h2.receive_data(self._without_goaway(data)):
            answer = self.answers.get(getattr(event, "stream_id", None) or 0, Answer())
            if isinstance(event, ResponseReceived):
                answer.headers = dict(event.headers)
            elif isinstance(event, DataReceived):
                answer.data += event.data
                if self.reads and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, TrailersReceived):
                answer.trailers = dict(event.headers)
            elif isinstance(event, StreamReset):
                answer.reset = int(event.error_code)
            elif isinstance(event, StreamEnded):
                answer.has_ended = True
        self._send_waiting()

    def _without_goaway(self, data: bytes) -> bytes:
        """Whole frames without GOAWAY, after which h2 would take no answer of an open stream."""
        self._received += data
        buffer, kept, at = self._received, b"", 0
        while len(buffer) - at >= 9:
            size = 9 + int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) - at < size:
                break
            if buffer[at + 3] == 7:
                self.goaway = Goaway(*unpack_from(">II", buffer, at + 9))
            else:
                kept += buffer[at : at + size]
            at += size
        self._received = buffer[at:]
        return kept

    def _send_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for stream, data, ends in waiting:
            if self.answers[stream].reset is not None:
                continue
            data = memoryview(data)
            while data:
                size = min(
                    self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size
                )
                if size <= 0:
                    break
                piece, data = bytes(data[:size]), data[size:]
                self.h2.send_data(stream, piece, end_stream=ends and not data)
            if data:
                self.waiting.append((stream, bytes(data), ends))
