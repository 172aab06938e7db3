"""A master and its slave on the simulated network, over TLS: no reactor, no socket."""

import pytest

from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.testing.cluster import HA_PORT, StoreNode, small_configuration
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import SimHost, World
from tests.sim_kit.checkers import compare_logs
from tests.unit.base.tls.material import Files


def options_of(host: SimHost, root: str, *names: str) -> dict[str, str]:
    files = Files()
    options = files.put_pair("tls.ha", *names, root=root) | files.put_root("tls.ha", root)
    for path, data in files.items():
        host.seams.disk.replace(path, data)
    return options | {
        "tls.ha.mode": "enforcing",
        "tls.ha.enable": "true",
        "tls.ha.allowedNames": "*",
    }


class Place:
    """A pair; what the slave has is compared with what the master has."""

    def __init__(self, seed: int, master_name: str = "", slave_root: str = "ours") -> None:
        self.world = World(seed)
        self.findings = Findings()
        hosts = [self.world.add(name) for name in ("m", "s")]
        roles = (BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE)
        roots = ("ours", slave_root)
        self.nodes = []
        for number, (host, role, root) in enumerate(zip(hosts, roles, roots, strict=True)):
            configuration = small_configuration(host.ip, role, FlushDiskType.ASYNC_FLUSH, number)
            name = master_name if master_name and number == 0 else host.ip
            configuration.plugin_options.update(options_of(host, root, name))
            address = f"{hosts[0].ip}:{HA_PORT}" if number else None
            self.nodes.append(StoreNode(host, configuration, self.findings, address))
        self.master, self.slave = self.nodes
        for node in self.nodes:
            node.load()
            node.start()
        self.world.clock.run_for(1.0)

    def put(self, count: int) -> None:
        for number in range(count):
            message = BrokerMessage(
                topic="T",
                queue_id=0,
                body=f"{number}".encode() * 200,
                born_timestamp=1,
                born_host=self.master.store_host,
                store_host=self.master.store_host,
            )
            self.master.store.put_message(message)
            self.world.clock.run_for(0.001)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self.world.clock.run_for(10.0)
        assert self.findings.violations == []


@pytest.mark.parametrize("seed", range(3))
def test_the_logs_are_equal(seed: int) -> None:
    """Whatever pieces the network cuts the bytes into."""
    place = Place(seed)
    place.put(300)
    place.world.clock.run_for(5.0)
    assert place.slave.store.log.max_offset == place.master.store.log.max_offset > 60_000
    assert compare_logs(place.slave.log_image(), place.master.log_image()) is None
    place.stop()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"master_name": "elsewhere"}, "its certificate is for elsewhere, not for 127.0.0.1"),
        ({"slave_root": "theirs"}, "no root that this side trusts"),
    ],
)
def test_the_wrong_one_gets_nothing_and_tries_again(wrong: dict[str, str], reason: str) -> None:
    """The link says why; the master has no slave."""
    place = Place(1, **wrong)
    place.put(20)
    place.world.clock.run_for(20.0)
    assert place.slave.store.log.max_offset == 0
    assert place.master.replication.statistics().slaves == []
    link = place.slave.replication.statistics().master
    assert link.state == "unreachable"
    assert reason in place.slave.replication._link._last_reason
    place.stop()
