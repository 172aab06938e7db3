"""
A pair with a witness: three controllers, two of them in the pair's name servers.

Spec: controller.md, section 2.3 (`enableControllerInNamesrv`).
"""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import CONTROLLERS, decode_controllers
from rmq_ha.ops.app.namesrv_part import NamesrvPart
from rmq_ha.testing.brokers import NAMESRV_PORT
from tests.sim_kit.controlled import ControlledBrokers
from tests.unit.server.controller.controllers import Controllers

FILE = "/namesrv.properties"


class Within(NamesrvPart):
    """As `Controllers` asks its services."""

    @property
    def group(self) -> Any:
        assert self.controller is not None
        return self.controller.group


class InNameServers(Controllers):
    """The first two are in name servers, on the machines `n0` and `n1`."""

    def make(self, number: int) -> Any:
        alone = super().make(number)
        if number == 2:
            return alone
        peers = ";".join(f"n{i}-{address}" for i, address in enumerate(self.addresses))
        return Within(
            self.hosts[number].seams,
            NamesrvConfig(kv_config_path="/kv.json", config_store_path=FILE),
            ControllerConfig(
                controller_dleger_peers=peers,
                controller_dleger_self_id=f"n{number}",
                controller_store_path="/controller",
                mapped_file_size=1 << 16,
                config_store_path=FILE,
                **self.config,
            ),
            NettyServerConfig(listen_port=NAMESRV_PORT),
            "",
            {},
        )

    @property
    def name_servers(self) -> list[str]:
        return [f"{host.ip}:{NAMESRV_PORT}" for host in self.hosts[:2]]


def test_one_machine_dies_with_all_that_is_on_it() -> None:
    """Its broker leads, its controller perhaps, and its name server is asked: one power cut."""
    desk = InNameServers(3, 0)
    brokers = ControlledBrokers(desk=desk, names=";".join(desk.name_servers), hosts=desk.hosts[:2])
    first = brokers.in_sync()
    second = brokers.other(first)
    number = brokers.nodes.index(first)
    sent = [b"%d" % each for each in range(5)]
    assert [brokers.send(first, body) for body in sent] == [0] * 5
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is second, 40.0)
    assert brokers.send(second, b"after") == 0
    route = desk.tool.ask(desk.name_servers[1 - number], 105, {"topic": "TBW102"})
    assert b'"0":"%s:' % second.host.ip.encode() in (route.body or b"")

    desk.restart(number)
    brokers.boot(first)
    assert brokers.in_sync() is second
    assert brokers.send(second, b"both") == 0
    brokers.run(6.0)
    brokers.holds(first, [*sent, b"after", b"both"])
    assert not brokers.findings.violations


def test_health_is_that_of_both_and_one_file_is_written_by_one_hand() -> None:
    desk = InNameServers(3, 0)
    parts: list[Any] = desk.services[:2]
    leader = desk.leader()
    texts = [part.health().reason for part in parts]
    assert all("0 brokers are registered; controller: n" in text for text in texts)
    desk.hosts[0].disk.replace(FILE, b"# kept\n")
    body = b"enableElectUncleanMaster=true\n"
    answers = [
        desk.tool.client.invoke(desk.addresses[0], RemotingCommand(1009, body=body), 4000),
        desk.tool.client.invoke(
            desk.name_servers[0], RemotingCommand(318, body=b"orderMessageEnable=true\n"), 4000
        ),
    ]
    desk.world.clock.run_for(1.0)
    assert [answer.result.code for answer in answers] == [0, 0]
    written = desk.hosts[0].disk.read_bytes(FILE).decode()
    assert written.startswith("# kept\n")
    assert {"enableElectUncleanMaster=true", "orderMessageEnable=true"} < set(written.splitlines())
    for number in {0, 1, 2} - {1 - leader % 2}:
        desk.crash(number)
    desk.world.clock.run_for(30.0)
    assert parts[1 - leader % 2].health().line().startswith("not ready: 0 brokers")


def test_a_name_server_tells_where_the_controllers_are() -> None:
    """`rmqha-admin doctor` asks them which broker a set waits for."""
    desk = InNameServers(3, 0)
    for address in desk.name_servers:
        told = (desk.tool.ask(address, 106).ext or {})[CONTROLLERS]
        assert decode_controllers(told) == desk.addresses
    for wrong in ("a", "a:", ":1", "a:0", "a:65536", "a:1;", ";".join(["a:1"] * 21)):
        with pytest.raises(ProtocolViolation):
            decode_controllers(wrong)
