"""A client that verifies its servers, on simulated machines."""

from typing import Any

import pytest
import trustme
from sim_cluster import SimCluster

from rmq_ha.client.errors import NoNameServer
from rmq_ha.client.messages import Message, SendStatus
from rmq_ha.client.producer import Producer
from rmq_ha.config.namesrv import NamesrvConfig
from rmq_ha.config.netty import NettyServerConfig
from rmq_ha.errors import ConfigurationError
from rmq_ha.namesrv.controller import NamesrvController
from rmq_ha.testing.brokers import NAMESRV_PORT

ROOT = {"tls.client.trustCertPath": "/root.pem"}
SERVER = {
    "tls.test.mode.enable": "false",
    "tls.server.mode": "enforcing",
    "tls.server.keyPath": "/server.key",
    "tls.server.certPath": "/server.pem",
}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def guarded(authority: trustme.CA) -> SimCluster:
    """Name server and broker that take TLS only."""
    cluster = SimCluster()
    cluster.hosts["a"] = cluster.world.add("a")
    for host in (cluster.namesrv.host, cluster.hosts["a"]):
        issued = authority.issue_cert(host.ip)
        host.disk.replace("/server.key", issued.private_key_pem.bytes())
        host.disk.replace("/server.pem", issued.cert_chain_pems[0].bytes())
        host.disk.replace("/root.pem", authority.cert_pem.bytes())
    cluster.wait(cluster.namesrv.controller.stop())
    seams = cluster.namesrv.host.seams
    server = NettyServerConfig(listen_port=NAMESRV_PORT)
    cluster.namesrv.controller = NamesrvController(seams, NamesrvConfig(), server, tls=SERVER)
    cluster.namesrv.controller.start()
    options = {**SERVER, **ROOT}
    cluster.add("a", plugin_options=options, client={"use_tls": True})
    return cluster


def producer(cluster: SimCluster, authority: trustme.CA, **settings: Any) -> Producer:
    host = cluster.hosts["client"] = cluster.world.add("client")
    host.disk.replace("/root.pem", authority.cert_pem.bytes())
    made = Producer(cluster.client("client", **settings))
    cluster.wait(made.start())
    return made


def test_sends_over_tls(authority: trustme.CA) -> None:
    """Name server and broker have to prove that they are who they are; then all goes as usual."""
    cluster = guarded(authority)
    made = producer(cluster, authority, use_tls=True, tls=ROOT)
    results = [cluster.wait(made.send(Message("T", b"x"))) for _ in range(5)]
    assert {result.send_status for result in results} == {SendStatus.SEND_OK}
    cluster.wait(made.stop())
    assert not cluster.clock.failures


def test_a_stranger_is_not_believed(authority: trustme.CA) -> None:
    """A certificate of another root: nothing is sent, and the error says why."""
    cluster = guarded(authority)
    made = producer(cluster, trustme.CA(), use_tls=True, tls=ROOT)
    with pytest.raises(NoNameServer, match="certificate"):
        cluster.wait(made.send(Message("T", b"x")))


def test_plain_is_refused(authority: trustme.CA) -> None:
    """Servers that enforce TLS hang up."""
    cluster = guarded(authority)
    made = producer(cluster, authority)
    with pytest.raises(NoNameServer):
        cluster.wait(made.send(Message("T", b"x")))


def test_a_missing_file() -> None:
    """Said when the client is made."""
    cluster = SimCluster()
    with pytest.raises(ConfigurationError, match=r"root\.pem"):
        cluster.client(use_tls=True, tls=ROOT)
