"""An idempotent producer: what is acknowledged is stored once, whatever was lost on the way."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.client.rules.errors import DuplicatesPossible, SendFailed
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.transactions import TransactionProducer
from tests.unit.client.sim_cluster import SimCluster

WINDOW_MS = 600_000
SLAVE = {"broker_name": "a", "broker_id": 1}


class Bench(SimCluster):
    """Brokers with the topic T, and an idempotent producer."""

    def __init__(self, *names: str, seed: int = 1, window_ms: int = WINDOW_MS, **config: Any):
        super().__init__(seed=seed)
        self.ours = {"duplicate_window_millis": window_ms}
        for name in names or ("a", "b"):
            self.add_master(name)
        self.instance = self.client()
        self.producer = Producer(self.instance, ProducerConfig(**{"idempotent": True} | config))
        self.wait(self.producer.start())
        self.run(0.1)

    def add_master(self, name: str, role: BrokerRole = BrokerRole.ASYNC_MASTER, **more: Any) -> Any:
        made = self.add(name, role, ours=self.ours, **more)
        made.topics.update(TopicConfig("T", 4, 4))
        self.wait(made.registration.register_all())
        return made

    def begin(self, body: bytes, **options: Any) -> list[Any]:
        """A send, and its outcome once it has one."""
        outcome: list[Any] = []
        self.producer.send(Message("T", body), **options).addBoth(outcome.append)
        return outcome

    def send(self, body: bytes = b"body", **options: Any) -> SendResult:
        result: SendResult = self.wait(self.producer.send(Message("T", body), **options))
        return result

    def bodies(self, *names: str) -> list[bytes]:
        """Of T, at these brokers."""
        found: list[bytes] = []
        for name in names or self.brokers:
            store = self.brokers[name].store
            for queue_id in range(4):
                offset = store.min_offset_in_queue("T", queue_id)
                while (got := store.get_message("g", "T", queue_id, offset, 32, None)).messages:
                    found += [decode_record(record).body for record in got.messages]
                    offset = got.next_begin_offset
        return found

    def lose_answers(self) -> None:
        for name in self.brokers:
            self.world.network.cut(name, "client")


def test_a_send_whose_answer_is_lost_is_stored_once() -> None:
    bench = Bench()
    before = [b"before %d" % number for number in range(8)]
    assert not any(bench.send(body).duplicate for body in before)
    bench.lose_answers()
    lost = [bench.begin(b"%d" % number) for number in range(20)]
    bench.run(3.5)  # the client has given these connections up
    assert not any(lost)
    bench.world.network.heal()
    bench.run(10)
    results = [outcome[0] for outcome in lost]
    assert {result.send_status for result in results} == {SendStatus.SEND_OK}
    assert all(result.duplicate for result in results)
    assert sorted(bench.bodies()) == sorted([*before, *[b"%d" % n for n in range(20)]])
    for result, number in zip(results, range(20), strict=True):
        queue = result.message_queue
        store = bench.brokers[queue.broker_name].store
        (record,) = store.get_message(
            "g", "T", queue.queue_id, result.queue_offset, 1, None
        ).messages
        assert decode_record(record).body == b"%d" % number


@pytest.mark.parametrize(
    ("window_ms", "config", "words"),
    [
        (0, {}, "does not compare ids"),
        (60_000, {}, "may go on for 60000 ms: that has to be 2 times as long"),
        (0, {"retry_chosen_queue": True}, "was not sent"),
    ],
)
def test_brokers_that_would_store_it_twice_are_not_sent_to(
    window_ms: int, config: dict[str, Any], words: str
) -> None:
    bench = Bench(window_ms=window_ms, **config)
    before = bench.clock.seconds()
    with pytest.raises(DuplicatesPossible, match=words) as raised:
        bench.send()
    assert not raised.value.retriable
    assert bench.clock.seconds() - before < 1
    assert bench.bodies() == []


def test_a_shorter_send_fits_a_shorter_window() -> None:
    bench = Bench(window_ms=60_000)
    assert bench.send(timeout_ms=30_000).send_status is SendStatus.SEND_OK
    with pytest.raises(DuplicatesPossible, match="timeout_ms"):
        bench.send(timeout_ms=31_000)
    assert len(bench.bodies()) == 1


@pytest.mark.parametrize("power", [False, True])
def test_it_waits_for_the_slave_of_its_broker_and_goes_nowhere_else(power: bool) -> None:
    bench = Bench()
    bench.brokers["a"].configuration.store.broker_role = BrokerRole.SYNC_MASTER
    bench.add("slave", BrokerRole.SLAVE, broker=SLAVE, ours=bench.ours)
    bench.run(15)
    for number in range(8):
        bench.send(b"before %d" % number)
    bench.lose_answers()
    lost = [bench.begin(b"%d" % number) for number in range(16)]
    bench.run(3.5)
    bench.crash("a", power=power)
    bench.world.network.heal()
    bench.hosts["slave"].crash()
    bench.run(12)
    done = [outcome for outcome in lost if outcome]
    assert {outcome[0].message_queue.broker_name for outcome in done} == {"b"}
    assert len(done) == 8
    bench.add_master("slave", broker={"broker_name": "a"})
    bench.run(20)
    assert [outcome[0].send_status for outcome in lost] == [SendStatus.SEND_OK] * 16
    assert {outcome[0].duplicate for outcome in lost} == {True}
    expected = [b"before %d" % n for n in range(8)] + [b"%d" % n for n in range(16)]
    assert sorted(bench.bodies("slave", "b")) == sorted(expected)


def test_a_broker_that_cannot_be_reached_is_passed_by() -> None:
    bench = Bench()
    for _ in range(4):
        bench.send(b"before")
    bench.crash("a")
    bench.run(0.1)
    results = [bench.send(b"%d" % number) for number in range(8)]
    assert {result.message_queue.broker_name for result in results} == {"b"}
    assert not any(result.duplicate for result in results)


def test_who_did_not_answer_is_asked_again_before_the_next_send() -> None:
    """Another broker may be at that address by then, or the same one with other settings."""
    bench = Bench("a")
    bench.send(b"before")
    bench.lose_answers()
    outcome = bench.begin(b"lost", timeout_ms=2000)
    bench.run(2.5)
    assert isinstance(outcome[0].value, SendFailed)
    bench.crash("a")
    bench.world.network.heal()
    bench.ours = {"duplicate_window_millis": 0}
    bench.add_master("a")
    bench.run(2)
    with pytest.raises(SendFailed, match="does not compare ids"):
        bench.send(b"next")
    assert b"next" not in bench.bodies()


def test_who_takes_over_and_compares_nothing_gets_no_repetition() -> None:
    bench = Bench("a")
    bench.send(b"before")
    bench.lose_answers()
    outcome = bench.begin(b"lost")
    bench.run(3.5)
    bench.crash("a")
    bench.world.network.heal()
    bench.ours = {"duplicate_window_millis": 0}
    bench.add_master("a")
    bench.run(30)
    (failure,) = outcome
    assert isinstance(failure.value, SendFailed)
    assert not failure.value.retriable
    assert "may be stored, and is not repeated" in str(failure.value)
    assert bench.bodies().count(b"lost") == 1


def test_chosen_queues_batches_and_one_way_sends() -> None:
    bench = Bench("a")
    queue = bench.send(b"before").message_queue
    bench.wait(bench.producer.send_oneway(Message("T", b"one way")))
    bench.lose_answers()
    chosen = bench.begin(b"chosen", queue=queue)
    selected = bench.begin(b"selected", selector=lambda queues, message, arg: queues[arg], arg=2)
    batch = list[Any]()
    messages = [Message("T", b"in batch %d" % number) for number in range(5)]
    bench.producer.send_batch(messages).addBoth(batch.append)
    bench.run(3.5)
    bench.world.network.heal()
    bench.run(10)
    results = [chosen[0], selected[0], batch[0][0]]
    assert all(result.duplicate for result in results)
    assert results[0].message_queue == queue
    assert results[1].message_queue.queue_id == 2
    assert results[2].msg_id == ",".join(message.unique_id for message in messages)
    assert len(bench.bodies()) == len(set(bench.bodies())) == 9


def test_what_does_not_go_together_is_refused() -> None:
    for wrong in ({"delivery_timeout_ms": 0}, {"retry_another_broker_when_not_store_ok": True}):
        with pytest.raises(ConfigurationError, match="idempotent=True"):
            ProducerConfig(idempotent=True, **wrong).checked()
    instance = SimCluster().client()
    with pytest.raises(ConfigurationError, match="half messages"):
        TransactionProducer(instance, None, ProducerConfig(idempotent=True))  # type: ignore[arg-type]


class Course:
    """A pair that waits for its slave, another broker, and a network and operators that err."""

    def __init__(self, seed: int, *, idempotent: bool = True) -> None:
        self.chance = Random(seed)
        self.bench = bench = Bench("b", seed=seed, idempotent=idempotent)
        self.flush = self.chance.choice(list(FlushDiskType))
        self.leader, self.follower = "x", "y"
        self.start("x", leads=True)
        self.start("y", leads=False)
        bench.run(20)
        self.sends: list[tuple[bytes, list[Any]]] = []

    def start(self, name: str, *, leads: bool) -> None:
        store = {"flush_disk_type": self.flush}
        broker = {"broker_name": "a"} if leads else SLAVE
        role = BrokerRole.SYNC_MASTER if leads else BrokerRole.SLAVE
        if leads:
            self.bench.add_master(name, role, broker=broker, store=store)
        else:
            self.bench.add(name, role, broker=broker, store=store, ours=self.bench.ours)

    def send(self) -> None:
        for _ in range(self.chance.choice([1, 5, 20])):
            body = b"%d" % len(self.sends)
            self.sends.append((body, self.bench.begin(body)))

    def lose(self) -> None:
        names = self.chance.choice([["b"], [self.leader], ["b", self.leader]])
        for name in names:
            self.bench.world.network.cut(name, "client")
        self.pause()
        self.send()
        self.pause()
        self.bench.world.network.heal()

    def part(self) -> None:
        self.bench.world.network.partition(self.leader, self.follower)
        self.send()
        self.pause()
        self.bench.world.network.heal()

    def restart(self) -> None:
        self.send()
        self.bench.run(self.chance.choice([0.0005, 0.002, 0.1]))
        name = self.chance.choice(["b", self.leader, self.follower])
        self.bench.crash(name)
        self.pause()
        if name == "b":
            self.bench.add_master("b")
        else:
            self.start(name, leads=name == self.leader)

    def fail_over(self) -> None:
        """Once the slave has what the master has promised, as its operator looks."""
        self.send()
        self.bench.run(self.chance.choice([0.0005, 0.002, 0.1]))
        old, new = self.leader, self.follower
        self.bench.crash(old, power=self.chance.random() < 0.5)
        self.bench.crash(new)
        self.leader, self.follower = new, old
        self.start(new, leads=True)
        self.pause()
        self.start(old, leads=False)
        self.bench.run(10)

    def pause(self) -> None:
        self.bench.run(self.chance.choice([0.01, 0.5, 2.0, 5.0]))

    def run(self) -> list[bytes]:
        """All that is stored in the end, where consumers read it."""
        acts = [self.send, self.lose, self.part, self.restart, self.fail_over]
        for act in self.chance.choices(acts, [3, 3, 1, 1, 1], k=12):
            act()
            self.pause()
        self.finish()
        return self.bench.bodies("b", self.leader)

    def finish(self) -> None:
        self.bench.world.network.heal()
        self.bench.run(70)


SEEDS = (1, 2, 3, 4, 6, 7)
"""Of courses in which a producer that is not idempotent stores messages twice."""


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_is_there_once_and_nothing_is_there_twice(seed: int) -> None:
    course = Course(seed)
    stored = course.run()
    assert len(stored) == len(set(stored))
    outcomes = {body: outcome[0] for body, outcome in course.sends}  # each has ended
    kept = {
        body
        for body, result in outcomes.items()
        if isinstance(result, SendResult) and result.send_status is SendStatus.SEND_OK
    }
    assert kept <= set(stored)
    assert len(kept) > len(outcomes) / 2


def test_without_it_the_same_course_stores_some_twice() -> None:
    stored = Course(SEEDS[0], idempotent=False).run()
    assert len(stored) > len(set(stored))
