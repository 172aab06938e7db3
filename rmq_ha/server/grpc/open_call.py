"""One call of a connection.

Spec: grpc.md, section 2.1.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.logger import Logger

from rmq_ha.server.grpc.face import CallEnd, GrpcPeer, MessageReceiver, Method
from rmq_ha.server.grpc.wire.headers import CallHeaders
from rmq_ha.server.grpc.wire.length_prefix import PrefixReader, encode_message
from rmq_ha.server.grpc.wire.status import GrpcStatus


class CallPeer(GrpcPeer, Protocol):
    """The connection of a call, which sends the bytes of the call."""

    def send(self, call: "OpenCall", data: bytes) -> None:
        """Send bytes of a call, or queue them."""

    def finish(self, call: "OpenCall", status: GrpcStatus, text: str) -> None:
        """End a call with a status."""


class OpenCall:
    """
    A call, as `face.GrpcCall` declares it.

    :ivar definition: the method.
    :ivar deadline: when the client gives up, in seconds of the clock; None: never.
    :ivar receiver: the object of the front that gets the client's messages; None if the client may
        send only one.
    :ivar request: the message of a client that may send only one; None until it has come.
    :ivar room: bytes of a large message that the client may send now, of the room that all calls of
        the connection share; 0 if it needs none.
    :ivar counted: bytes of an unfinished request that the connection counts as received.
    :ivar counted_missing: bytes of the same that the connection counts as still to come.
    :ivar has_headers: whether the answer has begun.
    """

    log = Logger()

    def __init__(
        self,
        peer: CallPeer,
        stream: int,
        definition: Method,
        headers: CallHeaders,
        most_message: int,
    ) -> None:
        """:param most_message: bytes of the largest message that the client may send."""
        self.peer = peer
        self.stream = stream
        self.definition = definition
        self.method = definition.name
        self.metadata: Mapping[str, str] = headers.metadata
        self.deadline: float | None = None
        self.reader = PrefixReader(most_message, headers.encoding)
        self.receiver: MessageReceiver | None = None
        self.request: bytes | None = None
        self.room = self.counted = self.counted_missing = 0
        self.has_headers = False
        self._end: CallEnd | None = None
        self._on_end: list[Callable[[CallEnd], object]] = []

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent."""
        return self._end is None

    def send(self, message: Any) -> None:
        """Send a message, or queue it until the client reads."""
        if self._end is None:
            self.peer.send(self, encode_message(message.SerializeToString()))

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call after the messages that were sent."""
        self.finish_with(CallEnd.ANSWERED, status, text)

    def finish_with(self, end: CallEnd, status: GrpcStatus, text: str) -> None:
        """End the call with a status, and tell those who wait for its end the reason."""
        if self._end is None:
            self.peer.finish(self, status, text)
            self.note_end(end)

    def on_end(self, callback: Callable[[CallEnd], object]) -> None:
        """Have a function called once when the call has ended."""
        if self._end is not None:
            callback(self._end)
        else:
            self._on_end.append(callback)

    def note_end(self, end: CallEnd) -> None:
        """Note that the call has ended, and tell those who wait for it."""
        if self._end is not None:
            return
        self._end = end
        callbacks, self._on_end = self._on_end, []
        for callback in callbacks:
            try:
                callback(end)
            except Exception:
                self.log.failure("at the end of a call of {method}", method=self.method)
