"""docs/failover.md with real processes, as it is typed there."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client import BlockingConsumer, ClientConfig, ConsumeFromWhere, PushConsumerConfig
from rmq_ha.client.lookup.requests import send_request
from tests.live.live_pair import COMMON, TOPIC, Broker
from tests.live.live_ports import free_ports

BASES = range(25480, 25560, 4)
BIN = Path(sys.executable).parent
# What a service manager does: end it, wait for its end, start it. $1: directory, $2: server.
RESTART = f"""\
cd "$1"
if [ -e twistd.pid ]; then
  kill "$(cat twistd.pid)"
  while [ -e twistd.pid ]; do sleep 0.05; done
fi
setsid {shlex.quote(str(BIN / "twistd"))} -n --pidfile=twistd.pid "$2" -c p >>output-0.log 2>&1 &
"""


class Managed(Broker):
    """A broker, or a name server, that a service manager starts."""

    def __init__(self, directory: Path, base: int, name: str, settings: str) -> None:
        super().__init__(directory / name, base, base + 1)
        self.runs = 0
        self.config = self.directory / "p"
        self.script = directory / "restart"
        self.script.write_text(RESTART)
        self.config.write_text(
            settings.replace("PORT", str(self.port)).replace("STATUS", str(base + 1))
        )
        self.server = "rmqha" if "brokerName" in settings else "rmqnamesrv"
        self.command = f"sh {self.script} {self.directory} {self.server}"

    def up(self) -> None:
        subprocess.run(self.command, shell=True, check=True, timeout=20)

    def until_listening(self) -> None:
        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        self.until(listens, "a server")

    def end(self, how: signal.Signals) -> None:
        pid_file = self.directory / "twistd.pid"
        if pid_file.exists():
            os.kill(int(pid_file.read_text()), how)
            if how is signal.SIGKILL:
                pid_file.unlink()
        self.until(lambda: not pid_file.exists(), "its end")

    def admin(self, what: str) -> dict[str, Any]:
        """As in the document; what it says as JSON."""
        done = subprocess.run(
            [
                *(str(BIN / "rmqha-admin"), what, "--config", str(self.config), "--yes", "--json"),
                *("--restart", self.command, "--wait", "20"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.output()
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Managed, Managed]]:
    names, one, two = free_ports(3, BASES)
    common = COMMON + f"metricsPort=STATUS\nlistenPort=PORT\nnamesrvAddr=127.0.0.1:{names + 2}\n"
    namesrv = Managed(tmp_path, names, "n", "listenPort=PORT\nbindAddress=127.0.0.1\n")
    first = Managed(tmp_path, one, "a", common + "brokerRole=SYNC_MASTER\nbrokerId=0\n")
    second = Managed(tmp_path, two, "b", common + "brokerRole=SLAVE\nbrokerId=1\n")
    try:
        for server in (namesrv, first, second):
            server.up()
            server.until_listening()
        yield first, second
    finally:
        for server in (first, second, namesrv):
            server.end(signal.SIGKILL)


def test_promote_and_demote(pair: tuple[Managed, Managed]) -> None:
    """Nothing that was SEND_OK is lost; what only the old master had is kept beside its store."""
    first, second = pair
    first.until_ok()
    both = first.send("both", 20)
    second.end(signal.SIGTERM)
    alone = first.send("alone", 5)
    first.end(signal.SIGKILL)
    second.up()
    second.until_listening()
    promoted = second.admin("promote")
    assert promoted["role"] == "SYNC_MASTER"
    second.send("new", 10)
    demoted = first.admin("demote")
    assert [item["messages"] for item in demoted["set_aside"]] == [len(alone)]
    assert demoted["master"] == f"127.0.0.1:{second.port}"
    sent = second.send("again", 10)
    assert {item.code for item in sent} == {0}
    first.until(lambda: not first.lacks(both + sent), "every SEND_OK on the old master")


def test_a_running_group_skips_nothing_of_what_comes_after(pair: tuple[Managed, Managed]) -> None:
    """
    The slave was away while 60 messages came and were consumed: the group is ahead of its log.

    With RocketMQ the group gets none of the first 60 new ones.
    """
    first, second = pair
    first.until_ok()
    second.end(signal.SIGTERM)
    settings = ClientConfig(
        namesrv_addr=f"127.0.0.1:{names_port(first)}",
        poll_name_server_interval_ms=500,
        persist_consumer_offset_interval_ms=500,
    )
    config = PushConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = BlockingConsumer("running", settings, config)
    consumer.subscribe(TOPIC)
    with consumer:
        alone = first.send("alone", 60)
        read_until(consumer, [item.body for item in alone])
        first.end(signal.SIGKILL)
        second.up()
        second.until_listening()
        commit(second, "running", alone[-1].queue_offset + 1)  # as members that know the slave
        promoted = second.admin("promote")
        (group,) = [item for item in promoted["groups"] if item["topic"] == TOPIC]
        assert (group["group"], group["beyond"]) == ("running", 60)
        new = [item.body for item in second.send("new", 200)]
        read_until(consumer, new)


def names_port(broker: Managed) -> str:
    """Of its name server."""
    lines = broker.config.read_text().splitlines()
    return next(line for line in lines if line.startswith("namesrvAddr=")).rpartition(":")[2]


def commit(broker: Managed, group: str, offset: int) -> None:
    """A group's offset of queue 0."""
    ext = {"consumerGroup": group, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    (answer,) = broker.exchange([RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext)])
    assert answer.code == 0, answer.remark


def read_until(consumer: BlockingConsumer, wanted: list[bytes]) -> None:
    """Consume until each of them came."""
    missing = set(wanted)
    while missing:
        message = consumer.poll(20_000)
        assert message is not None, f"{len(missing)} of {len(wanted)} never came"
        consumer.ack(message)
        missing.discard(message.body)


def test_a_machine_that_reboots_after_its_slave_was_promoted(pair: tuple[Managed, Managed]) -> None:
    """Its unit is enabled and its file is as it was: nothing is written to its log any more."""
    first, second = pair
    first.until_ok()
    first.end(signal.SIGKILL)
    second.admin("promote")
    first.up()
    address = f"127.0.0.1:{second.port}"
    aside = f"{address} is the master of this brokerName now"
    first.until(lambda: aside in first.health()[1], "a broker that stands aside")
    assert first.health()[0] == 503
    assert "rmqha-admin demote" in first.output()
    (refused,) = first.exchange([send_request("p", TOPIC, 0, b"lost", "", 1)])
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert address in (refused.remark or "")
    assert {item.code for item in second.send("new", 5)} <= {0, 11}
    assert second.health()[0] == 200
    demoted = first.admin("demote")
    assert demoted["set_aside"] == []
    assert {item.code for item in second.send("again", 5)} == {0}
