"""Http2Server: one connection of HTTP/2, as the server's side sees it.

It follows RFC 9113. Rules that a peer breaks within one stream reset that stream; others end the
connection. Priorities are read and not heeded; nothing is pushed.
"""

from typing import NamedTuple

from rmq_ha.server.grpc.http2.budget import STREAMS_A_FRAME, FloodBudget
from rmq_ha.server.grpc.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    GOAWAY,
    HEADERS,
    MOST_WINDOW,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    FrameCutter,
    Http2Error,
    Http2Frame,
    Http2Setting,
    Http2Violation,
    decode_settings,
    decode_word,
    encode_frame,
    encode_goaway,
    encode_reset,
    encode_settings,
    encode_window_update,
    strip_padding,
)
from rmq_ha.server.grpc.http2.headers import (
    MAX_LIST,
    HeaderList,
    HeaderReader,
    announced_size,
    fault_of,
)
from rmq_ha.server.grpc.http2.streams import Http2Stream, SendQueues

STREAM_WINDOW = 1 << 18
"""Bytes that a peer may send on a new stream; `Http2Server.widen` gives more."""
CONNECTION_WINDOW = 1 << 24
MAX_STREAMS = 1000
_REMEMBERED = 100


class StreamHeaders(NamedTuple):
    """A request has begun. `has_ended` is True if no data follow."""

    stream: int
    headers: HeaderList
    has_ended: bool


class StreamData(NamedTuple):
    """Data of a request. `has_ended` is True for the last data, which may be empty."""

    stream: int
    data: bytes
    has_ended: bool


class StreamReset(NamedTuple):
    """A stream was reset: by the peer, or by this side as the peer broke a rule. It is gone."""

    stream: int
    code: int


Http2Event = StreamHeaders | StreamData | StreamReset


class Http2Server:
    """
    The state of a connection. `receive` takes bytes and returns events; `take_output` gives bytes.

    :ivar fault: why the connection has to be closed after its output; empty while it may go on.
    :ivar fault_budget: the name of the budget that was used up, if that is the reason.
    :ivar peer_leaves: whether the peer opens no more streams.
    """

    def __init__(self) -> None:
        self.fault = self.fault_budget = ""
        self.peer_leaves = False
        self._cutter = FrameCutter()
        self._reader = HeaderReader()
        self._budget = FloodBudget()
        self._queues = SendQueues()
        self._streams: dict[int, Http2Stream] = {}
        self._last = 0
        self._closed: dict[int, bool] = {}  # the last ones, and whether this side has reset them
        self._last_served = MOST_WINDOW
        self._receive_window = CONNECTION_WINDOW
        self._is_set = False
        self._events: list[Http2Event] = []
        self._out = bytearray(
            encode_settings(
                {
                    Http2Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                    Http2Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    Http2Setting.MAX_HEADER_LIST_SIZE: MAX_LIST,
                }
            )
            + encode_window_update(0, CONNECTION_WINDOW - FIRST_WINDOW)
        )

    @property
    def queued(self) -> int:
        """Bytes of answers that wait until the peer takes them."""
        return self._queues.queued

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    @property
    def has_output(self) -> bool:
        """Whether `take_output` would return any bytes."""
        return bool(self._out) or (not self.fault and self._queues.has_frames)

    def receive(self, data: bytes, now: float) -> list[Http2Event]:
        """
        Take bytes of the peer.

        :param now: the time in seconds, for the budgets.
        :returns: the events of the streams, in order. `fault` may be set afterwards.
        """
        if self.fault:
            return []
        events = self._events = []
        try:
            for frame in self._cutter.cut(data):
                self._take_frame(frame, now)
        except Http2Violation as violation:
            self.fail(str(violation), violation.code, violation.budget)
        return events

    def fail(self, reason: str, code: Http2Error, budget: str = "") -> None:
        """
        End the connection; the output ends with a GOAWAY frame that carries the reason.

        :param budget: the name of the budget that is used up; empty if a rule was broken.
        """
        if not self.fault:
            self.fault, self.fault_budget = reason, budget
            self._out += encode_goaway(self._last, code, reason)

    def leave(self) -> None:
        """Tell the peer to open no more streams; those that are open go on."""
        if self._last_served == MOST_WINDOW and not self.fault:
            self._last_served = self._last
            self._out += encode_goaway(self._last, Http2Error.NO_ERROR, "the server stops")

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._out += encode_frame(PING, 0, 0, bytes(8))

    def take_output(self, most: int) -> bytes:
        """
        Return and remove bytes to write.

        :param most: about how many bytes of answers to return; other frames come in any case.
        """
        if not self.fault and self._queues.has_frames:
            size = len(self._out)
            for stream in self._queues.take(self._out, most):
                self._budget.note_call()
                if stream.may_receive:
                    self._out += encode_reset(stream.number, Http2Error.NO_ERROR)
                self._forget(stream.number, is_reset=stream.may_receive)
            self._budget.note_bytes(len(self._out) - size)
        data = bytes(self._out)
        self._out.clear()
        return data

    # Sending on one stream; nothing is done if the stream is gone

    def send_headers(self, stream: int, block: bytes) -> None:
        """Begin the answer on a stream."""
        if stream in self._streams and not self.fault:
            self._out += encode_frame(HEADERS, END_HEADERS, stream, block)

    def send_data(self, stream: int, data: bytes) -> None:
        """Queue data of the answer."""
        item = self._streams.get(stream)
        if item is not None and not self.fault:
            self._queues.put(item, data)

    def send_end(self, stream: int, block: bytes) -> None:
        """End the answer with trailers, or with headers alone if nothing was sent before."""
        item = self._streams.get(stream)
        if item is not None and not self.fault:
            self._queues.end(item, block)

    def reset(self, stream: int, code: Http2Error) -> None:
        """End a stream at once, without the rest of its answer."""
        if not self.fault and self._forget(stream, is_reset=True):
            self._out += encode_reset(stream, code)

    def receive_window(self, stream: int) -> int:
        """Return how many bytes the peer may send on a stream; 0 if it may send none."""
        item = self._streams.get(stream)
        return item.receive_window if item is not None and item.may_receive else 0

    def widen(self, stream: int, size: int) -> None:
        """Let the peer send more bytes on a stream."""
        item = self._streams.get(stream)
        if item is not None and item.may_receive and size > 0 and not self.fault:
            item.receive_window += size
            self._out += encode_window_update(stream, size)

    # Frames

    def _take_frame(self, frame: Http2Frame, now: float) -> None:
        kind = frame.kind
        if self._reader.has_begun and kind != CONTINUATION:
            raise _violation("a header block is interrupted")
        if not self._is_set and kind != SETTINGS:
            raise _violation("its first frame is not SETTINGS")
        if kind == DATA:
            self._take_data(frame, now)
        elif kind in (HEADERS, CONTINUATION):
            self._take_headers(frame, now)
        elif kind == WINDOW_UPDATE:
            self._budget.note_control(now)
            self._take_window(frame, now)
        elif kind == RST_STREAM:
            self._take_reset(frame, now)
        elif kind == PUSH_PROMISE:
            raise _violation("a client pushes nothing")
        else:
            self._budget.note_control(now)
            if kind == SETTINGS:
                self._take_settings(frame, now)
            elif kind == PING:
                self._take_ping(frame)
            elif kind == GOAWAY:
                self.peer_leaves = True
            elif kind == PRIORITY:
                _check_priority(frame)

    def _take_headers(self, frame: Http2Frame, now: float) -> None:
        block = self._reader.take(frame)
        if block is None:
            return
        frame, headers = block
        number, has_ended = frame.stream, bool(frame.flags & END_STREAM)
        stream = self._streams.get(number)
        if stream is not None:
            if not stream.may_receive:
                raise Http2Violation(Http2Error.STREAM_CLOSED, "headers come after their end")
            if not has_ended:
                raise _violation("trailers do not end their stream")
            if not stream.note_data(0, has_ended=True):
                self._break_stream(stream, Http2Error.PROTOCOL_ERROR, now)
                return
            stream.may_receive = False
            self._events.append(StreamData(number, b"", has_ended=True))
            return
        # From here on a stream begins, or frames come for one that is gone.
        if number <= self._last:
            self._take_late_headers(number, now)
            return
        self._last = number
        if number > self._last_served:
            self._budget.note_control(now)
            return  # the peer tries it again elsewhere
        fault = fault_of(headers)
        if fault or len(self._streams) >= MAX_STREAMS:
            self._budget.note_reset(now)
            code = Http2Error.PROTOCOL_ERROR if fault else Http2Error.REFUSED_STREAM
            self._out += encode_reset(number, code)
            return
        stream = Http2Stream(number, STREAM_WINDOW, self._queues.first_window)
        stream.may_receive = not has_ended
        stream.announced = announced_size(headers)
        if has_ended and stream.announced:
            self._budget.note_reset(now)
            self._out += encode_reset(number, Http2Error.PROTOCOL_ERROR)
            return
        self._streams[number] = stream
        self._events.append(StreamHeaders(number, headers, has_ended))

    def _take_late_headers(self, number: int, now: float) -> None:
        """
        Ignore headers that were on their way when this side reset their stream.

        :raises Http2Violation: this side did not reset that stream.
        """
        self._budget.note_control(now)
        is_reset = self._closed.get(number)
        if is_reset is None:
            raise _violation("a new stream has a lower number than an earlier one")
        if not is_reset:
            raise Http2Violation(Http2Error.STREAM_CLOSED, "headers come on a stream that ended")

    def _take_data(self, frame: Http2Frame, now: float) -> None:
        size, has_ended = len(frame.payload), bool(frame.flags & END_STREAM)
        self._must_have_begun(frame)
        data = strip_padding(frame)
        # The window of the connection counts all data, also those of streams that are gone.
        if size > self._receive_window:
            raise Http2Violation(
                Http2Error.FLOW_CONTROL_ERROR, "it sends more than the connection's window"
            )
        self._receive_window -= size
        if self._receive_window < CONNECTION_WINDOW // 2:
            self._out += encode_window_update(0, CONNECTION_WINDOW - self._receive_window)
            self._receive_window = CONNECTION_WINDOW
        if len(data) < size or not (data or has_ended):
            self._budget.note_control(now)
        stream = self._streams.get(frame.stream)
        if stream is None:
            self._budget.note_control(now)
            if not self._closed.get(frame.stream):  # it was not on its way when it was reset here
                self._out += encode_reset(frame.stream, Http2Error.STREAM_CLOSED)
            return
        if not stream.may_receive:
            self._break_stream(stream, Http2Error.STREAM_CLOSED, now)
            return
        if size > stream.receive_window:
            self._break_stream(stream, Http2Error.FLOW_CONTROL_ERROR, now)
            return
        if not stream.note_data(len(data), has_ended=has_ended):
            self._break_stream(stream, Http2Error.PROTOCOL_ERROR, now)
            return
        self._budget.note_bytes(len(data))
        stream.receive_window -= size
        if len(data) < size and not has_ended:
            self.widen(frame.stream, size - len(data))  # nobody else knows of the padding
        if has_ended:
            stream.may_receive = False
        if data or has_ended:
            self._events.append(StreamData(frame.stream, data, has_ended))

    def _take_reset(self, frame: Http2Frame, now: float) -> None:
        self._must_have_begun(frame)
        code = decode_word(frame.payload, "RST_STREAM")
        if self._forget(frame.stream, is_reset=False):
            self._budget.note_reset(now)
            self._events.append(StreamReset(frame.stream, code))
        else:
            self._budget.note_control(now)

    def _take_window(self, frame: Http2Frame, now: float) -> None:
        size = decode_word(frame.payload, "WINDOW_UPDATE") & MOST_WINDOW
        if frame.stream == 0:
            if size == 0:
                raise _violation("a WINDOW_UPDATE frame adds nothing")
            self._queues.widen(size)
            return
        self._must_have_begun(frame)
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        if size == 0:
            self._break_stream(stream, Http2Error.PROTOCOL_ERROR, now)
        elif not self._queues.widen_stream(stream, size):
            self._break_stream(stream, Http2Error.FLOW_CONTROL_ERROR, now)

    def _take_settings(self, frame: Http2Frame, now: float) -> None:
        if frame.stream != 0:
            raise _violation("a SETTINGS frame has a stream")
        if frame.flags & ACK:
            if frame.payload:
                raise Http2Violation(Http2Error.FRAME_SIZE_ERROR, "an answer has settings")
            if not self._is_set:
                raise _violation("its first frame is no SETTINGS of its own")
            return
        self._is_set = True
        queues = self._queues
        values = decode_settings(frame.payload)
        window = values.get(Http2Setting.INITIAL_WINDOW_SIZE, queues.first_window)
        change, queues.first_window = window - queues.first_window, window
        if change:
            self._budget.note_control(now, len(self._streams) / STREAMS_A_FRAME)
            queues.widen_all(self._streams.values(), change)
        self._out += encode_frame(SETTINGS, ACK, 0)

    def _take_ping(self, frame: Http2Frame) -> None:
        if frame.stream != 0:
            raise _violation("a PING frame has a stream")
        if len(frame.payload) != 8:
            raise Http2Violation(Http2Error.FRAME_SIZE_ERROR, "a PING frame has a wrong size")
        if not frame.flags & ACK:
            self._out += encode_frame(PING, ACK, 0, frame.payload)

    # Streams

    def _must_have_begun(self, frame: Http2Frame) -> None:
        if not 0 < frame.stream <= self._last or frame.stream % 2 == 0:
            raise _violation("a frame belongs to no stream that has begun")

    def _break_stream(self, stream: Http2Stream, code: Http2Error, now: float) -> None:
        """Reset a stream on which the peer broke a rule."""
        self._budget.note_reset(now)
        self.reset(stream.number, code)
        self._events.append(StreamReset(stream.number, code))

    def _forget(self, number: int, *, is_reset: bool) -> bool:
        """
        Drop a stream with the bytes that wait on it; return whether the stream was open.

        :param is_reset: whether this side has reset it. Then frames of the peer may still arrive.
        """
        stream = self._streams.pop(number, None)
        if stream is None:
            return False
        self._queues.drop(stream)
        self._closed[number] = is_reset
        if len(self._closed) > _REMEMBERED:
            del self._closed[next(iter(self._closed))]
        return True


def _check_priority(frame: Http2Frame) -> None:
    if frame.stream == 0:
        raise _violation("a PRIORITY frame has no stream")
    if len(frame.payload) != 5:
        raise Http2Violation(Http2Error.FRAME_SIZE_ERROR, "a PRIORITY frame has a wrong size")


def _violation(text: str) -> Http2Violation:
    return Http2Violation(Http2Error.PROTOCOL_ERROR, text)
