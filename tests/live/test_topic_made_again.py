"""Real processes: a topic is deleted and made again (field-problems 24).

The slave of a Java 4.9.7 pair goes on with 49 old messages and 1 new one (docs/differences.md).
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.live.live_ports import free_ports

TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "rmqha"]
COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1000
maxIndexNum=4000
storePathRootDir=store
"""
BASES = range(24900, 24990, 4)
TOPIC = {
    "topic": "MadeAgain",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


class Broker:
    """One process."""

    def __init__(self, directory: Path, port: int, settings: str) -> None:
        directory.mkdir()
        self.directory, self.port = directory, port
        (directory / "b.properties").write_text(f"{COMMON}listenPort={port}\n{settings}")
        self.start()

    def start(self) -> None:
        with (self.directory / "output.log").open("ab") as sink:
            self.process = subprocess.Popen(
                [*TWISTD, "--config", "b.properties"],
                cwd=self.directory,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def ask(self, *requests: RemotingCommand) -> list[RemotingCommand]:
        """The answers, in order; none while nobody listens."""
        answers: list[RemotingCommand] = []
        try:
            with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
                connection.settimeout(30)
                for request in requests:
                    connection.sendall(encode_frame(request))
                    answers.append(_receive(connection))
        except OSError:
            return []
        return answers

    def bodies(self) -> list[bytes]:
        """What a consumer reads from queue 0, from offset 0 on."""
        found: list[bytes] = []
        offset = 0
        while True:
            answers = self.ask(pull_request("readers", "MadeAgain", 0, offset))
            if not answers or answers[0].code != ResponseCode.SUCCESS:
                return found
            found += [record.body for record in decode_records(answers[0].body)]
            offset = int(answers[0].ext["nextBeginOffset"])


def _receive(connection: socket.socket) -> RemotingCommand:
    reader = FrameReader()
    while True:
        data = connection.recv(65536)
        if not data:
            raise OSError("the broker closed the connection")
        for frame in reader.receive_data(data):
            return decode_frame(*frame)


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def send(broker: Broker, count: int, text: bytes) -> None:
    now = int(time.time() * 1000)
    requests = [
        send_request("p", "MadeAgain", 0, b"%s %d" % (text, number), "", now)
        for number in range(count)
    ]
    codes = [answer.code for answer in broker.ask(*requests)]
    assert codes == [ResponseCode.SUCCESS] * count


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    one, other = free_ports(2, BASES)
    ha, namesrv = one + 3, other + 1
    master = Broker(
        tmp_path / "m",
        one + 2,
        f"brokerRole=SYNC_MASTER\nhaListenPort={ha}\nembeddedNamesrvPort={namesrv}\n",
    )
    slave = Broker(
        tmp_path / "s",
        other + 2,
        f"brokerRole=SLAVE\nbrokerId=1\nhaListenPort={other + 3}\n"
        f"namesrvAddr=127.0.0.1:{namesrv}\n",
    )
    yield master, slave
    for broker in (master, slave):
        broker.process.kill()
        broker.process.wait(30)


def test_the_new_life_on_both_sides(pair: tuple[Broker, Broker]) -> None:
    """20 of 20 acknowledged messages on the slave, while it runs and after a kill of both."""
    master, slave = pair
    make = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "MadeAgain"})
    until(lambda: master.ask(make), 30, "the master answers")
    first = send_request("p", "MadeAgain", 0, b"old", "", int(time.time() * 1000))
    until(lambda: [a.code for a in master.ask(first)] == [0], 30, "the slave is there")
    send(master, 49, b"old")
    master.ask(delete, make)
    send(master, 20, b"new")
    wanted = [b"new %d" % number for number in range(20)]
    assert master.bodies() == wanted
    until(lambda: slave.bodies() == wanted, 30, "the slave serves the new life")
    for broker in pair:
        broker.kill()
        broker.start()
    until(lambda: master.bodies() == wanted, 30, "the master after a kill")
    until(lambda: slave.bodies() == wanted, 30, "the slave after a kill")
