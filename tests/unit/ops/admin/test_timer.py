"""`rmqha-admin timer` against simulated brokers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin import timer
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say

TIMERS = {"timer_wheel_enable": True}


def cluster(**ours: Any) -> SimCluster:
    made = SimCluster()
    made.add("one", ours=TIMERS | ours)
    return made


def send(made: SimCluster, topic: str, *delays_s: int, recalls: bool = False) -> None:
    """One message for each delay, after which the first is recalled, if that is wanted."""

    async def work() -> None:
        producer = Producer(made.client(), ProducerConfig(producer_group="makers"))
        await producer.start()
        sent = [
            await producer.send(Message(topic, b"m", delay=timedelta(seconds=delay)))
            for delay in delays_s
        ]
        if recalls:
            handle = sent[0].recall_handle
            assert handle
            await producer.recall(topic, handle)
        await producer.stop()

    made.wait(work())
    made.run(1)


def status(made: SimCluster, **more: Any) -> Said:
    return say(made, lambda session: timer.show_timers(session), **more)


def test_what_waits_is_counted_by_time_and_by_topic() -> None:
    made = cluster()
    send(made, "T", 500, 31, 45, 70, 70, 4000, 100_000, recalls=True)
    send(made, "U", 80)
    said = status(made)
    (row,) = said.json["rows"]
    assert said.code == 0
    assert row["state"] == "delivering"
    counts = ("waiting", "due", "in_1m", "in_1h", "in_1d", "later", "recalled")
    assert [row[name] for name in counts] == [7, 0, 2, 5, 6, 1, 1]
    assert row["late_s"] == 0
    assert row["next_due"].endswith("Z")
    topics = say(made, lambda session: timer.show_topics(session))
    assert topics.json["rows"] == [{"topic": "T", "waiting": 6}, {"topic": "U", "waiting": 1}]
    made.run(50)
    (row,) = status(made).json["rows"]
    assert [row[name] for name in counts[:3]] == [5, 0, 3]


def test_what_is_late_is_named_with_its_cause_and_its_remedy() -> None:
    made = cluster(timer_stop_dequeue=True)
    send(made, "T", 31, 41, 5000)
    assert status(made).code == 0
    made.run(120)
    said = status(made)
    assert said.code == FAILED
    (row,) = said.json["rows"]
    assert (row["state"], row["waiting"], row["due"]) == ("held", 3, 2)
    assert 85 < row["late_s"] < 100
    (problem,) = said.json["problems"]
    assert "the first of 3 is late by" in problem
    assert "timerStopDequeue=true" in problem
    assert "timerStopDequeue=true" in status(made, as_json=False).out


def test_slaves_and_brokers_without_timers_say_so() -> None:
    made = cluster()
    slave = {"broker_name": "one", "broker_id": 1}
    made.add("slave", BrokerRole.SLAVE, broker=slave, ours=TIMERS)
    made.run(12)
    send(made, "T", 601)
    made.add("two")
    made.run(12)
    said = status(made)
    rows = {(row["broker"], row["id"]): row for row in said.json["rows"]}
    assert rows["one", 0]["state"] == "delivering"
    assert rows["one", 1]["state"] == "slave"
    assert rows["one", 0]["waiting"] == rows["one", 1]["waiting"] == 1
    assert rows["two", 0]["state"] in ("", "unknown")
    assert said.code == 0
    made.crash("slave", power=True)
    assert status(made).code == NO_ANSWER
    none = SimCluster("alone")
    assert say(none, lambda session: timer.show_topics(session)).code == NOT_FOUND


@pytest.mark.parametrize("state", ["", "off"])
def test_a_broker_without_timers_has_no_counts(state: str) -> None:
    made = SimCluster("one")
    (row,) = status(made).json["rows"]
    assert row["state"] == "unknown" or row["state"] == state
    assert (row["waiting"], row["due"], row["next_due"]) == (0, None, None)
