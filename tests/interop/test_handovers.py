"""Java's producer goes on while the master and the slave of a pair exchange their roles."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.interop.pairs import ADMIN, Pair
from tests.interop.rig import PEER, Rig
from tests.interop.wire import Wire

TOPIC, COUNT, QUEUES = "HandedOver", 900, 4


def test_no_send_of_java_s_client_fails_and_each_queue_keeps_its_order(shared_rig: Rig) -> None:
    """It learns of the new master with its next route, 30 s later: the old one forwards."""
    pair = Pair(shared_rig, java_master=False, java_slave=False)
    pair.wait_ok()
    with Wire(pair.master.address) as wire:
        wire.create_topic(TOPIC, QUEUES)
    words = f"produce --namesrv {pair.namesrv} --topic {TOPIC} --count {COUNT} --rate 150 --verbose"
    producer = subprocess.Popen([PEER, *words.split()], stdout=subprocess.PIPE, text=True)
    said = producer.stdout
    assert said is not None
    lines = [said.readline() for _ in range(100)]
    handover = [ADMIN, "handover", "broker-a", "--yes", "-n", pair.namesrv]
    done = subprocess.run(handover, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines += said.readlines()
    assert producer.wait(10) == 0, lines[-1]
    sent = [told for told in map(as_dict, lines) if "i" in told]
    assert {told["status"] for told in sent} == {"SEND_OK"}
    with Wire(pair.slave.address) as wire:
        stored = [numbers(wire, queue) for queue in range(QUEUES)]
    assert sorted(number for each in stored for number in each) == list(range(COUNT))
    assert all(each == sorted(each) for each in stored)


def as_dict(line: str) -> dict[str, Any]:
    return json.loads(line) if line.startswith("{") else {}


def numbers(wire: Wire, queue: int) -> list[int]:
    """The numbers of a queue's messages, in its order."""
    records = wire.pull_all(TOPIC, queue)
    return [int(record.body.partition(b";")[0].removeprefix(b"seq=")) for record in records]
