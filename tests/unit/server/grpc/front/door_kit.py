"""A simulated broker with its gRPC door, and calls through the door's front, without sockets."""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

pytest.importorskip("google.protobuf")
pytest.importorskip("hpack")

from rmq_ha.base.model.message import Address
from rmq_ha.base.model.security import PLAIN, Security
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.server.grpc.face import CallEnd, MethodKind
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import AnswerCode, MessageType
from rmq_ha.server.grpc.wire.status import GrpcRefusal, GrpcStatus
from tests.unit.server.broker.transaction_kit import TransactionBroker

GRPC_PORT = 8081
METADATA = {
    "x-mq-client-id": "probe@1",
    "x-mq-language": "PYTHON",
    "x-mq-client-version": "5.1.2",
    "x-mq-protocol": "GRPC_V2",
}
TYPES = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Txn": "TRANSACTION"}


class FakePeer:
    """One connection of a client."""

    remote = Address.parse("10.0.0.9", 77)
    remote_text = "10.0.0.9:77"
    host = "10.0.0.9"
    account = ""
    local_text = "10.0.0.1:8081"
    security: Security = PLAIN
    is_open = True
    queued = 0
    is_full = False

    def writable(self) -> "Deferred[None]":
        return succeed(None)

    def on_close(self, callback: Callable[[], object]) -> None:
        """Never called: the connection stays open."""


class FakeCall:
    """
    One call.

    :ivar sent: the messages that were sent.
    :ivar end: the status and text with which it ended; None while it is open.
    """

    deadline: float | None = None

    def __init__(self, method: str, metadata: Mapping[str, str], peer: FakePeer) -> None:
        self.method, self.metadata, self.peer = method, metadata, peer
        self.sent: list[Any] = []
        self.end: tuple[GrpcStatus, str] | None = None
        self._callbacks: list[Callable[[CallEnd], object]] = []

    @property
    def is_open(self) -> bool:
        return self.end is None

    def send(self, message: Any) -> None:
        if self.is_open:
            self.sent.append(message)

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        if self.end is None:
            self.end = (status, text)
            for callback in self._callbacks:
                callback(CallEnd.ANSWERED)

    def on_end(self, callback: Callable[[CallEnd], object]) -> None:
        self._callbacks.append(callback)


class DoorBroker(TransactionBroker):
    """
    A broker with the topics of the rig: `Normal`, `Fifo`, `Delay`, `Txn` and `Mixed`.

    :ivar metadata: the headers of the next calls.
    """

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        self.configuration.ours.grpc_server_port = GRPC_PORT
        self.configuration.ours.timer_wheel_enable = True
        self.configuration.store.mapped_file_size_commit_log = 16 << 20
        self.metadata: dict[str, str] = dict(METADATA)
        self.peer = FakePeer()
        self._ids = count(1)

    def start(self) -> "DoorBroker":
        super().start()
        for name, kind in TYPES.items():
            attributes = {"message.type": kind}
            self.broker.topics.update(TopicConfig(name, 4, 4, attributes=attributes))
        self.broker.topics.update(TopicConfig("Mixed", 4, 4))
        self.methods = {item.name: item for item in self.broker.grpc.service.methods()}
        return self

    def unary(self, method: str, request: Any, **metadata: str) -> Any:
        """Call a method with one answer, and return the answer."""
        found = self.methods[method]
        assert found.kind is MethodKind.UNARY
        call = FakeCall(method, {**self.metadata, **metadata}, self.peer)
        answer = found.serve(call, request)
        return self.wait(answer) if isinstance(answer, Deferred) else answer

    def telemetry(self, command: Any, **metadata: str) -> FakeCall:
        """Open a stream, and send one command on it."""
        call = FakeCall("Telemetry", {**self.metadata, **metadata}, self.peer)
        receiver = self.methods["Telemetry"].serve(call)
        try:
            receiver.message_received(command)
        except GrpcRefusal as refusal:
            call.finish(refusal.status, refusal.text)
        return call

    def producer(self, *topics: str, **metadata: str) -> FakeCall:
        """Send the settings of a producer."""
        command = messages.TelemetryCommand()
        command.settings.client_type = 1
        command.settings.publishing.SetInParent()
        for topic in topics:
            command.settings.publishing.topics.add(name=topic)
        return self.telemetry(command, **metadata)

    def message_for(self, topic: str = "Normal", body: bytes = b"x", **system: Any) -> Any:
        """Make a message; `user` are the user's properties, `namespace` that of the topic."""
        message = messages.Message(body=body)
        message.topic.name = topic
        message.topic.resource_namespace = system.pop("namespace", "")
        for name, value in system.pop("user", {}).items():
            message.user_properties[name] = value
        given = {
            "message_id": f"01{next(self._ids):032X}",
            "message_type": MessageType.NORMAL,
            "body_encoding": 1,
            **system,
        }
        for name, value in given.items():
            if name == "keys":
                message.system_properties.keys.extend(value)
            elif hasattr(value, "DESCRIPTOR"):
                getattr(message.system_properties, name).CopyFrom(value)
            else:
                setattr(message.system_properties, name, value)
        message.system_properties.born_timestamp.FromMilliseconds(self.host.now_ms())
        return message

    def send_all(self, *batch: Any, **metadata: str) -> Any:
        """Send messages in one request."""
        request = messages.SendMessageRequest(messages=batch)
        return self.unary("SendMessage", request, **metadata)

    def stamp(self, seconds: float) -> Any:
        """Return the time in so many seconds."""
        stamp = messages.Timestamp()
        stamp.FromMilliseconds(self.host.now_ms() + int(seconds * 1000))
        return stamp

    def stored(self, topic: str) -> list[Record]:
        """Return the records in all queues of a topic."""
        self.run(0.1)
        found: list[Record] = []
        for queue_id in range(4):
            result = self.broker.store.get_message("t", topic, queue_id, 0, 32, None)
            for data in result.messages:
                found += decode_records(data)
        return found


def code_of(answer: Any) -> str:
    """Return the name of an answer's code."""
    return AnswerCode(answer.status.code).name
