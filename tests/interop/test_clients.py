"""Unmodified Java and Go clients against a pair of ours: name server, SYNC_MASTER and slave."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.interop.rig import Rig


@pytest.fixture(scope="module")
def pair(shared_rig: Rig) -> Iterator[Any]:
    """Our name server, our SYNC_MASTER and our slave."""
    namesrv = shared_rig.namesrv()
    master = shared_rig.broker("master-sync.conf", "m", namesrv=namesrv)
    slave = shared_rig.broker("slave.conf", "s", namesrv=namesrv)
    shared_rig.wait_sync(master)
    return SimpleNamespace(rig=shared_rig, ns=namesrv, master=master, slave=slave)


def produce(pair: Any, topic: str, count: int, *more: Any) -> dict[str, Any]:
    return pair.rig.peer(
        "produce", "--namesrv", pair.ns, "--topic", topic, "--count", count, *more
    )[-1]


def consume(pair: Any, topic: str, group: str, count: int, *more: Any) -> dict[str, Any]:
    return pair.rig.peer(
        "consume",
        "--namesrv",
        pair.ns,
        "--topic",
        topic,
        "--group",
        group,
        "--count",
        count,
        "--linger",
        1,
        *more,
    )[-1]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_java_producer_and_consumer(pair: Any, mode: str) -> None:
    """Every message of a Java producer is SEND_OK and reaches a Java push consumer once."""
    produce(pair, f"Plain-{mode}", 200, "--mode", mode, "--inflight", 8)
    consume(pair, f"Plain-{mode}", f"g-{mode}", 200)


def test_oneway(pair: Any) -> None:
    """One-way sends arrive although nobody answers them."""
    produce(pair, "Oneway", 1)
    produce(pair, "Oneway", 50, "--mode", "oneway", "--start", 1, "--rate", 20)
    offsets = ["offsets", "--namesrv", pair.ns, "--topic", "Oneway"]
    # What is still in the process when it ends goes with it: on a busy machine that was what it
    # had sent for 0.3 s, so it sends slowly.
    pair.rig.until(
        lambda: pair.rig.peer(*offsets)[-1]["sumMaxAtMasters"] > 40,
        20,
        "the one-way messages",
        pair.master,
    )


def test_batch(pair: Any) -> None:
    """Java batches are stored as single messages."""
    produce(pair, "Batch", 100, "--batch", 10)
    consume(pair, "Batch", "g-batch", 100)


def test_ordered(pair: Any) -> None:
    """An orderly consumer sees each shard in order."""
    produce(pair, "Ordered", 80, "--ordered", 4)
    pair.rig.peer(
        "orderly",
        "--namesrv",
        pair.ns,
        "--topic",
        "Ordered",
        "--group",
        "g-ordered",
        "--count",
        80,
        "--linger",
        1,
    )


def test_tags(pair: Any) -> None:
    """A tag subscription gets its tags and nothing else."""
    produce(pair, "Tagged", 60, "--tags", "A,B,C")
    consume(pair, "Tagged", "g-tag-a", 20, "--expr", "A")
    consume(pair, "Tagged", "g-tag-bc", 40, "--expr", "B || C")


def test_delayed(pair: Any) -> None:
    """A message of delay level 1 (1 s) is delivered, once."""
    produce(pair, "Delayed", 20, "--delay", 1)
    consume(pair, "Delayed", "g-delayed", 20)


def test_retry(pair: Any) -> None:
    """A message that the consumer refuses comes again through the retry topic."""
    produce(pair, "Retried", 3)
    consume(pair, "Retried", "g-retried", 3, "--reconsume", 1, "--timeout", 60)


def test_transactions(pair: Any) -> None:
    """Committed half messages are delivered, rolled-back ones are not."""
    for decision in ("rollback", "commit"):
        pair.rig.peer(
            "txn", "--namesrv", pair.ns, "--topic", "Txn", "--count", 3, "--decision", decision
        )
    consume(pair, "Txn", "g-txn", 3)


def test_broadcast_and_second_run(pair: Any) -> None:
    """A broadcast consumer gets all; a group that has consumed all gets nothing again."""
    produce(pair, "Twice", 40)
    consume(pair, "Twice", "g-broadcast", 40, "--model", "broadcast")
    consume(pair, "Twice", "g-twice", 40)
    again = pair.rig.peer(
        "consume",
        "--namesrv",
        pair.ns,
        "--topic",
        "Twice",
        "--group",
        "g-twice",
        "--count",
        1,
        "--timeout",
        4,
        check=False,
    )[-1]
    assert again.get("received", again.get("count", 0)) == 0, again


def test_pull_and_offsets(pair: Any) -> None:
    """Pull consumer, long polling, an illegal offset, and the offsets that brokers report."""
    produce(pair, "Pulled", 40)
    pull = ["pull", "--namesrv", pair.ns, "--topic", "Pulled", "--queue", 1]
    pair.rig.peer(*pull, "--offset", 0, "--follow")
    pair.rig.peer(*pull, "--offset", 999, "--expect", "OFFSET_ILLEGAL")
    end = pair.rig.peer(*pull, "--offset", 0, "--follow")[-1]
    pair.rig.peer("offsets", "--namesrv", pair.ns, "--topic", "Pulled", "--group", "g-pulled")
    assert end


def test_query(pair: Any) -> None:
    """Messages are found by key and by id; an unknown key finds nothing."""
    lines = produce_lines(pair, "Queried", 20, "--keys", "k")
    query = ["query", "--namesrv", pair.ns, "--topic", "Queried"]
    pair.rig.peer(*query, "--key", "k-7", "--expect", 1)
    sent = next(line for line in lines if "msgId" in line)
    pair.rig.peer(*query, "--id", sent["offsetMsgId"], "--expect", 1)
    pair.rig.peer(*query, "--key", "none", "--expect", 0, check=False)


def produce_lines(pair: Any, topic: str, count: int, *more: Any) -> list[Any]:
    return pair.rig.peer(
        "produce", "--namesrv", pair.ns, "--topic", topic, "--count", count, "--verbose", *more
    )


def test_read_from_the_slave(pair: Any) -> None:
    """Everything that was SEND_OK can be read from the slave, in the same places."""
    produce(pair, "OnSlave", 100)
    pair.rig.wait_same(pair.slave, pair.master)
    pair.rig.until(
        lambda: pair.rig.peer(
            "load",
            "pull",
            "--addr",
            pair.slave.address,
            "--topic",
            "OnSlave",
            "--queues",
            "0-3",
            "--verify",
            "--expect",
            100,
            check=False,
        )[-1].get("ok"),
        20,
        "the topic on the slave",
    )


def test_go_client(pair: Any) -> None:
    """The Go client sends and consumes."""
    pair.rig.peer("go", "both", "--namesrv", pair.ns, "--topic", "Go", "--count", 100)
