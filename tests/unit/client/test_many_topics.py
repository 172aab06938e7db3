"""Many subscriptions cost what they are: client and broker measured apart, in the simulated world.

Work is what `sys.setprofile` counts: calls of functions, ours and C's. On the machines that we
measured, 9,000 of them take a millisecond.
"""

from typing import Any

import pytest

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client import PushConsumer, PushConsumerConfig
from rmq_ha.client.connection import heartbeats
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.testing.client_world import ClientWorld
from tests.kits.calls import count_calls

MOST_A_TURN = 450_000
"""Calls in a turn of the reactor: 50 ms."""
NAME_SERVER, BROKER, CLIENT = 1, 2, 3
"""Machines of a world, by their index."""


class Heartbeats:
    """Counts those that a client sends, and their bytes."""

    def __init__(self, client: ClientInstance) -> None:
        self.count = self.size = 0
        self._invoke = client.invoke
        client.invoke = self.invoke  # type: ignore[method-assign]

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: float) -> Any:
        if command.code == RequestCode.HEART_BEAT:
            self.count += 1
            self.size += len(command.body or b"")
        return self._invoke(address, command, timeout_ms)


class Work:
    """
    Counts the calls of each event of the simulation, by machine.

    :ivar total: calls, by the machine's index.
    :ivar most: of one event.
    """

    def __init__(self, world: ClientWorld) -> None:
        self._clock, self._trace = world.world.clock, world.world.trace
        self._step, self._add = self._clock.step, self._trace.add
        self._machine = -1
        self.total: dict[int, int] = {}
        self.most: dict[int, int] = {}

    def __enter__(self) -> "Work":
        self._clock.step = self.step  # type: ignore[method-assign]
        self._trace.add = self.add  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.step = self._step  # type: ignore[method-assign]
        self._trace.add = self._add  # type: ignore[method-assign]

    def add(self, kind: int, host: int, *more: Any) -> None:
        if self._machine < 0:
            self._machine = host  # the first that an event does is to say whose it is
        self._add(kind, host, *more)

    def step(self) -> bool:
        self._machine = -1
        has_run, calls = count_calls(self._step)
        machine = self._machine
        self.total[machine] = self.total.get(machine, 0) + calls
        self.most[machine] = max(self.most.get(machine, 0), calls)
        return has_run


class Member:
    """
    A push consumer of many topics in a world of its own.

    :ivar heartbeats: that its client sends.
    """

    def __init__(self, *groups: int, limit: int = 5_000) -> None:
        """
        :param groups: how many topics each group subscribes.
        :param limit: `maxSubscriptionsPerHeartbeat` of the broker.
        """
        self.world = world = ClientWorld()
        broker = world._brokers["broker-1"]
        broker.configuration.ours.max_subscriptions_per_heartbeat = limit
        names = [f"T{number}" for number in range(sum(groups))]
        for name in names:
            broker.topics.update(TopicConfig(name, 1, 1))
        world.wait(broker.registration.register_all())
        client = world.client()
        self.heartbeats = Heartbeats(client)
        self.consumers = []
        for number, count in enumerate(groups):
            consumer = PushConsumer(client, f"group-{number}", PushConsumerConfig())
            for _ in range(count):
                consumer.subscribe(names.pop())
            consumer.register_message_listener(lambda messages, context: None)
            self.consumers.append(consumer)

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    def start(self) -> None:
        for consumer in self.consumers:
            self.world.wait(consumer.start())

    @property
    def has(self) -> int:
        """Queues, those of the groups' retries apart."""
        queues = [queue for consumer in self.consumers for queue in consumer.assignment()]
        return sum(not queue.topic.startswith(RETRY_PREFIX) for queue in queues)


@pytest.mark.trials
def test_heartbeats_of_a_start_do_not_grow_with_its_topics() -> None:
    """One at the start and one at the end of a round; their bytes are those of the topics."""
    bytes_a_topic = []
    for topics in (200, 1_000, 4_000):
        with Member(topics) as member:
            member.start()
            assert member.has == topics
            assert member.heartbeats.count <= 5
            bytes_a_topic.append(member.heartbeats.size / topics)
    assert max(bytes_a_topic) < 2 * min(bytes_a_topic)


@pytest.mark.trials
def test_client_and_broker_work_in_proportion_to_topics_and_no_turn_is_long() -> None:
    """At the start, and in the half minute of heartbeats, rounds, pulls and offsets after it."""
    works = []
    for topics in (100, 500):
        with Member(topics) as member, Work(member.world) as work:
            member.start()
            member.world.wind(30)
            works.append(work)
    few, many = works
    assert max(many.most.values()) < MOST_A_TURN * topics / 4_000  # at 4,000 topics: as they are
    for machine in (NAME_SERVER, BROKER, CLIENT):
        assert many.total[machine] < 6 * few.total[machine]


def test_a_broker_that_refuses_the_heartbeats_is_not_flooded_with_them() -> None:
    """Each topic asks who is in the group, and each time the member is not there."""
    with Member(300, limit=200) as member:
        member.start()
        member.world.wind(20)
        assert member.heartbeats.count <= 8
        assert member.has == 0


def test_groups_whose_subscriptions_are_many_share_no_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker of ours takes 2,000 at a time, and each group is known to it all the same."""
    monkeypatch.setattr(heartbeats, "MOST_SUBSCRIPTIONS", 20)
    with Member(*[9] * 6, limit=20) as member:
        member.start()
        assert member.has == 6 * 9
        member.world.wind(150)  # longer than a member lives without a heartbeat
        known = member.world._brokers["broker-1"].consumers
        assert [bool(known.client_ids(f"group-{number}")) for number in range(6)] == [True] * 6
