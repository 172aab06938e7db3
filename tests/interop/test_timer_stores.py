"""
A killed RocketMQ 5.3.3 leaves a store with waiting timer messages to rmq-ha.

`test_timer_export.py` has a store that goes there and back after clean stops.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import pytest

from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.interop.rig import Rig, Server
from tests.interop.test_controller import PEER5, pytestmark  # noqa: F401
from tests.interop.wire import Wire

TOPIC = "Changing"
CONF = """\
brokerClusterName=Timers
brokerName=broker-t
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=5000
maxIndexNum=20000
"""
TIMERS = {"timerWheelEnable": "true", "recallMessageEnable": "true"}


class Hands:
    """One store, and whoever has it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.namesrv = rig.namesrv()
        self._conf = rig.directory / "timers.conf"
        self._conf.write_text(CONF)
        self._port = rig.ports(4) + 2
        self.server: Server

    def java(self) -> None:
        """RocketMQ 5.3.3 opens the store."""
        directory = self.rig.directory / "store-of-both"
        directory.mkdir(exist_ok=True)
        command = [str(PEER5), "broker", "--quick", "--conf", str(self._conf)]
        command += ["--dir", str(directory), "--namesrv", self.namesrv]
        for key, value in {**TIMERS, "listenPort": self._port}.items():
            command += ["--set", f"{key}={value}"]
        address = f"127.0.0.1:{self._port}"
        self.server = self.rig._start(command, address, directory, java=True)

    def ours(self) -> None:
        """A broker of rmq-ha opens it."""
        self.server = self.rig.broker(
            str(self._conf), "store-of-both", namesrv=self.namesrv, port=self._port, **TIMERS
        )

    def send(self, body: str, wait_ms: int) -> tuple[str, int]:
        """Send a timer message; return its handle and its due time."""
        due = int(time.time() * 1000) + wait_ms
        text = f"UNIQ_KEY\x01{body:0>32}\x02TIMER_DELIVER_MS\x01{due}"
        with Wire(self.server.address) as wire:
            (answer,) = wire.exchange([send_request("p", TOPIC, 0, body.encode(), text, 1)])
        assert answer.code == 0, answer.remark
        assert answer.ext is not None
        return answer.ext["recallHandle"], due

    def recall(self, handle: str) -> int:
        """Recall a message; return the code."""
        with Wire(self.server.address) as wire:
            (answer,) = wire.exchange(
                [RemotingCommand(370, {"topic": TOPIC, "recallHandle": handle})]
            )
        return int(answer.code)

    def records(self) -> list[Record]:
        """What consumers can read."""
        with Wire(self.server.address) as wire:
            return wire.pull_all(TOPIC, 0)

    def until_came(self, bodies: Iterable[str], seconds: float = 60) -> None:
        """Wait until consumers can read these."""
        wanted = {body.encode() for body in bodies}
        self.rig.until(
            lambda: wanted <= {record.body for record in self.records()},
            seconds,
            f"the messages {wanted}",
            self.server,
        )

    def counts(self) -> Counter[str]:
        """How often each message is in the topic."""
        return Counter(record.body.decode() for record in self.records())


@pytest.mark.trials
def test_ours_goes_on_with_what_waits_in_a_store_of_java(rig: Rig) -> None:
    """Java is killed. What it delivered stays once, what waits comes once, recalled ones never."""
    hands = Hands(rig)
    hands.java()
    with Wire(hands.server.address) as wire:
        wire.create_topic(TOPIC, 1)
    for number in range(3):
        hands.send(f"early{number}", 1500)
    due: dict[str, int] = {}
    for number in range(4):
        _, due[f"late{number}"] = hands.send(f"late{number}", 12_000 + 250 * number)
    recalled, _ = hands.send("recalled", 12_000)
    handle, _ = hands.send("recalled-here", 60_000)
    assert hands.recall(recalled) == 0
    hands.until_came(["early0", "early1", "early2"])
    time.sleep(0.5)  # Java enqueues what it stored last
    hands.server.kill()

    hands.ours()
    assert hands.recall(handle) == 0
    assert hands.recall(recalled) in (0, 604)
    hands.send("own", 1000)
    hands.until_came([*due, "own"])
    time.sleep(1)
    assert hands.counts() == Counter(["early0", "early1", "early2", *due, "own"])
    for record in hands.records():
        body = record.body.decode()
        assert record.store_timestamp >= due.get(body, 0)
