"""The port for gRPC, the types of topics, and the clients that come."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("hpack")

from twisted.internet.protocol import Factory, Protocol

from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus
from rmq_ha.ops.admin import connections, group
from rmq_ha.ops.admin.topic import change_topic
from rmq_ha.server.grpc.wire import messages
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.doctor.fleet import Fleet
from tests.unit.server.grpc.front.door_kit import METADATA, FakeCall, FakePeer

PORT = 8081
DOOR = {"grpc_server_port": PORT}
PINGS = 20_000
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_PING = bytes((0, 0, 8, 6, 0, 0, 0, 0, 0)) + bytes(8)


class _Flood(Protocol):
    def connectionMade(self) -> None:
        """Send more pings than a client may."""
        assert self.transport is not None
        self.transport.write(_HTTP2 + _PING * PINGS)


def door(**ours: Any) -> Fleet:
    """A broker with a port for gRPC, and a topic."""
    fleet = Fleet(subnet=ours.pop("subnet", "10.0.0"), watched=ours.pop("watched", False))
    fleet.add("a", ours={**DOOR, **ours})
    fleet.make_topic()
    fleet.run(5)
    return fleet


def consumer(fleet: Fleet, client_id: str = "p@1", version: str = "5.1.2") -> FakeCall:
    """Have a consumer of the group workers send its settings through the front of the door."""
    command = messages.TelemetryCommand()
    command.settings.client_type = 2
    command.settings.subscription.group.name = "workers"
    command.settings.subscription.subscriptions.add().topic.name = "Work"
    own = {"x-mq-client-id": client_id, "x-mq-client-version": version}
    call = FakeCall("Telemetry", {**METADATA, **own}, FakePeer())
    methods = {item.name: item for item in fleet.brokers["a"].grpc.service.methods()}
    methods["Telemetry"].serve(call).message_received(command)
    return call


def listen(received: Any, context: Any) -> ConsumeConcurrentlyStatus:
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def test_consumers_that_come_to_a_broker_without_pops() -> None:
    fleet = door()
    fleet.is_well()
    with pytest.raises(Exception, match="popEnable"):
        consumer(fleet)
    assert "it refused 1 calls of consumers" in fleet.finds("grpc-no-consumers")
    fleet.stop("a")
    fleet.add("a", ours={**DOOR, "pop_enable": True})
    fleet.run(5)
    consumer(fleet)
    fleet.run(1)
    fleet.is_well()


def test_a_port_at_a_public_address() -> None:
    fleet = door(subnet="8.8.4")
    assert "clients reach its gRPC port at 8.8.4." in fleet.finds("grpc-open")
    fleet.stop("a")
    fleet.add("a")
    fleet.run(5)
    fleet.is_well()


def test_a_topic_without_a_type_where_only_normal_messages_may_come() -> None:
    fleet = door(grpc_default_message_type="NORMAL")
    told = fleet.finds("topics-untyped")
    assert "clients of gRPC may send only NORMAL messages to Work" in told
    shape = dict.fromkeys(("queues", "read_queues", "write_queues", "perm")) | {"kind": "FIFO"}
    fleet.type(lambda s: change_topic(s, "Work", "", shape, is_new=False, yes=True, dry_run=False))
    assert "topics-untyped" not in fleet.is_well().codes()


def test_members_of_one_group_that_come_by_two_protocols() -> None:
    fleet = door(pop_enable=True)
    consumer(fleet)
    consumer(fleet, "p@2", "5.1.1")
    fleet.run(1)
    told = fleet.finds("clients-differ")
    assert "its members are 1 of gRPC PYTHON 5.1.1, 1 of gRPC PYTHON 5.1.2" in told
    fleet.is_well()
    member = fleet.member("m1", listen)
    fleet.run(12)
    assert "its members came 2 by gRPC and 1 by remoting" in fleet.finds("two-protocols")
    shown = say(fleet, lambda s: group.show_clients(s, "workers")).json["rows"]
    seen = {(row["client_id"], row["version"], row["protocol"]) for row in shown}
    assert {("p@1", "5.1.2", "gRPC"), ("p@2", "5.1.1", "gRPC")} < seen
    counted = say(fleet, lambda s: connections.show_connections(s, count=True)).json["rows"]
    assert {key: value for key, value in counted[1].items() if key not in ("kind", "clients")} == {
        "protocol": "gRPC",
        "language": "PYTHON",
        "version": "5.1.2",
    }
    fleet.wait(member.stop())
    fleet.run(1)
    fleet.is_well()


def test_a_client_that_floods_the_port() -> None:
    fleet = door(watched=True)
    host = fleet.hosts["other"] = fleet.world.add("other")
    there = fleet.hosts["a"].ip

    def flood() -> Any:
        return host.network.client(there, PORT).connect(Factory.forProtocol(_Flood))

    fleet.again("other", flood)
    fleet.run(5)
    assert "(control frames)" in fleet.finds("grpc-refused")
    host.crash()
    fleet.run(10)
    fleet.is_well()
