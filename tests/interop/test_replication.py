"""
Ours and Java's brokers as each other's slaves, on real sockets; files compared byte by byte.

One pair for each mix; every test begins with both in step and may leave them as it likes.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.wire.codes import RequestCode
from tests.interop.pairs import (
    FILE_SIZE,
    MIXES,
    Pair,
    Visit,
    assert_same_logs,
    log_files,
    max_offsets,
)
from tests.interop.rig import PEER, rig_in
from tests.interop.wire import Refused, Wire, log_end


@pytest.fixture(scope="module", params=[pytest.param(mix[1:], id=mix[0]) for mix in MIXES])
def pair_of_mix(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair for all tests of one mix."""
    java_master, java_slave = request.param
    with rig_in(tmp_path_factory.mktemp("pair")) as rig:
        yield Pair(rig, java_master, java_slave)


@pytest.fixture
def pair(pair_of_mix: Pair) -> Pair:
    """The pair, running and in step."""
    pair_of_mix.ensure()
    return pair_of_mix


def test_100_mebibytes(pair: Pair) -> None:
    """100 MiB over many small files arrive byte for byte, and both brokers serve them."""
    rig, count = pair.rig, 6400
    rig.peer(
        "load", "send", "--addr", pair.master.address, "--create", "--topic", "H", "--conns", 4,
        "--inflight", 16, "--size", 16384, "--count", count,
    )  # fmt: skip
    end = pair.wait_same()
    assert assert_same_logs(pair.master, pair.slave, end) >= 100 << 20
    for server in (pair.master, pair.slave):
        rig.until(
            lambda address=server.address: rig.peer(
                "load", "pull", "--addr", address, "--topic", "H", "--queues", "0-7", "--verify",
                "--expect", count, check=False,
            )[-1].get("ok"),
            30,
            "all messages readable",
            server,
        )  # fmt: skip


def test_slave_is_killed_in_the_stream(pair: Pair) -> None:
    """A slave that is killed under load continues where its log ends, under load."""
    with pair.load("slave-killed") as load:
        pair.rig.until(lambda: len(load.accepted) > 500, 20, "SEND_OK", pair.master)
        pair.slave.kill()
        pair.rig.until(lambda: load.codes[11] > 500, 20, "sends without a slave", pair.master)
        pair.restart_slave()
        again = len(load.accepted) + 500
        pair.rig.until(lambda: len(load.accepted) > again, 40, "SEND_OK again", pair.master)
    assert not set(load.codes) - {0, 11, 12}, load.codes
    end = pair.wait_same()
    assert_same_logs(pair.master, pair.slave, end)
    for server in (pair.master, pair.slave):
        pair.until_readable(server, load, load.stored)


def test_master_is_killed_in_the_stream(pair: Pair) -> None:
    """
    What a master answered SEND_OK before kill -9 is on its slave while it is dead, and on both
    when it is back: its log was in the page cache.
    """
    with pair.load("master-killed", rate=1e6) as load:
        pair.rig.until(lambda: len(load.accepted) > 1000, 20, "SEND_OK", pair.master)
        pair.master.kill()
        pair.rig.until(lambda: load.is_over, 20, "the end of the load")
    assert not set(load.codes) - {0, 11, 12}, load.codes
    pair.until_readable(pair.slave, load, load.accepted)
    pair.restart_master()
    pair.wait_ok()
    with pair.load("master-back") as more:
        pair.rig.until(lambda: len(more.accepted) > 500, 20, "SEND_OK again", pair.master)
    end = pair.wait_same()
    assert_same_logs(pair.master, pair.slave, end)
    for server in (pair.master, pair.slave):
        pair.until_readable(server, load, load.stored)
        pair.until_readable(server, more, more.accepted)


def test_what_doctor_says_of_a_mixed_pair(pair: Pair) -> None:
    """That it is one; and no error, as all is well."""
    visits: list[Visit] = []

    def is_told() -> bool:
        visits.append(Visit(pair.namesrv))
        return visits[-1].finds("two-kinds") and not visits[-1].errors

    try:
        pair.rig.until(is_told, 40, "a visit without errors", pair.slave)
    except AssertionError as error:
        raise AssertionError(visits[-1].found) from error


TABLES = {
    "topics.json": RequestCode.GET_ALL_TOPIC_CONFIG,
    "consumerOffset.json": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "delayOffset.json": RequestCode.GET_ALL_DELAY_OFFSET,
    "subscriptionGroup.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}


def test_tables_arrive(pair: Pair) -> None:
    """Topics, groups, consumer and delay offsets: the slave's files are the master's tables."""
    with Wire(pair.master.address) as master:
        master.create_topic("Table-topic", 3)
        master.create_group("table-group", 5)
        for queue_id in range(3):
            master.commit("table-group", "Table-topic", queue_id, 0)
        master.delay("Table-topic")
        pair.rig.until(
            lambda: master.table(TABLES["delayOffset.json"]).get("offsetTable"),
            20,
            "a delivered delayed message",
            pair.master,
        )
        different: list[str] = []

        def is_same() -> bool:
            different[:] = [
                name
                for name, code in TABLES.items()
                if pair.slave_config(name) != master.table(code)
            ]
            return not different

        try:
            pair.rig.until(is_same, 40, "the same tables", pair.slave)
        except AssertionError as error:
            name = different[0]
            raise AssertionError(
                f"{different}\n{pair.slave_config(name)}\n{master.table(TABLES[name])}\n{error}"
            ) from error
        table = pair.slave_config("consumerOffset.json")["offsetTable"]
        assert table["Table-topic@table-group"] == {0: 0, 1: 0, 2: 0}
        topics = pair.slave_config("topics.json")["topicConfigTable"]
        assert topics["Table-topic"]["readQueueNums"] == 3
        groups = pair.slave_config("subscriptionGroup.json")["subscriptionGroupTable"]
        assert groups["table-group"]["retryMaxTimes"] == 5


def test_consumer_goes_on_with_the_slave(pair: Pair) -> None:
    """A Java push consumer gets every message although the master dies under it."""
    count = 600
    with Wire(pair.master.address) as wire:
        wire.create_topic("D", 4)
        wire.create_group("d-group")
    pair.wait_for_topic("D")
    pair.rig.peer(
        "produce", "--namesrv", pair.namesrv, "--topic", "D", "--count", count, "--mode", "async",
        "--inflight", 16, "--accept", "FLUSH_SLAVE_TIMEOUT,SLAVE_NOT_AVAILABLE",
    )  # fmt: skip
    pair.rig.until(
        lambda: sum(max_offsets(pair.slave, "D", 4)) == count, 30, "D on the slave", pair.slave
    )
    command = [
        PEER, "consume", "--namesrv", pair.namesrv, "--topic", "D", "--group", "d-group",
        "--count", count, "--from", "first", "--poll-namesrv", 1000, "--timeout", 70,
        "--sleep", 25, "--threads", 4, "--pull-batch", 8, "--cache", 16,
    ]  # fmt: skip
    lines: list[dict[str, Any]] = []
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        for line in consumer.stdout:
            lines.append(json.loads(line))
            if len(lines) == 100:
                pair.master.kill()
    assert consumer.returncode == 0, lines[-1]
    found = {(line["queueId"], line["queueOffset"]) for line in lines if "queueId" in line}
    assert len(found) == count
    assert pair.slave.address in lines[-1]["pulledFrom"]


def test_slave_takes_over(pair: Pair) -> None:
    """
    After a master's crash its slave, restarted as master, numbers the queues on and delivers what
    was delayed; the old master comes back as its slave.
    """
    with Wire(pair.master.address) as wire:
        wire.create_topic("Later", 1)
    pair.wait_for_topic("Later")
    with pair.load("before") as load, Wire(pair.master.address) as wire:
        pair.rig.until(lambda: len(load.accepted) > 300, 20, "SEND_OK", pair.master)
        wire.delay("Later", 2)
    pair.wait_same()
    pair.master.kill()
    before = max_offsets(pair.slave, "R")
    pair.slave.stop()
    pair.swap()
    pair.wait_ok()
    assert max_offsets(pair.master, "R") == before
    with pair.load("after") as more:
        pair.rig.until(lambda: len(more.accepted) > 300, 20, "SEND_OK", pair.master)
    for queue_id in range(8):
        first = min(sent.queue_offset for sent in more.stored if sent.queue_id == queue_id)
        assert first == before[queue_id]
    end = pair.wait_same()
    assert_same_logs(pair.master, pair.slave, end)
    for server in (pair.master, pair.slave):
        pair.until_readable(server, load, load.stored)
        pair.until_readable(server, more, more.stored)
        pair.rig.until(lambda of=server: max_offsets(of, "Later", 1) > [0], 20, "delivery", server)


def test_empty_slave_begins_at_the_last_file(pair: Pair) -> None:
    """
    An empty slave gets its master's last file and what follows, also when it has an empty first
    file: of a master that had nothing yet.
    """
    pair.slave.stop()
    shutil.rmtree(pair.slave.store)
    if not pair.slave.java:  # a Java slave would write into this file what belongs into another
        pair.slave.store.joinpath("commitlog").mkdir(parents=True)
        pair.slave.store.joinpath("commitlog", f"{0:020d}").write_bytes(bytes(FILE_SIZE))
    with pair.load("no-slave", "E", size=16384) as load:
        pair.rig.until(lambda: load.codes[11] > 100, 20, "sends without a slave", pair.master)
    end = log_end(pair.master.address)
    pair.restart_slave()
    pair.wait_ok()
    with pair.load("new-slave", "E", size=16384) as more:
        pair.rig.until(lambda: len(more.accepted) > 100, 20, "SEND_OK", pair.master)
    begin = end - end % FILE_SIZE
    assert min(log_files(pair.slave)) == begin
    assert_same_logs(pair.master, pair.slave, pair.wait_same())
    pair.wait_for_topic("E")
    wanted = {
        sent.physical_offset for sent in load.stored + more.stored if sent.physical_offset >= begin
    }
    assert wanted

    def is_readable() -> bool:
        found: list[int] = []
        with contextlib.suppress(Refused), Wire(pair.slave.address) as wire:
            for queue_id in range(8):
                records = wire.pull_all("E", queue_id, wire.min_offset("E", queue_id))
                found += [record.physical_offset for record in records]
        return sorted(found) == sorted(wanted)

    pair.rig.until(is_readable, 20, "what the slave has, and nothing else", pair.slave)
