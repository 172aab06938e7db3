"""Faults of more than twelve kinds, planted byte by byte: each is told, and none hides others."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.lake.scan.replica.verifying import verify
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.offsets.findings import Finding
from tests.unit.lake.spark.byte_faults import (
    change,
    damage,
    equal_pair,
    forge,
    in_topic,
    offset,
    placed,
    with_ids,
)
from tests.unit.lake.spark.replica_kit import settings_of

Pair = tuple[Path, Path]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return equal_pair(tmp_path)


def found(pair: Pair) -> list[Finding]:
    """Errors and warnings of verify-replica."""
    every = verify(settings_of(*pair)).findings
    return [one for one in every if one.severity != "INFO"]


def nth(store: Path, folder: str, number: int) -> Path:
    return sorted((store / folder).iterdir())[number]


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def noise(path: Path, at: int, size: int) -> None:
    change(path, at, bytes(byte % 127 for byte in range(7, 7 + size)))


def test_what_was_not_harmed_is_alike(pair: Pair) -> None:
    assert found(pair) == []


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (lambda slave: nth(slave, "commitlog", 1).unlink(), "LOG_HOLE"),
        (lambda slave: cut(nth(slave, "commitlog", 1), 7_000), "LOG_HOLE"),
        (lambda slave: noise(nth(slave, "index", 1), 0, 40), "INDEX_HEADER"),
        (lambda slave: cut(nth(slave, "index", 1), 640), "INDEX_UNREADABLE"),
        (lambda slave: shutil.rmtree(slave / "index"), "INDEX_MISSING"),
        (lambda slave: (slave / "checkpoint").unlink(), "CHECKPOINT_MISSING"),
        (lambda slave: noise(slave / "checkpoint", 0, 4096), "CHECKPOINT_AHEAD"),
        (lambda slave: cut(nth(slave, "consumequeue/TopicB/1", -1), 790), "CQ_FILE"),
        (lambda slave: nth(slave, "consumequeue/TopicB/1", 0).unlink(), "CQ_FORGOTTEN"),
    ],
)
def test_damage_to_a_file_is_a_finding_and_the_rest_is_compared(
    pair: Pair, harm: Callable[[Path], Any], code: str
) -> None:
    """Two records, one near the beginning and one near the end, differ on the slave as well."""
    _, slave = pair
    records = list(placed(slave))
    damage(*records[1][:2])
    forge(*records[-5][:2])
    harm(slave)
    counts = Counter(one.code for one in found(pair))
    # Keys that no index file covers now are told of, too.
    others = {} if code[:5] != "INDEX" else {"INDEX_GAP", "INDEX_HOLE"}
    assert {name: n for name, n in counts.items() if name not in others} == {
        "LOG_DIFFERS": 2,
        "BODY_CRC": 1,
        code: 1,
    }


@pytest.mark.parametrize("mark", [b"KEYS\x01", b"TAGS\x01"])
def test_a_change_that_stands_in_both_logs_is_said_to_be_in_the_log(
    pair: Pair, mark: bytes
) -> None:
    """Queues and index have the right key and tag: to build them anew would make it permanent."""
    is_of = in_topic(b"TopicA")
    ids = with_ids(pair[0], lambda record: mark in record and is_of(record))
    number = max(ids)
    for store in pair:
        file, at, size = list(placed(store))[number]
        where = file.read_bytes()[at : at + size].index(mark)
        change(file, at + where + 5, b"#")
    (one,) = found(pair)
    assert (one.code, one.broker, one.physical_offset) == (
        *("RECORD_CHANGED", "both"),
        offset(file, at),
    )
    assert one.msg_id == ids[number].decode() or mark == b"KEYS\x01"
    # In one store alone nobody can tell.
    alone = verify(settings_of(pair[0], pair[0])).findings
    assert {one.code for one in alone} & {"CQ_TAGS", "INDEX_WRONG"}


def test_a_tail_that_each_side_wrote_for_itself_is_one_finding(pair: Pair) -> None:
    tail = list(placed(pair[1]))[-12:]
    for file, at, _ in tail:
        forge(file, at)
    (one,) = found(pair)
    assert (one.code, one.physical_offset) == ("DIVERGED", offset(*tail[0][:2]))
    assert "to the end, 12 messages on each side" in one.detail


def test_the_store_of_another_broker_is_not_its_slave(pair: Pair) -> None:
    for file, at, _ in placed(pair[1]):
        change(file, at + 64, bytes([9, 9, 9, 9]))
    (one,) = [one for one in found(pair) if one.severity == "ERROR"]
    assert (one.code, one.physical_offset) == ("NOT_ITS_SLAVE", 0)
    assert one.detail.startswith("not its slave: stored by 9.9.9.9:")


def test_the_same_directory_twice_is_no_pair(pair: Pair, tmp_path: Path) -> None:
    """Nor by another name for it."""
    master, _ = pair
    link = tmp_path / "link"
    link.symlink_to(master)
    for other in (master, link):
        given = ["verify-offsets", "--master", str(master), "--slave", str(other)]
        done = CliRunner().invoke(main, given)
        assert (done.exit_code, "no pair" in done.output) == (2, True), done.output


def offsets(pair: Pair) -> dict[str, Any]:
    """What `rmqha-admin verify-offsets` says."""
    master, slave = map(str, pair)
    given = ["verify-offsets", "--master", master, "--slave", slave, "--json", "--quiet"]
    told: dict[str, Any] = json.loads(CliRunner().invoke(main, given).output)
    return told


def table(store: Path, name: str) -> tuple[Path, dict[str, Any]]:
    """RocketMQ's JSON has numbers as keys, without quotes."""
    path = store / "config" / name
    return path, json.loads(re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', path.read_text()))


def write_over(store: Path, name: str, wanted: Callable[[dict[str, Any]], Any]) -> None:
    path, found = table(store, name)
    wanted(found["offsetTable"])
    path.write_text(json.dumps(found))
    path.with_name(f"{name}.bak").unlink(missing_ok=True)


def test_progress_that_only_the_slave_has_skips_messages(pair: Pair) -> None:
    """The master begins at 0 where it has no entry."""
    master, _ = pair
    write_over(master, "delayOffset.json", dict.clear)
    told = offsets(pair)
    assert not told["numbers"]["safe"]
    assert told["counts"] == {"DELAY_AHEAD": 3}
    assert ", 4 skipped, " in told["verdict"]
    write_over(master, "consumerOffset.json", lambda groups: groups["TopicA@CG_fixture"].pop("0"))
    told = offsets(pair)
    (one,) = [one for one in told["findings"] if one["code"] == "SLAVE_AHEAD"]
    assert (one["group"], one["queueId"], one["actual"]) == ("CG_fixture", 0, "30")
    assert ", 34 skipped, " in told["verdict"]


def test_a_damaged_value_of_the_master_is_the_masters(pair: Pair) -> None:
    def spoil(groups: dict[str, Any]) -> None:
        groups["TopicA@CG_fixture"]["0"] = -5

    write_over(pair[0], "consumerOffset.json", spoil)
    told = offsets(pair)
    (one,) = told["findings"]
    assert one["code"] == "MASTER_DAMAGED"
    assert one["detail"].startswith("the master's own offset is no number")


def test_two_messages_that_stand_in_each_others_place(pair: Pair) -> None:
    """Each with the place and the queue offset that the other one had."""
    _, slave = pair
    records = list(placed(slave))
    number = next(
        n
        for n in range(20, len(records))
        if records[n][0] == records[n + 1][0] and records[n][2] == records[n + 1][2]
    )
    (file, one, size), (_, other, _) = records[number : number + 2]
    data = file.read_bytes()
    for at, come in ((one, other), (other, one)):
        record = bytearray(data[come : come + size])
        record[28:36] = pack(">q", offset(file, at))
        change(file, at, bytes(record))
    assert {(each.code, each.physical_offset) for each in found(pair)} >= {
        ("RECORD_MOVED", offset(file, other)),
    }


def test_a_slave_that_ends_in_the_middle_of_a_record(pair: Pair) -> None:
    """Its queues know the message already."""
    *_, (file, at, size) = placed(pair[1])
    change(file, at + 60, bytes(size - 60))
    assert "TORN_TAIL" in {one.code for one in found(pair)}


def test_an_entry_of_a_queue_that_points_elsewhere(pair: Pair) -> None:
    file = nth(pair[1], "consumequeue/TopicB/1", 0)
    change(file, 60, file.read_bytes()[80:100])
    assert {one.code for one in found(pair)} == {"CQ_OFFSET", "CQ_ORDER"}
