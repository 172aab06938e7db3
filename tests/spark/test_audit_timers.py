"""`audit-messages` judges timer messages: one delivery or one recall of each, and not too early."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.store_format.commitlog import decode_record, encode_blank
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.server.store.timer.records import delivery_of
from rmq_ha.server.store.timer.sources import TimerSource
from tests.spark.planting import Said, messages
from tests.unit.server.store.timer_world import TimerWorld, a_message, a_recall

Plant = Callable[[TimerWorld, Any], int]


def built(waiting: int = 1) -> tuple[TimerWorld, list[Any]]:
    """Messages that were delivered and recalled; the rows wait, for two seconds more."""
    world = TimerWorld()
    for number in range(5):
        world.send(1000 + number * 300)
    row = world.send(4000)
    world.run(0.5)
    world.recall(row)
    world.run(10)
    world.is_held = True
    rows = [world.send(2000) for _ in range(waiting)]
    world.run(0.2)
    return world, rows


def deliver(world: TimerWorld, row: Any, stamp: int) -> int:
    record = decode_record(next(data for other, data in world.log.rows if other is row))
    message = delivery_of(record, TimerSource(row[2], row[6]), stamp)
    return int(world.log.append(message, stamp)[2])


def not_delivered(world: TimerWorld, row: Any) -> int:
    return int(row[2])


def twice(world: TimerWorld, row: Any) -> int:
    deliver(world, row, world.now_ms() + 3000)
    return deliver(world, row, world.now_ms() + 3001)


def early(world: TimerWorld, row: Any) -> int:
    return deliver(world, row, world.now_ms() + 100)


def recalled(world: TimerWorld, row: Any) -> int:
    recall = a_recall(row, TimerSource(row[2], row[6]).text)
    world.log.append(recall, world.now_ms() + 3000)
    return deliver(world, row, world.now_ms() + 3001)


PLANTED: dict[str, Plant] = {
    "TIMER_NOT_DELIVERED": not_delivered,
    "TIMER_DELIVERED_TWICE": twice,
    "TIMER_DELIVERED_EARLY": early,
    "TIMER_RECALLED_DELIVERED": recalled,
}


def audited(engine: Any, world: TimerWorld, folder: Path, **asked: Any) -> Said:
    (folder / "commitlog").mkdir(parents=True)
    data = b"".join(data for _, data in world.log.rows)
    (folder / "commitlog" / ("0" * 20)).write_bytes(data + encode_blank(8))
    return messages(engine, folder, **asked)


def pass_time(world: TimerWorld) -> None:
    world.run(120, 1.0)
    world.log.append(a_message({}, "Other"), world.now_ms())


def test_waiting_delivered_and_recalled_messages_are_no_alarm(here: Any, tmp_path: Path) -> None:
    world, _ = built()
    world.is_held = False
    pass_time(world)
    said = audited(here, world, tmp_path / "store")
    assert said.result.outcome is Outcome.HOLDS
    assert {one.code for one in said.findings} <= {"KEY_REUSED"}


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_fault_is_found_in_its_place(here: Any, tmp_path: Path, code: str) -> None:
    world, (row,) = built()
    place = PLANTED[code](world, row)
    pass_time(world)
    said = audited(here, world, tmp_path / "store")
    (found,) = said.errors
    assert (found.code, found.physical_offset) == (code, place)


def test_all_planted_faults_are_found_and_no_others(engine: Any, tmp_path: Path) -> None:
    world, rows = built(len(PLANTED))
    wanted = {(code, PLANTED[code](world, row)) for code, row in zip(PLANTED, rows, strict=True)}
    pass_time(world)
    said = audited(engine, world, tmp_path / "store")
    assert {(found.code, found.physical_offset) for found in said.errors} == wanted
    assert len(said.errors) == len(wanted)
