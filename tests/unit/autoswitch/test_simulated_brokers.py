"""
Whole brokers in controller mode under faults from a seed: no acknowledged message is lost.

`python -m tests.unit.autoswitch.test_simulated_brokers FIRST LAST` runs many seeds.

Spec: controller.md, chapters 3, 7, 8 and 14.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from random import Random

import pytest
from twisted.python.failure import Failure

from rmq_ha.client.requests import send_request
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.model.status import FlushDiskType
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import LISTEN_PORT
from rmq_ha.wire.command import RemotingCommand
from tests.unit.autoswitch.test_whole_brokers import TOPIC, Set

STEPS = 30
READ_EVERY = 3


class Progress:
    """A group that commits every 50 ms; whoever follows knows of it 100 ms later."""

    def __init__(self, brokers: Set) -> None:
        self.brokers = brokers
        self.offset = 0
        self.seen: dict[str, list[int]] = {}

    def begin(self) -> None:
        """Something happened."""
        self.seen.clear()

    def go_on(self, master: BrokerNode | None) -> None:
        """Look at those who followed at the last three looks, then commit."""
        if master is None:
            self.begin()
            return
        self.offset += 1
        master.controller.consumer_offsets.commit("group", TOPIC, 0, self.offset)
        for node in self.brokers.nodes:
            name = f"{master.host.name} {node.host.name}"
            if node is master or not self.follows(node, master):
                self.seen.pop(name, None)
                continue
            commits = self.seen.setdefault(name, [])
            if len(commits) >= 2:
                known = node.controller.consumer_offsets.query("group", TOPIC, 0)
                assert known >= commits[-2], f"{name}: {known} 0.1 s after {commits[-2]}"
            commits.append(self.offset)

    @staticmethod
    def follows(node: BrokerNode, master: BrokerNode) -> bool:
        """Both ends say so; a connection of before a crash has one end."""
        if node.state != "running":
            return False
        slave = node.replication.statistics()
        link, address = slave["master"], f"{master.host.ip}:{LISTEN_PORT}"
        known = [each["broker_id"] for each in master.replication.statistics()["slaves"]]
        is_following = link is not None and (link["state"], link["address"]) == (
            "following",
            address,
        )
        return is_following and slave["id"] in known


class Storm:
    """Brokers, a client that sends to whomever it finds, and what a seed does to them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.frame = self.random.choice((40, 150, 32768))
        self.brokers = Set(
            self.random.choice((2, 2, 3)), self.random.choice((1, 1, 3)), self.change, seed
        )
        self.sent = 0
        self.acked: list[bytes] = []
        self.history: list[str] = []
        self.is_cut = False
        self.progress = Progress(self.brokers)

    def change(self, configuration: BrokerConfiguration) -> None:
        """Who loses power may lose what was not synced, so all is."""
        configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
        configuration.controlled.controller_heart_beat_timeout_mills = 4000
        configuration.controlled.ha_max_time_slave_not_catchup = 3000
        configuration.store.slave_timeout = 1000
        configuration.store.ha_transfer_batch_size = self.frame

    def send(self) -> None:
        """To every broker that may take it; the answer comes when it comes."""
        for node in self.brokers.nodes:
            if node.state == "running":
                self.sent += 1
                body = b"%d" % self.sent
                request = send_request("producers", TOPIC, 0, body, "", self.brokers.now_ms())
                address = f"{node.host.ip}:{LISTEN_PORT}"
                answered = self.brokers.client.invoke(address, request, 5000)
                answered.addBoth(self.answered, body)

    def answered(self, answer: RemotingCommand | Failure, body: bytes) -> None:
        if isinstance(answer, RemotingCommand) and answer.code == 0:
            self.acked.append(body)

    def step(self) -> None:
        brokers, random = self.brokers, self.random
        node = random.choice(brokers.nodes)
        action = random.random()
        if action < 0.16 and node.state == "running":
            self.note(f"crash {node.host.name}")
            node.crash(power=random.random() < 0.5)
        elif action < 0.2 and node.state == "running":
            self.note(f"stop {node.host.name}")
            node.stop()
        elif action < 0.45 and node.state == "down":
            self.note(f"boot {node.host.name}")
            node.load()
            node.start()
        elif action < 0.55:
            others = [each.host.name for each in brokers.nodes if each is not node]
            others += [host.name for host in brokers.desk.hosts]
            other = random.choice(others)
            self.note(f"cut {node.host.name} {other}")
            brokers.world.network.partition(node.host.name, other)
            self.is_cut = True
        elif action < 0.7:
            self.note("heal")
            brokers.world.network.heal()
            self.is_cut = False
        elif action < 0.75:
            number = random.randrange(len(brokers.desk.hosts))
            if brokers.desk.hosts[number].is_running:
                self.note(f"controller {number} crashes")
                brokers.desk.crash(number, power=False)
            else:
                self.bring_back(number)
        for _ in range(random.randrange(4)):
            self.send()
        self.progress.begin()
        for _ in range(random.choice((1, 2, 10, 20, 60))):
            brokers.run(0.05)
            accepting = [each for each in brokers.nodes if self.accepts(each)]
            assert len(accepting) <= 1, f"{[each.host.name for each in accepting]} accept at once"
            self.progress.go_on(None if self.is_cut or not accepting else accepting[0])

    @staticmethod
    def accepts(node: BrokerNode) -> bool:
        return node.state == "running" and node.store.log.admits and node.replication.may_append

    def bring_back(self, number: int) -> None:
        self.note(f"controller {number} is back")
        desk = self.brokers.desk
        desk.hosts[number].restart()
        desk.services[number] = desk.make(number)
        desk.services[number].start().addErrback(lambda _: None)

    def note(self, what: str) -> None:
        self.history.append(f"{self.brokers.world.clock.seconds():.2f} {what}")

    def read(self) -> None:
        """What anybody can read once, stays: queues of all are beginnings of one."""
        running = [node for node in self.brokers.nodes if node.state == "running"]
        found = sorted((self.brokers.bodies(node) for node in running), key=len)
        for shorter, longer in pairwise(found):
            assert longer[: len(shorter)] == shorter, "two brokers let different things be read"

    def run(self) -> None:
        brokers = self.brokers
        brokers.in_sync(len(brokers.nodes))
        for number in range(STEPS):
            self.step()
            if number % READ_EVERY == 0:
                self.read()
        brokers.world.network.heal()
        for number, host in enumerate(brokers.desk.hosts):
            if not host.is_running:
                self.bring_back(number)
        brokers.until(lambda: all(self.settled(node) for node in brokers.nodes), 60.0)
        for node in brokers.nodes:
            if node.state == "down":
                brokers.boot(node)
        brokers.until(self.is_whole, 120.0)
        master = brokers.leader()
        brokers.run(6.0)
        everything = brokers.bodies(master)
        assert len(set(everything)) == len(everything)
        lost = [body for body in self.acked if body not in set(everything)]
        assert not lost, f"acknowledged and lost: {lost}"
        for node in brokers.nodes:
            assert brokers.bodies(node) == everything
            end = master.store.log.max_offset
            assert node.store.log.max_offset == end
            low = max(master.store.log.min_offset, node.store.log.min_offset)
            for position in range(low, end, 1 << 16):
                size = min(1 << 16, end - position)
                assert node.store.log.read(position, size) == master.store.log.read(position, size)
        assert not brokers.findings.violations, brokers.findings.violations

    def is_whole(self) -> bool:
        """
        All are in sync, and both ends of each connection say so.

        The controllers may take one for in sync that does not know yet that its master has died.
        """
        brokers, master = self.brokers, self.brokers.master()
        if master is None or len(brokers.desk.info()[1].members) < len(brokers.nodes):
            return False
        others = [node for node in brokers.nodes if node is not master]
        return all(Progress.follows(node, master) for node in others)

    def settled(self, node: BrokerNode) -> bool:
        assert node.state != "failed", self.brokers.findings.violations
        return node.state in ("running", "down")


def run(seed: int) -> int:
    """How many messages were acknowledged."""
    storm = Storm(seed)
    try:
        storm.run()
    except BaseException:
        print(f"seed {seed}\n" + "\n".join(storm.history))
        raise
    return len(storm.acked)


@pytest.mark.parametrize("seed", range(1, 13))
def test_no_acknowledged_message_is_lost(seed: int) -> None:
    run(seed)


if __name__ == "__main__":
    acked = failed = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
        try:
            acked += run(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed} failed: {type(error).__name__}: {error}", flush=True)
    print(f"seeds {sys.argv[1]} to {sys.argv[2]}: {failed} failed, {acked} acknowledged")
