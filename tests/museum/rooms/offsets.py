"""Offsets, topics and groups."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.lookup.requests import pull_request
from tests.interop.pairs import max_offsets
from tests.interop.rig import Server
from tests.interop.wire import Refused, Wire
from tests.museum.exhibit import Fact, Room
from tests.museum.sides import Side, create, readable, requests, send

from .connections import masters_in_route

room = Room("Offsets, topics and groups")
OFFSET_MOVED = 21


def committed(server: Server, group: str = "g") -> int:
    """What a broker answers a group that asks where to go on."""
    with Wire(server.address) as wire:
        try:
            answer = wire.call(
                RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic="T", queueId=0
            )
        except Refused:
            return -1
    return int((answer.ext or {})["offset"])


@room.exhibit(
    "A30: RMQ#1094, RMQ#1440, RMQ#2513, ali#28, ali#373",
    kept="a slave copies its master; clients commit what they hold again",
)
def old_offsets_come_back(side: Side) -> Fact:
    """The master comes back with old offsets, which overwrite the slave's: messages come again."""
    pair = side.pair()
    create(pair.master, "T")
    send(pair.master, "T", 20)
    with Wire(pair.master.address) as wire:
        wire.create_group("g")
        wire.commit("g", "T", 0, 5)
    pair.copy_tables()
    pair.master.stop()
    with Wire(pair.slave.address) as wire:
        wire.commit("g", "T", 0, 15)
    pair.restart_master()
    pair.wait_ok()
    pair.copy_tables()
    time.sleep(1)
    found = committed(pair.slave), committed(pair.master)
    return Fact(
        found[0] < 15, f"committed 15 on the slave; then slave {found[0]}, master {found[1]}"
    )


@room.exhibit("A32: ali#395, ali#210, RMQ#2181")
def lagging_slave_moves_offsets(side: Side) -> Fact:
    """A slave that is behind answers OFFSET_MOVED: consumers go back to the beginning."""
    pair = side.pair()
    create(pair.master, "T")
    send(pair.master, "T", 20)
    pair.copy_tables()
    pair.wait_same()
    with Wire(pair.slave.address) as wire:
        (answer,) = wire.exchange([pull_request("museum", "T", 0, 5000)])
    following = (answer.ext or {}).get("nextBeginOffset")
    moved = answer.code == OFFSET_MOVED or following != "5000"
    return Fact(moved, f"code {answer.code}, 5000 was asked for, {following} is to be asked next")


@room.exhibit("A33: RMQ#8539, RMQ#6344, RMQ#6345")
def promoted_slave_numbers_wrongly(side: Side) -> Fact:
    """A promoted slave goes on with other queue offsets: messages in the gap cannot be read."""
    pair = side.pair()
    with pair.load("before", rate=500) as load:
        side.until(lambda: len(load.accepted) > 200, 20, "SEND_OK")
        pair.copy_tables()
        pair.master.kill()
    pair.promote()
    before = max_offsets(pair.master, load.topic)
    answers = [send(pair.master, load.topic, 1, queue_id=number)[0] for number in range(8)]
    after = [int((answer.ext or {})["queueOffset"]) for answer in answers]
    known = {sent.queue_id: 0 for sent in load.accepted}
    for sent in load.accepted:
        known[sent.queue_id] = max(known[sent.queue_id], sent.queue_offset + 1)
    wrong = sum(after[queue] != before[queue] or after[queue] < end for queue, end in known.items())
    return Fact(wrong > 0, f"{wrong} of {len(known)} queues numbered from elsewhere")


@room.exhibit("found in trials of 4.9.7")
def group_ahead_of_a_promoted_slave_skips(side: Side) -> Fact:
    """A group consumed messages that the promoted slave lacks: it skips as many new ones."""
    pair = side.pair()
    create(pair.master, "T")
    send(pair.master, "T", 20)
    with Wire(pair.master.address) as wire:
        wire.create_group("g")
    pair.copy_tables()
    pair.wait_same()
    pair.master.kill()
    with Wire(pair.slave.address) as wire:  # its member read 40 at the old master
        wire.commit("g", "T", 0, 40)
    pair.promote()
    send(pair.master, "T", 30)
    found, start = 0, 40
    with Wire(pair.master.address) as wire:
        while start < 50:
            (answer,) = wire.exchange([pull_request("g", "T", 0, start)])
            following = int((answer.ext or {})["nextBeginOffset"])
            found += following - start if answer.code != OFFSET_MOVED else 0
            start = following
    return Fact(found < 30, f"{found} of 30 new messages")


@room.exhibit("RMQ#3953")
def retries_in_queues_that_nobody_may_read(side: Side) -> Fact:
    """A group's retryQueueNums grows: retries go into queues of %RETRY% that nobody may read."""
    master = side.broker()
    create(master, "T")
    send(master, "T", 21)
    places = [record.physical_offset for record in readable(master, "T")]
    with Wire(master.address) as wire:
        wire.create_group("g")
        send_back(wire, places[0])  # makes the retry topic, with one queue
        body = fastjson.encode({"groupName": "g", "retryQueueNums": 4})
        wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        for place in places[1:]:
            send_back(wire, place)
        queues = range(4)
        side.until(
            lambda: sum(wire.max_offset("%RETRY%g", queue) for queue in queues) == len(places),
            10,
            "the retries, one second later",
        )
    found = sum(len(readable(master, "%RETRY%g", queue)) for queue in queues)
    lost = len(places) - found
    return Fact(lost > 0, f"{lost} of {len(places)} retries lie where nobody may read")


def send_back(wire: Wire, place: int) -> None:
    """The group `g` could not consume a message of the log; it comes again after a second."""
    wire.call(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        group="g", originTopic="T", offset=place, delayLevel=1, originMsgId="", unitMode="false",
        maxReconsumeTimes=16,
    )  # fmt: skip


@room.exhibit("RMQ#5445, RMQ#5752, RMQ#951")
def reset_to_the_time_of_a_batch(side: Side) -> Fact:
    """A group is reset to a time that a whole batch shares: half of the batch is skipped."""
    master = side.broker()
    create(master, "T")
    batch, members = requests("T", 1)[0], [(0, b"museum", "")] * 100
    batch.code, batch.body = RequestCode.SEND_BATCH_MESSAGE, encode_batch(members)
    batch.ext = {**(batch.ext or {}), "m": "true"}
    with Wire(master.address) as wire:
        for request in (requests("T", 1)[0], batch, requests("T", 1)[0]):
            time.sleep(0.02)
            wire.exchange([request])
        records = wire.pull_all("T", 0)
        stamp = records[1].store_timestamp
        shared = sum(record.store_timestamp == stamp for record in records)
        answer = wire.call(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="T", queueId=0, timestamp=stamp
        )
    begin = int((answer.ext or {})["offset"])
    seen = f"offset {begin}: {begin - 1} of {shared} messages of that time skipped"
    return Fact(begin > 1, seen)


@room.exhibit("RMQ#288, RMQ#7884")
def deleted_topic_stays_in_the_route(side: Side) -> Fact:
    """A topic is deleted at one of two brokers: clients are still sent there, and refused."""
    namesrv = side.namesrv()
    servers = [side.broker(brokerName=name, namesrv=namesrv) for name in ("left", "stays")]
    for server in servers:
        create(server, "T")
    side.until(lambda: len(masters_in_route(namesrv, "T")) == len(servers), 20, "the route")
    with Wire(servers[0].address) as wire:
        wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        # makes it register all its topics now, not after up to 30 s
        wire.call(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=6\n")
    deadline = time.monotonic() + 2
    while len(found := masters_in_route(namesrv, "T")) == 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    stays_there = servers[0].address in found
    return Fact(stays_there, f"{len(found)} brokers in the route, 1 has the topic")


@room.exhibit("A25: RMQ#7263, RMQ#7264, RMQ#7273")
def deleted_group_stays_on_the_slave(side: Side) -> Fact:
    """A group that is deleted on the master stays on its slave."""
    pair = side.pair()
    with Wire(pair.master.address) as wire:
        wire.create_group("g")
        pair.copy_tables()
        wire.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g")
    pair.copy_tables()
    return stays(lambda: pair.slave_config("subscriptionGroup.json")["subscriptionGroupTable"], "g")


@room.exhibit("A25: RMQ#7263")
def deleted_topic_stays_on_the_slave(side: Side) -> Fact:
    """A topic that is deleted on the master stays on its slave."""
    pair = side.pair()
    create(pair.master, "T")
    pair.copy_tables()
    with Wire(pair.master.address) as wire:
        wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    pair.copy_tables()
    return stays(lambda: pair.slave_config("topics.json")["topicConfigTable"], "T")


def stays(table: Callable[[], dict[str, object]], name: str) -> Fact:
    """A slave copies one table after the other, that of the groups last."""
    deadline = time.monotonic() + 5
    while name in table() and time.monotonic() < deadline:
        time.sleep(0.1)
    told = "still there" if name in table() else "gone"
    return Fact(told != "gone", f"{told} on the slave after its next copy")


@room.exhibit(
    "A35: RMQ#9984, RMQ#9804, RMQ#9826, RMQ#9879", kept="a slave copies its master; the log stays"
)
def master_without_tables_empties_its_slave(side: Side) -> Fact:
    """A master that lost its tables takes them away from its slave: no copy is left."""
    pair = side.pair()
    create(pair.master, "T")
    send(pair.master, "T", 20)
    pair.copy_tables()
    pair.master.stop()
    for path in (pair.master.store / "config").glob("topics.json*"):
        path.unlink()
    pair.restart_master()
    pair.wait_ok()
    pair.copy_tables()
    found = len(readable(pair.slave, "T"))
    return Fact(found < 20, f"{found} of 20 messages can be read from the slave")


def know_topics(side: Side, name: str, topics: list[str]) -> int:
    """Give a broker that was never started a table of topics; its size in bytes."""
    folder = side.rig.directory / name / "store" / "config"
    folder.mkdir(parents=True)
    row = {
        "order": False, "perm": 6, "readQueueNums": 1, "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0, "writeQueueNums": 1,
    }  # fmt: skip
    table = {topic: {**row, "topicName": topic} for topic in topics}
    data = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}
    return (folder / "topics.json").write_text(json.dumps(data))


@room.exhibit(
    "A36: RMQ#5296, RMQ#9467", kept="one frame of 4.9 has 16 MiB; `compressedRegister=true` fits"
)
def tables_above_the_frame_limit(side: Side) -> Fact:
    """60,000 topics with long names exceed the frame of 16 MiB: the broker cannot register."""
    namesrv = side.namesrv()
    names = [f"topic-{number}".ljust(120, "x") for number in range(60000)]
    size = know_topics(side, "many", names)
    side.start("master-async.conf", "many", namesrv=namesrv)
    deadline = time.monotonic() + 12
    while not masters_in_route(namesrv, names[-1]) and time.monotonic() < deadline:
        time.sleep(0.3)
    known = bool(masters_in_route(namesrv, names[-1]))
    told = "has" if known else "has no"
    return Fact(not known, f"topics.json of {size >> 20} MiB: the last one {told} route after 12 s")


@room.exhibit("N5")
def each_topic_writes_the_whole_table(side: Side) -> Fact:
    """Each topic that is created writes the whole table: 2,000 of them take minutes."""
    size = know_topics(side, "many", [f"topic-{number}" for number in range(2000)])
    server = side.start("master-async.conf", "many")
    before, began = written(server), time.monotonic()

    def caller(number: int) -> None:
        with Wire(server.address, 60) as wire:
            for serial in range(10):
                wire.create_topic(f"new-{number}-{serial}")

    with ThreadPoolExecutor(16) as callers:
        list(callers.map(caller, range(16)))
    seconds = time.monotonic() - began
    tables = (written(server) - before) / size
    seen = f"160 by 16 callers: {seconds:.1f} s, the table of 2,000 written {tables:.0f} times"
    return Fact(tables > 48, seen)


def written(server: Server) -> int:
    """Bytes that a process gave to write calls."""
    return int(psutil.Process(server.process.pid).io_counters().write_chars)
