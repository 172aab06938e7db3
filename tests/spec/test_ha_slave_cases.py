"""
What a Java 4.9.7 slave answered to a test master, replayed against `ClassicReplica`.

The cases follow one another on one store with commit-log files of 4096 bytes (ha.md, section 22).
Where we differ on purpose, the test says how.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import ReplicationError
from rmq_ha.server.replication.classic.replica import ClassicReplica
from tests.unit.server.replication.memory_log import MemoryLog

VECTORS = Path(__file__).parents[1] / "vectors" / "ha" / "slave_cases.json"
RECORDED = json.loads(VECTORS.read_text())
CASES: dict[str, list[dict[str, Any]]] = {c["name"]: c["events"] for c in RECORDED["cases"]}

START = {
    "one_frame_300_in_5_pieces": 0,
    "three_frames_in_one_write": 300,
    "frame_and_half_then_rest": 1100,
    "heartbeat_at_right_offset_then_idle_6s": 1900,
    "fill_file_to_4096_then_next_file": 1900,
    "heartbeat_offset_plus_1": 5120,
    "data_frame_offset_minus_1": 5120,
    "header_only_wrong_offset_size_1000": 5120,
    "size_minus_1": 5120,
    "frame_crossing_the_file_end": 5119,
}
REFUSED = {
    "heartbeat_offset_plus_1",
    "data_frame_offset_minus_1",
    "header_only_wrong_offset_size_1000",
}


def sent(name: str) -> bytes:
    """All that the test master wrote in a case."""
    return b"".join(bytes.fromhex(e["hex"]) for e in CASES[name] if e["dir"] == "TX")


def recorded_log() -> bytes:
    """The Java slave's log at its fullest, before the bad frames."""
    log = MemoryLog(4096, 0)
    replica = ClassicReplica(log, MessageStoreConfig(), 0.0)
    replica.connected(0.0)
    for name in list(START)[:5]:
        replica.receive_data(sent(name), 0.0)
    assert log.max_offset == 5120
    return bytes(log.data)


class RawMaster:
    """Plays a case's master against a replica, and keeps what the replica answers."""

    def __init__(self, name: str) -> None:
        self.events = CASES[name]
        self.now = self.began = self.events[0]["t"]
        self.log = MemoryLog(4096, 0, recorded_log()[: START[name]])
        self.replica = ClassicReplica(self.log, MessageStoreConfig(), self.now)
        assert self.replica.connected(self.now) == START[name].to_bytes(8, "big")
        self.answers: list[tuple[float, bytes]] = []
        self.error: ReplicationError | None = None

    def play(self) -> "RawMaster":
        for event in self.events:
            self.run_until(event["t"])
            if event["dir"] == "TX" and self.error is None:
                self.step(self.replica.receive_data, bytes.fromhex(event["hex"]))
        self.run_until(self.events[-1]["t"])
        return self

    def run_until(self, time: float) -> None:
        while self.error is None and self.replica.deadline() <= time:
            self.now = self.replica.deadline()
            self.step(self.replica.on_time)
        self.now = time

    def step(self, step: Any, *args: bytes) -> None:
        try:
            answer = step(*args, self.now)
        except ReplicationError as error:
            self.error = error
            return
        if answer:
            self.answers.append((self.now, answer))

    def recorded_reports(self) -> list[tuple[float, bytes]]:
        """The Java slave's words before it closed, one by one."""
        reports = []
        for event in self.events:
            if event["dir"] == "EOF":
                break
            if event["dir"] == "RX":
                data = bytes.fromhex(event["hex"])
                reports += [(event["t"], data[i : i + 8]) for i in range(0, len(data), 8)]
        return reports


@pytest.mark.parametrize("name", list(START)[:5])
def test_reports_what_java_reported_when_java_did(name: str) -> None:
    """Except that frames of one chunk have one report, the last: it says all."""
    master = RawMaster(name).play()
    assert master.error is None
    recorded = master.recorded_reports()
    by_time = dict(recorded)
    assert [report for _, report in master.answers] == list(by_time.values())
    for (time, _), (recorded_time, _) in zip(master.answers, by_time.items(), strict=True):
        assert abs(time - recorded_time) < 0.05


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refuses_at_the_header_what_java_refused(name: str) -> None:
    master = RawMaster(name).play()
    assert master.error is not None
    assert master.answers == []
    assert master.log.max_offset == 5120
    # The next connection begins with the same report (Java: five seconds later).
    assert CASES[name][-1]["hex"] == (5120).to_bytes(8, "big").hex()


def test_a_negative_size_moves_nothing() -> None:
    """Java's write position went back by one."""
    master = RawMaster("size_minus_1").play()
    assert master.error is not None
    assert master.log.max_offset == 5120


def test_a_frame_across_the_end_of_a_file_is_refused_at_once() -> None:
    """Java dropped its body silently and closed at the next frame."""
    master = RawMaster("frame_crossing_the_file_end")
    first = bytes.fromhex(CASES["frame_crossing_the_file_end"][0]["hex"])
    master.step(master.replica.receive_data, first[:12])
    assert "do not fit" in str(master.error)
    assert master.log.max_offset == 5119


def test_an_empty_slave_reports_0_every_five_seconds_and_leaves_a_silent_master() -> None:
    """Java's first report comes after five seconds, and it never leaves (27 s were tried)."""
    recorded = [e for e in CASES["connect_empty_store_silent_master_24s"] if e["dir"] == "RX"]
    replica = ClassicReplica(MemoryLog(4096), MessageStoreConfig(), 0.0)
    assert replica.connected(0.0).hex() == recorded[0]["hex"]
    reports = []
    while (now := replica.deadline()) < 20.0:
        reports.append((now, replica.on_time(now).hex()))
    assert reports == [(5.0, "00" * 8), (10.0, "00" * 8), (15.0, "00" * 8)]
    assert now == 20.0
    with pytest.raises(ReplicationError):
        replica.on_time(now)
