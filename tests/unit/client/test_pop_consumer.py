"""Push consumers that pop because their brokers say so, and that change to pulls while they run.

Spec: pop.md, sections 2.8, 6 and 14.
"""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import RequestMode
from rmq_ha.client import (
    AllocateByConfig,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Credentials,
    Message,
    MessageModel,
    MessageQueue,
    PushConsumer,
)
from rmq_ha.testing.client_world import ClientWorld
from tests.unit.client.consuming import GROUP, TOPIC, Consuming

LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Popping(Consuming):
    """Brokers that hand out messages, and a group that pops their topic."""

    def __init__(self, *names: str, shared: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        for name in names:
            self.add(name, ours={"pop_enable": True})
            self.create(name, TOPIC, 4)
            self.set_mode(name, "POP", shared)

    def set_mode(self, broker: str, mode: str, shared: int = 0) -> None:
        body = RequestMode(TOPIC, GROUP, mode, shared).encode()
        command = RemotingCommand(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)
        answer = self.wait(self.sender.invoke(self.address(broker), command, 3000))
        assert answer.code == 0, answer.remark

    def popper(self, name: str = "c1", listener: Any = None, **config: Any) -> PushConsumer:
        return self.consumer(name, listener, client_rebalance=False, **config)


def shares(consumer: PushConsumer) -> list[MessageQueue]:
    return [queue for queue in consumer.assignment() if queue.topic == TOPIC]


def test_a_group_pops_as_its_brokers_say_and_every_message_comes_once() -> None:
    cluster = Popping("a", "b")
    consumer = cluster.popper()
    assert shares(consumer) == [MessageQueue(TOPIC, name, -1) for name in ("a", "b")]
    sent = cluster.send("a", 40) + cluster.send("b", 40)
    cluster.run(120)
    assert cluster.all_got() == Counter(sent)
    assert cluster.committed("a") == dict.fromkeys(range(4), 10)
    cluster.wait(consumer.stop())


def test_a_message_that_fails_comes_again_after_rocketmqs_delays_then_it_is_dead() -> None:
    cluster = Popping("a")
    seen: list[tuple[float, int, str]] = []

    def fail(messages: Any, context: Any) -> Any:
        (message,) = messages
        seen.append((cluster.clock.seconds(), message.reconsume_times, message.topic))
        return LATER

    consumer = cluster.popper(listener=fail, max_reconsume_times=3)
    cluster.send("a", 1)
    cluster.run(300)
    times = [time for time, _, _ in seen]
    pauses = [after - before for before, after in pairwise(times)]
    assert [round(pause / 10) for pause in pauses] == [1, 3, 6]
    assert [(count, topic) for _, count, topic in seen] == [(n, TOPIC) for n in range(4)]
    dead = cluster.brokers["a"].store
    assert dead.max_offset_in_queue(f"%DLQ%{GROUP}", 0) == 1
    cluster.run(600)
    assert len(seen) == 4
    cluster.wait(consumer.stop())


def test_the_context_says_when_a_message_comes_again_and_which_are_consumed() -> None:
    cluster = Popping("a")
    seen: list[tuple[float, list[str]]] = []

    def listen(messages: Any, context: Any) -> None:
        seen.append((cluster.clock.seconds(), [message.body.decode() for message in messages]))
        context.ack_index = 0 if len(messages) > 1 else len(messages)
        context.delay_level_when_next_consume = 1

    cluster.send("a", 2, 0)
    consumer = cluster.popper(listener=listen, consume_message_batch_max_size=2)
    cluster.run(60)
    (began, first), (again, second) = seen
    assert (first, second) == (["m0", "m1"], ["m1"])
    assert 30 <= again - began < 33
    cluster.wait(consumer.stop())


def test_messages_whose_lease_ended_in_the_queue_are_not_shown_twice_at_a_time() -> None:
    cluster = Popping("a")
    shown: list[str] = []

    async def slow(messages: Any, context: Any) -> None:
        shown.append(messages[0].body.decode())
        await deferLater(cluster.hosts["c1"].clock, 4, lambda: None)

    cluster.send("a", 6, 0)
    consumer = cluster.popper(listener=slow, consume_concurrency=1, pop_invisible_time_ms=10_000)
    cluster.run(90)
    counts = Counter(shown)
    assert set(counts) == {f"m{number}" for number in range(6)}
    assert sum(counts.values()) <= 9  # a call may outlast its lease; those behind it do not begin
    cluster.wait(consumer.stop())


def test_a_group_changes_to_pulls_and_back_while_it_runs() -> None:
    cluster = Popping("a")
    consumer = cluster.popper()
    sent = cluster.send("a", 20)
    cluster.run(5)
    cluster.set_mode("a", "PULL")
    cluster.run(25)
    assert shares(consumer) == [MessageQueue(TOPIC, "a", number) for number in range(4)]
    sent += cluster.send("a", 20)
    cluster.run(10)
    cluster.set_mode("a", "POP")
    cluster.run(25)
    assert shares(consumer) == [MessageQueue(TOPIC, "a", -1)]
    sent += cluster.send("a", 20)
    cluster.run(70)
    assert cluster.all_got() == Counter(sent)
    assert sum(cluster.committed("a").values()) == 60
    cluster.wait(consumer.stop())


def test_what_was_out_when_the_mode_changed_comes_by_the_retry_topic() -> None:
    cluster = Popping("a")
    seen: list[tuple[str, int, str]] = []

    def fail_once(messages: Any, context: Any) -> Any:
        (message,) = messages
        seen.append((message.body.decode(), message.reconsume_times, message.topic))
        return LATER if message.reconsume_times == 0 else None

    consumer = cluster.popper(listener=fail_once)
    cluster.send("a", 4)
    cluster.run(20)
    assert len(seen) == 8  # each failed once, and came again from the retry topic
    cluster.send("a", 1)
    cluster.run(11)
    cluster.set_mode("a", "PULL")
    cluster.run(80)
    assert {(body, topic) for body, _, topic in seen} == {(f"m{n}", TOPIC) for n in range(5)}
    cluster.wait(consumer.stop())


def test_members_share_the_queues_when_brokers_say_so() -> None:
    cluster = Popping("a", shared=1)
    members = [cluster.popper(f"c{number}") for number in range(3)]
    cluster.run(45)
    given = [shares(member) for member in members]
    assert sorted(map(len, given)) == [2, 3, 3]
    assert {queue for share in given for queue in share} == {
        MessageQueue(TOPIC, "a", number) for number in range(4)
    }
    sent = cluster.send("a", 40)
    cluster.run(60)
    assert cluster.all_got() == Counter(sent)
    cluster.wait(members.pop().stop())
    sent += cluster.send("a", 40)
    cluster.run(90)
    assert cluster.all_got() == Counter(sent)


def test_a_member_that_stops_gives_back_what_waits() -> None:
    cluster = Popping("a")
    held: list[Any] = []

    def hold(messages: Any, context: Any) -> Any:
        held.append(Deferred())
        return held[-1]

    first = cluster.popper("c1", hold, consume_concurrency=1)
    sent = cluster.send("a", 8, 0)
    cluster.run(2)
    stopping = first.stop()
    held[0].callback(None)
    cluster.wait(stopping)
    second = cluster.popper("c2")
    cluster.run(8)
    assert cluster.all_got() == Counter(sent[1:])
    cluster.wait(second.stop())


def test_messages_that_no_loop_took_come_to_another_member_at_once() -> None:
    with ClientWorld() as world:
        world.new_topic(TOPIC, 1)
        body = RequestMode(TOPIC, GROUP, "POP", 0).encode()

        async def story() -> None:
            async with world.connect() as client, world.connect() as other:
                await client.route(TOPIC)
                mode = RemotingCommand(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)
                address = client.instance.routes.brokers["broker-a"][0]
                await client.future(client.instance.invoke(address, mode, 3000))
                producer = await client.producer()
                for number in range(6):
                    await producer.send(Message(TOPIC, b"%d" % number))
                settings: Any = {"client_rebalance": False, "consume_from_where": FIRST}
                first = client.push_consumer(GROUP, **settings)
                first.subscribe(TOPIC)
                async with first:
                    async for message in first:
                        first.ack(message)
                        break
                second = other.push_consumer(GROUP, **settings)
                second.subscribe(TOPIC)
                got: list[bytes] = []
                async with second, asyncio.timeout(10):
                    async for rest in second:
                        second.ack(rest)
                        got.append(rest.body)
                        if len(got) == 5:
                            break
                assert sorted([message.body, *got]) == [b"%d" % number for number in range(6)]

        world.run(story())


def test_brokers_that_do_not_know_pops_let_the_members_share() -> None:
    cluster = Consuming("a")
    consumer = cluster.consumer(client_rebalance=False)
    sent = cluster.send("a", 8)
    cluster.run(5)
    assert cluster.all_got() == Counter(sent)
    cluster.wait(consumer.stop())


@pytest.mark.parametrize("seed", range(3))
def test_a_fail_over_loses_nothing_and_repeats_nothing_that_was_acknowledged(seed: int) -> None:
    with ClientWorld(seed, pair=True) as world:
        world.new_topic(TOPIC)
        body = RequestMode(TOPIC, GROUP, "POP", 0).encode()
        got: list[bytes] = []

        async def story() -> None:
            async with world.connect() as client:
                instance = client.instance
                await client.route(TOPIC)
                mode = RemotingCommand(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)
                address = instance.routes.brokers["broker-a"][0]
                assert (await client.future(instance.invoke(address, mode, 3000))).code == 0
                await asyncio.sleep(15)
                consumer = client.push_consumer(
                    GROUP, client_rebalance=False, consume_from_where=FIRST
                )
                consumer.subscribe(TOPIC)

                async def listen(messages: Any, context: Any) -> None:
                    await asyncio.sleep(0.3)
                    got.extend(message.body for message in messages)

                consumer.register_message_listener(listen)
                await consumer.start()
                producer = await client.producer()
                sent = [b"%d" % number for number in range(200)]
                for one in sent[:150]:
                    await producer.send(Message(TOPIC, one))
                world.kill_master()
                await asyncio.sleep(4)
                world.fail_over()
                for one in sent[150:]:
                    await producer.send(Message(TOPIC, one))
                await asyncio.sleep(200)
                assert Counter(got) == Counter(sent)

        world.run(story())


def test_settings_that_cannot_work_are_refused() -> None:
    cluster = Popping("a")
    client = cluster.client("c1")
    with pytest.raises(ConfigurationError, match="CLUSTERING"):
        PushConsumer(client, GROUP, client_rebalance=False, message_model=MessageModel.BROADCASTING)
    with pytest.raises(ConfigurationError, match="AVG and AVG_BY_CIRCLE"):
        PushConsumer(client, GROUP, client_rebalance=False, strategy=AllocateByConfig([]))
    ordered = PushConsumer(client, GROUP, client_rebalance=False)
    ordered.subscribe(TOPIC)
    ordered.register_message_listener(lambda messages, context: None, orderly=True)
    with pytest.raises(ConfigurationError, match="SimpleConsumer"):
        cluster.wait(ordered.start())


ACCOUNTS = """\
accounts:
- {accessKey: ada-1815, secretKey: engine-1843, admin: true}
- accessKey: worker-1
  secretKey: worker-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [topic=SUB]
  groupPerms: [group=SUB]
"""


@pytest.mark.parametrize("strict", [False, True])
def test_an_account_needs_no_right_on_the_retry_topics_that_it_pulls(strict: bool) -> None:
    cluster = Popping(credentials=Credentials("ada-1815", "engine-1843"))
    host = cluster.hosts["a"] = cluster.world.add("a")
    host.disk.replace("/conf/plain_acl.yml", ACCOUNTS.encode())
    guard = {"acl_plug_in": "plain", "acl_directory": "/conf", "acl_strict": strict}
    cluster.add("a", broker={"acl_enable": True}, ours=guard | {"pop_enable": True})
    cluster.create("a", TOPIC, 4)
    cluster.set_mode("a", "POP")
    seen: list[tuple[bytes, int]] = []

    def fail_once(messages: Any, context: Any) -> Any:
        (message,) = messages
        seen.append((message.body, message.reconsume_times))
        return LATER if message.reconsume_times == 0 else None

    worker = cluster.client("c1", credentials=Credentials("worker-1", "worker-secret"))
    consumer = cluster.popper(listener=fail_once, client=worker)
    cluster.send("a", 4)
    cluster.run(13)
    assert len(seen) == 8
    cluster.set_mode("a", "PULL")
    cluster.run(30)
    assert len(shares(consumer)) == 4
    cluster.send("a", 4)
    cluster.run(30)
    assert Counter(seen) == Counter((b"m%d" % number, n) for number in range(8) for n in (0, 1))
    cluster.wait(consumer.stop())
