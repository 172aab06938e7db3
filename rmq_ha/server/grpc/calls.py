"""The calls of one connection, without I/O: bytes and times go in, bytes come out.

Spec: grpc.md, sections 2.1 and 2.2.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

from google.protobuf.message import DecodeError
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.model.message import Address
from rmq_ha.base.model.security import PLAIN
from rmq_ha.server.grpc.face import CallEnd, Method, MethodKind
from rmq_ha.server.grpc.http2.engine import (
    STREAM_WINDOW,
    Http2Server,
    StreamData,
    StreamHeaders,
)
from rmq_ha.server.grpc.http2.frames import Http2Error
from rmq_ha.server.grpc.http2.headers import MAX_LIST, encode_headers, size_of
from rmq_ha.server.grpc.limits import (
    FREE_BYTES,
    FULL_BYTES,
    QUEUED_BYTES,
    CallLimits,
    GrpcCounters,
)
from rmq_ha.server.grpc.open_call import OpenCall
from rmq_ha.server.grpc.wire.headers import (
    ANSWER_HEADERS,
    end_headers,
    parse_timeout,
    read_headers,
)
from rmq_ha.server.grpc.wire.shape import SMALL, shape_fault
from rmq_ha.server.grpc.wire.status import GrpcRefusal, GrpcStatus

ROOM_BYTES = 1 << 24
"""Bytes of large messages that a connection may be sending at once; one message may be larger."""
_HEADERS = encode_headers(ANSWER_HEADERS)
_OK = encode_headers(end_headers(GrpcStatus.OK, ""))
_SPARE_DEADLINES = 100
_FAILED = "the server could not answer; its log has the reason"


class GrpcConnection:
    """
    A connection and its calls, as `face.GrpcPeer` declares it.

    :ivar engine: the state of HTTP/2.
    :ivar unfinished: bytes of messages that are not whole yet.
    :ivar missing: bytes of these messages that have still to come.
    :ivar account: the account of the last call, which the front sets; quotas are kept by it.
    :ivar begun: how many calls have begun.
    :ivar on_output: called when there are bytes to write, also outside of `receive` and `advance`.
    """

    log = Logger()

    def __init__(
        self,
        service: str,
        methods: Mapping[str, Method],
        limits: CallLimits,
        counters: GrpcCounters,
    ) -> None:
        """
        :param service: the full name of the service.
        :param methods: the methods that the front serves, by name.
        """
        self.engine = Http2Server()
        self.limits = limits
        self.unfinished = self.missing = 0
        self.on_output: Callable[[], object] = lambda: None
        self.remote = Address(b"\0\0\0\0", 0)
        self.remote_text = self.host = self.local_text = ""
        self.security = PLAIN
        self.account = ""
        self.begun = 0
        self.is_open = True
        self._service = service
        self._methods = methods
        self._counters = counters
        self._calls: dict[int, OpenCall] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._room = 0
        self._waiting: deque[OpenCall] = deque()
        self._on_drain: list[Deferred[None]] = []
        self._on_close: list[Callable[[], object]] = []

    @property
    def calls(self) -> list[OpenCall]:
        """The calls that have not ended, oldest first."""
        return list(self._calls.values())

    @property
    def is_idle(self) -> bool:
        """Whether no call is open, and no answer waits."""
        return not self._calls and not self.engine.open_streams

    @property
    def queued(self) -> int:
        """Bytes of answers that wait until the client reads."""
        return self.engine.queued

    @property
    def is_full(self) -> bool:
        """Whether the client reads too slowly."""
        return self.engine.queued > FULL_BYTES

    def writable(self) -> "Deferred[None]":
        """Wait until the connection is not full, or is gone; never fails."""
        later: Deferred[None] = Deferred()
        if self.is_full and self.is_open:
            self._on_drain.append(later)
        else:
            later.callback(None)
        return later

    def on_close(self, callback: Callable[[], object]) -> None:
        """Have a function called once when the connection is gone; at once if it is gone."""
        if self.is_open:
            self._on_close.append(callback)
        else:
            callback()

    # Called by the protocol

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline of a call, in seconds of the clock; None if no call has one."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._calls:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of the client, and serve the requests that are whole now."""
        for event in self.engine.receive(data, now):
            if self.engine.fault:  # nobody could be answered
                break
            if isinstance(event, StreamData):
                call = self._calls.get(event.stream)
                if call is not None:
                    self._take_data(call, event)
            elif isinstance(event, StreamHeaders):
                self._begin(event, now)
            else:
                call = self._calls.get(event.stream)
                if call is not None:
                    self._drop(call, CallEnd.CANCELLED)

    def advance(self, now: float) -> None:
        """End the calls whose deadline has passed."""
        while (deadline := self.next_deadline) is not None and deadline <= now:
            call = self._calls[heappop(self._deadlines)[1]]
            status = GrpcStatus.DEADLINE_EXCEEDED
            call.finish_with(CallEnd.DEADLINE, status, "the deadline has passed")

    def take_output(self, most: int) -> bytes:
        """Return and remove bytes to write, among them about `most` bytes of answers."""
        data = self.engine.take_output(most)
        if self._on_drain and self.engine.queued <= FREE_BYTES:
            self._release_waiting()
        return data

    def end_waiting(self) -> None:
        """End the calls that may last long, as the server stops: streams, polls without answer."""
        for call in self.calls:
            kind = call.definition.kind
            waits = kind is MethodKind.SERVER_STREAM and not call.has_headers
            if waits or kind is MethodKind.BOTH_WAYS:
                call.finish_with(CallEnd.STOPPED, GrpcStatus.UNAVAILABLE, "the server stops")

    def close(self) -> None:
        """Note that the connection is gone, and tell all who wait for it."""
        if not self.is_open:
            return
        self.is_open = False
        for call in self.calls:
            self._drop(call, CallEnd.LOST)
        self._release_waiting()
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                self.log.failure("after the loss of {peer}", peer=self.remote_text)

    # Called by calls

    def send(self, call: OpenCall, data: bytes) -> None:
        """Send bytes of a call, or queue them."""
        if not call.has_headers:
            call.has_headers = True
            self.engine.send_headers(call.stream, _HEADERS)
        self.engine.send_data(call.stream, data)
        if self.engine.queued > self.limits.queued:
            text = f"more than {self.limits.queued} bytes wait until it reads"
            self.engine.fail(text, Http2Error.ENHANCE_YOUR_CALM, QUEUED_BYTES)
        self.on_output()

    def finish(self, call: OpenCall, status: GrpcStatus, text: str) -> None:
        """End a call with a status."""
        if status is GrpcStatus.OK and call.has_headers and not text:
            block = _OK
        else:
            headers = end_headers(status, text)
            block = encode_headers(headers if call.has_headers else [*ANSWER_HEADERS, *headers])
        self.engine.send_end(call.stream, block)
        self._counters.ended[status] += 1
        self._forget(call)
        self.on_output()

    # Requests

    def _begin(self, event: StreamHeaders, now: float) -> None:
        self.begun += 1
        headers = read_headers(event.headers)
        if headers.http_status != 200:
            block = encode_headers([(b":status", b"%d" % headers.http_status)])
            self.engine.send_end(event.stream, block)
            return
        method = self._methods.get(headers.method) if headers.service == self._service else None
        known = method or Method(headers.method, MethodKind.UNARY, None, _serve_nothing)
        call = OpenCall(self, event.stream, known, headers, self.limits.message)
        self._calls[event.stream] = call
        try:
            if size_of(event.headers) > MAX_LIST:
                text = f"the headers are larger than {MAX_LIST} bytes"
                raise GrpcRefusal(GrpcStatus.RESOURCE_EXHAUSTED, text)
            if method is None:
                text = f"this server has no method {headers.service}/{headers.method}"
                raise GrpcRefusal(GrpcStatus.UNIMPLEMENTED, text)
            timeout = headers.metadata.get("grpc-timeout")
            if timeout is not None:
                call.deadline = now + parse_timeout(timeout)
                self._note_deadline(call.deadline, event.stream)
            if method.kind is MethodKind.BOTH_WAYS:
                call.receiver = method.serve(call)
        except Exception:
            self._fail(call, Failure())  # type: ignore[no-untyped-call]
            return
        if event.has_ended:
            self._end_request(call)

    def _note_deadline(self, deadline: float, stream: int) -> None:
        heappush(self._deadlines, (deadline, stream))
        if len(self._deadlines) > 2 * len(self._calls) + _SPARE_DEADLINES:
            self._deadlines = [item for item in self._deadlines if item[1] in self._calls]
            heapify(self._deadlines)

    def _take_data(self, call: OpenCall, event: StreamData) -> None:
        try:
            for message in call.reader.receive(event.data):
                self._take_message(call, message)
        except Exception:
            self._fail(call, Failure())  # type: ignore[no-untyped-call]
        if not call.is_open:
            return
        self._count(call)
        if event.has_ended:
            self._end_request(call)
        else:
            self._make_room(call)

    def _take_message(self, call: OpenCall, message: bytes) -> None:
        if call.receiver is None:
            if call.request is not None:
                raise GrpcRefusal(GrpcStatus.INTERNAL, f"{call.method} takes one message")
            call.request = message
        elif call.is_open:
            self._give_back(call)
            call.receiver.message_received(_decode(call, message))

    def _end_request(self, call: OpenCall) -> None:
        try:
            if call.reader.unfinished:
                raise GrpcRefusal(GrpcStatus.INTERNAL, "the request ends within a message")
            self._give_back(call)
            if call.receiver is not None:
                call.receiver.sending_ended()
                return
            if call.request is None:
                raise GrpcRefusal(GrpcStatus.INTERNAL, f"{call.method} takes one message")
            payload, call.request = call.request, None
            self._count(call)
            answer = call.definition.serve(call, _decode(call, payload))
            if isinstance(answer, Deferred):
                answer.addCallback(partial(self._answer, call))
                answer.addErrback(partial(self._fail, call))
            elif call.definition.kind is MethodKind.UNARY:
                self._answer(call, answer)
        except Exception:
            self._fail(call, Failure())  # type: ignore[no-untyped-call]

    def _answer(self, call: OpenCall, answer: Any) -> None:
        if call.definition.kind is MethodKind.UNARY:
            call.send(answer)
        call.finish()

    def _fail(self, call: OpenCall, failure: Failure) -> None:
        refusal = failure.value
        if isinstance(refusal, GrpcRefusal):
            call.finish_with(CallEnd.REFUSED, refusal.status, refusal.text)
            return
        if call.is_open or not isinstance(refusal, CancelledError):
            self.log.failure(
                "{method} of {peer}", failure, method=call.method, peer=self.remote_text
            )
        call.finish_with(CallEnd.REFUSED, GrpcStatus.UNKNOWN, _FAILED)

    # Room for large messages

    def _make_room(self, call: OpenCall) -> None:
        """
        Let the client send the rest of a message, once the connection has room for all of it.

        Without this, a thousand calls could each have the larger part of a message waiting here.
        """
        missing, window = call.reader.missing, self.engine.receive_window(call.stream)
        if not missing and call.request is None:
            self._give_back(call)
        if missing <= window:
            if not call.room and window < STREAM_WINDOW // 2:
                self.engine.widen(call.stream, STREAM_WINDOW - window)
        elif not call.room and call not in self._waiting:
            self._waiting.append(call)
            self._admit()

    def _admit(self) -> None:
        waiting = self._waiting
        while waiting:
            call = waiting[0]
            size = call.reader.missing
            if self._room and self._room + size > ROOM_BYTES:
                return
            waiting.popleft()
            call.room = size
            self._room += size
            window = self.engine.receive_window(call.stream)
            self.engine.widen(call.stream, size - window + STREAM_WINDOW)

    def _give_back(self, call: OpenCall) -> None:
        if call.room:
            self._room -= call.room
            call.room = 0
            self._admit()

    def _count(self, call: OpenCall) -> None:
        """Count the bytes that wait here for the rest of a request, and those still to come."""
        size = call.reader.unfinished + (len(call.request) if call.request else 0)
        missing = call.reader.missing
        self.unfinished += size - call.counted
        self.missing += missing - call.counted_missing
        call.counted, call.counted_missing = size, missing

    # Ends

    def _drop(self, call: OpenCall, end: CallEnd) -> None:
        """End a call without an answer, because the client does not wait any more."""
        self._counters.ended[GrpcStatus.CANCELLED] += 1
        self._forget(call)
        call.note_end(end)

    def _forget(self, call: OpenCall) -> None:
        if self._calls.pop(call.stream, None) is None:
            return
        self.unfinished -= call.counted
        self.missing -= call.counted_missing
        if call in self._waiting:
            self._waiting.remove(call)
        self._give_back(call)

    def _release_waiting(self) -> None:
        waiting, self._on_drain = self._on_drain, []
        for later in waiting:
            later.callback(None)


def _decode(call: OpenCall, payload: bytes) -> Any:
    if len(payload) > SMALL:
        fault = shape_fault(call.definition.request.DESCRIPTOR.name, payload)
        if fault:
            raise GrpcRefusal(GrpcStatus.RESOURCE_EXHAUSTED, fault)
    try:
        return call.definition.request.FromString(payload)
    except DecodeError:
        text = f"the message is no {call.definition.request.DESCRIPTOR.name}"
        raise GrpcRefusal(GrpcStatus.INTERNAL, text) from None


def _serve_nothing(call: Any, request: Any) -> None:
    """Stand in for an unknown method; its calls are refused before they are served."""
