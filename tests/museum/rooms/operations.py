"""What operators see and set."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.testing.cluster import StoreNode
from tests.interop.rig import Server
from tests.interop.wire import Wire
from tests.museum.exhibit import Fact, Room
from tests.museum.raw_peers import RawSlave
from tests.museum.sides import SLAVE, Side, create, end_of, lines_with, paused, requests, send
from tests.sim_kit.pair import PairOptions
from tests.sim_kit.simcluster import SimCluster

from .acks import in_sync

room = Room("What operators see and set")
MASTER = "master-async.conf"
SYSTEM_BUSY = 2


@room.exhibit("A56: RMQ#3681, RMQ#3746")
def no_command_for_the_pairs_state(side: Side) -> Fact:
    """No command tells a script whether the slave is in sync."""
    master = side.broker(**side.metered())
    create(master, "T")
    send(master, "T", 1)
    with RawSlave(master) as slave:
        in_sync(slave, master)
        with Wire(master.address) as wire:
            table = wire.table(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
        page = side.page(master, "metrics")
    told = [name for name in table if "slave" in name.lower() or "replica" in name.lower()]
    told += re.findall(r"\n(rmqha_replication_lag_\w+)\{", page)
    return Fact(not told, f"{len(told)} figures on its slave: {', '.join(told)[:80] or 'none'}")


@room.exhibit("A57: rocketmq-exporter#18, rocketmq-exporter#36", not_java="has no exporter itself")
def slave_without_metrics(side: Side) -> Fact:
    """Slaves have no metrics, because the exporter asks only masters."""
    port = side.rig.ports(1)
    slave = side.broker(SLAVE, haMasterAddress=f"127.0.0.1:{port}", **side.metered())
    lines = lines_with(side.page(slave, "metrics"), r'^\w+\{.*broker_id="1"')
    return Fact(not lines, f"{len(lines)} series of a slave")


@room.exhibit("found while specifying 4.9.7", quick_java=True)
def value_that_does_not_parse(side: Side) -> Fact:
    """A configuration value that does not parse is ignored without a warning."""
    server = side.broker(MASTER, wait=False, slaveTimeout="3s")
    side.until(
        lambda: server.process.poll() is not None or "READY {" in server.output.read_text(),
        60,
        "it starts or ends",
    )
    started = server.process.poll() is None
    told = "starts" if started else lines_with(side.log_of(server), "slaveTimeout")[0]
    return Fact(started, told)


@room.exhibit("found in this project's trials")
def small_transfer_batches(side: Side) -> Fact:
    """A small haTransferBatchSize has no effect."""
    master = side.broker(haTransferBatchSize=4096)
    create(master, "T")
    with RawSlave(master) as slave:
        send(master, "T", 1)
        slave.report(end_of(master))
        send(master, "T", 10, body=bytes(50000), properties="WAIT\x01false")
        slave.read(1.5)
        largest = max(slave.sizes)
    return Fact(largest > 4096, f"frames of up to {largest} bytes with haTransferBatchSize=4096")


@room.exhibit("N4")
def busy_when_processors_are_short(side: Side) -> Fact:
    """When processor time is short, the broker refuses producers that wait for each answer."""
    server = side.broker(MASTER, waitTimeMillsInSendQueue=200)
    create(server, "T")
    found: Counter[int] = Counter()
    ends = time.monotonic() + 6
    threads = [threading.Thread(target=_send_until, args=(server, ends, found)) for _ in range(8)]
    for thread in threads:
        thread.start()
    while time.monotonic() < ends - 0.5:
        with paused(server):
            time.sleep(0.3)
        time.sleep(0.02)
    for thread in threads:
        thread.join(20)
    busy, total = found[SYSTEM_BUSY], found.total()
    return Fact(busy > 0.02 * total, f"{busy} of {total} sends of 8 sequential producers refused")


def _send_until(server: Server, ends: float, found: Counter[int]) -> None:
    with contextlib.suppress(OSError), Wire(server.address, 20) as wire:
        while time.monotonic() < ends:
            (answer,) = wire.exchange(requests("T", 1, body=bytes(20000)))
            found[answer.code] += 1


@room.exhibit("A60: RMQ#9677", not_java="a process holds one broker in 4.9")
def brokers_in_one_process_share_state(side: Side) -> Fact:
    """Brokers in one process share static state: each counts the messages of the others."""
    one, other = SimCluster(1, PairOptions()), SimCluster(2, PairOptions())
    for cluster in (one, other):
        cluster.start()
    producer = one.producer(1, 0.05)
    producer.attempts = one.attempts
    producer.start()
    for cluster in (one, other):
        cluster.world.clock.run_for(5)
    sent = len(one.attempts)
    counts = [puts_of(cluster.master) for cluster in (one, other)]
    seen = f"{sent} sent to one broker; it counts {counts[0]}, the other in its process {counts[1]}"
    return Fact(counts[1] > 0 or not counts[0], seen)


def puts_of(node: StoreNode) -> int:
    return int(node.store.runtime_info()["putMessageTimesTotal"])
