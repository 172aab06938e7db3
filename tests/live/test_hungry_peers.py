"""Strangers who make a broker do or keep much by sending little, beside an honest client."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.client.lookup.requests import send_request
from tests.live.bombs import header_bomb, registration_bomb
from tests.live.lone_broker import LoneBroker

BASES = range(25400, 25480, 4)
MOST_MIB = 256
LONGEST = 15.0
"""Seconds that an honest send may take on a machine that does much else; the attacks took a minute
and more."""


class Broker(LoneBroker):
    """What it holds, and how soon it answers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, BASES, "mappedFileSizeCommitLog=1048576\n")

    def sends(self) -> float:
        """An honest message is stored; seconds."""
        began = time.monotonic()
        sent = send_request("p", DEFAULT_TOPIC, 0, b"honest", "", 1)
        assert self.calls.invoke(f"127.0.0.1:{self.port}", sent, 60_000).code == 0
        return time.monotonic() - began

    def stranger(self, port: int | None = None) -> socket.socket:
        """A connection that may stall."""
        made = socket.create_connection(("127.0.0.1", port or self.port), 30)
        made.settimeout(30)
        return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path)
    try:
        running.sends()
        yield running
        assert running.process.poll() is None
    finally:
        running.end()


def test_documents_that_grow_are_refused_at_once(broker: Broker) -> None:
    """A header took 55 s and 2.2 GiB, and 115 KiB for the name server 8.6 s."""
    register = registration_bomb()
    strangers = []
    for port, data in (
        (broker.port, header_bomb()),
        (broker.port - 2, header_bomb()),
        (broker.namesrv, header_bomb()),
        (broker.namesrv, register),
    ):
        stranger = broker.stranger(port)
        strangers.append(stranger)
        stranger.sendall(data)
        assert broker.sends() < LONGEST
        answer = stranger.recv(4096)
        assert data is register or answer == b"", "the connection is closed"
        assert data is not register or b"maxRegistrationBytes" in answer
    assert broker.memory() < MOST_MIB
    for stranger in strangers:
        stranger.close()


def test_frames_that_never_end_are_not_read(broker: Broker) -> None:
    """100 of them kept 1.6 GiB. An honest peer of the same address still gets its message in."""
    head, megabyte = struct.pack(">ii", 16_000_000, 100), bytes(1 << 20)
    strangers = [broker.stranger() for _ in range(24)]
    most = 0.0
    for stranger in strangers:
        stranger.settimeout(0.2)  # most are not read: there is no room for their frames
        with suppress(OSError):
            stranger.sendall(head)
            for _ in range(12):
                stranger.sendall(megabyte)
        assert broker.sends() < LONGEST
        most = max(most, broker.memory())
    assert most < MOST_MIB
    sent = send_request("p", DEFAULT_TOPIC, 0, bytes(400_000), "", 1)
    assert broker.calls.invoke(f"127.0.0.1:{broker.port}", sent, 60_000).code == 0
    for stranger in strangers:
        stranger.close()


def test_held_pulls_keep_no_bodies(broker: Broker) -> None:
    """120 of 15 MiB on one connection kept 1.9 GiB."""
    ext = {
        "consumerGroup": "CID_ONSAPI_PULL",
        "topic": DEFAULT_TOPIC,
        "queueId": "1",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "3600000",
        "subscription": "*",
        "subVersion": "1",
    }
    stranger = broker.stranger()
    body = bytes(15 << 20)
    for opaque in range(1, 21):
        stranger.sendall(encode_frame(RemotingCommand(11, ext, body, opaque)))
    assert broker.sends() < LONGEST
    assert broker.memory() < MOST_MIB
    stranger.settimeout(0.3)
    with pytest.raises(TimeoutError):
        stranger.recv(1)  # they wait
    stranger.close()
