"""
Pairs in controller mode, ours and Java 5.3.3's mixed: kill -9 of the master under load, and back.

All eight combinations with many kills run where RMQ_HA_CONTROLLER_KILLS says how many; two with
one kill each always do. What Java loses by itself (asynchronous defaults) is switched off: every
put waits for all that are in sync.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Any

import pytest

from rmq_ha.client.lookup.requests import send_request
from tests.interop.certificates import Authority
from tests.interop.rig import ALL_JAVA, Rig, Server
from tests.interop.test_controller import PEER5, Sets, ask, broker, pytestmark  # noqa: F401

KILLS = int(os.environ.get("RMQ_HA_CONTROLLER_KILLS", "0"))
FAULTS = int(os.environ.get("RMQ_HA_CONTROLLER_FAULTS", "0"))
# What runs for an hour runs beside other things: a JVM takes minutes to start then.
SET_S, ROLE_S = (600.0, 300.0) if KILLS or FAULTS else (120.0, 60.0)
NAMES = ("ours", "java")
ALL = [(first, second, controller) for first in NAMES for second in NAMES for controller in NAMES]


class JavaSets(Sets):
    """A Java controller, and what it says."""

    def start(self) -> Server:
        _, _, port = self.address.rpartition(":")
        command = [str(PEER5), "controller", "--port", port, "--dir", str(self.directory)]
        return self.rig._start(command, self.address, self.directory, java=True, wait=False)

    def info(self) -> tuple[dict[str, str], tuple[int, ...]]:
        """As `Sets.info`; nothing while it does not answer."""
        try:
            return super().info()
        except (OSError, AssertionError):
            return {}, ()


def guards(rig: Rig, kinds: Collection[str]) -> dict[str, str]:
    """
    What our brokers ask of those that replicate from them.

    Two of ours: TLS, certificates and the secret. Beside a Java broker, which has none of them:
    TLS for those that speak it.
    """
    if ALL_JAVA:
        return {}
    authority = Authority(rig.directory / "certificates", "set")
    authority.issue(*(f"127.0.0.{host}" for host in range(1, 5)), file="broker")
    settings = authority.settings("tls.ha", "broker")
    if "java" in kinds:
        return {**settings, "tls.ha.trustCertPath": "", "tls.ha.mode": "permissive"}
    own = {"haSecret": "the secret of this set", "haSecretRequired": "true"}
    return {
        **settings,
        **own,
        "tls.ha.mode": "enforcing",
        "tls.ha.enable": "true",
        "tls.ha.allowedNames": "127.0.0.1",
    }


class Pair:
    """Two brokers, whoever made them, and what was acknowledged to a client."""

    def __init__(self, rig: Rig, first: str, second: str, controller: str) -> None:
        self.rig = rig
        self.kinds = {"a": first, "b": second}
        self.namesrv = rig.namesrv()
        self.sets = JavaSets(rig) if controller == "java" else Sets(rig)
        self.settings: dict[str, Any] = {}
        self.guards = guards(rig, self.kinds.values())
        self.controller_of: dict[str, str] = {}
        self.servers: dict[str, Server] = {}
        self.ports: dict[str, int] = {}
        self.acked: list[str] = []
        self.tries = 0
        self.is_sending = True
        self.gaps: list[float] = []
        for name in self.kinds:
            self.boot(name)
            rig.until(lambda: self.sets.master, SET_S, "a master", *self.servers.values())

    def boot(self, name: str) -> None:
        """Start one, or start it again with its store."""
        conf, port = f"controller-{name}.conf", self.port(name)
        desk = self.controller_of.get(name, self.sets.address)
        if self.kinds[name] == "java":
            server = broker(self.rig, name, conf, self.namesrv, desk, port, **self.settings)
        else:
            server = self.rig.broker(
                str(PEER5.parent / "conf" / conf),
                name,
                namesrv=self.namesrv,
                port=port,
                wait=False,
                haListenPort=port + 1,
                controllerAddr=desk,
                **self.guards,
                **self.settings,
            )
        self.servers[name] = server

    def port(self, name: str) -> int:
        if name not in self.ports:
            self.ports[name] = self.rig.ports(4) + 2
        return self.ports[name]

    def in_sync(self) -> None:
        self.rig.until(
            lambda: len(self.sets.info()[1]) == 2,
            SET_S,
            "a set of two",
            self.sets.server,
            *self.servers.values(),
        )

    def master(self) -> str:
        address = self.sets.master
        return next(name for name, server in self.servers.items() if server.address == address)

    def send(self) -> bool:
        """One message to whoever leads; each try has a body of its own."""
        self.tries += 1
        body = f"<{self.tries:06d}>"
        try:
            address = self.sets.master
            request = send_request("p", "Failover", 0, body.encode(), "", 1)
            if address is None or ask(address, request, 4.0).code != 0:
                return False
        except (OSError, AssertionError):
            return False
        self.acked.append(body)
        return True

    def load(self) -> None:
        """Send until told to stop; notes how long nothing was accepted."""
        last = time.monotonic()
        while self.is_sending:
            if self.send():
                now = time.monotonic()
                if now - last > 0.5:
                    self.gaps.append(now - last)
                last = now
            else:
                time.sleep(0.02)

    def log(self, name: str) -> bytes:
        """The commit log, without what is empty at its end."""
        files = sorted((self.servers[name].store / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def run(rig: Rig, combination: tuple[str, str, str], kills: int) -> None:
    pair = Pair(rig, *combination)
    pair.in_sync()
    sender = threading.Thread(target=pair.load)
    sender.start()
    random = Random(repr(combination))
    try:
        for kill in range(kills):
            before = len(pair.acked)
            rig.until(lambda: len(pair.acked) > before + 20, ROLE_S, "messages", pair.sets.server)  # noqa: B023
            time.sleep(random.uniform(0.0, 0.5))
            killed = pair.master()
            pair.servers[killed].kill()
            other = "b" if killed == "a" else "a"
            rig.until(
                lambda: pair.master() == other,  # noqa: B023
                ROLE_S,
                "an election",
                pair.sets.server,
                pair.servers[other],
            )
            before = len(pair.acked)
            rig.until(
                lambda: len(pair.acked) > before + 5,  # noqa: B023
                ROLE_S,
                "messages at the new master",
                pair.sets.server,
                pair.servers[other],
            )
            pair.boot(killed)
            pair.in_sync()
            print(f"{time.strftime('%X')} {combination} {kill + 1} {len(pair.acked)}", flush=True)
    finally:
        pair.is_sending = False
        sender.join()
    rig.until(pair.send, ROLE_S, "a last message", *pair.servers.values())
    last = pair.acked[-1].encode()
    rig.until(lambda: all(last in pair.log(name) for name in pair.kinds), ROLE_S, "it in both logs")
    logs = {name: pair.log(name) for name in pair.kinds}
    for name in pair.kinds:
        found = Counter(each.decode() for each in re.findall(rb"<\d{6}>", logs[name]))
        lost = [body for body in pair.acked if found[body] != 1]
        assert not lost, f"{name} lacks {lost[:10]} of {len(pair.acked)}"
    assert logs["a"] == logs["b"]
    print(
        f"{combination}: {kills} kills, {len(pair.acked)} acknowledged, none lost; nothing "
        f"accepted for {', '.join(f'{gap:.2f}' for gap in pair.gaps)} s"
    )


@pytest.mark.parametrize("combination", [("ours", "java", "ours"), ("ours", "ours", "java")])
def test_a_kill_loses_nothing(rig: Rig, combination: tuple[str, str, str]) -> None:
    run(rig, combination, 1)


@pytest.mark.skipif(not KILLS, reason="RMQ_HA_CONTROLLER_KILLS says how many kills of each pair")
@pytest.mark.parametrize("combination", ALL, ids=["-".join(each) for each in ALL])
def test_many_kills_lose_nothing(rig: Rig, combination: tuple[str, str, str]) -> None:
    run(rig, combination, KILLS)
