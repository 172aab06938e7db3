"""A consumer goes on at the slave when the master is gone, and comes back, never backwards."""

from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.client.rules.listening import ConsumeOrderlyStatus
from tests.unit.client.consuming import TOPIC, Consuming


class Pair(Consuming):
    """A master `a` and its slave, with a topic that the slave knows too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__("a", **settings)
        self.add("slave", BrokerRole.SLAVE, broker={"broker_name": "a", "broker_id": 1})
        self.run(15)

    def slave_offsets(self) -> dict[int, int]:
        return dict(self.brokers["slave"].consumer_offsets.queues("group", TOPIC))


@pytest.mark.parametrize("power", [False, True])
def test_what_the_slave_has_is_consumed_from_it_soon_and_never_twice(power: bool) -> None:
    cluster = Pair()
    consumer = cluster.consumer()
    cluster.send("a", 40)
    cluster.run(12)  # the slave copies the offsets every 10 s
    consumer.suspend()
    cluster.run(20)
    rest = cluster.send("a", 40)
    cluster.run(5)
    before = len(cluster.got["c1"])
    assert before < 80
    cluster.crash("a", power=power)
    consumer.resume()
    cluster.run(45 if power else 4)  # silence takes the time-out of one pull to notice
    assert set(rest) <= set(cluster.got["c1"])
    cluster.run(10)
    assert sum(cluster.slave_offsets().values()) == 80
    cluster.add("a")
    cluster.run(40)
    assert max(cluster.all_got().values()) == 1
    more = cluster.send("a", 8)
    cluster.run(8)
    assert set(more) <= set(cluster.got["c1"])
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert sum(cluster.committed("a").values()) == 88
    assert max(cluster.all_got().values()) == 1


def test_a_slave_that_lags_does_not_set_the_consumer_back() -> None:
    cluster = Pair()
    consumer = cluster.consumer()
    cluster.send("a", 20)
    cluster.run(12)
    cluster.hosts["slave"].crash()
    cluster.run(1)
    del cluster.brokers["slave"]
    cluster.send("a", 20)
    cluster.run(8)
    assert len(cluster.got["c1"]) == 40
    cluster.crash("a")
    cluster.add("slave", BrokerRole.SLAVE, broker={"broker_name": "a", "broker_id": 1})
    cluster.run(60)
    assert len(cluster.got["c1"]) == 40
    cluster.add("a")
    cluster.run(60)
    more = cluster.send("a", 4)
    cluster.run(20)
    assert set(more) <= set(cluster.got["c1"])
    assert max(cluster.all_got().values()) == 1
    cluster.wait(consumer.stop())


def test_members_come_while_the_master_is_away() -> None:
    cluster = Pair()
    first = cluster.consumer("c1")
    cluster.send("a", 40)
    cluster.run(15)
    cluster.crash("a")
    cluster.run(35)
    second = cluster.consumer("c2")
    cluster.run(10)
    shares = [
        {queue for queue in consumer.assignment() if queue.topic == TOPIC}
        for consumer in (first, second)
    ]
    assert [len(share) for share in shares] == [2, 2]
    assert not shares[0] & shares[1]
    assert max(cluster.all_got().values()) == 1
    cluster.add("a")
    cluster.run(40)
    more = cluster.send("a", 12)
    cluster.run(10)
    assert set(more) <= set(cluster.all_got())
    assert max(cluster.all_got().values()) == 1


def test_an_orderly_consumer_rests_without_a_master_and_goes_on() -> None:
    cluster = Pair()
    order: list[str] = []

    def listener(messages: Any, context: Any) -> Any:
        order.extend(message.body.decode() for message in messages)
        return ConsumeOrderlyStatus.SUCCESS

    consumer = cluster.consumer(listener=listener, orderly=True)
    sent = cluster.send("a", 20, queue_id=1)
    cluster.run(12)
    cluster.crash("a")
    cluster.run(60)
    cluster.add("a")
    cluster.run(60)
    sent += cluster.send("a", 20, queue_id=1)
    cluster.run(40)
    assert list(dict.fromkeys(order)) == sent
    cluster.wait(consumer.stop())
