"""A client and a connection of the server, joined without sockets."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.server.grpc.calls import GrpcConnection
from rmq_ha.server.grpc.face import GrpcCall, Method, both_ways, server_stream, unary
from rmq_ha.server.grpc.limits import CallLimits, GrpcCounters
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.table import SERVICE
from tests.kits.grpc_client import GrpcClient

LIMITS = CallLimits(1 << 22, 1 << 24)


class Telemetry:
    """Answers each command by itself, and ends when the client does."""

    def __init__(self, call: GrpcCall) -> None:
        self.call = call
        self.taken: list[Any] = []

    def message_received(self, message: Any) -> None:
        self.taken.append(message)
        self.call.send(message)

    def sending_ended(self) -> None:
        self.call.finish()


class Front:
    """
    A front of three methods.

    :ivar answers: Deferreds of SendMessage that wait, if `waits` is set.
    :ivar polls: open calls of ReceiveMessage.
    :ivar ends: how calls ended.
    """

    def __init__(self) -> None:
        self.waits = False
        self.sent: list[Any] = []
        self.calls: list[GrpcCall] = []
        self.answers: list[Deferred[Any]] = []
        self.polls: list[GrpcCall] = []
        self.telemetry: list[Telemetry] = []
        self.ends: list[Any] = []
        self.fault: Exception | None = None

    @property
    def methods(self) -> list[Method]:
        return [
            unary("SendMessage", messages.SendMessageRequest, self.send),
            server_stream("ReceiveMessage", messages.ReceiveMessageRequest, self.receive),
            both_ways("Telemetry", messages.TelemetryCommand, self.open_telemetry),
        ]

    def send(self, call: GrpcCall, request: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        self.calls.append(call)
        self.sent.append(request)
        call.on_end(self.ends.append)
        if self.waits:
            self.answers.append(Deferred())
            return self.answers[-1]
        return answer_to(request)

    def receive(self, call: GrpcCall, request: Any) -> None:
        self.polls.append(call)
        call.on_end(self.ends.append)

    def open_telemetry(self, call: GrpcCall) -> Telemetry:
        call.on_end(self.ends.append)
        self.telemetry.append(Telemetry(call))
        return self.telemetry[-1]


def answer_to(request: Any) -> Any:
    answer = messages.SendMessageResponse()
    for message in request.messages:
        entry = answer.entries.add(message_id=message.system_properties.message_id)
        entry.status.code = 20000
    return answer


def request_of(*ids: str, body: bytes = b"body") -> Any:
    request = messages.SendMessageRequest()
    for item in ids:
        message = request.messages.add(body=body)
        message.topic.name = "T"
        message.system_properties.message_id = item
    return request


class Pair:
    """
    :ivar cut: changes the pieces in which bytes arrive at the server.
    """

    def __init__(
        self, client: GrpcClient | None = None, limits: CallLimits = LIMITS, now: float = 1000.0
    ) -> None:
        self.front = Front()
        self.counters = GrpcCounters()
        methods = {method.name: method for method in self.front.methods}
        self.server = GrpcConnection(SERVICE, methods, limits, self.counters)
        self.client = client or GrpcClient()
        self.now = now
        self.cut: Callable[[bytes], list[bytes]] = lambda data: [data]

    def pump(self) -> None:
        """Carry bytes both ways until both ends are silent."""
        while True:
            data = self.client.take()
            for piece in self.cut(data):
                self.server.receive(piece, self.now)
            back = self.server.take_output(1 << 16)
            if back:
                self.client.receive(back)
            if not data and not back and not self.server.engine.has_output:
                return

    def sends(self, *ids: str, body: bytes = b"body") -> int:
        """Send messages, and return the stream, after all has come to rest."""
        stream = self.client.call("SendMessage", request_of(*ids, body=body))
        self.pump()
        return stream
