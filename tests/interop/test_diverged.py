"""
Logs that part, with a Java broker at either end: our slave finds the place and heals, a Java slave
that was ahead stays refused. And a Java master that hears our greeting behaves as always.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.frame import decode_frame, encode_frame
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.replication.classic.frames import FramePieceReader, encode_report
from rmq_ha.server.replication.classic.greeting import WORD_COUNT, Greeting, encode_greeting
from tests.interop.pairs import QUICK, Pair, Visit, assert_same_logs
from tests.interop.rig import Rig, Server, rig_in
from tests.interop.wire import Load, Wire, log_end


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rig_in(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def java_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with rig_in(tmp_path_factory.mktemp("java-master")) as found:
        settings = {**QUICK, "haSendHeartbeatInterval": 5000}
        server = found.broker("master-sync.conf", "m", java=True, **settings)
        with Wire(server.address) as wire:
            wire.create_topic("G", 1)
            wire.exchange([send_request("p", "G", 0, b"x" * 200, "", 1) for _ in range(20)])
        yield server


class RawSlave:
    """A socket on a master's replication port."""

    def __init__(self, server: Server) -> None:
        port = int(server.address.rpartition(":")[2]) + 1
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(30)

    def frames(self, end: int) -> list[tuple[int, bytes]]:
        """What comes until the log's end is there."""
        found: list[tuple[int, bytes]] = []
        reader = FramePieceReader()
        while not found or found[-1][0] + len(found[-1][1]) < end:
            data = self.socket.recv(1 << 18)
            assert data, "the master closed the connection"
            for place, part, size, _ in reader.receive_data(data):
                if size is None:
                    offset, body = found.pop()
                    found.append((offset, body + bytes(part)))
                else:
                    found.append((place, bytes(part)))
        return found


def last_record(server: Server, end: int) -> int:
    """Where the last record of a small log begins."""
    data = (server.store / "commitlog" / f"{0:020d}").read_bytes()
    position = last = 0
    while position < end:
        last = position
        position += decode_record(data, position).size
    return last


@pytest.mark.parametrize("cut", range(WORD_COUNT))
def test_a_java_master_takes_our_greeting_for_a_report(java_master: Server, cut: int) -> None:
    """
    In one piece (0), or with a pause behind any of its words: it sends from one of them, and stays.
    """
    end = -1
    while end <= 0:  # so soon after its start Java cannot be asked
        end = log_end(java_master.address)
    place = last_record(java_master, end)
    words = encode_greeting(Greeting(place, 1024, bytes(range(0, 256, 36))))
    told = {int.from_bytes(words[at : at + 8], "big") for at in range(0, len(words), 8)}
    slave = RawSlave(java_master)
    with slave.socket:
        if cut:
            slave.socket.sendall(words[: cut * 8])
            time.sleep(0.1)
        slave.socket.sendall(words[cut * 8 :])
        frames = slave.frames(end)
        assert frames[0][0] in told
        if not cut:
            assert frames[0][0] == place
        log = (java_master.store / "commitlog" / f"{0:020d}").read_bytes()
        sent = b"".join(body for _, body in frames)
        assert sent == log[frames[0][0] : end]
        slave.socket.sendall(encode_report(end))
        with Wire(java_master.address) as wire:
            request = send_request("p", "G", 0, b"acknowledged", "", 1)
            wire._socket.sendall(encode_frame(request))
            ((offset, body),) = slave.frames(end + 1)
            assert offset == end
            slave.socket.sendall(encode_report(end + len(body)))
            assert _code(wire) == 0


def _code(wire: Wire) -> int:
    while True:
        data = wire._socket.recv(1 << 16)
        assert data
        for frame in wire._reader.receive_data(data):
            return decode_frame(*frame).code


def lose_the_end(pair: Pair, name: str) -> Load:
    """The master comes back without what it had stored and its slave has; that load."""
    kept = pair.master.directory / "kept"
    pair.master.stop()
    shutil.copytree(pair.master.store, kept)
    pair.restart_master()
    pair.wait_ok()
    with pair.load(name) as lost:
        pair.rig.until(lambda: len(lost.accepted) > 300, 20, "SEND_OK", pair.master)
    pair.wait_same()
    pair.master.kill()
    shutil.rmtree(pair.master.store)
    kept.rename(pair.master.store)
    return lost


def test_our_slave_is_ahead_of_a_java_master_and_heals(rig: Rig) -> None:
    """All that the master has after its loss is readable on the slave, and the logs are equal."""
    pair = Pair(rig, True, False)
    pair.ensure()
    lose_the_end(pair, "lost")
    pair.restart_master()
    with pair.load("after", rate=200) as after:
        pair.rig.until(
            lambda: list((pair.slave.store / "setaside").glob("diverged-*/about.json")),
            40,
            "a tail set aside",
            pair.slave,
        )
        count = len(after.accepted)
        pair.rig.until(lambda: len(after.accepted) > count + 100, 40, "SEND_OK", pair.master)
    assert_same_logs(pair.master, pair.slave, pair.wait_same())
    pair.until_readable(pair.slave, after, after.stored)


def test_a_java_slave_that_was_ahead_stays_refused_until_it_is_empty(rig: Rig) -> None:
    """Though the master's log outgrows its own: no SEND_OK meanwhile."""
    pair = Pair(rig, False, True)
    pair.ensure()
    lose_the_end(pair, "lost")
    ahead = log_end(pair.slave.address)
    pair.of_ours = {"metricsPort": rig.ports(1)}
    pair.restart_master()
    pair.rig.until(
        lambda: "ahead of this broker's" in pair.master.output.read_text(),
        30,
        "a refusal",
        pair.master,
    )
    pair.rig.until(
        lambda: Visit(pair.namesrv).finds("slave-refused-ahead"), 40, "a finding", pair.master
    )
    with pair.load("after") as after:
        pair.rig.until(
            lambda: log_end(pair.master.address) > ahead + 100_000, 40, "a longer log", pair.master
        )
        time.sleep(7)  # it comes again and again
    assert after.accepted == []
    assert log_end(pair.slave.address) == ahead
    pair.slave.stop()
    shutil.rmtree(pair.slave.store)
    pair.restart_slave()
    pair.wait_ok()
