"""Changes that take messages from consumers: they say so, and `--yes` alone does not do them."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.groups import EARLIEST
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin import broker, offsets, topic
from rmq_ha.ops.admin.session import FAILED, NOT_FOUND
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say

SHAPE = {"queues": None, "read_queues": None, "write_queues": None, "perm": None}
YES = {"yes": True, "dry_run": False}
DRY = {"yes": False, "dry_run": True}
ASK = {"yes": False, "dry_run": False}
HOUR_S = 3600.0


@pytest.fixture
def cluster() -> SimCluster:
    """One broker with a topic of four queues, in each of which five messages lie."""
    cluster = SimCluster()
    cluster.add("one", store={"max_message_size": 1024})
    assert not shape(cluster, is_new=True, queues=4).code

    async def work() -> None:
        producer = Producer(cluster.client(), ProducerConfig(producer_group="makers"))
        await producer.start()
        for number in range(20):
            await producer.send(Message("Orders", b"m%d" % number))
        await producer.stop()

    cluster.wait(work())
    return cluster


def shape(cluster: SimCluster, *, is_new: bool = False, drop: bool = False, **change: Any) -> Said:
    sure = {name: change.pop(name) for name in ("yes", "dry_run") if name in change} or YES
    work = topic.change_topic
    given = SHAPE | change
    return say(
        cluster,
        lambda s: work(s, "Orders", "", given, is_new=is_new, drop_unread=drop, **sure),
    )


def consume(cluster: SimCluster, group: str) -> None:
    """Everything that lies in the topic, and the offsets reach the broker."""
    consumer = PushConsumer(cluster.client(group), group, PushConsumerConfig())
    consumer.subscribe("Orders")
    consumer.register_message_listener(lambda messages, context: None)
    cluster.wait(consumer.start())
    cluster.run(30)
    cluster.wait(consumer.stop())


def queues(cluster: SimCluster) -> tuple[int, int]:
    config = cluster.brokers["one"].topics.get("Orders")
    return config.read_queue_nums, config.write_queue_nums


def test_a_topic_is_not_made_narrower_than_its_unread_messages(cluster: SimCluster) -> None:
    """103 of 208 messages left the view of every consumer, without a word."""
    said = shape(cluster, queues=2)
    assert said.code == FAILED
    assert "queues 2 and 3 of Orders on one hold 10 messages, and no group has read" in said.err
    assert "topic update Orders --write-queues 2" in said.err
    assert "--drop-unread" in said.err
    assert queues(cluster) == (4, 4)
    said = shape(cluster, queues=2, **DRY)
    assert said.code == 0
    assert "hold 10 messages" in said.err
    assert not shape(cluster, queues=2, drop=True).code
    assert queues(cluster) == (2, 2)


def test_it_names_the_groups_that_have_not_read_them(cluster: SimCluster) -> None:
    for group in ("billing", "audit"):
        consume(cluster, group)
    offsets_of = cluster.brokers["one"].consumer_offsets
    offsets_of.commit("audit", "Orders", 3, 2)
    said = shape(cluster, read_queues=3)
    assert said.code == FAILED
    assert "queue 3 of Orders on one holds 5 messages: audit has not read 3 of them" in said.err
    assert "billing" not in said.err
    offsets_of.commit("audit", "Orders", 3, 5)
    assert not shape(cluster, read_queues=3).code, "all groups have read all"


def test_the_drained_way_works(cluster: SimCluster) -> None:
    assert not shape(cluster, write_queues=2).code
    consume(cluster, "billing")
    assert not shape(cluster, read_queues=2).code
    assert queues(cluster) == (2, 2)


def move(cluster: SimCluster, group: str, *, is_new: bool = False, **sure: bool) -> Said:
    work = offsets.move_offsets
    return say(cluster, lambda s: work(s, "Orders", group, EARLIEST, is_new=is_new, **sure))


def test_a_group_that_does_not_exist_gets_no_offsets_by_a_misspelt_name(
    cluster: SimCluster,
) -> None:
    """It made a group that nobody consumes with, and `doctor` warned of it for ever."""
    consume(cluster, "billing")
    for sure in (YES, DRY):
        said = move(cluster, "biling", **sure)
        assert said.code == NOT_FOUND
        assert "no broker knows the group biling (did you mean billing?)" in said.err
        assert "--new" in said.err
    assert not move(cluster, "billing", **YES).code
    assert not move(cluster, "biling", is_new=True, **YES).code
    assert not move(cluster, "biling", **YES).code, "it has offsets now"


def set_config(cluster: SimCluster, *, drop: bool = False, **more: Any) -> Said:
    sure = {name: more.pop(name) for name in ("yes", "dry_run") if name in more} or YES
    work = broker.set_config
    changes = {key: str(value) for key, value in more.items()}
    return say(cluster, lambda s: work(s, "one", changes, drop_old=drop, **sure))


def kept_hours(cluster: SimCluster) -> int:
    return int(cluster.brokers["one"].configuration.store.file_reserved_time)


def test_a_shorter_retention_says_what_will_be_deleted(
    cluster: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """71 hours of messages were to go at 04:00, and nobody was told."""
    cluster.run(4 * HOUR_S)
    told = "fileReservedTime=1 deletes the messages of 3 hours, all that are older than 1 hour"
    said = set_config(cluster, fileReservedTime=1)
    assert said.code == FAILED
    assert told in said.err
    assert "at 04 o'clock (deleteWhen)" in said.err
    assert " KiB of the log" in said.err
    assert "--drop-old" in said.err
    assert kept_hours(cluster) == 72
    said = set_config(cluster, fileReservedTime=1, **DRY)
    assert said.code == 0
    assert told in said.err
    answers = iter((False, True))
    monkeypatch.setattr("click.confirm", lambda question, **_: next(answers))
    assert set_config(cluster, fileReservedTime=1, **ASK).code == FAILED
    assert kept_hours(cluster) == 72
    said = set_config(cluster, fileReservedTime=1, **ASK)
    assert told in said.err
    assert kept_hours(cluster) == 1
    assert not set_config(cluster, fileReservedTime=72).code
    assert not set_config(cluster, drop=True, fileReservedTime=1).code
    assert kept_hours(cluster) == 1


def test_what_a_broker_does_not_say_is_not_shown_as_known(cluster: SimCluster) -> None:
    """As RocketMQ's, it says how old its oldest message is only when two largest ones fit."""
    store = cluster.brokers["one"].configuration.store
    store.max_message_size = 1 << 20
    assert not set_config(cluster, fileReservedTime=1).code, "the only file is not deleted"
    assert not set_config(cluster, fileReservedTime=72).code
    store.mapped_file_size_commit_log = 1024  # as if there were several
    said = set_config(cluster, fileReservedTime=1)
    assert said.code == FAILED
    assert "the broker does not say how old its oldest message is" in said.err


def test_a_retention_that_deletes_nothing_is_not_asked_for(cluster: SimCluster) -> None:
    cluster.run(2 * HOUR_S)
    assert not set_config(cluster, fileReservedTime=3).code
    assert kept_hours(cluster) == 3
    assert not set_config(cluster, fileReservedTime=48).code
