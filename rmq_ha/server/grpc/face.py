"""The interface between the front, which serves the methods, and the transport under it.

The front makes a list of `Method`s and passes it to `server.GrpcServer`. The transport reads
requests, calls a method's `serve`, and writes the answers. Errors of RocketMQ are answers with a
`Status` inside, which the front makes; a `GrpcRefusal` ends a call without an answer.

Spec: grpc.md, sections 2 and 14.3.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.model.message import Address
from rmq_ha.base.model.security import Security
from rmq_ha.server.grpc.wire.status import GrpcStatus


class CallEnd(Enum):
    """Why a call ended; the values say it in words."""

    ANSWERED = "it was answered"
    CANCELLED = "the client cancelled it"
    DEADLINE = "its deadline passed"
    LOST = "the connection was lost"
    STOPPED = "the server stops"
    REFUSED = "the client broke a rule, or a limit was reached"


class GrpcPeer(Protocol):
    """One connection, which its calls share."""

    @property
    def remote(self) -> Address:
        """The address of the client."""

    @property
    def remote_text(self) -> str:
        """The address of the client as `ip:port`."""

    @property
    def host(self) -> str:
        """The address of the client without its port."""

    @property
    def local_text(self) -> str:
        """The address of this server that the client connected to, as `ip:port`."""

    @property
    def security(self) -> Security:
        """Whether the connection is TLS, and the names in the client's certificate."""

    account: str
    """The account that signed the last accepted call, which the front sets; empty if none did."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""

    @property
    def queued(self) -> int:
        """How many bytes of answers wait until the client reads."""

    @property
    def is_full(self) -> bool:
        """Whether the client reads too slowly, so that nothing should be popped for it now."""

    def writable(self) -> "Deferred[None]":
        """Wait until the connection is not full, or is gone; never fails. `is_open` tells which."""

    def on_close(self, callback: "Callable[[], object]") -> None:
        """Have a function called once when the connection is gone; at once if it is gone."""


class GrpcCall(Protocol):
    """One call of a method."""

    @property
    def method(self) -> str:
        """The method's name, such as `SendMessage`."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """
        The headers of the call, names in lower case, without those that begin with a colon. The
        values of a header that came several times are joined by a comma.
        """

    @property
    def deadline(self) -> float | None:
        """
        When the client gives up, in seconds of `Host.clock`; None if it never does. The transport
        ends the call then, with `DEADLINE_EXCEEDED`.
        """

    @property
    def peer(self) -> GrpcPeer:
        """The connection of the call."""

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent: the call has not ended."""

    def send(self, message: Any) -> None:
        """
        Send a message, or queue it until the client reads; do nothing if the call has ended.

        :param message: an object of a class of `wire.messages`.
        """

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call after the messages that were sent; do nothing if it has ended."""

    def on_end(self, callback: Callable[[CallEnd], object]) -> None:
        """
        Have a function called once when the call has ended, for whatever reason; at once if it has
        ended. A waiting poll takes no message after that.
        """


class MessageReceiver(Protocol):
    """An object of the front that gets the messages of a client that sends any number of them."""

    def message_received(self, message: Any) -> None:
        """Take a message, of the method's request class. A `GrpcRefusal` ends the call."""

    def sending_ended(self) -> None:
        """Note that the client sends no more messages; the front may still send some."""


class MethodKind(Enum):
    """Which side of a method sends one message, and which side sends any number."""

    UNARY = "one request, one answer"
    SERVER_STREAM = "one request, any number of answers"
    BOTH_WAYS = "any number of both"


class Method(NamedTuple):
    """
    A method that a front serves. `unary`, `server_stream` and `both_ways` make one.

    :ivar name: the method's name, such as `SendMessage`.
    :ivar request: the class of the client's messages, of `wire.messages`.
    :ivar serve: serves one call; the three functions below say what it takes and returns.
    """

    name: str
    kind: MethodKind
    request: Any
    serve: Callable[..., Any]


def unary(name: str, request: Any, serve: Callable[[GrpcCall, Any], Any]) -> Method:
    """
    Declare a method with one request and one answer.

    :param serve: takes the call and the request; returns the answer, or a Deferred of it. A
        `GrpcRefusal` that it raises, or with which the Deferred fails, ends the call with its
        status. Any other exception is logged, and the call ends with `UNKNOWN`. The Deferred is
        never cancelled: if the client goes away, the work goes on and its answer is dropped.
    """
    return Method(name, MethodKind.UNARY, request, serve)


def server_stream(name: str, request: Any, serve: Callable[[GrpcCall, Any], Any]) -> Method:
    """
    Declare a method with one request and any number of answers.

    :param serve: takes the call and the request, and sends answers by `GrpcCall.send`. It returns
        None and calls `GrpcCall.finish` at any time; or it returns a Deferred, which ends the call
        when it fires, with its failure if it fails.
    """
    return Method(name, MethodKind.SERVER_STREAM, request, serve)


def both_ways(name: str, request: Any, serve: Callable[[GrpcCall], MessageReceiver]) -> Method:
    """
    Declare a method in which both sides send any number of messages.

    :param serve: called when the client has opened the call; returns the receiver of its messages.
        The call stays open until the front calls `GrpcCall.finish`, or the client goes away.
    """
    return Method(name, MethodKind.BOTH_WAYS, request, serve)
