"""Streams of a connection: the windows of each, and the bytes that wait until the peer takes them.

It follows RFC 9113, sections 5.1 and 5.2.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable

from rmq_ha.server.grpc.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    HEADERS,
    MAX_FRAME,
    MOST_WINDOW,
    Http2Error,
    Http2Violation,
    encode_frame,
    encode_head,
)


class Http2Stream:
    """
    One stream, from the peer's HEADERS until both sides have ended it or one has reset it.

    :ivar may_receive: whether the peer may still send: it has not ended its side.
    :ivar announced: bytes of the request that have still to come, as `content-length` says; None if
        the peer did not say.
    :ivar receive_window: bytes that the peer may still send.
    :ivar send_window: bytes that this side may still send; below 0 after a change of the settings.
    :ivar waiting: bytes of the answer that are not sent yet.
    :ivar trailers: the header block that ends this side after those bytes; None until it is known.
    """

    __slots__ = (
        "announced",
        "may_receive",
        "number",
        "receive_window",
        "send_window",
        "trailers",
        "waiting",
    )

    def __init__(self, number: int, receive_window: int, send_window: int) -> None:
        self.number = number
        self.may_receive = True
        self.announced: int | None = None
        self.receive_window = receive_window
        self.send_window = send_window
        self.waiting: deque[memoryview] = deque()
        self.trailers: bytes | None = None

    def note_data(self, size: int, *, has_ended: bool) -> bool:
        """
        Note data of the peer.

        :returns: whether the size agrees with the one that the peer announced.
        """
        if self.announced is None:
            return True
        self.announced -= size
        return self.announced == 0 if has_ended else self.announced >= 0


class SendQueues:
    """
    The bytes that wait on all streams, and the windows that hold them back.

    :ivar queued: bytes of all streams that are not sent yet.
    :ivar first_window: the window with which the peer has new streams begin.
    """

    def __init__(self) -> None:
        self.queued = 0
        self.first_window = FIRST_WINDOW
        self._window = FIRST_WINDOW
        self._ready: OrderedDict[int, Http2Stream] = OrderedDict()
        self._ending: dict[int, Http2Stream] = {}

    @property
    def has_frames(self) -> bool:
        """Whether `take` would move any frame."""
        return bool(self._ending) or (bool(self._ready) and self._window > 0)

    def put(self, stream: Http2Stream, data: bytes) -> None:
        """Queue bytes of a stream until the windows let them go."""
        if data:
            stream.waiting.append(memoryview(data))
            self.queued += len(data)
            self._wake(stream)

    def end(self, stream: Http2Stream, trailers: bytes) -> None:
        """End this side of a stream with trailers, after its bytes."""
        stream.trailers = trailers
        if not stream.waiting:
            self._ending[stream.number] = stream

    def drop(self, stream: Http2Stream) -> None:
        """Forget what waits on a stream."""
        self.queued -= sum(map(len, stream.waiting))
        stream.waiting.clear()
        self._ready.pop(stream.number, None)
        self._ending.pop(stream.number, None)

    def widen(self, size: int) -> None:
        """
        Widen the window of the connection: the peer takes more bytes.

        :raises Http2Violation: the window becomes too large.
        """
        self._window += size
        if self._window > MOST_WINDOW:
            raise Http2Violation(
                Http2Error.FLOW_CONTROL_ERROR, "it makes the window of the connection too large"
            )

    def widen_stream(self, stream: Http2Stream, size: int) -> bool:
        """
        Widen the window of a stream; a negative size makes it narrower.

        :returns: False if the window is larger now than HTTP/2 allows.
        """
        stream.send_window += size
        self._wake(stream)
        return stream.send_window <= MOST_WINDOW

    def widen_all(self, streams: Iterable[Http2Stream], size: int) -> None:
        """
        Widen the windows of streams; a negative size makes them narrower.

        :raises Http2Violation: a window becomes too large.
        """
        for stream in streams:
            stream.send_window += size
            if stream.send_window > MOST_WINDOW:
                raise Http2Violation(
                    Http2Error.FLOW_CONTROL_ERROR, "a window becomes too large by SETTINGS"
                )
            if stream.waiting:
                self._wake(stream)

    def take(self, out: bytearray, most: int) -> list[Http2Stream]:
        """
        Move frames from the queues to `out`, one of each stream in rotation.

        :param most: stop when `out` has so many bytes.
        :param out: the bytes to write, to which frames are appended.
        :returns: the streams on which this side has sent its last frame.
        """
        ended = list(self._ending.values())
        self._ending.clear()
        for stream in ended:
            self._take_end(stream, out)
        ready = self._ready
        while ready and self._window > 0 and len(out) < most:
            number, stream = next(iter(ready.items()))
            size = min(MAX_FRAME, stream.send_window, self._window)
            if size <= 0:
                del ready[number]  # `widen_stream` brings it back
                continue
            self._take_frame(stream, out, size)
            if stream.waiting:
                ready.move_to_end(number)
                continue
            del ready[number]
            if stream.trailers is not None:
                self._take_end(stream, out)
                ended.append(stream)
        return ended

    def _wake(self, stream: Http2Stream) -> None:
        if stream.waiting and stream.send_window > 0:
            self._ready[stream.number] = stream

    def _take_end(self, stream: Http2Stream, out: bytearray) -> None:
        assert stream.trailers is not None
        out += encode_frame(HEADERS, END_HEADERS | END_STREAM, stream.number, stream.trailers)

    def _take_frame(self, stream: Http2Stream, out: bytearray, size: int) -> None:
        """Move one DATA frame of at most `size` bytes, which may join several messages."""
        waiting = stream.waiting
        parts: list[memoryview] = []
        left = size
        while waiting and left:
            part = waiting[0]
            if len(part) <= left:
                waiting.popleft()
            else:
                waiting[0], part = part[left:], part[:left]
            parts.append(part)
            left -= len(part)
        taken = size - left
        out += encode_head(taken, DATA, 0, stream.number)
        for part in parts:
            out += part
        self.queued -= taken
        stream.send_window -= taken
        self._window -= taken
