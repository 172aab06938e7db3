"""Our controller under the real Java 5.3.3 brokers of `../shared/peer5` (or RMQ_HA_PEER5)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.controller.codec import decode_set
from tests.interop.controller_slave import Slave
from tests.interop.rig import REPO, TWISTD, Rig, Server

PEER5 = Path(os.environ.get("RMQ_HA_PEER5", REPO.parent / "shared" / "peer5")) / "peer5"
START_S, ROLE_S = 90.0, 30.0


def missing() -> str | None:
    """Why the 5.3.3 rig cannot run here, or None."""
    if not PEER5.exists():
        return f"no RocketMQ 5.3.3 rig at {PEER5} (set RMQ_HA_PEER5)"
    if shutil.which("java") is None:
        return "no java on this machine"
    done = subprocess.run([str(PEER5), "classpath"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"`{PEER5} install` has not run: {done.stderr.strip()}"


_REASON = missing()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")


def ask(address: str, request: RemotingCommand, seconds: float = 30.0) -> RemotingCommand:
    """One request over a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall(encode_frame(request))
        reader = FrameReader()
        while True:
            data = connection.recv(65536)
            assert data, f"{address} closed the connection"
            for frame in reader.receive_data(data):
                return decode_frame(*frame)


class Sets:
    """Our controller, and what it says."""

    broker_name = "broker-c"

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.address = f"127.0.0.1:{rig.ports(1)}"
        self.directory = rig.directory / "controller"
        self.directory.mkdir()
        self.conf = self.directory / "controller.conf"
        self.conf.write_text(
            f"controllerDLegerPeers=n0-{self.address}\nbindAddress=127.0.0.1\n"
            f"controllerStorePath={self.directory}/log\nmappedFileSize=1048576\n"
        )
        self.server = self.start()

    def start(self) -> Server:
        command = [*TWISTD, "rmqcontroller", "--config", str(self.conf), "--ready"]
        return self.rig._start(command, self.address, self.directory, java=False)

    def info(self) -> tuple[dict[str, str], tuple[int, ...]]:
        """1004; nothing while nobody has applied for an id."""
        answer = ask(self.address, RemotingCommand(1004, {"brokerName": self.broker_name}))
        if answer.code:
            return {}, ()
        return answer.ext or {}, decode_set(answer.body or b"").members

    @property
    def master(self) -> str | None:
        return self.info()[0].get("masterAddress")


class SetsInNameServer(Sets):
    """The same controller in a name server: one process, and one file."""

    def __init__(self, rig: Rig) -> None:
        self.namesrv = f"127.0.0.1:{rig.ports(1)}"
        super().__init__(rig)

    def start(self) -> Server:
        _, _, port = self.namesrv.rpartition(":")
        both = f"enableControllerInNamesrv=true\nlistenPort={port}\n"
        if both not in self.conf.read_text():
            self.conf.write_text(f"{self.conf.read_text()}{both}kvConfigPath=kv.json\n")
        command = [*TWISTD, "rmqnamesrv", "--config", str(self.conf), "--ready"]
        return self.rig._start(command, self.address, self.directory, java=False)


def broker(
    rig: Rig,
    name: str,
    conf: str,
    namesrv: str,
    controller: str,
    port: int | None = None,
    **settings: Any,
) -> Server:
    """A Java broker, not waited for; with its port it is one that was there before."""
    port = port or rig.ports(4) + 2
    directory = rig.directory / name
    directory.mkdir(exist_ok=True)
    command = [str(PEER5), "broker", "--quick", "--conf", str(PEER5.parent / "conf" / conf)]
    command += ["--dir", str(directory), "--namesrv", namesrv, "--controller", controller]
    command += ["--jvm=-XX:+UnlockDiagnosticVMOptions", "--jvm=-XX:-BytecodeVerificationRemote"]
    settings |= {"listenPort": port, "haListenPort": port + 1, "haSendHeartbeatInterval": 1000}
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return rig._start(command, f"127.0.0.1:{port}", directory, java=True, wait=False)


def role(server: Server) -> dict[str, Any]:
    """What the broker says of itself last."""
    lines = [line for line in server.output.read_text().splitlines() if line.startswith("ROLE ")]
    found: dict[str, Any] = json.loads(lines[-1][5:]) if lines else {}
    return found


def sends(address: str) -> bool:
    """A message is accepted."""
    try:
        return ask(address, send_request("p", "Failover", 0, b"body", "", 1), 5).code == 0
    except OSError:
        return False


def test_java_brokers_join_elect_and_fail_over(rig: Rig) -> None:
    """
    Two start at once and apply for ids, one leads, both are in sync; kill -9, and the other.

    Their controller is in their name server, as it is in `peer5 namesrv`.
    """
    started = time.monotonic()
    sets = SetsInNameServer(rig)
    both = [
        broker(rig, name, f"controller-{name}.conf", sets.namesrv, sets.address)
        for name in ("a", "b")
    ]
    rig.until(lambda: sets.info()[1] == (1, 2), START_S, "a set of two", sets.server, *both)
    master, slave = sorted(both, key=lambda server: server.address != sets.master)
    print(f"set of two after {time.monotonic() - started:.2f} s")
    assert sets.info()[0]["masterEpoch"] == "1"
    rig.until(lambda: sends(master.address), ROLE_S, "an acknowledged message", master)
    assert not sends(slave.address)

    began = time.monotonic()
    master.kill()
    rig.until(lambda: sets.master == slave.address, ROLE_S, "an election", sets.server, slave)
    elected = time.monotonic() - began
    rig.until(lambda: sends(slave.address), ROLE_S, "a message at the new master", slave)
    print(f"elected after {elected:.2f} s, first SEND_OK after {time.monotonic() - began:.2f} s")
    ext, members = sets.info()
    assert (ext["masterEpoch"], members) == ("2", (int(ext["masterBrokerId"]),))
    assert role(slave)["masterEpoch"] == 2

    sets.server.kill()
    sets.server = sets.start()
    rig.until(lambda: sets.info() == (ext, members), ROLE_S, "the log", sets.server)
    assert sends(slave.address)
    a_slave_of_ours_joins(rig, sets, slave, members)


def a_slave_of_ours_joins(rig: Rig, sets: Sets, master: Server, members: tuple[int, ...]) -> None:
    """
    The third id, under the Java master of the second epoch: same bytes, and a place in the set.

    Then each SEND_OK waits for it (allAckInSyncStateSet), and it can be elected.
    """
    ours = Slave(sets.address, rig.ports(1), ask)
    try:
        began = time.monotonic()
        joined = (*members, 3)
        rig.until(lambda: sets.info()[1] == joined or ours.fault, ROLE_S, "a set with ours", master)
        print(f"ours is in the set after {time.monotonic() - began:.2f} s")
        before = ours.log.max_offset
        assert sends(master.address)
        assert ours.log.max_offset > before, "it was answered before we had it"
        rig.until(lambda: ours.confirm_offset == ours.log.max_offset, ROLE_S, "confirm", master)
    finally:
        ours.stop()
    assert ours.manager.identity is not None
    assert ours.manager.identity.broker_id == 3
    assert ours.epochs.last_epoch == 2
    javas = min((master.store / "commitlog").iterdir())
    with javas.open("rb") as stream:
        assert stream.read(len(ours.log.data)) == bytes(ours.log.data)


def mqadmin(directory: Path, *commands: list[str]) -> list[list[str]]:
    """What 5.3.3's admin tool printed, without empty lines: one after the other, in one JVM."""
    path = subprocess.run([str(PEER5), "classpath"], capture_output=True, text=True, check=True)
    silent = directory / "logback.xml"
    silent.write_text("<configuration><root level='OFF'/></configuration>\n")
    done = subprocess.run(
        [
            *("java", "-XX:+UseSerialGC", "-Xmx256m", f"-Drmq.logback.configurationFile={silent}"),
            *("-cp", path.stdout.strip(), str(REPO / "tests/interop/java/Tools5.java")),
        ],
        input="".join("\t".join(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    printed = done.stdout.split("\nDONE\n")
    assert len(printed) == len(commands) + 1, done.stdout + done.stderr
    return [[line for line in text.splitlines() if line] for text in printed[:-1]]


def test_mqadmin_prints_what_it_prints_for_java(rig: Rig) -> None:
    """Two brokers that are but heartbeats; the texts are those of the recording."""
    sets = Sets(rig)
    names = {"clusterName": "Peer5Cluster", "brokerName": "broker-c"}
    with contextlib.ExitStack() as stack:
        for number in (1, 2):
            address = f"127.0.0.2:51{number}11"
            code = {"appliedBrokerId": str(number), "registerCheckCode": f"{address};1"}
            rig.until(
                lambda code=code: ask(sets.address, RemotingCommand(1013, names | code)).code == 0,
                ROLE_S,
                "an id",
                sets.server,
            )
            beat = {"brokerAddr": address, "brokerId": str(number)}
            lasting = {"heartbeatTimeoutMills": "600000", "epoch": "0", "maxOffset": "0"}
            host, _, port = sets.address.rpartition(":")
            connection = stack.enter_context(socket.create_connection((host, int(port)), 5))
            connection.sendall(encode_frame(RemotingCommand(904, names | beat | lasting)))
            assert connection.recv(4096)
        ask(sets.address, RemotingCommand(1002, names | {"brokerId": "1"}))
        change = names | {"masterBrokerId": "1", "masterEpoch": "1"}
        wanted = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
        assert ask(sets.address, RemotingCommand(1001, change, wanted)).code == 0

        where = ["-a", sets.address]
        named = ["-c", "Peer5Cluster", "-bn", "broker-c"]
        sets_shown, metadata, elected, _, shown, cleaned = mqadmin(
            rig.directory,
            ["getSyncStateSet", *where, "-b", "broker-c"],
            ["getControllerMetaData", *where],
            ["electMaster", *where, *named, "-b", "2"],
            ["updateControllerConfig", *where, "-k", "enableElectUncleanMaster", "-v", "true"],
            ["getControllerConfig", *where],
            ["cleanBrokerMetadata", *where, *named, "-b", "1", "-l"],
        )
        assert sets_shown == [
            "#brokerName\tbroker-c",
            "#MasterBrokerId\t1",
            "#MasterAddr\t127.0.0.2:51111",
            "#MasterEpoch\t1",
            "#SyncStateSetEpoch\t2",
            "#SyncStateSetNums\t2",
            "InSyncReplica:\tReplicaIdentity{brokerName='broker-c', brokerId=1, "
            "brokerAddress='127.0.0.2:51111', alive=true}",
            "InSyncReplica:\tReplicaIdentity{brokerName='broker-c', brokerId=2, "
            "brokerAddress='127.0.0.2:51211', alive=true}",
        ]
        assert metadata == [
            "#ControllerGroup\tcontroller",
            "#ControllerLeaderId\tn0",
            f"#ControllerLeaderAddress\t{sets.address}",
            f"#Peer:\tn0:{sets.address}",
        ]
        assert elected == [
            "#ClusterName\tPeer5Cluster",
            "#BrokerName\tbroker-c",
            "#BrokerMasterAddr\t127.0.0.2:51211",
            "#MasterEpoch\t2",
            "#SyncStateSetEpoch\t3",
        ]
        assert "enableElectUncleanMaster=true" in sets.conf.read_text()
        assert shown[0] == f"============{sets.address}============"
        settings = {
            line.partition("=")[0].strip(): line.partition("=")[2].strip() for line in shown
        }
        assert settings["controllerDLegerPeers"] == f"n0-{sets.address}"
        assert settings["enableElectUncleanMaster"] == "true"
        assert cleaned == ["clear broker broker-c metadata from controller success! "]


def test_mqadmin_shows_epochs_and_replication_of_a_pair_of_ours(rig: Rig) -> None:
    """`getBrokerEpoch` and `haStatus`; the forms are those of the recording."""
    sets = SetsInNameServer(rig)
    servers = []
    for name in ("a", "b"):
        port = rig.ports(4) + 2
        servers.append(
            rig.broker(
                str(PEER5.parent / "conf" / f"controller-{name}.conf"),
                name,
                namesrv=sets.namesrv,
                port=port,
                haListenPort=port + 1,
                controllerAddr=sets.address,
                haSendHeartbeatInterval=1000,
            )
        )
        rig.until(lambda: sets.master, START_S, "a master", *servers)
    rig.until(lambda: len(sets.info()[1]) == 2, START_S, "a set of two", *servers)
    master, slave = servers
    assert sets.master == master.address
    rig.until(lambda: sends(master.address), ROLE_S, "a message", master)
    size = (slave.store / "commitlog" / f"{0:020}").read_bytes().rstrip(b"\0")
    where = ["-n", sets.namesrv]
    epochs, of_master, of_slave = mqadmin(
        rig.directory,
        ["getBrokerEpoch", *where, "-b", "broker-c"],
        ["haStatus", *where, "-b", master.address],
        ["haStatus", *where, "-b", slave.address],
    )
    if master.address not in epochs[2]:  # in the order of Java's hash map
        epochs = [*epochs[5:], *epochs[:5]]
    end = re.search(r"endOffset=(\d+)", epochs[4])
    assert end
    assert int(end[1]) >= len(size) > 0
    last = f"#Epoch: EpochEntry{{epoch=1, startOffset=0, endOffset={end[1]}}}"
    assert epochs == [
        *("#clusterName\tPeer5Cluster", "#brokerName\tbroker-c"),
        *(f"#brokerAddr\t{master.address}", "#brokerId\t0", last),
        *("#clusterName\tPeer5Cluster", "#brokerName\tbroker-c"),
        *(f"#brokerAddr\t{slave.address}", "#brokerId\t2", last),
    ]
    assert of_master[:4] == [
        *(f"#MasterAddr\t{master.address}", f"#MasterCommitLogMaxOffset\t{end[1]}"),
        *("#SlaveNum\t1", "#InSyncSlaveNum\t1"),
    ]
    address, acked, behind, _, state, sent = of_master[5].split()
    assert address.startswith("127.0.0.1:")
    assert (acked, behind, state, sent) == (end[1], "0", "OK", end[1])
    names = [line.partition("\t")[0] for line in of_slave]
    assert of_slave[:2] == [
        f"#MasterAddr\t127.0.0.1:{int(master.address.rpartition(':')[2]) + 1}",
        f"#CommitLogMaxOffset\t{end[1]}",
    ]
    assert names[2:] == [
        "#TransferSpeed(KB/s)",
        "#LastReadTime",
        "#LastWriteTime",
        "#MasterFlushOffset",
    ]
