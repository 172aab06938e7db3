"""What a log must hold of timer messages: the rules, in memory and on a store's files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmq_ha.base.host.files import files_of
from rmq_ha.base.store_format.commitlog import decode_record, encode_blank
from rmq_ha.ops.checks.verify import verify
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.timer_rules import FoundTimerFault, TimerAudit, TimerFault, is_timer_record
from rmq_ha.ops.offsets.findings import Finding
from rmq_ha.server.store.timer.frontier import encode_frontier
from rmq_ha.server.store.timer.records import delivery_of, frontier_message, rolled_copy_of
from rmq_ha.server.store.timer.sources import TimerSource
from tests.unit.server.store.timer_world import HOST, TimerWorld, a_message, a_recall

PROGRESS = "rmq_sys_rmqha_timer"


def audited(world: TimerWorld) -> list[FoundTimerFault]:
    """What the audit finds in its log."""
    audit, found = TimerAudit(), list[FoundTimerFault]()
    for row, data in world.log.rows:
        audit.saw(row[5])
        if is_timer_record(row[0], row[11]):
            properties = decode_record(data).properties
            found += audit.take(row[0], properties, row[2], row[6], row[5])
        elif row[0] == PROGRESS:
            audit.take_frontier(decode_record(data).body, row[2])
    return [*found, *audit.end()]


def codes(world: TimerWorld) -> list[TimerFault]:
    return [item.fault for item in audited(world)]


def of_store(world: TimerWorld, root: Path) -> dict[str, Finding]:
    """What `store verify` finds of timers in a store with this log."""
    folder = root / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(data for _, data in world.log.rows)
    (folder / ("0" * 20)).write_bytes(data + encode_blank(8))
    store = StoreFiles(str(root), *files_of(str(root)), damaged=True)
    return {item.code: item for item in verify(store).findings if item.code.startswith("TIMER_")}


def source_of(row: Any) -> TimerSource:
    return TimerSource(row[2], row[6])


def deliver(world: TimerWorld, row: Any, stamp: int | None = None, source: Any = None) -> None:
    """Append a delivery of a waiting record, whatever the log says of it."""
    record = decode_record(next(data for other, data in world.log.rows if other is row))
    now = world.now_ms() if stamp is None else stamp
    message = delivery_of(record, source or source_of(row), now)
    world.log.append(message, now)


def pass_time(world: TimerWorld, seconds: float = 120) -> None:
    """Let time pass, and something else be stored."""
    world.run(seconds)
    world.log.append(a_message({}, "Other"), world.now_ms())
    world.dispatch()


@pytest.fixture
def world() -> TimerWorld:
    return TimerWorld()


def test_what_is_delivered_recalled_or_not_due_is_no_fault(
    world: TimerWorld, tmp_path: Path
) -> None:
    world.send(2000)
    row = world.send(3000)
    world.send(4000, java=True)
    world.send(600_000)
    world.run(0.2)
    assert world.recall(row)
    pass_time(world)
    assert sum(world.deliveries().values()) == 2
    assert audited(world) == []
    assert of_store(world, tmp_path) == {}


def test_what_was_never_delivered_is_found(world: TimerWorld, tmp_path: Path) -> None:
    world.is_held = True
    row = world.send(2000)
    world.run(30)
    pass_time(world, 1)
    assert codes(world) == [], "it may wait for others"
    pass_time(world)
    (found,) = audited(world)
    assert (found.fault, found.place, found.is_passed_over) == (
        "TIMER_NOT_DELIVERED",
        row[2],
        False,
    )
    assert found.source == source_of(row).text
    finding = of_store(world, tmp_path)["TIMER_NOT_DELIVERED"]
    assert finding.severity == "WARN"
    assert "1 timer messages;" in finding.detail
    assert "A start with" in finding.detail


def test_what_a_frontier_passes_over_is_lost(world: TimerWorld, tmp_path: Path) -> None:
    world.is_held = True
    row = world.send(2000)
    world.run(10)
    body = encode_frontier(world.now_ms(), 9, world.log.end, [])
    world.log.append(frontier_message(body, HOST, world.now_ms()), world.now_ms())
    world.log.append(frontier_message(b"no json", HOST, world.now_ms()), world.now_ms())
    pass_time(world)
    assert [item.is_passed_over for item in audited(world)] == [True]
    finding = of_store(world, tmp_path)["TIMER_NOT_DELIVERED"]
    assert finding.severity == "ERROR"
    assert "send them again" in finding.detail
    body = encode_frontier(world.now_ms(), 9, world.log.end, [source_of(row)])
    world.log.append(frontier_message(body, HOST, world.now_ms()), world.now_ms())
    assert [item.is_passed_over for item in audited(world)] == [False]


def test_a_second_delivery_is_found(world: TimerWorld, tmp_path: Path) -> None:
    row = world.send(2000)
    world.run(5)
    deliver(world, row)
    (found,) = audited(world)
    assert (found.fault, found.place) == (TimerFault.DELIVERED_TWICE, world.log.rows[-1][0][2])
    finding = of_store(world, tmp_path)["TIMER_DELIVERED_TWICE"]
    assert finding.severity == "ERROR"
    assert f"the first is that of {source_of(row).text}" in finding.detail


def test_two_deliveries_of_a_record_that_retention_deleted_are_found(world: TimerWorld) -> None:
    row = world.send(2000)
    gone = TimerSource(1 << 40, 10_000)
    deliver(world, row, world.now_ms() + 3000, gone)
    assert codes(world) == []
    deliver(world, row, world.now_ms() + 3000, gone)
    assert codes(world) == [TimerFault.DELIVERED_TWICE]


def test_a_message_and_its_copy_are_not_both_delivered(world: TimerWorld) -> None:
    world.is_held = True
    row = world.send(2000)
    record = decode_record(world.log.rows[0][1])
    copy = world.log.append(rolled_copy_of(record, source_of(row), world.now_ms()), world.now_ms())
    world.run(5)
    deliver(world, copy)
    pass_time(world)
    assert codes(world) == []
    deliver(world, row)
    assert codes(world) == [TimerFault.DELIVERED_TWICE]


@pytest.mark.parametrize("late_ms", [-1, 0])
def test_a_delivery_before_its_time_is_found(
    world: TimerWorld, late_ms: int, tmp_path: Path
) -> None:
    row = world.send(2345)
    due = world.now_ms() + 2345
    deliver(world, row, due + late_ms)
    assert codes(world) == ([TimerFault.DELIVERED_EARLY] if late_ms else [])
    assert of_store(world, tmp_path).keys() == ({"TIMER_DELIVERED_EARLY"} if late_ms else set())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_recalled_message_that_is_delivered_is_found(
    world: TimerWorld, is_first: bool, tmp_path: Path
) -> None:
    row = world.send(2000)
    world.run(0.2)
    if is_first:
        deliver(world, row, world.now_ms() + 2000)
    world.log.append(a_recall(row, source_of(row).text), world.now_ms() + 2000)
    if not is_first:
        deliver(world, row, world.now_ms() + 2000)
    assert codes(world) == [TimerFault.RECALLED_DELIVERED]
    finding = of_store(world, tmp_path)["TIMER_RECALLED_DELIVERED"]
    assert finding.severity == "ERROR"
    assert "1 timer messages;" in finding.detail


@pytest.mark.parametrize("kind", ["delivery", "recall", "copy"])
def test_javas_records_settle_by_name(world: TimerWorld, kind: str) -> None:
    """They have no TIMER_SRC; at Java a fail-over delivers some messages twice."""
    world.is_held = True
    row = world.send(2000, java=True)
    other = world.send(2000, java=True)
    told = dict(piece.split("\x01") for piece in row[11].split("\x02"))
    now = world.now_ms() + 3000
    if kind == "delivery":
        for _ in range(2):
            world.log.append(a_message({**told, "TIMER_DEQUEUE_MS": str(now)}, "T"), now)
    elif kind == "recall":
        world.log.append(a_recall(row), now)
    else:
        rolled = {**told, "TIMER_ROLL_TIMES": "1", "TIMER_OUT_MS": told["TIMER_OUT_MS"]}
        world.log.append(a_message(rolled), now)
    pass_time(world)
    assert [item.source for item in audited(world)] == [source_of(other).text]


def test_a_damaged_log_says_nothing_of_what_was_not_delivered(
    world: TimerWorld, tmp_path: Path
) -> None:
    world.is_held = True
    world.send(2000)
    world.log.append(a_message({}, "Other"), world.now_ms())
    pass_time(world)
    assert of_store(world, tmp_path).keys() == {"TIMER_NOT_DELIVERED"}
    data = world.log.rows[1][1]
    world.log.rows[1] = (world.log.rows[1][0], b"\xff" * len(data))
    assert of_store(world, tmp_path) == {}


@pytest.mark.parametrize("seed", range(8))
def test_no_history_of_a_master_has_a_fault(seed: int) -> None:
    random, world = Random(seed), TimerWorld()
    rows: list[Any] = []
    for _ in range(60):
        rows.append(world.send(random.randrange(1, 20_000), java=random.random() < 0.2))
        world.run(random.random(), 0.1)
        if random.random() < 0.3:
            world.recall(random.choice(rows))
        if random.random() < 0.05:
            world.end()
            world.begin()
    pass_time(world, 100)
    assert audited(world) == []
