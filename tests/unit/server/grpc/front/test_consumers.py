"""Consumers through the gRPC door: receive, acknowledge, change, dead letters, renewals.

Spec: grpc.md, section 6; errors as in `test_door_errors`.
"""

import zlib
from typing import Any

import pytest

from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.stat_bodies import ConsumerConnection
from rmq_ha.ops.app.page.rows import PageRows
from rmq_ha.ops.app.page.values import ClientRow
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import AnswerCode
from rmq_ha.server.grpc.wire.status import GrpcStatus
from tests.unit.server.grpc.front.door_kit import DoorBroker, FakeCall, code_of

GROUP = "probe"


class PoppingDoor(DoorBroker):
    """The broker of the kit, which serves consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.configuration.ours.pop_enable = True

    def receive(
        self,
        topic: str = "Normal",
        group: str = GROUP,
        *,
        left: float | None = 12.0,
        wait: float = 5.0,
        invisible: float | None = 15.0,
        expression: str = "*",
        kind: int = 1,
        most: int = 4,
    ) -> FakeCall:
        """Call ReceiveMessage; the call may be open still when this returns."""
        request = messages.ReceiveMessageRequest(batch_size=most)
        request.group.name = group
        request.message_queue.topic.name = topic
        request.filter_expression.type, request.filter_expression.expression = kind, expression
        request.long_polling_timeout.FromMilliseconds(int(wait * 1000))
        request.auto_renew = invisible is None
        if invisible is not None:
            request.invisible_duration.FromMilliseconds(int(invisible * 1000))
        call = FakeCall("ReceiveMessage", self.metadata, self.peer)
        call.deadline = None if left is None else self.world.clock.seconds() + left
        ended = self.methods["ReceiveMessage"].serve(call, request)
        ended.addErrback(lambda failure: call.finish(failure.value.status, failure.value.text))
        self.run(0.05)
        return call

    def got(self, **asked: Any) -> list[Any]:
        """Receive messages that are there."""
        call = self.receive(**asked)
        assert code(call) == "OK", call.sent
        return [item.message for item in call.sent if item.HasField("message")]

    def ack(self, *handles: str, topic: str = "Normal", group: str = GROUP) -> Any:
        request = messages.AckMessageRequest()
        request.group.name, request.topic.name = group, topic
        for handle in handles:
            request.entries.add(message_id="m", receipt_handle=handle)
        return self.unary("AckMessage", request)

    def change(self, handle: str, seconds: float, topic: str = "Normal") -> Any:
        request = messages.ChangeInvisibleDurationRequest(receipt_handle=handle)
        request.group.name, request.topic.name = GROUP, topic
        request.invisible_duration.FromMilliseconds(int(seconds * 1000))
        return self.unary("ChangeInvisibleDuration", request)

    def fill(self, count: int = 1, topic: str = "Normal", **system: Any) -> list[str]:
        """Begin the group, and send messages; return their ids."""
        self.receive(topic)
        self.run(6)
        batch = [self.message_for(topic, str(n).encode(), **system) for n in range(count)]
        if batch:
            assert code_of(self.send_all(*batch)) == "OK"
        self.run(0.1)
        return [message.system_properties.message_id for message in batch]


def code(call: FakeCall) -> str:
    """Return the code in the first answer."""
    return AnswerCode(call.sent[0].status.code).name


def handle_of(message: Any) -> str:
    return str(message.system_properties.receipt_handle)


@pytest.fixture
def door() -> PoppingDoor:
    made = PoppingDoor()
    made.start()
    return made


def test_a_message_is_received_acknowledged_and_never_comes_again(door: PoppingDoor) -> None:
    (sent,) = door.fill(tag="t", user={"colour": "red"}, keys=["k"])
    (message,) = door.got()
    system = message.system_properties
    assert (message.topic.name, message.body, system.message_id) == ("Normal", b"0", sent)
    assert (system.tag, list(system.keys), dict(message.user_properties)) == (
        "t",
        ["k"],
        {"colour": "red"},
    )
    assert system.delivery_attempt == 1
    assert len(handle_of(message).split(" ")) == 9
    assert code_of(door.ack(handle_of(message))) == "OK"
    door.run(40)
    call = door.receive()
    door.run(6)
    assert code(call) == "MESSAGE_NOT_FOUND"
    answers = door.broker.grpc.service.answers
    assert answers["ReceiveMessage", "OK"] == 1
    assert answers["ReceiveMessage", "MESSAGE_NOT_FOUND"] == 2
    assert [item.WhichOneof("content") for item in call.sent] == ["status", "delivery_timestamp"]


def test_a_message_that_nobody_acknowledges_comes_again(door: PoppingDoor) -> None:
    (sent,) = door.fill()
    (first,) = door.got(invisible=10.0)
    door.run(13)
    (again,) = door.got()
    assert again.system_properties.message_id == sent
    assert again.system_properties.delivery_attempt == 2
    assert again.topic.name == "Normal"
    assert code_of(door.ack(handle_of(first))) == "INVALID_RECEIPT_HANDLE"
    assert code_of(door.ack(handle_of(again))) == "OK"


def test_a_waiting_call_gets_a_message_that_arrives(door: PoppingDoor) -> None:
    door.fill(0)
    call = door.receive()
    door.run(1)
    assert call.sent == []
    door.send_all(door.message_for())
    door.run(0.1)
    assert code(call) == "OK"
    assert call.end == (GrpcStatus.OK, "")


def test_a_cancelled_call_takes_no_message(door: PoppingDoor) -> None:
    door.fill(0)
    call = door.receive()
    call.finish(GrpcStatus.CANCELLED)
    door.send_all(door.message_for())
    door.run(0.1)
    assert len(door.got()) == 1


def test_a_changed_message_comes_when_it_is_due_and_wakes_a_waiting_call(
    door: PoppingDoor,
) -> None:
    door.fill()
    (message,) = door.got()
    answer = door.change(handle_of(message), 2)
    assert code_of(answer) == "OK"
    assert answer.receipt_handle != handle_of(message)
    call = door.receive()
    door.run(4.5)
    assert code(call) == "OK"


def test_a_push_consumers_message_stays_out_while_the_consumer_lives(door: PoppingDoor) -> None:
    door.fill()
    beat = messages.HeartbeatRequest(client_type=2)
    beat.group.name = GROUP
    assert code_of(door.unary("Heartbeat", beat)) == "OK"
    (message,) = door.got(invisible=None)
    for _ in range(4):
        door.run(60)
        assert code_of(door.unary("Heartbeat", beat)) == "OK"
        waiting = door.receive(wait=5)
        door.run(6)
        assert code(waiting) == "MESSAGE_NOT_FOUND"
    assert code_of(door.ack(handle_of(message))) == "OK"
    assert len(door.broker.grpc.service.consumers.renewals) == 0


def test_the_messages_of_a_push_consumer_that_ends_come_soon(door: PoppingDoor) -> None:
    door.fill()
    beat = messages.HeartbeatRequest(client_type=2)
    beat.group.name = GROUP
    door.unary("Heartbeat", beat)
    door.got(invisible=None)
    request = messages.NotifyClientTerminationRequest()
    request.group.name = GROUP
    assert code_of(door.unary("NotifyClientTermination", request)) == "OK"
    door.run(12)
    assert len(door.got()) == 1


def test_a_message_goes_to_the_dead_letters(door: PoppingDoor) -> None:
    (sent,) = door.fill()
    (message,) = door.got()
    request = messages.ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle_of(message))
    request.group.name, request.topic.name = GROUP, "Normal"
    assert code_of(door.unary("ForwardMessageToDeadLetterQueue", request)) == "OK"
    (dead,) = door.stored(f"%DLQ%{GROUP}")
    assert dead.properties["UNIQ_KEY"] == sent
    assert code_of(door.ack(handle_of(message))) in ("OK", "INVALID_RECEIPT_HANDLE")


def test_a_packed_body_of_a_remoting_producer_is_unpacked(door: PoppingDoor) -> None:
    door.fill(0)
    packed = zlib.compress(b"long" * 100)
    message = door.message_for(body=packed, body_encoding=2)
    door.send_all(message)
    door.run(0.1)
    (got,) = door.got()
    assert (got.body, got.system_properties.body_encoding) == (b"long" * 100, 1)


def test_an_orderly_group_gets_a_queues_messages_one_after_another(door: PoppingDoor) -> None:
    door.broker.groups.update(SubscriptionGroupConfig(GROUP, consume_message_orderly=True))
    door.fill(3, "Fifo", message_group="g", message_type=2)
    (first, *_) = door.got(topic="Fifo", most=1)
    assert first.body == b"0"
    blocked = door.receive("Fifo", most=1)
    door.run(1)
    assert blocked.sent == []
    assert code_of(door.ack(handle_of(first), topic="Fifo")) == "OK"
    door.run(0.2)
    assert [item.message.body for item in blocked.sent if item.HasField("message")] == [b"1"]


def test_settings_of_a_consumer_have_what_its_group_has(door: PoppingDoor) -> None:
    group = SubscriptionGroupConfig(GROUP, retry_max_times=3, consume_message_orderly=True)
    door.broker.groups.update(group)
    command = messages.TelemetryCommand()
    command.settings.client_type = 3
    command.settings.subscription.group.name = GROUP
    command.settings.subscription.subscriptions.add().topic.name = "Normal"
    call = door.telemetry(command)
    settings = call.sent[0].settings
    assert settings.subscription.fifo
    assert settings.subscription.receive_batch_size == 32
    assert settings.backoff_policy.max_attempts == 4
    pauses = [pause.seconds for pause in settings.backoff_policy.customized_backoff.next]
    assert pauses[:5] + pauses[-1:] == [1, 5, 10, 30, 60, 7200]
    assert len(pauses) == 18


def test_all_queues_are_assigned_to_each_consumer(door: PoppingDoor) -> None:
    request = messages.QueryAssignmentRequest()
    request.group.name, request.topic.name = GROUP, "Normal"
    found = door.unary("QueryAssignment", request).assignments
    assert [item.message_queue.id for item in found] == [-1]
    door.broker.groups.update(SubscriptionGroupConfig(GROUP, consume_message_orderly=True))
    found = door.unary("QueryAssignment", request).assignments
    assert [item.message_queue.id for item in found] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"topic": "Nope"}, "TOPIC_NOT_FOUND"),
        ({"invisible": 5}, "ILLEGAL_INVISIBLE_TIME"),
        ({"invisible": 46800}, "ILLEGAL_INVISIBLE_TIME"),
        ({"left": 3}, "ILLEGAL_POLLING_TIME"),
        ({"expression": "a ===", "kind": 2}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"group": "a b"}, "ILLEGAL_CONSUMER_GROUP"),
    ],
)
def test_odd_receives(door: PoppingDoor, asked: dict[str, Any], wanted: str) -> None:
    door.configuration.broker.enable_property_filter = True
    assert code(door.receive(**asked)) == wanted


def test_without_a_deadline_a_call_waits_as_long_as_it_asks(door: PoppingDoor) -> None:
    door.fill(0)
    call = door.receive(left=None)
    door.run(4.5)
    assert call.sent == []
    door.run(1)
    assert code(call) == "MESSAGE_NOT_FOUND"


def test_odd_handles(door: PoppingDoor) -> None:
    door.fill()
    (message,) = door.got()
    fields = handle_of(message).split(" ")
    other = " ".join([*fields[:5], "no-such-broker", *fields[6:]])
    old = " ".join([fields[0], str(int(fields[1]) - 3_600_000), *fields[2:]])
    for handle in ("rubbish", other, old, "1 2 3 4 5 broker-a 0 -1"):
        assert code_of(door.ack(handle)) == "INVALID_RECEIPT_HANDLE"
    answer = door.ack(handle_of(message), "rubbish")
    assert code_of(answer) == "MULTIPLE_RESULTS"
    assert [code_of(entry) for entry in answer.entries] == ["OK", "INVALID_RECEIPT_HANDLE"]
    assert code_of(door.change(handle_of(message), 46800)) == "ILLEGAL_INVISIBLE_TIME"


def test_odd_times_of_a_remoting_producer_stop_no_message(door: PoppingDoor) -> None:
    door.fill(0)
    request = door.message(b"odd", "Normal", UNIQ_KEY="k", TIMER_DELIVER_MS="9" * 15, DELAY="1")
    for born in (-5, (1 << 63) - 1):
        assert request.ext is not None
        request.ext["g"] = str(born)
        assert door.call(request).code == 0
    door.run(3)
    assert [message.body for message in door.got()] == [b"odd", b"odd"]


def consumer(door: PoppingDoor, **metadata: str) -> FakeCall:
    """Send the settings of a consumer of the topic Normal."""
    command = messages.TelemetryCommand()
    command.settings.client_type = 2
    command.settings.subscription.group.name = GROUP
    entry = command.settings.subscription.subscriptions.add()
    entry.topic.name = "Normal"
    entry.expression.type, entry.expression.expression = 1, "red"
    return door.telemetry(command, **metadata)


def connected(door: PoppingDoor, group: str = GROUP) -> Any:
    """The answer to GET_CONSUMER_CONNECTION_LIST."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    return door.call(RemotingCommand(code, {"consumerGroup": group}))


def test_operators_see_a_consumer_with_its_language_and_the_version_of_its_sdk(
    door: PoppingDoor,
) -> None:
    assert connected(door).code == 206
    consumer(door)
    answer = connected(door)
    body = ConsumerConnection.decode(answer.body or b"")
    (member,) = body.connections
    assert (member.client_id, member.client_address) == ("probe@1", "10.0.0.9:77")
    assert (member.language, member.version_text, member.protocol) == ("PYTHON", "5.1.2", "gRPC")
    assert body.subscriptions["Normal"].sub_string == "red"
    # Members of remoting share the queues among all members, and this one takes no share.
    ids = {"consumerGroup": GROUP}
    assert door.call(RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ids)).code == 1
    rows: list[ClientRow] = []
    list(PageRows(door.broker).clients(rows))
    assert [(row.group, row.protocol, row.version) for row in rows] == [(GROUP, "gRPC", "5.1.2")]


def test_a_question_to_a_client_of_grpc_is_refused_with_the_reason(door: PoppingDoor) -> None:
    """ "Not online" would be untrue of a client that `group show` lists."""
    consumer(door)
    for client, text in [("probe@1", "is a client of gRPC"), ("nobody", "not online")]:
        asked = {"consumerGroup": GROUP, "clientId": client}
        answer = door.call(RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, asked))
        assert (answer.code, text in (answer.remark or "")) == (1, True), answer.remark


def test_a_consumer_is_listed_until_it_says_good_bye_or_falls_silent(door: PoppingDoor) -> None:
    consumer(door)
    door.run(100)
    request = messages.HeartbeatRequest(client_type=2)
    request.group.name = GROUP
    assert code_of(door.unary("Heartbeat", request)) == "OK"
    door.run(100)
    assert connected(door).code == 0
    door.run(60)
    assert connected(door).code == 206
    consumer(door)
    assert connected(door).code == 0
    door.unary("NotifyClientTermination", messages.NotifyClientTerminationRequest())
    assert connected(door).code == 206


def test_many_receipts_in_one_request_are_answered_in_order(door: PoppingDoor) -> None:
    door.fill(2)
    first, second = door.got()
    handles = [handle_of(first), *["rubbish"] * 60, handle_of(second)]
    answer = door.ack(*handles)
    assert code_of(answer) == "MULTIPLE_RESULTS"
    assert [entry.receipt_handle for entry in answer.entries] == handles
    codes = [code_of(entry) for entry in answer.entries]
    assert codes == ["OK", *["INVALID_RECEIPT_HANDLE"] * 60, "OK"]


def test_more_receipts_than_a_request_may_have(door: PoppingDoor) -> None:
    """Half a million of them held all other clients for 15 s."""
    assert code_of(door.ack(*["rubbish"] * 1001)) == "BAD_REQUEST"
