"""Who may speak for a broker at a controller, and who may elect, forget and configure."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import formatEvent

from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.model.security import Security
from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.controller.access import OF_ADMINS, OF_BROKERS, ControllerAccess
from rmq_ha.server.controller.broker_sets import BrokerSets
from rmq_ha.server.controller.codec import encode_set
from rmq_ha.server.controller.events import BrokerIdApplied, MasterElected, SyncStateSetAltered
from rmq_ha.server.controller.liveness import Liveness
from rmq_ha.server.controller.messages import HeartbeatRequest, SyncStateSet
from rmq_ha.testing.host import World
from tests.sim_kit.controlled import Asker, until
from tests.unit.server.controller.controllers import Controllers

NO_PERMISSION = 16
NAMES = {"clusterName": "c", "brokerName": "b"}
RULES = b"""accounts:
- {accessKey: the-admin, secretKey: "12345678", admin: true}
- {accessKey: a-client, secretKey: "12345678"}
"""


def request(code: int, number: int = 1, address: str = "10.0.0.1:10911", **more: str) -> Any:
    """One that speaks of broker `number` of `b`, in every field that a code may have for it."""
    ext = NAMES | {
        "brokerId": str(number),
        "masterBrokerId": str(number),
        "appliedBrokerId": str(number),
        "registerCheckCode": f"{address};1",
        "brokerAddr": address,
        "brokerAddress": address,
        "masterEpoch": "1",
    }
    return RemotingCommand(code, ext=ext | more)


class Door:
    """The access of a controller on 10.0.0.9 that knows the brokers 1 and 2, in sync, and 3."""

    def __init__(self, *, leads: bool = True, places: tuple[str, ...] = (), **config: Any) -> None:
        self.world = World(1, subnet="10.5.0")
        self.host = self.world.add("controller")
        self.host.disk.replace("/conf/plain_acl.yml", RULES)
        self.sets, self.liveness = BrokerSets(), Liveness()
        places = places or ("10.0.0.1", "10.0.0.2", "10.0.0.3")
        for number, place in enumerate(places, 1):
            applied = BrokerIdApplied("c", "b", number, f"{place}:10911", f"{place}:10911;1")
            self.sets.apply(applied)
        self.sets.apply(MasterElected("b", 1, 1))
        self.sets.apply(SyncStateSetAltered("b", (1, 2)))
        self.access = ControllerAccess(
            self.host.seams,
            ControllerConfig(**config),
            self.sets,
            self.liveness,
            ["10.0.0.9:9878"],
            lambda: leads,
        )

    def opens(self, asked: RemotingCommand, host: str, names: tuple[str, ...] = ()) -> bool:
        asked.security = Security(is_tls=bool(names), names=names)
        try:
            self.access.validate(asked, f"{host}:4000" if ":" not in host else f"[{host}]:4000")
        except RequestRejected:
            return False
        return True


def test_a_broker_speaks_for_itself_and_nobody_else_does() -> None:
    door = Door()
    for code in (904, 1001, 1002, 1003, 1013):
        assert door.opens(request(code), "10.0.0.1"), code
        assert not door.opens(request(code), "10.0.0.3" if code != 1013 else "10.0.0.8"), code
    assert door.access.refused == 5
    unknown = [request(code, 7, "10.0.0.8:1") for code in (904, 1001, 1003)]
    assert all(door.opens(item, "10.0.0.8") for item in unknown), "it may be one of tomorrow's"
    assert not door.opens(request(904, 7, "10.0.0.8:1"), "10.0.0.66")


def test_only_who_is_in_sync_and_operators_choose_a_master() -> None:
    door = Door(controller_operator_hosts="10.1.0.0/16")
    chosen = [
        request(1002, 2, designateElect="true"),
        RemotingCommand(1002, ext={"brokerName": "b", "brokerId": "-1"}),
    ]
    for item in chosen:
        opens = {
            host: door.opens(item, host)
            for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9", "10.1.2.3", "127.0.0.1")
        }
        assert [host for host, is_open in opens.items() if not is_open] == ["10.0.0.3"]
        assert not door.opens(item, "10.0.0.66")


@pytest.mark.parametrize("code", sorted(OF_ADMINS))
def test_only_operators_configure_and_forget(code: int) -> None:
    door = Door(controller_operator_hosts="10.1.0.0/16")
    for host in ("127.0.0.1", "::1", "10.0.0.9", "10.1.2.3"):
        assert door.opens(request(code), host), host
    for host in ("10.0.0.1", "10.0.0.66", "127.0.0.9"):
        assert not door.opens(request(code), host), host


def test_who_may_be_a_new_broker() -> None:
    by_address, listed = Door(), Door(controller_allowed_brokers="10.0.0.0/28")
    new = request(1013, 4, "10.0.0.4:10911")
    assert by_address.opens(new, "10.0.0.4")
    assert not by_address.opens(new, "10.0.0.5")
    assert listed.opens(new, "10.0.0.5"), "behind NAT"
    assert not listed.opens(request(1013, 4, "10.0.0.66:1"), "10.0.0.66")


def test_a_broker_that_has_moved_is_believed_where_it_is_listed_once_its_old_place_is_silent() -> (
    None
):
    moved = request(1003, 1, "10.0.0.7:10911")
    assert not Door().opens(moved, "10.0.0.7")
    door = Door(controller_allowed_brokers="10.0.0.0/28")
    assert door.opens(moved, "10.0.0.7")
    beat = HeartbeatRequest(broker_name="b", broker_addr="10.0.0.1:10911", broker_id=1)
    door.liveness.hear(beat, None, door.host.seams.steady_ms())
    assert not door.opens(moved, "10.0.0.7")
    assert door.opens(request(1003), "10.0.0.1")


def test_a_broker_that_registers_a_name_is_where_the_name_is() -> None:
    door = Door(places=("controller", "nobody"))
    place = door.host.ip
    assert not door.opens(request(904), place), "the name was not looked up yet"
    assert door.opens(request(904), place)
    for _ in range(2):
        assert not door.opens(request(904, 2), place)
    assert not door.opens(request(904), "10.0.0.66")


def test_a_certificate_tells_a_broker_too() -> None:
    door = Door()
    assert door.opens(request(904), "192.168.0.1", ("10.0.0.1",))
    assert not door.opens(request(904), "192.168.0.1", ("10.0.0.2",))


def test_what_is_only_asked_for_is_answered_to_everybody() -> None:
    door = Door()
    for code in (1004, 1005, 1006, 1012):
        assert door.opens(request(code), "10.0.0.66")


def test_a_controller_that_does_not_lead_says_so_before_it_asks_who_it_is() -> None:
    door = Door(leads=False)
    for code in (1001, 1002, 1003, 1011, 1013):
        assert door.opens(request(code), "10.0.0.66")
    for code in (904, 1009, 1010):
        assert not door.opens(request(code), "10.0.0.66")


def test_with_accounts_an_administrator_signs_wherever_he_is() -> None:
    door = Door(acl_enable=True, acl_directory="/conf", controller_allowed_brokers="10.0.0.0/28")
    for code in sorted(OF_BROKERS | OF_ADMINS):
        assert not door.opens(request(code), "192.168.0.1")
        for account, is_open in (("the-admin", True), ("a-client", False)):
            signed = sign(request(code), Credentials(account, "12345678"))
            assert door.opens(signed, "192.168.0.1") is is_open, code
    assert door.opens(request(904), "10.0.0.1"), "a broker of Java does not sign"
    assert not door.opens(request(1009), "10.0.0.9"), "operators do"
    with pytest.raises(ConfigurationError):
        Door(acl_enable=True, acl_directory=None)


def test_rocketmqs_way_asks_nobody() -> None:
    door = Door(controller_open_to_all=True, acl_enable=True)
    for code in sorted(OF_BROKERS | OF_ADMINS):
        assert door.opens(request(code), "10.0.0.66")


# ------------------------------------------------------------ from outside


def test_forged_heartbeats_keep_no_dead_master_alive(logged: list[Any]) -> None:
    desk = Controllers()
    desk.pair()
    stranger = Asker(desk.world, desk.world.add("stranger"))
    forged = desk.brokers[1].heartbeat()
    desk.brokers[1].host.crash()

    def forge() -> bool:
        assert stranger.ask(desk.addresses[0], 904, forged).code == NO_PERMISSION
        return desk.services[0].elections == 2

    until(desk.world, forge, 2.0)
    assert desk.master() == "2"
    told = [text for text in map(formatEvent, logged) if text and "refused request 904" in text]
    assert len(told) == 1, "a flood leaves one line a minute"
    assert "add 10.0.0." in told[0]


def test_a_stranger_is_not_elected() -> None:
    """The five packets of the security trial: an id, a place, a heartbeat, a set, an election."""
    desk = Controllers(controller_allowed_brokers="10.0.0.3, 10.0.0.4")
    assert [broker.host.ip for broker in desk.brokers.values()] == ["10.0.0.3", "10.0.0.4"]
    desk.pair()
    before = desk.info()
    machine = desk.world.add("stranger")
    stranger = Asker(desk.world, machine)
    place = f"{machine.ip}:10911"
    named = request(1013, 7, place)
    body = encode_set(SyncStateSet((1, 2, 7), before[1].epoch))
    for code in (1013, 1002, 1009, 1010, 1011):
        answer = stranger.ask(desk.addresses[0], code, named.ext, b"notifyBrokerRoleChanged=false")
        assert answer.code == NO_PERMISSION, code
    altered = named.ext | {"masterBrokerId": "1"}
    assert stranger.ask(desk.addresses[0], 1001, altered, body).code == NO_PERMISSION
    desk.world.clock.run_for(5.0)
    assert desk.info() == before
