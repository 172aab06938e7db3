"""What the READY line and the log say of a broker's ports."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.config.plans import port_plan
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.ops.app.broker_server import BrokerServer
from rmq_ha.testing.cluster import small_configuration
from rmq_ha.testing.host import World


def facts(**settings: Any) -> tuple[dict[str, Any], set[int]]:
    """Of a broker that is not started; and the ports that it would take."""
    configuration = small_configuration(
        "10.0.0.1", BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH, 0
    )
    for name, value in settings.items():
        target = configuration.ours if hasattr(configuration.ours, name) else configuration.store
        setattr(target, name, value)
    server = BrokerServer(World(1).add("broker").seams, configuration)
    return server.facts(), {item.port for item in port_plan(configuration)}


GROUP = {
    "enable_dleger_commit_log": True,
    "dleger_group": "g",
    "dleger_peers": "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911",
    "dleger_self_id": "n0",
}


@pytest.mark.parametrize("settings", [{}, GROUP], ids=["classic", "group"])
def test_only_ports_that_listen_are_named(settings: dict[str, Any]) -> None:
    """A member of a group has no HA port: the group's is named (haListenPort was, in vain)."""
    told, planned = facts(**settings)
    assert {told[name] for name in told if name.endswith("Port")} <= planned
    assert ("haListenPort" in told) is (not settings)
    assert told.get("dledgerPort") == (40911 if settings else None)


def test_a_foreign_replication_has_ports_of_its_own() -> None:
    assert "haListenPort" not in facts(journal_plug_in="acme")[0]


@pytest.mark.parametrize(("mode", "is_open"), [("enforcing", False), ("permissive", True)])
def test_a_start_warns_of_what_is_open_wherever_it_was_said(mode: str, is_open: bool) -> None:
    """`tls.ha.mode` stands in `tls.config.file`, where the warning did not look."""
    configuration = small_configuration(
        "10.0.0.1", BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH, 0
    )
    configuration.ours.bind_address = "10.0.0.1"
    configuration.ours.acl_plug_in = "plain"
    configuration.plugin_options["tls.config.file"] = "/tls"
    host = World(1).add("broker")
    host.disk.replace("/tls", f"tls.ha.mode={mode}\n".encode())
    with capturedLogs() as events:
        BrokerServer(host.seams, configuration)._warn_if_exposed()
    assert [("gives every message" in formatEvent(event)) for event in events] == [True] * is_open


def test_a_name_server_in_its_process_is_named_and_goes_with_it() -> None:
    world = World(1)
    host = world.add("broker")
    for _ in range(2):  # its ports are free again
        configuration = small_configuration(
            host.ip, BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH, 0
        )
        configuration.ours.embedded_namesrv_port = 20100
        server = BrokerServer(host.seams, configuration)
        wait(world, server.start())
        told = server.facts()
        assert (told["namesrvPort"], "metricsPort" in told) == (20100, False)
        assert configuration.broker.namesrv_addr == "127.0.0.1:20100"
        wait(world, server.stop())
    assert host.clock.getDelayedCalls() == []


def wait(world: World, later: Deferred[Any]) -> None:
    done: list[Any] = []
    later.addBoth(done.append)
    world.clock.run_while(lambda: not done, 30)
    assert done == [None]
