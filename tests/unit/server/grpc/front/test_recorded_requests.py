"""Requests as the SDKs sent them, answered with the fields that Java's proxy answered.

Spec: grpc.md, section 17.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from rmq_ha.server.grpc.wire import messages
from tests.kits.pages import REPO
from tests.unit.server.grpc.front.door_kit import DoorBroker

FOLDER = REPO / "tests/fixtures/grpc"
OURS = {"entries": ("transactionId", "offset", "recallHandle"), "messageQueues": ("broker",)}
"""Members of answers whose values depend on the server."""


def recorded(method: str) -> Iterator[Any]:
    """Yield the recorded calls of a method that ended well, with the SDK and a number."""
    for path in sorted(FOLDER.glob(f"*/{method}.json")):
        for number, call in enumerate(json.loads(path.read_text())):
            yield pytest.param(call, id=f"{path.parent.name}-{number}")


def headers(call: dict[str, Any]) -> dict[str, str]:
    """The metadata of a recorded call; all SDKs but Python's sent no signature."""
    return {name: text for name, text in call["headers"].items() if name.startswith("x-mq-")}


def shape(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without the values that depend on the server."""
    for name, members in OURS.items():
        for item in answer.get(name, ()):
            for member in members:
                if member in item:
                    item[member] = "..."
    answer.get("status", {}).pop("message", None)
    for entry in answer.get("entries", ()):
        entry.get("status", {}).pop("message", None)
    return answer


@pytest.fixture(scope="module")
def door() -> DoorBroker:
    return DoorBroker().start()


def _now(message: Any, door: DoorBroker) -> None:
    """Move the times of recorded messages to the time of the simulated clock."""
    for item in getattr(message, "messages", ()):
        system = item.system_properties
        if system.HasField("delivery_timestamp"):
            late = system.delivery_timestamp.seconds - system.born_timestamp.seconds
            system.delivery_timestamp.CopyFrom(door.stamp(late))
        system.born_timestamp.CopyFrom(door.stamp(0))


@pytest.mark.parametrize("call", [*recorded("SendMessage"), *recorded("QueryRoute")])
def test_recorded_calls_are_answered_with_the_same_fields(
    door: DoorBroker, call: dict[str, Any]
) -> None:
    method = call["rpc"]
    request = ParseDict(call["request"][0]["message"], getattr(messages, f"{method}Request")())
    _now(request, door)
    answer = door.unary(method, request, **headers(call))
    wanted = call["response"][0]["message"]
    found = MessageToDict(answer)
    if method == "SendMessage" and len(request.messages) > len(wanted["entries"]):
        wanted["entries"] = [dict(wanted["entries"][0]) for _ in request.messages]
        for entry, message in zip(wanted["entries"], request.messages, strict=True):
            entry["messageId"] = message.system_properties.message_id
    # An offset of 0 is not written, and Java's queues had messages before.
    for entry in [*found.get("entries", ()), *wanted.get("entries", ())]:
        entry.pop("offset", None)
    assert shape(found) == shape(wanted)


@pytest.mark.parametrize("call", [*recorded("Telemetry")])
def test_recorded_settings_of_producers_are_answered_as_java_did(
    door: DoorBroker, call: dict[str, Any]
) -> None:
    command = ParseDict(call["request"][0]["message"], messages.TelemetryCommand())
    stream = door.telemetry(command, **headers(call))
    if command.settings.HasField("subscription"):
        assert stream.end is not None
        assert "producers" in stream.end[1]
        return
    wanted = next(item["message"] for item in call["response"] if "settings" in item["message"])
    assert shape(MessageToDict(stream.sent[0])) == shape(wanted)
