"""`timer levels` and `transaction`: messages that wait for their time or for their producer."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.transactions import (
    LocalTransactionState,
    TransactionListener,
    TransactionProducer,
)
from rmq_ha.ops.admin import timer_levels, transaction
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND
from rmq_ha.ops.admin.transaction import settled_by
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.ops.app.status.samples import Samples
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.test_message_copy import stored

COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)


def levels(cluster: SimCluster, **more: Any) -> Any:
    return say(cluster, lambda s: timer_levels.show_levels(s, **more))


def test_delayed_messages_are_counted_by_level_with_their_times() -> None:
    """Also those of a level from which nothing was ever delivered."""
    cluster = SimCluster("one", "two")
    began = cluster.hosts["one"].seams.now_ms()

    async def send() -> None:
        producer = Producer(cluster.client(), ProducerConfig(producer_group="makers"))
        await producer.start()
        for level in (18, 18, 5, 2):
            await producer.send(Message("T", b"m", delay_time_level=level))
        await producer.stop()

    cluster.wait(send())
    cluster.run(8)
    rows = levels(cluster).json["rows"]
    waiting = {row["level"]: 0 for row in rows}
    for row in rows:
        waiting[row["level"]] += row["waiting"]
    assert waiting == {18: 2, 5: 1}, "the message of 5 s is delivered"
    assert {row["delay"] for row in rows} == {"2h", "1m"}
    for row in rows:
        delay_ms = {"2h": 7_200_000, "1m": 60_000}[row["delay"]]
        assert time_text(began + delay_ms) <= row["next_due"] <= row["last_due"]
        assert row["last_due"] <= time_text(began + delay_ms + 8000)
    every = levels(cluster, every=True).json
    assert len(every["rows"]) == 36
    assert every["waiting"] == 3
    cluster.run(120)
    assert sum(row["waiting"] for row in levels(cluster).json["rows"]) == 2
    cluster.crash("two", power=True)
    assert levels(cluster).code == NO_ANSWER


class _Listener(TransactionListener):
    """It commits, rolls back or knows nothing, as the message's body says."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return {b"c": COMMIT, b"r": ROLLBACK}.get(message.body, UNKNOWN)

    def check_local_transaction(self, message: Any) -> LocalTransactionState:
        return UNKNOWN


def half_sent(cluster: SimCluster, *bodies: bytes, group: str = "makers") -> None:
    async def send() -> None:
        config = ProducerConfig(producer_group=group)
        producer = TransactionProducer(cluster.client(), _Listener(), config)
        await producer.start()
        for body in bodies:
            await producer.send_in_transaction(Message("T", body))
        await producer.stop()

    cluster.wait(send())
    cluster.run(1)


def shown(cluster: SimCluster) -> dict[str, float]:
    """What the only broker's metrics say of half messages."""
    samples = Samples()
    BrokerStatus(cluster.brokers["one"])._collect_delayed(samples)
    return {
        name: values[0][1]
        for name, values in samples.rows.items()
        if name.startswith("rmqha_half") and values
    }


def test_open_half_messages_are_shown_by_group_with_their_age() -> None:
    cluster = SimCluster()
    settings = {"transaction_check_interval": 10_000, "transaction_time_out": 3000}
    broker = cluster.add("one", broker=settings | {"transaction_check_max": 100})
    half_sent(cluster, b"c", b"?", b"r", b"?")
    half_sent(cluster, b"?", group="others")

    def status(above: float | None = None) -> Any:
        return say(cluster, lambda s: transaction.show_status(s, "", above))

    def by_group() -> dict[str, tuple[int, int]]:
        rows = status().json["rows"]
        return {row["producer_group"]: (row["open"], row["most_checks"]) for row in rows}

    early = status()
    assert (early.code, "does not know yet" in early.err) == (NO_ANSWER, True)
    assert broker.transaction_checks.open_transactions() is None, "before the first round"
    cluster.run(45)
    found = by_group()
    assert {group: count for group, (count, _) in found.items()} == {"makers": 2, "others": 1}
    half = broker.transaction_checks.open_transactions()
    assert (half.number, half.group, half.topic) == (3, "makers", "T")
    age_s = (cluster.hosts["one"].seams.now_ms() - half.born_ms) / 1000
    assert 45 <= age_s <= 60
    rows = status().json["rows"]
    assert all(45 <= row["oldest_s"] <= 60 and row["topic"] == "T" for row in rows)
    assert (status(40).code, status(100).code) == (FAILED, 0)
    lines = say(cluster, lambda s: transaction.show_open(s, "", "others")).out.splitlines()
    assert len(lines) == 1
    assert '"body": "?"' in lines[0]
    told = say(cluster, lambda s: transaction.show_open(s, "", "othrs"))
    assert (told.code, "groups that have some: makers, others" in told.err) == (NOT_FOUND, True)
    text = say(cluster, lambda s: transaction.show_open(s, "", None, 1), as_json=False)
    assert "makers T" in text.out
    assert "2 more: give --max" in text.err


def test_a_slave_and_a_broker_without_transactions_have_none_open() -> None:
    cluster = SimCluster()
    cluster.add("one", broker={"transaction_check_interval": 10_000})
    slave = cluster.add("b", BrokerRole.SLAVE, broker={"broker_name": "one", "broker_id": 1})
    cluster.run(25)
    assert say(cluster, lambda s: transaction.show_status(s, "")).json["rows"] == []
    assert slave.transaction_checks.open_transactions() is None
    assert cluster.brokers["one"].transaction_checks.open_transactions().number == 0


def test_a_broker_of_rocketmq_that_hides_its_op_messages_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The advice is not to create a topic of RocketMQ itself."""
    cluster = SimCluster("one")
    half_sent(cluster, b"c", b"?")
    monkeypatch.setattr(transaction, "replication_of", lambda info: {})
    said = say(cluster, lambda s: transaction.show_status(s, ""))
    assert said.code == NO_ANSWER
    assert "does not show which of its 2 last half messages are settled" in said.err
    assert "topic create" not in said.err


def test_op_messages_of_rocketmq_4_and_5_settle_half_messages() -> None:
    ops = [
        stored("O", b"3", TAGS="d"),
        stored("O", b"5,6,", TAGS="d"),
        stored("O", b"7"),
        stored("O", b"x", TAGS="d"),
    ]
    assert settled_by(ops) == {3, 5, 6}
