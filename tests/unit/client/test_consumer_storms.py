"""Members and brokers come, go and crash by chance: nothing is lost, each queue has one owner."""

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RmqHaError
from tests.unit.client.consuming import GROUP, TOPIC, Consuming

STEPS = 40
MOST_MEMBERS = 4


class Storm:
    """
    One run.

    :ivar busy: members with a message of a queue at this moment.
    :ivar order: what was consumed of a queue.
    """

    def __init__(self, seed: int, *, orderly: bool) -> None:
        self.random = Random(seed)
        self.orderly = orderly
        # The brokers of an orderly group stay: locks die with them, in RocketMQ as with us.
        settings = {"persist_consumer_offset_interval_ms": 200}
        self.cluster = Consuming("a", "b", seed=seed, **settings)
        self.members: dict[str, Any] = {}
        self.count = 0
        self.sent: list[str] = []
        self.order: dict[tuple[str, int], list[int]] = {}
        self.busy: dict[tuple[str, tuple[str, int]], None] = {}
        self.overlaps: list[str] = []

    def listener(self, name: str) -> Any:
        got = self.cluster.got.setdefault(name, [])
        host = self.cluster.hosts[name]

        def finish(messages: Any, place: tuple[str, int], later: "Deferred[None] | None") -> None:
            for message in messages:
                got.append(message.body.decode())
                self.order.setdefault(place, []).append(message.queue_offset)
            self.busy.pop((name, place), None)
            if later is not None:
                later.callback(None)

        def listener(messages: Any, context: Any) -> Any:
            place = context.message_queue.broker_name, context.message_queue.queue_id
            topic = context.message_queue.topic
            for other, where in self.busy:
                if where == place and topic == TOPIC and self.cluster.hosts[other].is_running:
                    self.overlaps.append(f"{other} and {name} at {place}")
            if self.random.random() < 0.3:
                finish(messages, place, None)
                return None
            later: Deferred[None] = Deferred()
            if topic == TOPIC:
                self.busy[name, place] = None
            seconds = self.random.choice((0.01, 0.2, 2.0))
            host.clock.callLater(seconds, finish, messages, place, later)
            return later

        return listener

    def join(self) -> None:
        self.count += 1
        name = f"m{self.count}"
        client = self.cluster.client(name)
        try:
            self.members[name] = self.cluster.consumer(
                name,
                self.listener(name),
                client=client,
                orderly=self.orderly,
                consume_message_batch_max_size=self.random.choice((1, 8)),
            )
        except RmqHaError:
            self.cluster.hosts[name].crash()

    def leave(self) -> None:
        if self.members:
            name = self.random.choice(sorted(self.members))
            self.cluster.wait(self.members.pop(name).stop())
            assert not self.cluster.hosts[name].clock.getDelayedCalls()

    def crash_member(self) -> None:
        if self.members:
            name = self.random.choice(sorted(self.members))
            del self.members[name]
            self.cluster.hosts[name].crash(silent=self.random.random() < 0.3)

    def crash_broker(self) -> None:
        if self.cluster.brokers:
            self.cluster.crash(self.random.choice(sorted(self.cluster.brokers)))

    def restart_brokers(self) -> None:
        for name in ("a", "b"):
            if name not in self.cluster.brokers:
                self.cluster.add(name)

    def send(self) -> None:
        for name in sorted(self.cluster.brokers):
            try:
                self.sent += self.cluster.send(name, self.random.randint(1, 20))
            except RmqHaError:
                continue

    def run(self) -> None:
        self.join()
        steps = [
            (self.send, 10),
            (self.join, 3),
            (self.leave, 2),
            (self.crash_member, 2),
            (self.crash_broker, 0 if self.orderly else 1),
            (self.restart_brokers, 2),
        ]
        for _ in range(STEPS):
            (step,) = self.random.choices([s for s, _ in steps], [w for _, w in steps])
            if step != self.join or len(self.members) < MOST_MEMBERS:
                step()
            self.cluster.run(self.random.choice((0.01, 0.3, 2.0, 10.0)))

    def settle(self) -> None:
        self.restart_brokers()
        while len(self.members) < 2:
            self.join()
        # A member that vanished in silence keeps its queues for 120 s; locks are renewed every 20.
        self.cluster.run(180)
        self.send()
        self.cluster.run(60)


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.trials) for seed in range(2, 8))]
)
def test_nothing_is_lost_and_each_queue_has_one_owner(seed: int, orderly: bool) -> None:
    storm = Storm(seed, orderly=orderly)
    storm.run()
    storm.settle()
    assert not set(storm.sent) - set(storm.cluster.all_got())
    shares = [
        [queue for queue in consumer.assignment() if queue.topic == TOPIC]
        for consumer in storm.members.values()
    ]
    assert sorted(queue for share in shares for queue in share) == sorted(
        {queue for share in shares for queue in share}
    )
    assert sum(map(len, shares)) == 8
    for name in sorted(storm.members):
        storm.cluster.wait(storm.members.pop(name).stop())
        assert not storm.cluster.hosts[name].clock.getDelayedCalls()
    storm.cluster.run(2)
    for broker in ("a", "b"):
        table = storm.cluster.brokers[broker].consumer_offsets.queues(GROUP, TOPIC)
        store = storm.cluster.brokers[broker].store
        ends = {n: store.max_offset_in_queue(TOPIC, n) for n in range(4)}
        assert {n: table.get(n, 0) for n in range(4)} == ends
    if orderly:
        assert not storm.overlaps
        for offsets in storm.order.values():
            seen = -1
            for offset in offsets:
                assert offset <= seen + 1, f"{offset} after {seen}: something was left out"
                seen = max(seen, offset)
