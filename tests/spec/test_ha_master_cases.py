"""
What a Java 4.9.7 master answered to a raw slave, replayed against `Feed`.

The recordings (ha.md, section 22) were made with commit-log files of 4096 bytes and frames of 1024.
Times in them carry Java's polling: up to 100 ms for a heartbeat, up to 1 s for a close.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ReplicationError
from rmq_ha.server.replication.classic.feed import DOUBT_SECONDS, Feed
from rmq_ha.server.replication.classic.frames import FramePieceReader
from tests.unit.server.replication.memory_log import MemoryLog

VECTORS = Path(__file__).parents[1] / "vectors" / "ha" / "master_cases.json"
RECORDED = json.loads(VECTORS.read_text())
CASES: dict[str, dict[str, Any]] = RECORDED["cases"]
POLLING_SECONDS = 0.15

# Where we close on purpose and Java does not, or later (section 18): the event that we refuse.
REFUSED_EARLIER = {
    "report_minus_5": "a negative first report",
    "report_minus_1_then_max": "a negative first report",
    "ahead_of_master_first_then_again": "a first report beyond our log, if it is no greeting",
}


def received(case: dict[str, Any]) -> bytes:
    """All that the Java master sent in a case."""
    return b"".join(bytes.fromhex(e["hex"]) for e in case["events"] if e["dir"] == "RX")


def frames(stream: bytes) -> Iterator[tuple[int, bytes]]:
    """The whole frames of a stream."""
    for offset, body, _, is_last in FramePieceReader().receive_data(stream):
        assert is_last
        yield offset, bytes(body)


def recorded_log(end: int) -> bytes:
    """The Java master's commit log, put together from what it sent."""
    log = bytearray(RECORDED["max_at_boundary"])
    for name in ("report_0", "boundary_from_444"):
        for offset, body in frames(received(CASES[name])):
            log[offset : offset + len(body)] = body
    return bytes(log[:end])


class RawSlave:
    """Plays a case's slave against a feed, and keeps what the feed sends."""

    def __init__(self, name: str) -> None:
        end = RECORDED["max_at_boundary" if "boundary" in name else "max_at_cases"]
        configuration = BrokerConfiguration()
        configuration.store.ha_transfer_batch_size = RECORDED["haTransferBatchSize"]
        self.log = MemoryLog(RECORDED["commitLogFileSize"], 0, recorded_log(end))
        self.feed = Feed(self.log, configuration, 0.0)
        self.sent: list[tuple[float, bytes]] = []
        self.closed: float | None = None
        self.now = 0.0

    def run_until(self, time: float) -> None:
        """Let the feed do what is due."""
        while self.closed is None and self.feed.deadline() <= time:
            self.now = self.feed.deadline()
            self.step(self.feed.on_time, self.now)
        self.now = time

    def step(self, step: Any, *args: Any) -> None:
        try:
            step(*args)
        except ReplicationError:
            self.closed = self.now
            return
        while frame := self.feed.next_frame(self.now):
            self.sent.append((self.now, frame))

    def play(self, case: dict[str, Any]) -> None:
        events = case["events"]
        for event in events:
            if event["dir"] == "TX" and self.closed is None:
                self.run_until(event["t"])
                self.step(self.feed.receive_data, bytes.fromhex(event["hex"]), self.now)
        self.run_until(events[-1]["t"] + POLLING_SECONDS)


@pytest.mark.parametrize("name", sorted(set(CASES) - set(REFUSED_EARLIER)))
def test_sends_what_java_sent_when_java_sent_it(name: str) -> None:
    case, slave = CASES[name], RawSlave(name)
    slave.play(case)
    assert b"".join(frame for _, frame in slave.sent) == received(case)
    assert [[int.from_bytes(f[:8], "big"), len(f) - 12] for _, f in slave.sent] == case[
        "frames_received"
    ]
    first_bytes = [e["t"] for e in case["events"] if e["dir"] == "RX"]
    if first_bytes:
        assert abs(slave.sent[0][0] - first_bytes[0]) < POLLING_SECONDS
        assert abs(slave.sent[-1][0] - first_bytes[-1]) < POLLING_SECONDS
    ends = [e["t"] for e in case["events"] if e["dir"] == "EOF"]
    if ends:
        assert slave.closed is not None
        assert abs(slave.closed - ends[0]) < POLLING_SECONDS
    else:
        assert slave.closed is None


@pytest.mark.parametrize("name", sorted(REFUSED_EARLIER))
def test_refuses_what_cannot_be_true(name: str) -> None:
    case, slave = CASES[name], RawSlave(name)
    slave.play(case)
    assert slave.sent == []
    asked = next(e["t"] for e in case["events"] if e["dir"] == "TX")
    assert slave.closed in (asked, asked + DOUBT_SECONDS)
    assert slave.feed.acked == 0


def test_the_blank_record_travels_like_any_bytes() -> None:
    """Spec: ha.md, section 22.3."""
    slave = RawSlave("boundary_from_444")
    slave.play(CASES["boundary_from_444"])
    log = b"".join(frame[12:] for _, frame in slave.sent)
    blank = log[3684 - 444 : 4096 - 444]
    assert blank == bytes.fromhex("0000019ccbd43194") + bytes(404)
