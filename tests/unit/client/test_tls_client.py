"""A client that verifies its servers, on simulated machines."""

import ssl
from typing import Any

import pytest
import trustme

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.errors import NoNameServer, SendFailed
from rmq_ha.client.rules.messages import Message, SendStatus
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.server.namesrv.namesrv import Namesrv
from rmq_ha.testing.brokers import NAMESRV_PORT
from tests.unit.client.sim_cluster import SimCluster

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


def guarded(
    authority: trustme.CA, broker: trustme.CA | None = None, clients: dict[str, str] | None = None
) -> SimCluster:
    """
    Name server and broker that take TLS only.

    :param broker: whom the broker's certificate is of; None: of the same.
    :param clients: what the broker demands of them, as keys.
    """
    cluster = SimCluster()
    cluster.hosts["a"] = cluster.world.add("a")
    for host in (cluster.namesrv.host, cluster.hosts["a"]):
        issuer = broker if broker is not None and host is cluster.hosts["a"] else authority
        issued = issuer.issue_cert(host.ip)
        host.disk.replace("/server.key", issued.private_key_pem.bytes())
        host.disk.replace("/server.pem", issued.cert_chain_pems[0].bytes())
        host.disk.replace("/root.pem", authority.cert_pem.bytes())
    cluster.wait(cluster.namesrv.namesrv.stop())
    seams = cluster.namesrv.host.seams
    server = NettyServerConfig(listen_port=NAMESRV_PORT)
    cluster.namesrv.namesrv = Namesrv(seams, NamesrvConfig(), server, tls=SERVER)
    cluster.namesrv.namesrv.start()
    options = {**SERVER, **ROOT, **(clients or {})}
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
    with pytest.raises(NoNameServer, match="certificate") as caught:
        cluster.wait(made.send(Message("T", b"x")))
    assert not caught.value.retriable


def test_a_refused_certificate_passes_by_itself_for_nobody(authority: trustme.CA) -> None:
    """The name server is whom we know, the broker is not: no minute of attempts, one answer."""
    cluster = guarded(authority, broker=trustme.CA())
    made = producer(cluster, authority, use_tls=True, tls=ROOT)
    before = cluster.clock.seconds()
    with pytest.raises(SendFailed, match="certificate") as caught:
        cluster.wait(made.send(Message("T", b"x")))
    assert not caught.value.retriable
    assert cluster.clock.seconds() - before < 5


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("by_context", [False, True])
def test_nor_does_one_that_lacks(
    authority: trustme.CA, by_context: bool, newest: ssl.TLSVersion
) -> None:
    """A server refuses us: from TLS 1.3 on after the handshake, when the request has left."""
    demanded = {
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": "/root.pem",
    }
    cluster = guarded(authority, clients=demanded)
    context = trusting(authority)
    context.maximum_version = newest
    how: dict[str, Any] = {"ssl_context": context} if by_context else {"use_tls": True, "tls": ROOT}
    made = producer(cluster, authority, **how)
    before = cluster.clock.seconds()
    with pytest.raises(SendFailed, match=r"certificate|handshake failure") as caught:
        cluster.wait(made.send(Message("T", b"x")))
    assert not caught.value.retriable
    assert cluster.clock.seconds() - before < 5


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


def test_who_may_sign_over_tls_only_is_never_made_for_less() -> None:
    """Neither over plain TCP nor for servers that prove nothing, in both clients."""
    account = Credentials("someaccount", "s3cr3ts3cr3t")
    cluster = SimCluster()
    demanded: dict[str, Any] = {"credentials": account, "sign_only_over_tls": True}
    for settings, reason in (
        ({}, "sign_only_over_tls=True: requests would be signed over plain TCP"),
        ({"tls": ROOT}, "over plain TCP"),
        ({"use_tls": True}, "nobody would check who gets the signed requests"),
        ({"use_tls": True, "tls": {"tls.test.mode.enable": "true"}}, "nobody would check"),
        ({"use_tls": True, "tls": {**ROOT, "tls.client.authServer": "false"}}, "nobody would"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            cluster.client(**demanded, **settings)
        with pytest.raises(ConfigurationError, match=reason):
            BlockingClient(ClientConfig(namesrv_addr="ns:1", **demanded, **settings))
    BlockingClient(ClientConfig(namesrv_addr="ns:1", sign_only_over_tls=True))


def test_and_signs_for_who_has_proven_it(authority: trustme.CA) -> None:
    cluster = guarded(authority)
    account = Credentials("someaccount", "s3cr3ts3cr3t")
    made = producer(
        cluster, authority, use_tls=True, tls=ROOT, credentials=account, sign_only_over_tls=True
    )
    assert cluster.wait(made.send(Message("T", b"x"))).send_status is SendStatus.SEND_OK
    cluster.wait(made.stop())


def test_a_broker_keeps_its_own_rule(authority: trustme.CA) -> None:
    """What wants signatures by TLS only signs so itself, and can be reached so."""
    own = {"acl_requires_tls": True, "acl_access_key": "someaccount", "acl_secret_key": "s3cr3ts"}
    with pytest.raises(ConfigurationError, match=r"aclRequiresTls=true: .* over plain TCP"):
        SimCluster().add("a", ours=own)
    with pytest.raises(ConfigurationError, match=r"aclRequiresTls=true without TLS here"):
        SimCluster().add(
            "a", ours={"acl_requires_tls": True}, plugin_options={"tls.server.mode": "disabled"}
        )
    tls = {**SERVER, "tls.server.mode": "disabled"}
    config = NamesrvConfig(acl_enable=True, acl_requires_tls=True, acl_directory="/conf")
    host = SimCluster().namesrv.host
    host.disk.replace("/conf/plain_acl.yml", b"globalWhiteRemoteAddresses: [10.0.0.1]")
    with pytest.raises(ConfigurationError, match=r"aclRequiresTls=true without TLS here"):
        Namesrv(host.seams, config, NettyServerConfig(), tls=tls)


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_sends_over_tls_by_an_ssl_context(authority: trustme.CA) -> None:
    """Names are checked, large bodies go through, and the connection is closed in good order."""
    cluster = guarded(authority)
    made = producer(cluster, authority, ssl_context=trusting(authority))
    bodies = [b"x", bytes(range(256)) * 1000]
    results = [cluster.wait(made.send(Message("T", body))) for body in bodies]
    assert {result.send_status for result in results} == {SendStatus.SEND_OK}
    cluster.wait(made.stop())
    assert not cluster.clock.failures


def test_an_ssl_context_believes_no_stranger(authority: trustme.CA) -> None:
    cluster = guarded(authority)
    made = producer(cluster, authority, ssl_context=trusting(trustme.CA()))
    with pytest.raises(NoNameServer, match="its certificate is refused: ") as caught:
        cluster.wait(made.send(Message("T", b"x")))
    assert not caught.value.retriable


def test_an_ssl_context_for_a_server_that_speaks_no_tls(authority: trustme.CA) -> None:
    cluster = SimCluster()
    cluster.add("a")
    made = Producer(cluster.client("client", ssl_context=trusting(authority)))
    cluster.wait(made.start())
    with pytest.raises(NoNameServer, match="TLS"):
        cluster.wait(made.send(Message("T", b"x")))


def test_an_ssl_context_is_all_there_is(authority: trustme.CA) -> None:
    """Beside other rules, or with less than the settings demand, no client is made."""
    account = Credentials("someaccount", "s3cr3ts3cr3t")
    blind = ssl.create_default_context()
    blind.check_hostname = False
    for settings, reason in (
        ({"use_tls": True}, "either ssl_context, or use_tls and tls"),
        ({"tls": ROOT}, "either ssl_context, or use_tls and tls"),
        ({"ssl_context": "ca.pem"}, "an ssl.SSLContext, not str: ssl.create_default_context"),
        (
            {"credentials": account, "sign_only_over_tls": True, "ssl_context": blind},
            "sign_only_over_tls=True: nobody would check",
        ),
    ):
        given: dict[str, Any] = {"ssl_context": trusting(authority), **settings}
        with pytest.raises(ConfigurationError, match=reason):
            SimCluster().client(**given)
        with pytest.raises(ConfigurationError, match=reason):
            BlockingClient(ClientConfig(namesrv_addr="127.0.0.1:1", **given))
