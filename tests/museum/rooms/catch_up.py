"""Slaves that catch up, or seem to."""

from __future__ import annotations

import re
import shutil
import time

from rmq_ha.base.wire.codes import RequestCode
from tests.interop.rig import Server
from tests.interop.wire import Wire, what_is_wrong
from tests.museum.exhibit import Fact, Room
from tests.museum.raw_peers import RawSlave
from tests.museum.sides import (
    FLUSH_SLAVE_TIMEOUT,
    SEND_OK,
    SLAVE,
    MuseumPair,
    Sending,
    Side,
    cpu_seconds,
    create,
    end_of,
    fill,
    lines_with,
    missing_on,
    port_of,
    readable,
    send,
)

room = Room("Catch-up and divergence")
KILOBYTE = bytes(1000)


def acknowledged_from_now(pair: MuseumPair, count: int = 150, seconds: float = 20) -> Fact:
    """Send until so many were acknowledged; how many the slave cannot serve. None is no pair."""
    accepted: dict[int, bytes] = {}
    deadline = time.monotonic() + seconds
    while len(accepted) < count and time.monotonic() < deadline:
        body = f"new {time.monotonic_ns()} ".encode() * 23
        for answer in send(pair.master, "T", 20, body=body):
            if answer.code == SEND_OK:
                accepted[int((answer.ext or {})["queueOffset"])] = body
        time.sleep(0.1)
    missing = missing_on(pair.slave, "T", accepted)
    seen = f"{missing} of {len(accepted)} new SEND_OK not readable on the slave"
    return Fact(missing > 0 or not accepted, seen)


@room.exhibit("F1, A17: RMQ#3388, RMQ#3161, ali#69")
def diverged_after_a_fail_over(side: Side) -> Fact:
    """
    The old master comes back as a slave with messages that only it has: it counts as caught up,
    and new messages with SEND_OK cannot be read there.
    """
    pair = side.pair()
    create(pair.master, "T")
    send(pair.master, "T", 50)
    pair.copy_tables()
    pair.slave.stop()
    send(pair.master, "T", 30, body=KILOBYTE)
    pair.master.kill()
    pair.swap()
    return acknowledged_from_now(pair)


@room.exhibit("F1, A17: RMQ#3388")
def diverged_after_a_lost_tail(side: Side) -> Fact:
    """A master loses unsynced messages that its slave has: the two never agree again."""
    pair = side.pair()
    create(pair.master, "T")
    send(pair.master, "T", 50)
    pair.copy_tables()
    earlier = pair.master.directory / "earlier"
    shutil.copytree(pair.master.store, earlier)
    send(pair.master, "T", 30, body=KILOBYTE)
    pair.wait_same()
    pair.master.kill()
    shutil.rmtree(pair.master.store)
    earlier.rename(pair.master.store)
    pair.restart_master()
    return acknowledged_from_now(pair)


@room.exhibit("A16: RMQ#3661, RMQ#9580", kept="as 4.9; copy the master's files first for all")
def fresh_slave_gets_the_last_file(side: Side) -> Fact:
    """An empty slave copies only the last file of the log, and no line says so."""
    namesrv = side.namesrv()
    master = side.broker(namesrv=namesrv)
    create(master, "T")
    fill(master, "T", 3 << 20)
    slave = side.broker(SLAVE, namesrv=namesrv, haMasterAddress=f"127.0.0.1:{port_of(master) + 1}")
    side.until(lambda: end_of(slave) == end_of(master), 30, "the slave caught up")
    total = len(readable(master, "T"))
    side.until(lambda: readable(slave, "T"), 30, "the slave serves something")
    found = len(readable(slave, "T"))
    return Fact(found < total, f"{found} of {total} messages on the slave that has caught up")


@room.exhibit("A17: RMQ#3388, ali#69")
def slave_asks_for_what_is_deleted(side: Side) -> Fact:
    """A slave that needs deleted files gets only heartbeats, and each send waits for it."""
    master = side.broker(slaveTimeout=1000)
    create(master, "T")
    fill(master, "T", 3 << 20)
    master.stop()
    min((master.store / "commitlog").iterdir()).unlink()
    master = side.again(master, slaveTimeout=1000)
    with RawSlave(master) as slave:
        slave.report(100)
        slave.read(1)
        pending = Sending(master, "T", 1)
        code = next(iter(pending.codes()))
    return Fact(code == FLUSH_SLAVE_TIMEOUT, f"code {code} after {pending.seconds():.2f} s")


@room.exhibit("A18: RMQ#323")
def negative_lag(side: Side) -> Fact:
    """ "slave falls behind -8245006252570743168 bytes": the reported lag makes no sense."""
    master = side.broker(slaveTimeout=500, **side.metered())
    create(master, "T")
    send(master, "T", 1)
    with RawSlave(master) as stranger:
        stranger.send(b"GET / HT")
        stranger.read(0.5)
        lags = lags_told(side, master)
    return Fact(min(lags, default=0) < 0, f"told: {[f'{lag:.0f}' for lag in lags] or 'no slave'}")


def lags_told(side: Side, master: Server) -> list[float]:
    """How far slaves are behind, says the master: Java in a line every minute."""
    if not side.java:
        pattern, text = r"rmqha_replication_\w+_bytes\{\S* (\S+)", side.page(master, "metrics")
        assert "rmqha_replication_slaves{" in text
    else:
        pattern = r"[Ff]all behind[^:]*: (-?\d+)"
        side.until(lambda: lines_with(side.log_of(master), pattern), 80, "a line on the lag")
        text = side.log_of(master)
    return [float(lag) for lag in re.findall(pattern, text)]


@room.exhibit("A19: RMQ#2476")
def spins_on_a_dead_link(side: Side) -> Fact:
    """A slave whose master is gone spins at 100 % of a processor."""
    pair = side.pair()
    pair.master.kill()
    time.sleep(2)
    used = cpu_seconds(pair.slave, 5)
    return Fact(used > 2.5, f"{used:.2f} s of processor time in 5 s")


@room.exhibit("A20: RMQ#9002")
def messages_cut_by_frames(side: Side) -> Fact:
    """Replication frames end in the middle of messages: the slave logs errors all the time."""
    pair = side.pair(haTransferBatchSize=1000, haTransferBatchMax=1)
    create(pair.master, "T")
    pair.copy_tables()
    before = len(lines_with(side.log_of(pair.slave), r"ERROR|#error"))
    for _ in range(50):
        send(pair.master, "T", 1, body=bytes(3500))
    pair.wait_same()
    side.until(lambda: len(readable(pair.slave, "T")) == 50, 20, "50 messages on the slave")
    errors = len(lines_with(side.log_of(pair.slave), r"ERROR|#error")) - before
    return Fact(errors > 0, f"{errors} lines of errors for 50 messages of 3,500 bytes")


@room.exhibit("A21: RMQ#467, RMQ#405")
def slave_killed_in_a_frame(side: Side) -> Fact:
    """After kill -9 of a slave under load one message is missing on the slave."""
    pair = side.pair(slaveTimeout=8000)
    with pair.load("killed", rate=1000) as load:
        side.until(lambda: len(load.accepted) > 300, 20, "SEND_OK")
        pair.slave.kill()
        side.until(lambda: load.codes[11] > 100, 20, "sends without a slave")
        pair.restart_slave()
    pair.copy_tables()
    pair.wait_same()
    deadline = time.monotonic() + 10
    while wrong := what_is_wrong(pair.slave.address, load, load.stored):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return Fact(bool(wrong), wrong or f"all {len(load.stored)} are on the slave")


@room.exhibit("A22: RMQ#1153")
def slave_without_checkpoint(side: Side) -> Fact:
    """A slave's checkpoint has no time of a message: after a crash it reads the whole log."""
    pair = side.pair()
    create(pair.master, "T")
    fill(pair.master, "T", 2 << 20)
    pair.wait_same()
    time.sleep(2)  # a flush
    pair.slave.stop()
    time_of_log = int.from_bytes((pair.slave.store / "checkpoint").read_bytes()[:8], "big")
    return Fact(time_of_log == 0, f"time of the last message in it: {time_of_log}")


@room.exhibit("F5, A24: ali#359, ali#351, ali#354, ali#406")
def topic_made_again(side: Side) -> Fact:
    """A topic is deleted and made again: the slave serves old messages at the new offsets."""
    pair = side.pair()
    create(pair.master, "T")
    send(pair.master, "T", 50, body=b"old")
    pair.copy_tables()
    with Wire(pair.master.address) as wire:
        wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    pair.copy_tables()
    create(pair.master, "T")
    pair.copy_tables()
    answers = send(pair.master, "T", 20, body=b"new")
    places = [int((answer.ext or {})["queueOffset"]) for answer in answers if not answer.code]
    missing = missing_on(pair.slave, "T", dict.fromkeys(places, b"new"))
    return Fact(missing > 0, f"{missing} of {len(places)} new SEND_OK not readable on the slave")
