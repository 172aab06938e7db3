"""`rmqha-admin group inflight` and `lag` of groups that pop, against simulated brokers."""

from __future__ import annotations

from typing import Any

from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.pop_headers import PopAnswerHeader
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.groups import consume_stats
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin import inflight, offsets
from rmq_ha.ops.admin.session import NO_ANSWER, NOT_FOUND
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.ops.app.status.server import SubjectCollector
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say
from tests.unit.ops.admin.pop_asks import Popper

POPS = {"pop_enable": True}


class PoppedCluster(SimCluster):
    """A broker with pops, whose topic T has one queue, and a client that pops for the group G."""

    def __init__(self, **ours: Any) -> None:
        super().__init__()
        broker = self.add("one", ours={**POPS, **ours})
        self.wait(broker.topics.update(TopicConfig("T", 1, 1, 6)))
        self.wait(broker.groups.update(SubscriptionGroupConfig("G", retry_max_times=1)))
        self.clock.run_while(lambda: not broker.pops.is_leading, 30)
        self.run(12)
        self.popper = Popper(self, "one")

    def send(self, count: int) -> None:
        async def work() -> None:
            producer = Producer(self.client(), ProducerConfig(producer_group="makers"))
            await producer.start()
            for _ in range(count):
                await producer.send(Message("T", b"m"))
            await producer.stop()

        self.wait(work())

    def pop(self, most: int, invisible_ms: int = 600_000) -> PopAnswerHeader:
        return self.popper.pop(most, invisible_ms)


def shown(made: SimCluster, topic: str = "", **more: Any) -> Said:
    return say(made, lambda session: inflight.show_in_flight(session, "G", topic), **more)


def test_each_queue_says_what_is_out_since_when_and_with_whom() -> None:
    made = PoppedCluster()
    made.send(5)
    popped = made.pop(3)
    made.popper.ack(popped, 1)
    made.run(30)
    said = shown(made)
    assert said.code == 0
    (row,) = said.json["rows"]
    counts = (
        "topic",
        "broker",
        "queue",
        "in_flight",
        "acked_ahead",
        "committed",
        "next",
        "waiting",
    )
    assert [row[name] for name in counts] == ["T", "one", 0, 2, 1, 0, 3, 2]
    assert 29 < row["oldest_s"] < 33
    assert row["attempts"] == 1
    assert row["client"].startswith("127.0.0.")
    assert row["first_due"].endswith("Z")
    text = shown(made, as_json=False).out
    assert row["client"] in text
    assert "moves since the start" in text
    lag = made.wait(Asker(made.client()).run(consume_stats("G", "T")))
    assert [(item.lag, item.in_flight) for item in lag.queues] == [(5, 2)]


def test_moves_redeliveries_and_dead_letters_are_counted_by_topic() -> None:
    made = PoppedCluster()
    made.send(1)
    made.pop(1, 1000)
    made.run(3)
    made.pop(1, 1000)
    row = next(item for item in shown(made).json["rows"] if item["topic"] == "%RETRY%G_T")
    assert (row["in_flight"], row["attempts"]) == (1, 2)
    made.run(3)
    (moves,) = shown(made).json["moves"]
    told = {"topic": "T", "broker": "one", "again": 1, "retried": 1, "dead": 1, "gone": 0}
    assert moves == told
    assert shown(made, "T").json["moves"] == [told]
    assert shown(made, "U").code == NOT_FOUND
    numbers = scraped(made)
    names = ("messages_out", "redeliveries_total", "retries_total", "dead_letters_total")
    assert [numbers[f"rmqha_pop_group_{name}", "G", "T"] for name in names] == [0, 1, 1, 1]


def test_the_metrics_of_a_group_tell_for_how_long_its_first_message_is_out() -> None:
    made = PoppedCluster()
    made.send(3)
    made.pop(2)
    made.run(40)
    made.pop(1)
    numbers = scraped(made)
    assert numbers["rmqha_pop_group_messages_out", "G", "T"] == 3
    assert 39 < numbers["rmqha_pop_group_oldest_seconds", "G", "T"] < 43


def scraped(made: PoppedCluster) -> dict[tuple[str, str, str], float]:
    """The metrics of groups that pop, by name, group and topic."""
    return {
        (sample.name, sample.labels["consumer_group"], sample.labels["topic"]): sample.value
        for family in SubjectCollector(BrokerStatus(made.brokers["one"])).collect()
        for sample in family.samples
        if sample.name.startswith("rmqha_pop_group_")
    }


def test_brokers_that_cannot_tell_are_named() -> None:
    made = SimCluster("plain")
    made.run(12)
    said = shown(made)
    assert said.code == NOT_FOUND
    assert "popEnable is false" in said.err
    made = PoppedCluster()
    made.crash("one", power=True)
    assert shown(made).code == NO_ANSWER


def test_a_group_that_pulls_has_no_messages_in_flight() -> None:
    made = PoppedCluster()
    made.send(2)
    lag = made.wait(Asker(made.client()).run(consume_stats("other", "T")))
    assert [item.in_flight for item in lag.queues] in ([], [None])
    assert "in_flight" in offsets.LAG_COLUMNS
