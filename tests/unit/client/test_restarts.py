"""What producers notice of brokers that die under load: latency, and no exception."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.client.rules.errors import NoRoute, SendTimeout
from rmq_ha.client.rules.messages import Message, MessageQueue, SendResult, SendStatus
from rmq_ha.client.rules.queue_choice import select_by_hash
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.testing.client_world import ClientWorld
from tests.unit.client.sim_cluster import SimCluster

EVERY_S = 0.02


class Load:
    """
    Sends without end, at defaults unless told otherwise, whatever happens.

    :ivar results: of all sends that ended, with how long they took.
    """

    def __init__(self, cluster: SimCluster, **config: Any) -> None:
        self.cluster = cluster
        self.instance = cluster.client("load", poll_name_server_interval_ms=1_000_000)
        self.producer = Producer(self.instance, ProducerConfig(**config))
        cluster.wait(self.producer.start())
        self.sent = 0
        self.results: list[tuple[Any, float]] = []
        cluster.wait(self.send())

    def send(self) -> "Deferred[None]":
        began = self.cluster.clock.seconds()
        sent = self.producer.send(Message("T", b"%d" % self.sent))
        self.sent += 1

        def note(result: Any) -> None:
            outcome = getattr(result, "value", result)
            self.results.append((outcome, self.cluster.clock.seconds() - began))

        return sent.addBoth(note)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / EVERY_S)):
            self.send()
            self.cluster.clock.run_for(EVERY_S)
        assert not self.cluster.clock.failures

    def finish(self, limit: float = 10.0) -> None:
        self.cluster.clock.run_while(lambda: len(self.results) < self.sent, limit)

    @property
    def failed(self) -> list[Any]:
        return [outcome for outcome, _ in self.results if not isinstance(outcome, SendResult)]


def pair() -> SimCluster:
    """A SYNC_MASTER and its slave."""
    cluster = SimCluster()
    cluster.add("a", BrokerRole.SYNC_MASTER)
    cluster.add("slave", BrokerRole.SLAVE, broker={"broker_name": "a", "broker_id": 1})
    cluster.run(5)
    return cluster


@pytest.mark.parametrize("power", [False, True])
def test_a_master_that_is_killed_and_comes_back_costs_no_exception(power: bool) -> None:
    """With `power` its machine vanishes: nobody refuses, connections just fall silent."""
    cluster = pair()
    load = Load(cluster)
    load.run(0.2)
    cluster.crash("a", power=power)
    load.run(2)
    assert len(load.results) < 20
    cluster.add("a", BrokerRole.SYNC_MASTER)
    came_back = cluster.clock.seconds()
    load.run(0.2)
    load.finish()
    assert (load.failed, len(load.results)) == ([], load.sent)
    assert cluster.clock.seconds() - came_back < (8 if power else 3)
    assert cluster.brokers["a"].store.log.max_offset > 0


def test_at_a_restart_a_producer_is_no_storm() -> None:
    """Of a hundred sends one knocks now and then; RocketMQ's way would be 300 attempts."""
    cluster = pair()
    load = Load(cluster)
    cluster.crash("a")
    attempts: list[float] = []
    invoke = load.instance.invoke

    def counted(*args: Any) -> Any:
        attempts.append(cluster.clock.seconds())
        return invoke(*args)

    load.instance.invoke = counted  # type: ignore[method-assign]
    load.run(2)
    assert 3 <= len(attempts) <= 24


def test_as_rocketmq_if_wanted() -> None:
    """`delivery_timeout_ms=0`: each send between is an exception, within milliseconds."""
    cluster = pair()
    load = Load(cluster, delivery_timeout_ms=0)
    cluster.crash("a")
    load.run(0.2)
    load.finish()
    assert len(load.failed) == 10
    assert max(took for _, took in load.results) < 0.1


def test_a_master_that_is_replaced_is_found_without_waiting_for_the_next_look() -> None:
    """
    The slave is promoted under another address.

    Routes are looked at every 1000 s here, and on a refusal.
    """
    cluster = pair()
    load = Load(cluster)
    cluster.crash("a")
    cluster.crash("slave")
    load.run(0.5)
    cluster.add("slave", BrokerRole.SYNC_MASTER, broker={"broker_name": "a", "broker_id": 0})
    load.run(0.2)
    load.finish()
    assert (load.failed, len(load.results)) == ([], load.sent)
    store = cluster.brokers["slave"].store
    assert sum(store.max_offset_in_queue("T", number) for number in range(4)) >= load.sent - 1


def test_a_broker_that_does_not_come_back_is_an_error_at_the_time_that_was_allowed() -> None:
    cluster = pair()
    load = Load(cluster, delivery_timeout_ms=1_000)
    cluster.crash("a")
    load.run(0.2)
    load.finish()
    assert len(load.failed) == 10
    assert {type(error) for error in load.failed} <= {SendTimeout, NoRoute}
    assert all(error.retriable for error in load.failed)
    for _, took in load.results[1:]:
        assert took == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    "await_brokers", [lambda cluster: None, lambda cluster: cluster.crash("a")]
)
def test_a_topic_that_nobody_makes_is_an_error_at_once(
    await_brokers: Callable[[SimCluster], None],
) -> None:
    """Also while brokers are away: nobody ever heard of it."""
    cluster = SimCluster()
    cluster.add("a", broker={"auto_create_topic_enable": False})
    producer = Producer(cluster.client(), ProducerConfig())
    cluster.wait(producer.start())
    await_brokers(cluster)
    before = cluster.clock.seconds()
    with pytest.raises(NoRoute) as missing:
        cluster.wait(producer.send(Message("Missing", b"x")))
    assert not missing.value.retriable
    assert cluster.clock.seconds() - before < 0.5


def test_while_one_of_two_brokers_is_away_the_other_has_it_all_at_once() -> None:
    cluster = SimCluster("a", "b")
    load = Load(cluster)
    cluster.crash("a")
    load.run(0.4)
    load.finish()
    assert (load.failed, len(load.results)) == ([], load.sent)
    assert max(took for _, took in load.results[1:]) < 0.3
    assert {result.send_status for result, _ in load.results} == {SendStatus.SEND_OK}


@pytest.mark.parametrize("how", ["selector", "queue"])
def test_keyed_sends_survive_a_restart_as_others_do(how: str) -> None:
    """1,071 keyed sends failed in one second after a kill; each goes to its own queue still."""
    with ClientWorld(pair=True) as world:

        async def story() -> None:
            async with world.connect() as client:
                producer = await client.producer()
                await producer.send(Message("T", b"first"))
                queues = await producer.fetch_publish_message_queues("T")
                sends: list[Any] = []

                async def send_all() -> None:
                    for number in range(600):
                        chosen: dict[str, Any] = {"queue": queues[number % len(queues)]}
                        if how == "selector":
                            chosen = {"selector": select_by_hash, "arg": str(number)}
                        message = Message("T", b"%d" % number)
                        sends.append((chosen, producer.send(message, **chosen)))
                        await asyncio.sleep(0.02)

                under_way = asyncio.ensure_future(send_all())
                await asyncio.sleep(3)
                world.kill_master()
                await asyncio.sleep(5)
                world.fail_over()
                await under_way
                for number, (chosen, sent) in enumerate(sends):
                    result = await sent
                    expected = chosen.get("queue") or select_by_hash(
                        queues, Message("T", b""), str(number)
                    )
                    assert result.send_status is SendStatus.SEND_OK
                    assert result.message_queue == expected

        world.run(story())


@pytest.mark.parametrize(("may_move", "broker"), [(False, "a"), (True, "b")])
def test_a_keyed_send_goes_elsewhere_only_if_asked(may_move: bool, broker: str) -> None:
    """Its broker stays away for a while, and another one serves the topic."""
    cluster = SimCluster("a", "b")
    load = Load(cluster, chosen_queue_may_move=may_move)
    for name in ("a", "b"):  # both of them make the topic
        cluster.wait(load.producer.send(Message("T", b"x"), queue=MessageQueue("T", name, 0)))
    cluster.run(1)
    cluster.wait(load.instance.routes.fetch("T"))

    def first(queues: Any, message: Message, arg: Any) -> Any:
        return min(queues)

    sent = cluster.wait(load.producer.send(Message("T", b"0"), selector=first))
    assert sent.message_queue.broker_name == "a"
    cluster.crash("a")
    outcome: list[Any] = []
    load.producer.send(Message("T", b"1"), selector=first).addBoth(outcome.append)
    cluster.run(10)
    assert len(outcome) == may_move
    cluster.add("a")
    cluster.run(5)
    (result,) = outcome
    assert result.message_queue.broker_name == broker
