"""Odd requests, each answered as Java's proxy 5.3.3 answered it, but for the named differences.

The requests are those of the rig's `probe`. Spec: grpc.md, sections 4.1, 9 and 15.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import TransactionResolution
from rmq_ha.server.grpc.wire.status import GrpcRefusal
from tests.kits.pages import REPO
from tests.unit.server.grpc.front.door_kit import DoorBroker, code_of

CASES = {
    row["case"]: row
    for row in map(json.loads, (REPO / "tests/fixtures/grpc/errors.jsonl").read_text().splitlines())
}
UNIMPLEMENTED = "grpc UNIMPLEMENTED"
NO_CONSUMERS = "consumers are not served yet"


class Difference(NamedTuple):
    """What this broker answers in place of Java's code, and why."""

    code: str
    why: str


DIFFERENCES = {
    "send: two messages, same topic": Difference("OK", "an entry for each message"),
    "send: no such topic": Difference("TOPIC_NOT_FOUND", "the code says what is wrong"),
    "end: unknown id": Difference("INVALID_TRANSACTION_ID", "no fault of the server"),
    "recall: malformed": Difference("BAD_REQUEST", "no fault of the server"),
    "namespace: ignored?": Difference("TOPIC_NOT_FOUND", "namespaces are honoured"),
    "heartbeat: no settings": Difference(UNIMPLEMENTED, NO_CONSUMERS),
    "telemetry: consumer": Difference(UNIMPLEMENTED, NO_CONSUMERS),
    "assignment: no such topic": Difference(UNIMPLEMENTED, NO_CONSUMERS),
}
BY_THE_TRANSPORT = {
    "UpdateOffset",
    "GetOffset",
    "QueryOffset",
    "SyncLiteSubscription",
    "PullMessage",
}
"""Methods that the front does not have; the transport refuses them."""
OF_CONSUMERS = ("receive:", "ack:", "change:")


@pytest.fixture(scope="module")
def door() -> DoorBroker:
    kit = DoorBroker()
    kit.configuration.ours.max_delay_time_mills = 86_400_000
    return kit.start()


def _sends(door: DoorBroker) -> dict[str, Callable[[], Any]]:
    make = door.message_for
    most = 4 << 20

    def send(*batch: Any, **metadata: str) -> Any:
        return door.send_all(*batch, **metadata)

    hours = messages.Duration(seconds=7200)
    digest = messages.Digest(type=1, checksum="00000000")
    many = {f"k{number}": "v" for number in range(129)}
    fifo = {"topic": "Fifo", "message_type": 2}
    return {
        "fine": lambda: send(make()),
        "no messages": send,
        "two messages, same topic": lambda: send(make(), make()),
        "two topics": lambda: send(make(), make("Mixed")),
        "no client id": lambda: send(make(), **{"x-mq-client-id": ""}),
        "no such topic": lambda: send(make("Nope")),
        "bad topic name": lambda: send(make("a b")),
        "system topic": lambda: send(make("SCHEDULE_TOPIC_XXXX")),
        "empty body": lambda: send(make(body=b"")),
        "body 4 MiB + 1": lambda: send(make(body=bytes(most + 1))),
        "body 4 MiB": lambda: send(make(body=bytes(most))),
        "129 properties": lambda: send(make(user=many)),
        "17 KiB of properties": lambda: send(make(user={"k": "v" * 17000})),
        "property KEYS": lambda: send(make(user={"KEYS": "v"})),
        "property with control character": lambda: send(make(user={"k": "v\x01"})),
        "tag with |": lambda: send(make(tag="a|b")),
        "blank tag": lambda: send(make(tag="  ")),
        "blank key": lambda: send(make(keys=[" "])),
        "no message id": lambda: send(make(message_id="")),
        "group of 63 bytes to Fifo": lambda: send(make(message_group="g" * 63, **fifo)),
        "group of 64 bytes to Fifo": lambda: send(make(message_group="g" * 64, **fifo)),
        "plain to Fifo": lambda: send(make("Fifo")),
        "delay to Normal": lambda: send(make(delivery_timestamp=door.stamp(5), message_type=3)),
        "delay in the past": lambda: send(
            make("Delay", delivery_timestamp=door.stamp(-5), message_type=3)
        ),
        "delay of 25 h": lambda: send(
            make("Delay", delivery_timestamp=door.stamp(90_000), message_type=3)
        ),
        "recovery of 2 h": lambda: send(
            make("Txn", orphaned_transaction_recovery_duration=hours, message_type=4)
        ),
        "wrong digest": lambda: send(make(body_digest=digest)),
        "unknown language": lambda: send(make(), **{"x-mq-language": "KLINGON"}),
    }


def _others(door: DoorBroker) -> dict[str, Callable[[], Any]]:
    def resource(name: str, namespace: str = "") -> Any:
        return messages.Resource(name=name, resource_namespace=namespace)

    def end(**fields: str) -> Any:
        request = messages.EndTransactionRequest(
            topic=resource("Txn"), resolution=TransactionResolution.COMMIT, **fields
        )
        return door.unary("EndTransaction", request)

    def recall(topic: str) -> Any:
        request = messages.RecallMessageRequest(topic=resource(topic), recall_handle="rubbish")
        return door.unary("RecallMessage", request)

    def route(name: str, namespace: str = "") -> Any:
        request = messages.QueryRouteRequest(topic=resource(name, namespace))
        return door.unary("QueryRoute", request)

    def settings(**fields: Any) -> Any:
        command = messages.TelemetryCommand(settings=messages.Settings(**fields))
        call = door.telemetry(command)
        return call.end if call.end is not None else call.sent[0]

    probe = resource("probe")
    bad_topic = messages.Publishing(topics=[resource("a b")])
    entry = messages.SubscriptionEntry(topic=resource("Normal"))
    return {
        "end: empty id": end,
        "end: unknown id": lambda: end(transaction_id="XYZ", message_id="XYZ"),
        "recall: malformed": lambda: recall("Delay"),
        "recall: of a normal topic": lambda: recall("Normal"),
        "route: no such topic": lambda: route("Nope"),
        "assignment: no such topic": lambda: door.unary(
            "QueryAssignment",
            messages.QueryAssignmentRequest(topic=resource("Nope"), group=probe),
        ),
        "namespace: ignored?": lambda: route("Normal", "ns"),
        "heartbeat: no settings": lambda: door.unary(
            "Heartbeat", messages.HeartbeatRequest(group=probe, client_type=3)
        ),
        "terminate: no settings": lambda: door.unary(
            "NotifyClientTermination", messages.NotifyClientTerminationRequest(group=probe)
        ),
        "telemetry: no pub or sub": lambda: settings(client_type=1),
        "telemetry: bad topic": lambda: settings(client_type=1, publishing=bad_topic),
        "telemetry: consumer": lambda: settings(
            client_type=3,
            subscription=messages.Subscription(group=probe, subscriptions=[entry]),
        ),
    }


def _outcome(work: Callable[[], Any]) -> tuple[str, list[str]]:
    """Return the code of an answer, and those of its entries; or the status that ended the call."""
    try:
        answer = work()
    except GrpcRefusal as refusal:
        return f"grpc {refusal.status.name}", []
    if isinstance(answer, tuple):  # how a stream ended
        return f"grpc {answer[0].name}", []
    entries = getattr(answer, "entries", ())
    return code_of(answer), [code_of(entry) for entry in entries]


def _javas(row: dict[str, Any]) -> tuple[str, list[str]]:
    code = f"grpc {row['grpc']}" if "grpc" in row else str(row["code"])
    return code, row.get("entries", [])


SERVED = [name for name in CASES if name not in BY_THE_TRANSPORT]


@pytest.mark.parametrize("case", [name for name in SERVED if not name.startswith(OF_CONSUMERS)])
def test_odd_requests_are_answered_as_java_does(door: DoorBroker, case: str) -> None:
    works = {f"send: {name}": work for name, work in _sends(door).items()} | _others(door)
    code, entries = _outcome(works[case])
    wanted, javas_entries = _javas(CASES[case])
    difference = DIFFERENCES.get(case)
    if difference is not None:
        assert (code, entries) != (wanted, javas_entries), "no difference any more: drop its row"
        assert code == difference.code
        if difference.why == NO_CONSUMERS:
            return
    else:
        assert code == wanted
    if code == "OK" and case.startswith("send:"):
        assert entries == ["OK"] * (2 if "two" in case else 1)


def test_each_row_of_the_table_is_a_case() -> None:
    assert DIFFERENCES.keys() <= CASES.keys()
    assert CASES.keys() >= BY_THE_TRANSPORT


def test_methods_of_consumers_are_refused_with_a_sentence(door: DoorBroker) -> None:
    for name in ("AckMessage", "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"):
        request = getattr(messages, f"{name}Request")()
        with pytest.raises(GrpcRefusal, match="serves producers of RocketMQ 5"):
            door.unary(name, request)
    with pytest.raises(GrpcRefusal, match="serves producers of RocketMQ 5"):
        door.methods["ReceiveMessage"].serve(None, messages.ReceiveMessageRequest())
    assert BY_THE_TRANSPORT.isdisjoint(door.methods)
