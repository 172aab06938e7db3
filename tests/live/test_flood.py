"""A stranger opens connections until a broker with few descriptors has none left, and goes away."""

from __future__ import annotations

import os
import resource
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.live.lone_broker import LoneBroker

BASES = range(25200, 25320, 4)
LIMIT = 160
"""Descriptors that the broker may have."""
BODY = b"x" * 40_000
"""Two of them fill a file of the commit log: each flood meets several new ones."""


class Broker(LoneBroker):
    """With few descriptors."""

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        super().__init__(
            directory,
            BASES,
            "mappedFileSizeCommitLog=98304\nflushDiskType=SYNC_FLUSH\n",
            lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        )
        self.ha_port = self.ready["haListenPort"]

    def send(self, body: bytes = BODY) -> tuple[int, str]:
        """Code and reason of one send."""
        sent = send_request("p", DEFAULT_TOPIC, 0, body, "", 1)
        try:
            answer = self.calls.invoke(f"127.0.0.1:{self.port}", sent, 10_000)
        except RmqHaError as error:
            return -1, str(error)
        return answer.code, answer.remark or ""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path)
    try:
        yield running
    finally:
        running.end()


def flood(port: int, count: int, source: str = "127.0.0.9") -> list[socket.socket]:
    """Connections that say nothing; as many as there could be made."""
    made = []
    for _ in range(count):
        stranger = socket.socket()
        made.append(stranger)
        stranger.settimeout(2)
        with suppress(OSError):
            stranger.bind((source, 0))
            stranger.connect(("127.0.0.1", port))
    return made


def wait_for_refusals(broker: Broker, reason: str) -> None:
    """Until somebody was refused for this: the broker accepts in its own time."""
    for _ in range(600):
        if broker.metric("rmqha_refused_connections_total")[reason] >= 1:
            return
        time.sleep(0.05)
    raise AssertionError(f"nobody is refused by {reason}")


def test_queues_take_no_descriptor_of_a_connection(tmp_path: Path) -> None:
    """Some hundred took all 256: nobody got in any more, nor an answer of /healthz."""
    limit, queues = 256, 130
    broker = Broker(tmp_path, limit)
    strangers: list[socket.socket] = []
    try:
        ext = {"readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6"}
        ext |= {"topic": "Wide", "defaultTopic": DEFAULT_TOPIC, "topicFilterType": "SINGLE_TAG"}
        ext |= {"topicSysFlag": "0", "order": "false"}
        make = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
        address = f"127.0.0.1:{broker.port}"
        assert broker.calls.invoke(address, make, 10_000).code == 0
        for queue in range(queues):
            sent = send_request("p", "Wide", queue, b"x", "", 1)
            assert broker.calls.invoke(address, sent, 10_000).code == 0
        places = int(broker.metric("rmqha_connection_places")[""])
        opened = os.listdir(f"/proc/{broker.process.pid}/fd")
        assert len(opened) < limit - places + 10, "and some connections"
        for number in range(3):
            strangers += flood(broker.port, places // 3 - 12, f"127.0.0.{60 + number}")
        assert broker.send() == (0, "")
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics}/healthz") as answer:
            assert answer.status == 200
    finally:
        for stranger in strangers:
            stranger.close()
        broker.end()


def test_writes_go_on_during_and_after_a_flood(broker: Broker) -> None:
    """The log needs new files all the time; nothing is refused, least of all for good."""
    assert broker.send() == (0, "")
    before = broker.metric("rmqha_open_connections")[""]
    ports = (broker.port, broker.port - 2, broker.ha_port, broker.namesrv, broker.metrics)
    # The first one comes to his own limit; then there are too many of all.
    strangers = flood(ports[0], LIMIT // 2, "127.0.0.50")
    wait_for_refusals(broker, "maxConnectionsPerIp")
    for number, port in enumerate(ports):
        strangers += flood(port, LIMIT // 2, f"127.0.0.{50 + number % 3}")
    wait_for_refusals(broker, "maxConnections")
    during = [broker.send() for _ in range(8)]
    open_connections = broker.metric("rmqha_open_connections")[""]
    places = broker.metric("rmqha_connection_places")[""]
    for stranger in strangers:
        stranger.close()
    after = [broker.send() for _ in range(8)]
    assert after == [(0, "")] * 8
    assert during == [(0, "")] * 8
    assert places - 12 <= open_connections <= places == LIMIT // 2
    for _ in range(600):
        if broker.metric("rmqha_open_connections")[""] <= before:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("connections that are gone still count")
    lines = broker.output.read_text().count("is refused by")
    assert 1 <= lines <= 6, "a line for each address and reason"
    assert broker.end() == 0
    assert not (broker.store / "abort").exists(), "the stop was a clean one"
