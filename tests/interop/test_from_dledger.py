"""
The steps of docs/upgrade.md, "From DLedger to controller mode": with real processes, under load.

A group of two of ours and a Java 4.9.7 becomes a set of two of ours and a Java 5.3.3. It takes more
than a minute, so it runs only with RMQ_HA_UPGRADE=1; the conversion itself is always tested:
`tests/unit/ops/admin/test_dledger_convert.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.flags import TRANSACTION_COMMIT
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.interop import test_controller
from tests.interop.groups import QUEUES, TOPIC, Group
from tests.interop.pairs import ADMIN, QUICK
from tests.interop.rig import ALL_JAVA, Rig, Server
from tests.interop.test_controller import PEER5, Sets, ask
from tests.interop.test_transactions import keys
from tests.interop.wire import Refused, Wire
from tests.interop.wire_producer import WireProducer

SECONDS = 90.0
LEADS_ALREADY = 2011
CONSUMERS = "g-moved"
PRODUCERS, TOPIC_PAID = "p-moved", "Paid"
NAMES: dict[str, Any] = {"brokerName": "broker-d", "brokerClusterName": "PeerDLedger"}


class SetOfGroup(Sets):
    """A controller of the brokers that were the group."""

    broker_name = NAMES["brokerName"]


class Brokers:
    """The addresses where clients find a master, one after the other."""

    def __init__(self) -> None:
        self.addresses: list[str] = []


class Load(threading.Thread):
    """
    Sends to all queues in turn, each message with a body of its own, and goes on where it is taken.

    :ivar acked: by queue, the numbers of the messages that were acknowledged.
    :ivar pause: the longest time between two acknowledged messages, in seconds.
    """

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(daemon=True)
        self.acked: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
        self.pause = 0.0
        self.failed = 0
        self._number = 0
        self._brokers = brokers
        self._at = 0
        self.is_over = False
        self._last = 0.0

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def run(self) -> None:
        while not self.is_over:
            addresses = self._brokers.addresses
            with (
                contextlib.suppress(OSError),
                Wire(addresses[self._at % len(addresses)], 4) as wire,
            ):
                while not self.is_over and self._send(wire):
                    pass
            self._at += 1
            time.sleep(0.02)

    def _send(self, wire: Wire) -> bool:
        queue = self._number % QUEUES
        self._number += 1
        body = f"<{self._number:08d}>".encode().ljust(300, b".")
        try:
            (answer,) = wire.exchange([send_request("p", TOPIC, queue, body, "", QUEUES)])
        finally:
            self.failed += 1
        if answer.code != 0:
            return False
        self.failed -= 1
        self.acked[queue].append(self._number)
        now = time.monotonic()
        if self._last:
            self.pause = max(self.pause, now - self._last)
        self._last = now
        return True


class Consumer(threading.Thread):
    """
    Reads queue 0 from the group's offset on, and commits it.

    :ivar seen: the queue offsets that were read, in the order of reading.
    :ivar repeated: how many messages it read again, each time that it went on elsewhere.
    """

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(daemon=True)
        self.seen: list[int] = []
        self.repeated: list[int] = []
        self.is_over = False
        self._brokers = brokers
        self._at = 0

    def run(self) -> None:
        while not self.is_over:
            addresses = self._brokers.addresses
            with contextlib.suppress(OSError, Refused, AssertionError, KeyError):
                self._from(addresses[self._at % len(addresses)])
            self._at += 1
            time.sleep(0.05)

    def _from(self, address: str) -> None:
        names = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": "0"}
        with Wire(address, 4) as wire:
            (known,) = wire.exchange([RemotingCommand(14, dict(names))])
            if known.code == 22 and not self.seen:
                at = 0
            elif known.code == 0:
                at = int((known.ext or {})["offset"])
            else:
                return
            if self.seen:
                self.repeated.append(self.seen[-1] + 1 - at)
            while not self.is_over:
                (answer,) = wire.exchange([pull_request(CONSUMERS, TOPIC, 0, at)])
                records = decode_records(answer.body or b"") if answer.code == 0 else []
                if not records:
                    time.sleep(0.05)
                    continue
                self.seen += [record.queue_offset for record in records]
                at = self.seen[-1] + 1
                commit = RemotingCommand(15, {**names, "commitOffset": str(at)})
                (done,) = wire.exchange([commit])
                if done.code:
                    return


def command(member: Server, target: Path) -> list[str]:
    """As it is typed."""
    config = str(member.directory / "broker.properties")
    return [ADMIN, "dledger", "convert", str(target), "-c", config, "--json"]


def convert(member: Server, target: Path, *more: str) -> dict[str, str]:
    """Convert, and return what is shown."""
    words = [*command(member, target), *more]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    row: dict[str, str] = json.loads(said.stdout.splitlines()[0])["rows"][0]
    return row


def controlled(rig: Rig, name: str, namesrv: str, sets: Sets, **more: object) -> Server:
    conf = str(PEER5.parent / "conf" / "controller-a.conf")
    port = rig.ports(4) + 2
    settings = {**NAMES, **QUICK, "haListenPort": port + 1, "controllerAddr": sets.address, **more}
    return rig.broker(conf, name, namesrv=namesrv, port=port, **settings)


def commit_old_half(rig: Rig, server: Server, half: dict[str, str]) -> None:
    """Its old offset finds nothing, and the broker asks with the new one."""
    with WireProducer(server, PRODUCERS) as producer:
        names = {"producerGroup": PRODUCERS, "commitOrRollback": str(TRANSACTION_COMMIT)}
        (answer,) = producer.exchange([RemotingCommand(37, {**half, **names})])
        assert answer.code != 0
        asked = producer.commit_what_is_asked(lambda: bool(keys(server, TOPIC_PAID)))
    assert keys(server, TOPIC_PAID) == {"paid": 1}
    print(f"asked {sum(asked.values())} times about the half message")


def elect(sets: Sets, broker_id: int) -> None:
    """Have the controllers elect this one."""
    names = {"clusterName": NAMES["brokerClusterName"], "brokerName": NAMES["brokerName"]}
    designated = {"brokerId": str(broker_id), "designateElect": "true"}
    answer = ask(sets.address, RemotingCommand(1002, {**names, **designated}))
    assert answer.code in (0, LEADS_ALREADY), answer.remark


def queue_of(address: str, queue: int) -> list[int]:
    """The numbers of all messages, in order."""
    with Wire(address, 20) as wire:
        return [
            int(record.body[1:9])
            for record in wire.pull_all(TOPIC, queue)
            if record.body[:1] == b"<"
        ]


def wait_for(rig: Rig, server: Server, queue: int, number: int) -> None:
    """Until a message can be read."""

    def is_there() -> bool:
        found = queue_of(server.address, queue)
        return bool(found) and found[-1] >= number

    rig.until(is_there, 30, f"queue {queue} of {server.directory.name}", server)


@pytest.mark.skipif(ALL_JAVA, reason="the conversion is ours")
@pytest.mark.skipif(test_controller.missing() is not None, reason="no RocketMQ 5.3.3")
@pytest.mark.skipif(
    not os.environ.get("RMQ_HA_UPGRADE"), reason="takes minutes: set RMQ_HA_UPGRADE=1"
)
def test_a_group_with_a_java_member_becomes_a_set_with_one_under_load(rig: Rig) -> None:
    group = Group(rig, (False, False, True))
    with contextlib.suppress(AssertionError):
        rig.until(lambda: group.transfer("n0") or group.wait_leader().name == "n0", 20, "n0 leads")
    leader = group.wait_leader()
    brokers = Brokers()
    brokers.addresses = [server.address for server in group.servers]
    load, consumer = Load(brokers), Consumer(brokers)
    load.start()
    consumer.start()

    def more(count: int, what: str) -> None:
        wanted = load.count + count
        rig.until(lambda: load.count >= wanted, SECONDS, f"sends {what}")

    try:
        more(3000, "to the group")
        ours = [member for name, member in sorted(group.members.items()) if name != "n2"]
        first = leader if leader.name != "n2" else ours[0]
        (second,) = [member for member in ours if member.name != first.name]
        stores = {member.name: rig.directory / f"m-{member.name}" / "store" for member in ours}
        killed = subprocess.Popen(command(first.server, stores[first.name]))
        rig.until(stores[first.name].joinpath("commitlog").exists, 60, "it has begun")
        killed.kill()
        killed.wait(20)
        for member in ours:  # while they run
            print(convert(member.server, stores[member.name]))
        more(1000, "to the group")
        sets = SetOfGroup(rig)

        with WireProducer(first.server, PRODUCERS) as producer:
            (half,) = producer.leave_open(TOPIC_PAID, "paid")
        assert second.server.stop() == 0  # the two others go on
        of_second = convert(second.server, stores[second.name])
        print(of_second)
        more(100, "to the two others")
        before = load.count
        for member in (group.members["n2"], first):
            member.server.process.send_signal(signal.SIGTERM)
        for member in (group.members["n2"], first):
            assert member.server.stop() in (0, 143)
        stopped = time.monotonic()
        last_in_group = max(map(max, load.acked.values()))
        others = f"{second.name}={of_second['ends']}"
        print(convert(first.server, stores[first.name], "--final", "--others", others))
        converted = time.monotonic()
        shutil.copytree(stores[first.name], rig.directory / "java4" / "store")
        one = controlled(rig, f"m-{first.name}", group.namesrv, sets)
        brokers.addresses = [one.address]
        more(300, "to the elected master alone")
        print(f"{load.count - before} more; converted {converted - stopped:.1f} s after the stop")
        print(f"sends failed for {load.pause:.1f} s; the consumer read {consumer.repeated} again")
        commit_old_half(rig, one, half)
        two = controlled(rig, f"m-{second.name}", group.namesrv, sets, brokerRole="SLAVE")
        rig.until(lambda: len(sets.info()[1]) == 2, SECONDS, "two in sync", one, two)
        java = test_controller.broker(
            rig, "java5", "controller-b.conf", group.namesrv, sets.address, **NAMES
        )
        rig.until(lambda: len(sets.info()[1]) == 3, SECONDS, "Java in sync", one, two, java)
        more(300, "to all three")
        brokers.addresses = [one.address, two.address, java.address]
        one.kill()
        more(300, "to the one that was elected")
        one = controlled(rig, f"m-{first.name}", group.namesrv, sets)
        brokers.addresses = [one.address, two.address, java.address]
        rig.until(lambda: len(sets.info()[1]) == 3, SECONDS, "all in sync", one, two, java)
        elect(sets, 3)
        rig.until(lambda: sets.master == java.address, SECONDS, "Java leads", one, two, java)
        more(300, "to Java")
        two.kill()
        two = controlled(rig, f"m-{second.name}", group.namesrv, sets, brokerRole="SLAVE")
        brokers.addresses = [one.address, two.address, java.address]
        rig.until(lambda: len(sets.info()[1]) == 3, SECONDS, "all in sync again", one, two, java)
        more(300, "to Java again")
    finally:
        load.is_over = True
        load.join(30)
    master = sets.master
    assert master is not None
    end = max(load.acked[0])
    rig.until(lambda: end in queue_of(master, 0), 30, "all readable")
    total = len(queue_of(master, 0))
    rig.until(lambda: consumer.seen and max(consumer.seen) >= total - 1, 30, "all consumed")
    consumer.is_over = True
    consumer.join(30)
    for server in (one, two, java):
        for queue, numbers in load.acked.items():
            wait_for(rig, server, queue, numbers[-1])
            found = queue_of(server.address, queue)
            assert found == sorted(set(found)), "repeated, or out of order"
            lost = set(numbers) - set(found)
            assert not lost, f"{len(lost)} of {len(numbers)} lost: {sorted(lost)[:5]}"
    seen = sorted(set(consumer.seen))
    assert seen == list(range(seen[-1] + 1)), "the consumer skipped messages"
    print(f"{load.count} acknowledged, {load.failed} failed, none lost, repeated or out of order")
    print(f"the consumer read {len(seen)}, and {consumer.repeated} again")
    assert [one.stop(), two.stop()] == [0, 0]
    old = rig.broker("master-async.conf", "java4", java=True, **NAMES)  # what was converted
    for queue, numbers in load.acked.items():
        found = queue_of(old.address, queue)
        assert set(found) >= {number for number in numbers if number <= last_in_group}
        assert found == sorted(set(found))
