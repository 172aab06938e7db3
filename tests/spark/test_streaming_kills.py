"""
A stream into Parquet that is killed again and again: every message is there once.

RMQ_HA_SPARK_KILLS says how often (CI: twice), RMQ_HA_SPARK_SEED at which moments.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from live_brokers import Cluster, cluster_in, until
from streaming_query import TOPIC, start

from rmq_ha.client.messages import Message
from rmq_ha.wire.bodies import MessageQueue

KILLS = int(os.environ.get("RMQ_HA_SPARK_KILLS", "2"))
SEED = int(os.environ.get("RMQ_HA_SPARK_SEED", "7"))
PROGRAM = Path(__file__).with_name("streaming_query.py")


class Query:
    """A process that has Spark ready, and runs the query when it is told to."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._output = directory / "output.log"
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), cluster.namesrv, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output.open("ab"),
            start_new_session=True,
        )

    def go(self) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"warm\n"
        process.stdin.write(b"go\n")
        process.stdin.flush()

    def check(self) -> None:
        assert self._process.poll() is None, self._output.read_text()[-5000:]

    def kill(self) -> None:
        """With its JVM and the workers."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(20)


@contextmanager
def producing(cluster: Cluster) -> Iterator[set[bytes]]:
    """Somebody sends all the time; what was sent for certain."""
    sent: set[bytes] = set()
    is_over = threading.Event()

    def produce() -> None:
        with cluster.client() as client:
            number = 0
            while not is_over.wait(0.02):
                bodies = [b"%d" % each for each in range(number, number + 4)]
                queue = MessageQueue(TOPIC, "broker-a", number // 4 % 4)
                client.send_batch(
                    [Message(TOPIC, body) for body in bodies], queue=queue if number else None
                )
                sent.update(bodies)
                number += 4

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()


def test_every_message_is_in_the_table_once(spark: Any, tmp_path: Path) -> None:
    """Killed with its JVM while it starts, plans, reads, writes or commits."""
    with cluster_in(tmp_path, slave=False) as cluster:
        with producing(cluster) as sent:
            finished = run_and_kill(cluster, tmp_path, Random(SEED))
        last = start(spark, cluster.namesrv, str(tmp_path), 2000, availableNow=True)
        last.awaitTermination()
    print(f"{KILLS} kills in {finished} batches, {len(sent)} messages")
    table = spark.read.parquet(str(tmp_path / "table")).collect()
    assert len({(row.queueId, row.queueOffset) for row in table}) == len(table)
    assert len(table) == len(sent)
    assert {bytes(row.body) for row in table} == sent


def run_and_kill(cluster: Cluster, directory: Path, random: Random) -> int:
    """So many times as `KILLS` says; how many batches were committed."""
    queries = [Query(cluster, directory)]
    finished = 0
    try:
        for turn in range(KILLS):
            query = queries[-1]
            query.go()
            if turn + 1 < KILLS:
                queries.append(Query(cluster, directory))  # gets warm meanwhile
            wanted = finished + (random.randrange(4) if turn else 1)
            wait_for_batches(query, directory, wanted)
            time.sleep(random.uniform(0, 1.5))
            query.kill()
            finished = batches(directory)
    finally:
        for query in queries:
            query.kill()
    return finished


def wait_for_batches(query: Query, directory: Path, wanted: int) -> None:
    """So many are committed; for none more, the query may not even have begun."""

    def are_there() -> bool:
        query.check()
        return batches(directory) >= wanted

    until(are_there, 100, f"{wanted} batches")


def batches(directory: Path) -> int:
    """How many are committed."""
    folder = directory / "checkpoint" / "commits"
    return len([path for path in folder.glob("*") if path.name.isdecimal()])
