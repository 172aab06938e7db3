"""Ours and Java's brokers as each other's slaves, on real sockets; files compared byte by byte."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, Server

MIXES = [
    pytest.param(True, False, id="java-slave-of-our-master"),
    pytest.param(False, True, id="our-slave-of-java-master"),
    pytest.param(False, False, id="our-slave-of-our-master"),
]


def log_bytes(server: Server) -> dict[int, bytes]:
    """The commit-log files of a broker by their offset."""
    folder = server.store / "commitlog"
    return {int(path.name): path.read_bytes() for path in sorted(folder.iterdir())}


def assert_same_logs(master: Server, slave: Server, end: int) -> int:
    """Byte-equal from the slave's first file up to `end`; how many bytes were compared."""
    ours, theirs = log_bytes(master), log_bytes(slave)
    compared = 0
    for offset, data in theirs.items():
        size = min(len(data), max(0, end - offset))
        assert data[:size] == ours[offset][:size] if size else True, f"file {offset}"
        compared += size
    return compared


def brokers(
    rig: Rig, java_slave: bool, java_master: bool, **settings: Any
) -> tuple[Server, Server]:
    namesrv = rig.namesrv(java=java_slave and java_master)
    master = rig.broker("master-sync.conf", "m", java=java_master, namesrv=namesrv, **settings)
    slave = rig.broker("slave.conf", "s", java=java_slave, namesrv=namesrv, **settings)
    rig.wait_sync(master)
    return master, slave


def send(rig: Rig, master: Server, count: int, size: int = 1024, *more: Any) -> dict[str, Any]:
    return rig.peer(
        "load",
        "send",
        "--addr",
        master.address,
        "--create",
        "--topic",
        "R",
        "--conns",
        4,
        "--inflight",
        16,
        "--size",
        size,
        "--count",
        count,
        *more,
        timeout=200,
    )[-1]


def end_of(rig: Rig, server: Server) -> int:
    return int(rig.info(server)["commitLogMaxOffset"])


@pytest.mark.parametrize(("java_slave", "java_master"), MIXES)
def test_100_mebibytes(rig: Rig, java_slave: bool, java_master: bool) -> None:
    """100 MiB over many small files arrive byte for byte, and both brokers serve them."""
    master, slave = brokers(rig, java_slave, java_master)
    send(rig, master, 6400, 16384)
    rig.wait_same(slave, master)
    end = end_of(rig, master)
    assert assert_same_logs(master, slave, end) >= 100 << 20
    for server in (master, slave):
        rig.until(
            lambda server=server: rig.peer(
                "load",
                "pull",
                "--addr",
                server.address,
                "--topic",
                "R",
                "--queues",
                "0-7",
                "--verify",
                "--expect",
                6400,
                check=False,
            )[-1].get("ok"),
            25,
            "all messages readable",
            server,
        )


@pytest.mark.parametrize(("java_slave", "java_master"), MIXES)
def test_slave_is_killed_and_resumes(rig: Rig, java_slave: bool, java_master: bool) -> None:
    """A slave that is killed mid-stream continues where its log ends."""
    master, slave = brokers(rig, java_slave, java_master)
    send(rig, master, 500)
    slave.kill()
    send(rig, master, 3000, 1024, "--accept", "0,11,12")
    slave = restart(rig, slave)
    rig.wait_sync(master)
    send(rig, master, 500)
    rig.wait_same(slave, master)
    assert_same_logs(master, slave, end_of(rig, master))


@pytest.mark.parametrize(("java_slave", "java_master"), MIXES)
def test_master_is_killed_and_resumes(rig: Rig, java_slave: bool, java_master: bool) -> None:
    """After kill -9 of the master its slave still has all; the master comes back and they go on."""
    master, slave = brokers(rig, java_slave, java_master)
    sent = send(rig, master, 2000)
    master.kill()
    assert sent["accepted"] == 2000
    time.sleep(1)
    master = restart(rig, master)
    rig.wait_sync(master)
    send(rig, master, 500)
    rig.wait_same(slave, master)
    end = end_of(rig, master)
    assert_same_logs(master, slave, end)
    rig.until(
        lambda: rig.peer(
            "load",
            "pull",
            "--addr",
            slave.address,
            "--topic",
            "R",
            "--queues",
            "0-7",
            "--verify",
            "--expect",
            2500,
            check=False,
        )[-1].get("ok"),
        25,
        "all messages readable from the slave",
        slave,
    )


def restart(rig: Rig, server: Server) -> Server:
    """The same broker on the same port and store."""
    conf = "slave.conf" if Path(server.directory).name == "s" else "master-sync.conf"
    return rig.broker(
        conf,
        Path(server.directory).name,
        java=server.java,
        namesrv=server.namesrv,
        port=int(server.address.rpartition(":")[2]),
    )
