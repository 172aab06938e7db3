"""Unmodified Java and Go clients against a pair of ours: name server, SYNC_MASTER and slave."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.runs.maker import SWITCH
from tests.interop.rig import Rig

_SENDS = re.compile(r'^rmqha_sends_total\{[^}]*maker="(\w+)"[^}]*way="(\w+)"[^}]*\} (\d+)', re.M)
KERNEL = find_spec("rmq_ha_kernel") is not None
STOCK_PRODUCER = """
import sys
from rocketmq.client import Message, Producer

producer = Producer("stock")
producer.set_namesrv_addr(sys.argv[1])
producer.start()
for number in range(int(sys.argv[2])):
    message = Message("Stock")
    message.set_keys(f"key-{number}")
    message.set_tags("TagA")
    message.set_body(f"stock-{number}")
    assert producer.send_sync(message).status == 0
producer.shutdown()
"""


@pytest.fixture(scope="module")
def pair(shared_rig: Rig) -> Iterator[Any]:
    """Our name server, our SYNC_MASTER and our slave, with the kernel if it is installed."""
    before = dict(shared_rig.environment)
    if KERNEL:
        shared_rig.environment[SWITCH] = "1"
    namesrv = shared_rig.namesrv()
    port = shared_rig.ports(1)
    master = shared_rig.broker("master-sync.conf", "m", namesrv=namesrv, metricsPort=port)
    slave = shared_rig.broker("slave.conf", "s", namesrv=namesrv)
    shared_rig.environment = before
    shared_rig.wait_sync(master)
    return SimpleNamespace(rig=shared_rig, ns=namesrv, master=master, slave=slave, status=port)


def ways(pair: Any) -> dict[str, int]:
    """How many sends the master has handled by each way since its start."""
    with urllib.request.urlopen(f"http://127.0.0.1:{pair.status}/metrics", timeout=30) as answer:
        found = _SENDS.findall(answer.read().decode())
    assert {maker for maker, _, _ in found} == {"native" if KERNEL else "pure"}
    return {way: int(count) for _, way, count in found}


@contextmanager
def in_runs(pair: Any, count: int) -> Iterator[None]:
    """
    Check that of so many sends none is unusual to the maker of runs.

    The first sends to a topic come before the topic exists, and one at the end of a log file is
    laid out alone.
    """
    before = ways(pair)
    yield

    def are_counted() -> bool:  # the page of metrics is kept for half a second
        return sum(ways(pair).values()) >= sum(before.values()) + count

    pair.rig.until(are_counted, 30, f"{count} sends in the metrics", pair.master)
    sends = {way: total - before.get(way, 0) for way, total in ways(pair).items()}
    assert sends.pop("run") >= count - 20, sends
    assert not {way for way, total in sends.items() if total} - {"queue", "limits"}, sends


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
    with in_runs(pair, 200):
        produce(pair, f"Plain-{mode}", 200, "--mode", mode, "--inflight", 8)
    consume(pair, f"Plain-{mode}", f"g-{mode}", 200)


def test_the_python_client_on_pypi(pair: Any) -> None:
    """
    All sends of the stock Python client are in runs, and Java reads its messages.

    The package `rocketmq` 0.4.4 on PyPI contains RocketMQ's C++ client for Linux on x86_64.
    `rocketmq-client-python` contains none. `rocketmq-client`, `rocketmqpy` and their like speak
    RocketMQ 5's gRPC, and `rocketmq-sdk` speaks AMQP.
    """
    pytest.importorskip("rocketmq", reason="the package rocketmq is not installed")
    produce(pair, "Stock", 1)  # a send that makes a topic is in no run
    with in_runs(pair, 50):
        command = [sys.executable, "-c", STOCK_PRODUCER, pair.ns, "50"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    consume(pair, "Stock", "g-stock", 51)


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
    with in_runs(pair, 100):
        pair.rig.peer("go", "both", "--namesrv", pair.ns, "--topic", "Go", "--count", 100)


def test_the_load_generator(pair: Any) -> None:
    """Its JSON has white space between tokens."""
    load = ("load", "send", "--addr", pair.master.address, "--create", "--topic", "Load")
    with in_runs(pair, 500):
        pair.rig.peer(*load, "--conns", 2, "--inflight", 8, "--count", 500)
