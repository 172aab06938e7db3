"""TLS with the real RocketMQ: its clients, its name server and its broker; and a pair of ours."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.aio import connect
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ClientConfig
from tests.interop.certificates import Authority, TlsWire, shown_certificate, stranger
from tests.interop.conversation import compiled_java
from tests.interop.pairs import QUICK, assert_same_logs
from tests.interop.rig import ALL_JAVA, Rig, Server, rig_in
from tests.interop.wire import Load, Wire, log_end

REAL = {"tls.test.mode.enable": "false"}
MODES = ("disabled", "permissive", "enforcing")
NAMES = ("localhost", "127.0.0.1")
OFFSET = bytes(8)


def jvm(settings: dict[str, str]) -> list[str]:
    """Java takes them as system properties."""
    return [f"-D{key}={value}" for key, value in settings.items() if ".ha." not in key]


def tls_broker(
    rig: Rig, name: str, tls: dict[str, str], *, conf: str = "master-async.conf", **settings: Any
) -> Server:
    """A broker of ours, or of Java, that is told the same."""
    if settings.pop("java", False) or ALL_JAVA:
        return rig.broker(conf, name, java=True, jvm=jvm(tls), **settings)
    return rig.broker(conf, name, **tls, **settings)


def tls_namesrv(rig: Rig, name: str, tls: dict[str, str], *, java: bool = False) -> str:
    if java or ALL_JAVA:
        return rig.namesrv(java=True, name=name, jvm=jvm(tls))
    own = {key: value for key, value in tls.items() if ".ha." not in key}
    return rig.namesrv(name=name, **own)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The root that everybody believes."""
    made = Authority(tmp_path_factory.mktemp("certificates"), "ours")
    for file in ("master", "slave", "client"):
        made.issue(*NAMES, f"{file}.example", file=file)
    return made


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A root that nobody believes."""
    return Authority(tmp_path_factory.mktemp("strangers"), "theirs")


def talk(
    folder: Path, options: dict[str, str], namesrv: str, *clients: tuple[str, str, bool]
) -> dict[str, Any]:
    """Let Java clients talk with brokers, all at once; what came of each."""
    command = compiled_java("TlsClients", folder)
    arguments = [str(part) for client in clients for part in client]
    done = subprocess.run(
        [command[0], *jvm(options), *command[1:], namesrv, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line for line in lines}


def test_java_clients_with_and_without_tls_meet_each_mode(
    tmp_path: Path, rig: Rig, ours: Authority
) -> None:
    """Whom each mode lets in; verified by both sides where the client has a certificate."""
    both = REAL | ours.settings("tls.server", "master") | ours.settings("tls.client", "client")
    both |= {"tls.client.authServer": "true"}
    asks = {"tls.server.need.client.auth": "require", "tls.server.authClient": "true"}
    namesrv = tls_namesrv(rig, "ns", both | {"tls.server.mode": "permissive"})
    base = rig.ports(12)  # at once: they start together
    for port, mode in zip((base + 2, base + 6, base + 10), MODES, strict=True):
        tls = both | {"tls.server.mode": mode} | (asks if mode == "enforcing" else {})
        tls_broker(rig, mode, tls, namesrv=namesrv, port=port, brokerName=mode, wait=False)
    brokers = {server.directory.name: server for server in rig.servers[1:]}
    for server in brokers.values():
        rig.until(lambda it=server: "READY {" in it.output.read_text(), 40, "ready", server)
    client = REAL | ours.settings("tls.client", "client") | {"tls.client.authServer": "true"}
    asked = [(f"{mode}-{tls}", mode, tls) for mode in MODES for tls in (False, True)]
    told = talk(tmp_path / "java", client, namesrv, *asked)
    came = {name for name, line in told.items() if line["came"] == name}
    assert came == {"disabled-False", "permissive-False", "permissive-True", "enforcing-True"}, told
    if ALL_JAVA:
        return
    text = {name: server.output.read_text() for name, server in brokers.items()}
    assert "it speaks TLS, and tls.server.mode=disabled" in text["disabled"]
    assert "it does not speak TLS, and tls.server.mode=enforcing" in text["enforcing"]
    assert "is in: TLSv1." in text["enforcing"]
    assert "client.example" in text["enforcing"]


# ------------------------------------------------------------ a pair


class TlsPair:
    """A master and a slave of ours; remoting takes both kinds, replication only verified TLS."""

    def __init__(self, rig: Rig, ours: Authority) -> None:
        self.rig, self.ours = rig, ours
        namesrv = tls_namesrv(rig, "ns", self.settings("master"))
        self.namesrv = namesrv
        self.master = self._start("m", "master-sync.conf", "master")
        self.slave = self._start("s", "slave.conf", "slave")

    def settings(self, file: str) -> dict[str, str]:
        """Of one broker: its certificate, for everything."""
        tls = REAL | {"tls.enable": "true", "tls.client.authServer": "true"}
        for prefix in ("tls.server", "tls.client", "tls.ha"):
            tls |= self.ours.settings(prefix, file)
        tls |= {"tls.ha.mode": "enforcing", "tls.ha.enable": "true"}
        return tls | {"tls.ha.allowedNames": "slave.example,second.example"}

    def _start(self, name: str, conf: str, file: str, **more: Any) -> Server:
        tls = self.settings(file) | more.pop("tls", {})
        return self.rig.broker(conf, name, namesrv=self.namesrv, **QUICK, **tls, **more)

    @property
    def ha_port(self) -> int:
        return int(self.master.address.rpartition(":")[2]) + 1

    def said(self, server: Server, text: str, seconds: float = 20) -> None:
        """Wait for a line of the log."""
        self.rig.until(lambda: text in server.output.read_text(), seconds, text, server)

    def wait_same(self) -> int:
        self.rig.until(
            lambda: 0 < log_end(self.master.address) == log_end(self.slave.address),
            30,
            "both logs equally long",
            self.master,
            self.slave,
        )
        return log_end(self.master.address)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, ours: Authority) -> Iterator[TlsPair]:
    if ALL_JAVA:
        pytest.skip("RocketMQ's replication speaks no TLS")
    with rig_in(tmp_path_factory.mktemp("pair")) as rig:
        made = TlsPair(rig, ours)
        rig.wait_sync(made.master)
        yield made


def test_a_pair_replicates_while_strangers_knock_and_certificates_change(
    pair: TlsPair, ours: Authority, theirs: Authority
) -> None:
    """Under load; nothing sent gets another answer than OK, and both logs are the same bytes."""
    with Wire(pair.master.address) as wire:
        wire.create_topic("R")
    load = Load(pair.master.address, "R", "tls")
    with load, TlsWire(pair.master.address) as early:
        pair.rig.until(lambda: len(load.accepted) > 300, 20, "SEND_OK", pair.master)
        assert early.log_end() > 0
        _strangers_get_nothing(pair, ours, theirs)
        before = shown_certificate(int(pair.master.address.rpartition(":")[2]))
        for file in ("master", "slave"):
            ours.issue(*NAMES, f"{file}.example", file=file)
        for server in (pair.master, pair.slave):
            server.process.send_signal(signal.SIGHUP)
        for server in (pair.master, pair.slave):
            pair.said(server, "TLS settings and certificates read again")
        after = shown_certificate(int(pair.master.address.rpartition(":")[2]))
        assert after not in (b"", before)
        assert early.log_end() > 0
        (ours.folder / "master.pem").write_text("oops")
        pair.master.process.send_signal(signal.SIGHUP)
        pair.said(pair.master, "TLS stays as it was: tls.server.certPath=")
        assert shown_certificate(int(pair.master.address.rpartition(":")[2])) == after
        again = len(load.accepted) + 300
        pair.rig.until(lambda: len(load.accepted) > again, 20, "SEND_OK again", pair.master)
    assert set(load.codes) == {0}, load.codes
    assert_same_logs(pair.master, pair.slave, pair.wait_same())
    text = pair.master.output.read_text()
    assert text.count("is in: TLSv1.3, localhost, 127.0.0.1, slave.example") >= 1
    assert text.count("caught up") == 1, "the slave's connection was lost"
    ours.issue(*NAMES, "master.example", file="master")


def _strangers_get_nothing(pair: TlsPair, ours: Authority, theirs: Authority) -> None:
    hour = timedelta(hours=-1)
    cases = [
        (None, "it showed no certificate, and one is required"),
        (
            theirs.issue(*NAMES, "slave.example", file="wrong-root"),
            "is signed by no root that this side trusts",
        ),
        (ours.issue("slave.example", file="expired", ends=hour), "(slave.example) has expired"),
        (ours.issue("client7.example", file="wrong-name"), "is for client7.example, not for slave"),
    ]
    for shown, reason in cases:
        assert stranger(pair.ha_port, shown, OFFSET) == b"", reason
        pair.said(pair.master, reason)
    assert stranger(pair.ha_port, None, OFFSET, is_plain=True) == b""
    pair.said(pair.master, "it does not speak TLS, and tls.ha.mode=enforcing")


def test_a_slave_finds_the_wrong_master(pair: TlsPair, ours: Authority) -> None:
    """It says so, and takes nothing."""
    ours.issue(*NAMES, "second.example", file="second")
    wrong = {"tls.ha.masterName": "other.example"}
    slave = pair._start("s2", "slave.conf", "second", brokerId=2, tls=wrong)
    pair.said(slave, "not for other.example; trying again and again")
    assert log_end(slave.address) == 0
    slave.stop()


def test_our_slave_among_java_servers_that_enforce_tls(rig: Rig, ours: Authority) -> None:
    """It registers with their name server and copies their tables, each verified."""
    tls = REAL | {"tls.server.mode": "enforcing", "tls.enable": "true"}
    tls |= {"tls.client.authServer": "true"}
    tls |= {"tls.server.need.client.auth": "require", "tls.server.authClient": "true"}
    tls |= ours.settings("tls.server", "master") | ours.settings("tls.client", "client")
    namesrv = tls_namesrv(rig, "jns", tls, java=True)
    master = tls_broker(
        rig, "jm", tls, conf="master-async.conf", namesrv=namesrv, java=True, **QUICK
    )
    open_to_all = {"tls.server.mode": "permissive", "tls.server.need.client.auth": "none"}
    slave = tls_broker(rig, "os", tls | open_to_all, conf="slave.conf", namesrv=namesrv, **QUICK)
    options = " ".join(jvm(REAL | ours.settings("tls.client", "client") | {"tls.enable": "true"}))
    old = os.environ.get("PEER_CLIENT_JVM", "")
    os.environ["PEER_CLIENT_JVM"] = f"{old} {options}"
    try:
        rig.peer("produce", "--namesrv", namesrv, "--topic", "FromJava", "--count", 20)
    finally:
        os.environ["PEER_CLIENT_JVM"] = old

    def has_topic() -> bool:
        with Wire(slave.address) as wire:
            table = wire.table(RequestCode.GET_ALL_TOPIC_CONFIG)
        return "FromJava" in table["topicConfigTable"]

    rig.until(has_topic, 30, "the topic on the slave", slave, master)
    rig.until(lambda: log_end(slave.address) > 0, 30, "messages on the slave", slave, master)
    keys = REAL | ours.settings("tls.client", "client") | {"tls.client.authServer": "true"}
    say_hello(ClientConfig(namesrv_addr=namesrv, use_tls=True, tls=keys), "FromJava")


def say_hello(settings: ClientConfig, topic: str) -> None:
    """Our clients, in a reactor and blocking, send to a Java broker, and read it back."""

    async def send() -> str:
        async with connect(settings) as client:
            producer = await client.producer()
            return (await producer.send(Message(topic, b"hello"))).send_status.name

    assert asyncio.run(send()) == "SEND_OK"
    with BlockingClient(settings) as client:
        result = client.send(Message(topic, b"hello again"))
        queue, offset = result.message_queue, result.queue_offset
        (found,) = client.messages(queue, offset, offset + 1)
        assert found.body == b"hello again"
