"""Messages, transactions, recalls, routes and accounts through the gRPC door.

Spec: grpc.md, sections 3 to 8, 10 and 13.
"""

import hashlib
import hmac
import zlib
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.stat_bodies import ProducerTable
from rmq_ha.server.grpc.front.consistent_hash import queue_of_group
from rmq_ha.server.grpc.front.transactions import TransactionId, parse_transaction_id
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import TransactionResolution
from rmq_ha.server.grpc.wire.status import GrpcStatus
from tests.unit.server.grpc.front.door_kit import METADATA, DoorBroker, code_of

COMMIT, ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK


@pytest.fixture
def door() -> DoorBroker:
    return DoorBroker().start()


# ------------------------------------------------------------ sends


def test_a_message_is_stored_as_javas_proxy_stores_it(door: DoorBroker) -> None:
    message = door.message_for(
        "Normal",
        b"body",
        tag="t",
        keys=["k1", "k2"],
        born_host="192.0.2.2",
        trace_context="trace",
        user={"colour": "red"},
    )
    answer = door.send_all(message)
    assert code_of(answer) == "OK"
    (record,) = door.stored("Normal")
    properties = record.properties
    born_ms = message.system_properties.born_timestamp.ToMilliseconds()
    assert properties == {
        "colour": "red",
        "UNIQ_KEY": message.system_properties.message_id,
        "TAGS": "t",
        "KEYS": "k1 k2",
        "TRACE_CONTEXT": "trace",
        "RECONSUME_TIME": "0",
        "BORN_TIMESTAMP": str(born_ms),
        "__BORNHOST": "192.0.2.2",
        "PGROUP": "Normal",
        "CLUSTER": "DefaultCluster",
    }
    assert (record.body, record.born_timestamp) == (b"body", born_ms)
    assert str(record.born_host) == door.peer.remote_text
    (entry,) = answer.entries
    assert entry.message_id == entry.transaction_id == properties["UNIQ_KEY"]
    assert entry.offset == record.queue_offset


@pytest.mark.parametrize(("group", "queue"), [("group0", 1), ("group1", 3), ("group2", 0)])
def test_a_message_group_is_in_the_queue_that_javas_proxy_chose(group: str, queue: int) -> None:
    assert queue_of_group(group, 4) == queue  # as recorded
    assert queue_of_group(group, 1) == 0


def test_messages_of_a_group_share_a_queue_whatever_queue_they_name(door: DoorBroker) -> None:
    for number in range(4):
        message = door.message_for("Fifo", message_group="group1", message_type=2, queue_id=number)
        assert code_of(door.send_all(message)) == "OK"
    assert {record.queue_id for record in door.stored("Fifo")} == {queue_of_group("group1", 4)}


def test_each_message_of_a_request_has_its_own_result_and_keeps_its_order(
    door: DoorBroker,
) -> None:
    batch = [
        door.message_for("Mixed", str(number).encode(), message_group="g", message_type=2)
        for number in range(70)  # more than are stored in one turn
    ]
    answer = door.send_all(*batch)
    assert code_of(answer) == "OK"
    assert [entry.offset for entry in answer.entries] == list(range(70))
    wanted = [message.system_properties.message_id for message in batch]
    assert [entry.message_id for entry in answer.entries] == wanted


def test_a_control_character_in_an_id_makes_no_property(door: DoorBroker) -> None:
    for name, code in (
        ("message_id", "ILLEGAL_MESSAGE_ID"),
        ("trace_context", "BAD_REQUEST"),
        ("born_host", "BAD_REQUEST"),
        ("message_group", "ILLEGAL_MESSAGE_GROUP"),
    ):
        message = door.message_for("Mixed", **{name: "a\x02TRAN_MSG\x01true"})
        assert code_of(door.send_all(message)) == code
    assert door.stored("Mixed") == []


def test_what_is_not_served_is_refused(door: DoorBroker) -> None:
    for fields, code in (
        ({"lite_topic": "l"}, "ILLEGAL_LITE_TOPIC"),
        ({"priority": 1}, "BAD_REQUEST"),
        ({"message_type": 5}, "ILLEGAL_LITE_TOPIC"),
        ({"user": {"RMQHA_SENT_BY": "me"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    ):
        assert code_of(door.send_all(door.message_for("Mixed", **fields))) == code


def test_a_namespace_is_part_of_the_stored_name(door: DoorBroker) -> None:
    door.broker.topics.update(TopicConfig("ns%Normal", 4, 4))
    assert code_of(door.send_all(door.message_for("Normal", namespace="ns"))) == "OK"
    assert len(door.stored("ns%Normal")) == 1
    assert door.stored("Normal") == []
    request = messages.QueryRouteRequest()
    request.topic.name, request.topic.resource_namespace = "Normal", "ns"
    queues = door.unary("QueryRoute", request).message_queues
    assert {(item.topic.resource_namespace, item.topic.name) for item in queues} == {
        ("ns", "Normal")
    }


def test_keys_change_the_rules_while_the_broker_runs(door: DoorBroker) -> None:
    ours = door.configuration.ours
    ours.enable_topic_message_type_check = False
    assert code_of(door.send_all(door.message_for("Fifo"))) == "OK"
    ours.enable_topic_message_type_check = True
    ours.grpc_default_message_type = "FIFO"
    assert code_of(door.send_all(door.message_for("Mixed"))) == (
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    )


def test_a_full_or_closed_topic_has_no_writable_queue(door: DoorBroker) -> None:
    door.broker.topics.update(TopicConfig("Closed", 4, 4, perm=4))
    assert code_of(door.send_all(door.message_for("Closed"))) == "FORBIDDEN"


# ------------------------------------------------------------ delays and recalls


def test_a_message_is_delivered_when_it_is_due_unless_it_is_recalled(door: DoorBroker) -> None:
    kept, recalled = (
        door.message_for("Delay", delivery_timestamp=door.stamp(30), message_type=3)
        for _ in range(2)
    )
    handles = [entry.recall_handle for entry in door.send_all(kept, recalled).entries]
    version, topic, broker, *_ = urlsafe_b64decode(handles[1]).decode().split(" ")
    assert (version, topic, broker) == ("v1", "Delay", "broker-a")
    request = messages.RecallMessageRequest(recall_handle=handles[1])
    request.topic.name = "Delay"
    answer = door.unary("RecallMessage", request)  # waits until a queue has the message
    assert code_of(answer) == "OK"
    assert answer.message_id == recalled.system_properties.message_id
    door.run(20)
    assert door.stored("Delay") == []
    door.run(15)
    (record,) = door.stored("Delay")
    assert record.properties["UNIQ_KEY"] == kept.system_properties.message_id
    assert code_of(door.unary("RecallMessage", request)) == "OK"  # it was recalled
    request.recall_handle = handles[0]
    assert code_of(door.unary("RecallMessage", request)) == "BAD_REQUEST"  # too late


def test_without_timers_a_delay_is_refused_with_the_key() -> None:
    door = DoorBroker()
    door.configuration.ours.timer_wheel_enable = False
    door.start()
    message = door.message_for("Delay", delivery_timestamp=door.stamp(5), message_type=3)
    answer = door.send_all(message)
    assert code_of(answer) == "ILLEGAL_DELIVERY_TIME"
    assert "timerWheelEnable=true" in answer.status.message


# ------------------------------------------------------------ transactions


def half(door: DoorBroker, body: bytes = b"half", **system: Any) -> Any:
    """Send a half message; return the entry of its answer."""
    message = door.message_for("Txn", body, message_type=4, **system)
    answer = door.send_all(message)
    assert code_of(answer) == "OK"
    return answer.entries[0]


def end(door: DoorBroker, transaction_id: str, resolution: int, topic: str = "Txn") -> str:
    request = messages.EndTransactionRequest(transaction_id=transaction_id, resolution=resolution)
    request.topic.name = topic
    return code_of(door.unary("EndTransaction", request))


def test_a_transaction_is_delivered_when_it_is_committed(door: DoorBroker) -> None:
    first, second = half(door), half(door)
    assert door.stored("Txn") == []
    assert end(door, second.transaction_id, ROLLBACK) == "OK"
    assert end(door, first.transaction_id, COMMIT) == "OK"
    assert end(door, first.transaction_id, COMMIT) == "OK"  # again changes nothing
    (record,) = door.stored("Txn")
    assert record.properties["UNIQ_KEY"] == first.message_id


def test_a_transaction_of_another_topic_cannot_be_ended(door: DoorBroker) -> None:
    entry = half(door)
    assert end(door, entry.transaction_id, COMMIT, "Mixed") == "INTERNAL_SERVER_ERROR"
    place = parse_transaction_id(entry.transaction_id)
    elsewhere = place._replace(physical_offset=place.physical_offset + 1)
    assert end(door, str(elsewhere), COMMIT) == "INTERNAL_SERVER_ERROR"
    other = place._replace(unique_id="01" + "F" * 32)
    assert end(door, str(other), COMMIT) == "INTERNAL_SERVER_ERROR"
    assert door.stored("Txn") == []


@pytest.mark.parametrize("text", ["x", "a.b", "a.1.", "a..1", "a.G.1", "a.-1.1", f"a.{'F' * 16}.1"])
def test_ids_of_others_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="did not make the transaction id"):
        parse_transaction_id(text)


def test_an_id_may_have_dots() -> None:
    place = TransactionId("a.b", 10, 255)
    assert parse_transaction_id(str(place)) == place


def test_the_producer_is_asked_about_what_it_left_open(door: DoorBroker) -> None:
    stream = door.producer("Txn")
    entry = half(door, user={"colour": "red"}, tag="t", keys=["k"])
    door.rounds(3)
    command = stream.sent[-1].recover_orphaned_transaction_command
    message = command.message
    assert (message.topic.name, message.body) == ("Txn", b"half")
    system = message.system_properties
    assert (system.message_id, system.tag, list(system.keys)) == (entry.message_id, "t", ["k"])
    assert system.message_type == 4
    assert dict(message.user_properties) == {"colour": "red"}
    digest = hashlib.md5(b"half").hexdigest().upper()
    assert (system.body_digest.type, system.body_digest.checksum) == (2, digest)
    assert command.transaction_id != entry.transaction_id  # a copy has taken its place
    assert end(door, command.transaction_id, COMMIT) == "OK"
    assert [record.properties["UNIQ_KEY"] for record in door.stored("Txn")] == [entry.message_id]
    before = len(stream.sent)
    door.rounds(3)
    assert len(stream.sent) == before


def test_a_packed_body_is_unpacked_for_the_client(door: DoorBroker) -> None:
    stream = door.producer("Txn")
    packed = zlib.compress(b"long" * 100, wbits=31)
    half(door, packed, body_encoding=2)
    door.rounds(3)
    message = stream.sent[-1].recover_orphaned_transaction_command.message
    assert (message.body, message.system_properties.body_encoding) == (b"long" * 100, 1)


def test_nobody_is_asked_who_went_away(door: DoorBroker) -> None:
    stream = door.producer("Txn")
    request = messages.NotifyClientTerminationRequest()
    assert code_of(door.unary("NotifyClientTermination", request)) == "OK"
    assert stream.end == (GrpcStatus.OK, "")
    half(door)
    door.rounds(3)
    assert len(stream.sent) == 1
    assert code_of(door.unary("NotifyClientTermination", request)) == "UNRECOGNIZED_CLIENT_TYPE"


# ------------------------------------------------------------ clients


def producers(door: DoorBroker) -> dict[str, list[Any]]:
    answer = door.call(RemotingCommand(RequestCode.GET_ALL_PRODUCER_INFO))
    return dict(ProducerTable.decode(answer.body or b"{}").data)


@pytest.mark.parametrize(
    ("language", "knows"), [("JAVA", True), ("HTTP", True), ("PYTHON", False), ("RUST", False)]
)
def test_clients_of_a_former_master_are_told_to_reconnect(
    door: DoorBroker, language: str, knows: bool
) -> None:
    stream = door.producer("Normal", **{"x-mq-language": language})
    door.broker.drain_clients()
    commands = [item.WhichOneof("command") for item in stream.sent]
    assert commands == ["settings", *["reconnect_endpoints_command"] * knows]
    assert stream.is_open is not knows


def test_a_producer_is_listed_until_it_is_not_heard_of(door: DoorBroker) -> None:
    door.producer("Txn", "Normal")
    assert set(producers(door)) == {"Txn", "Normal"}
    (client,) = producers(door)["Txn"]
    assert (client.client_id, client.language) == (METADATA["x-mq-client-id"], "PYTHON")
    beat = messages.HeartbeatRequest(client_type=1)
    for _ in range(3):
        door.run(100)
        assert code_of(door.unary("Heartbeat", beat)) == "OK"
    assert set(producers(door)) == {"Txn", "Normal"}
    door.run(140)
    assert producers(door) == {}
    assert code_of(door.unary("Heartbeat", beat)) == "UNRECOGNIZED_CLIENT_TYPE"


def test_new_settings_replace_the_topics(door: DoorBroker) -> None:
    door.producer("Txn")
    door.producer("Normal")
    assert set(producers(door)) == {"Normal"}


# ------------------------------------------------------------ routes


def route(door: DoorBroker, topic: str) -> Any:
    request = messages.QueryRouteRequest()
    request.topic.name = topic
    return door.unary("QueryRoute", request)


def test_a_route_names_the_door_and_the_types(door: DoorBroker) -> None:
    queues = route(door, "Fifo").message_queues
    assert [item.id for item in queues] == [0, 1, 2, 3]
    assert {tuple(item.accept_message_types) for item in queues} == {(2,)}
    assert {tuple(item.accept_message_types) for item in route(door, "Mixed").message_queues} == {
        (1, 2, 3, 4)
    }
    broker = queues[0].broker
    (address,) = broker.endpoints.addresses
    assert (broker.name, broker.id, address.host, address.port) == (
        "broker-a",
        0,
        door.host.ip,
        8081,
    )
    door.configuration.ours.grpc_advertised = "door.example.org:443"
    endpoints = route(door, "Fifo").message_queues[0].broker.endpoints
    assert (endpoints.scheme, endpoints.addresses[0].host) == (3, "door.example.org")


def test_queues_have_the_permissions_of_their_topic(door: DoorBroker) -> None:
    door.broker.topics.update(TopicConfig("Less", 1, 3))
    found = [(item.id, item.permission) for item in route(door, "Less").message_queues]
    assert found == [(1, 3), (2, 3), (0, 4)]


# ------------------------------------------------------------ slaves


def test_a_slave_stores_nothing() -> None:
    door = DoorBroker()
    door.configuration.store.broker_role = BrokerRole.SLAVE
    door.configuration.broker.broker_id = 1
    door.start()
    assert code_of(door.send_all(door.message_for())) == "HA_NOT_AVAILABLE"
    assert end(door, str(TransactionId("a", 1, 1)), COMMIT) == "HA_NOT_AVAILABLE"
    request = messages.RecallMessageRequest(recall_handle="x")
    request.topic.name = "Delay"
    assert code_of(door.unary("RecallMessage", request)) == "HA_NOT_AVAILABLE"
    assert code_of(route(door, "Normal")) == "HA_NOT_AVAILABLE"
    assert door.producer("Normal").sent[0].status.code == 20000


# ------------------------------------------------------------ accounts

ACL = """
globalWhiteRemoteAddresses: [10.9.9.9]
accounts:
- {accessKey: sendersender, secretKey: sendersecret, topicPerms: [Normal=PUB, Txn=PUB]}
- {accessKey: adminadmin, secretKey: adminsecret, admin: true}
"""
DATE = "20261128T165032Z"


def signed(key: str, secret: str, **more: str) -> dict[str, str]:
    digest = hmac.new(secret.encode(), DATE.encode(), "sha1").hexdigest().upper()
    text = f"MQv2-HMAC-SHA1 Credential={key}/region/RocketMQ, SignedHeaders=x-mq-date-time, "
    return {"authorization": f"{text}Signature={digest}", "x-mq-date-time": DATE, **more}


def guarded(**ours: Any) -> DoorBroker:
    door = DoorBroker()
    door.host.disk.replace("/conf/plain_acl.yml", ACL.encode())
    door.configuration.broker.acl_enable = True
    door.configuration.ours.acl_plug_in = "plain"
    door.configuration.ours.acl_directory = "/conf"
    for name, value in ours.items():
        setattr(door.configuration.ours, name, value)
    return door.start()


def test_accounts_have_the_rights_that_remoting_gives_them() -> None:
    door = guarded()
    good = signed("sendersender", "sendersecret")
    assert code_of(door.send_all(door.message_for(), **good)) == "OK"
    assert code_of(door.send_all(door.message_for("Fifo"), **good)) == "UNAUTHORIZED"
    empty = {
        "authorization": "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=00"
    }
    for headers in ({}, empty, signed("sendersender", "wrong"), signed("nobodyhere", "x" * 7)):
        assert code_of(door.send_all(door.message_for(), **headers)) == "UNAUTHORIZED"
    request = messages.QueryRouteRequest()
    request.topic.name = "Fifo"
    assert code_of(door.unary("QueryRoute", request, **good)) == "UNAUTHORIZED"
    stream = door.producer("Normal", "Fifo", **good)
    assert stream.end is not None
    assert stream.end[0] is GrpcStatus.UNAUTHENTICATED
    assert door.producer("Normal", **good).end is None
    beat = messages.HeartbeatRequest(client_type=1)
    assert code_of(door.unary("Heartbeat", beat)) == "UNAUTHORIZED"
    assert code_of(door.unary("Heartbeat", beat, **good)) == "OK"
    other = signed("adminadmin", "adminsecret")  # the same client id is another client
    assert code_of(door.unary("Heartbeat", beat, **other)) == "UNRECOGNIZED_CLIENT_TYPE"


def test_a_white_address_needs_no_account() -> None:
    door = guarded()
    door.peer.host = "10.9.9.9"
    assert code_of(door.send_all(door.message_for())) == "OK"


def test_keys_of_access_control_hold_for_the_door() -> None:
    good = signed("sendersender", "sendersecret")
    answer = guarded(acl_requires_signed_time=True)
    refusal = answer.send_all(answer.message_for(), **good).status
    assert "aclRequiresSignedTime=true" in refusal.message


def test_ends_of_transactions_need_the_right_to_the_topic() -> None:
    door = guarded()
    good = signed("sendersender", "sendersecret")
    door.metadata |= good
    entry = half(door)
    door.metadata = dict(METADATA)
    assert end(door, entry.transaction_id, COMMIT) == "UNAUTHORIZED"
    door.metadata |= good
    assert end(door, entry.transaction_id, COMMIT) == "OK"


# ------------------------------------------------------------ start


def test_a_broker_says_which_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "rmq_ha.server.broker.grpc_door.missing_package"
    monkeypatch.setattr(name, lambda: "gRPC clients need the package protobuf")
    with pytest.raises(ConfigurationError, match=r"grpcServerPort=8081: .* package protobuf"):
        DoorBroker().start()


def test_other_brokers_learn_where_the_door_is(door: DoorBroker) -> None:
    api = door.broker.outer_api
    found = door.wait(Deferred.fromCoroutine(api.door_of(f"{door.host.ip}:10911")))
    assert found == f"{door.host.ip}:8081"


def test_a_bad_message_behind_a_hundred_good_ones_stops_them_all(door: DoorBroker) -> None:
    batch = [door.message_for(body=b"x") for _ in range(100)]
    assert code_of(door.send_all(*batch, door.message_for(body=b""))) == "MESSAGE_BODY_EMPTY"
    assert door.stored("Normal") == []


def test_more_messages_than_a_request_may_have(door: DoorBroker) -> None:
    assert code_of(door.send_all(*[door.message_for()] * 1001)) == "BAD_REQUEST"
    assert door.stored("Normal") == []
