"""Delayed messages and transactions."""

from __future__ import annotations

import time
from collections import Counter

from tests.interop.rig import Server
from tests.interop.wire_producer import WireProducer
from tests.museum.exhibit import Fact, Room
from tests.museum.sides import Side, create, readable, send

room = Room("Delayed messages and transactions")
MASTER = "master-async.conf"
QUICK = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}


def keys(server: Server) -> Counter[str]:
    return Counter(record.properties.get("UNIQ_KEY", "") for record in readable(server, "T"))


def settled(server: Server, count: int, seconds: float = 10) -> Counter[str]:
    """What is there a second after enough is there, or after so long in vain."""
    deadline = time.monotonic() + seconds
    while sum(keys(server).values()) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    return keys(server)


@room.exhibit("A39: RMQ#1934, RMQ#2259, RMQ#2518, RMQ#1869, RMQ#3358, RMQ#3473")
def delayed_again_after_a_crash(side: Side) -> Fact:
    """After a crash many delayed messages are delivered a second time."""
    server = side.broker(MASTER)
    create(server, "T")
    for number in range(50):
        send(server, "T", 1, properties=f"UNIQ_KEY\x01{number:032d}\x02DELAY\x011")
    assert len(settled(server, 50)) == 50
    server.kill()
    server = side.again(server, MASTER)
    time.sleep(4)
    found = settled(server, 50)
    twice = sum(count > 1 for count in found.values())
    return Fact(twice > 0 or len(found) < 50, f"{twice} of 50 twice, {50 - len(found)} not at all")


@room.exhibit("found while specifying 4.9.7")
def level_that_is_gone(side: Side) -> Fact:
    """A level is removed from messageDelayLevel: messages that wait in it are never delivered."""
    server = side.broker(MASTER, messageDelayLevel="1s 2s 5s")
    create(server, "T")
    send(server, "T", 10, properties="DELAY\x013")
    server.kill()
    server = side.again(server, MASTER, messageDelayLevel="1s 2s")
    found = settled(server, 10, 8).total()
    return Fact(found < 10, f"{found} of 10 delivered after 8 s and more, 5 s were promised")


@room.exhibit("F4")
def late_end_commits_twice(side: Side) -> Fact:
    """The answer to a check commits a transaction, and its late END commits it a second time."""
    server = side.broker(MASTER, **QUICK)
    create(server, "T")
    names = [f"{number:032d}" for number in range(10)]
    with WireProducer(server, "tx") as producer:
        places = producer.leave_open("T", *names)
        producer.commit_what_is_asked(lambda: set(keys(server)) >= set(names))
        for place in places:
            producer.commit(place)
        time.sleep(1)
    twice = sum(count > 1 for count in keys(server).values())
    return Fact(twice > 0, f"{twice} of 10 are there twice")


@room.exhibit("found while specifying 4.9.7")
def half_message_with_a_delay(side: Side) -> Fact:
    """A half message with a delay level is answered SEND_OK, committed, and lost."""
    server = side.broker(MASTER, **QUICK)
    create(server, "T")
    with WireProducer(server, "tx") as producer:
        places = producer.leave_open("T", f"{1:032d}", DELAY="1")
        producer.commit(places[0])
        found = settled(server, 1, 6).total()
    return Fact(found != 1, f"{found} of 1 committed reaches consumers")
