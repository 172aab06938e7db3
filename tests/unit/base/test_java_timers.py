"""The timer files of RocketMQ 5: byte for byte those that 5.3.3 wrote of the same messages."""

import json
from pathlib import Path
from struct import unpack_from
from typing import Any

from rmq_ha.base.store_format.java_timers import (
    SLOT_SIZE,
    UNIT_SIZE,
    WHEEL_SLOTS,
    JavaTimerFiles,
    WaitingRecord,
    java_timer_files,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "timer"
RECORDED = json.loads((FIXTURES / "files.json").read_text())
WRITE_MS = 1_795_883_376_000
FILE_SIZE = 100 << 20
DAY_MS = 86_400_000


def units(files: JavaTimerFiles) -> list[tuple[Any, ...]]:
    data = b"".join(files.log.values())
    return [unpack_from(">iqiqiqiiq", data, at) for at in range(0, len(data), UNIT_SIZE)]


def slot(files: JavaTimerFiles, second: int) -> tuple[Any, ...] | None:
    data = files.slots.get(second % WHEEL_SLOTS * SLOT_SIZE)
    return None if data is None else unpack_from(">qqqii", data)


def made(
    *waiting: WaitingRecord, last: WaitingRecord | None = None, end: int = 9
) -> JavaTimerFiles:
    return java_timer_files(waiting, last, end, WRITE_MS + 123, FILE_SIZE)


def test_units_and_slots_are_those_of_java() -> None:
    recorded = [unit for unit in RECORDED["timerlog"]["units"] if unit["writeTimeMs"] == WRITE_MS]
    waiting = [
        # The unit that is rolled has the time until which it is rolled.
        WaitingRecord(
            WRITE_MS + unit["delayMs"] + (DAY_MS if unit["magic"] & 2 else 0),
            unit["offsetPy"],
            unit["sizePy"],
            "TT",
        )
        for unit in recorded
    ]
    assert len(waiting) == 9
    files = made(*waiting)
    assert files.log == {0: bytes.fromhex(RECORDED["timerlog"]["hex"])[: 9 * UNIT_SIZE]}
    known = {item["time/precision"]: item for item in RECORDED["timerwheel"]["slots"]}
    for second in (3376, 3379, 3380, 3381):
        number = 1_795_880_000 + second
        item = known[number]
        expected = (number, item["firstPos"], item["lastPos"], item["num"], 0)
        assert slot(files, number) == expected
        assert number % WHEEL_SLOTS == item["index"]
    assert RECORDED["timerwheel"]["fileSize"] == WHEEL_SLOTS * SLOT_SIZE


def test_the_checkpoint_leads_java_behind_all_records() -> None:
    files = made(WaitingRecord(WRITE_MS + 5999, 206, 293, "TT"), end=41)
    assert len(files.checkpoint) == 4096
    read, flushed, offset, masters, version, stamp, _ = unpack_from(">7q", files.checkpoint)
    assert (read, flushed, offset, masters) == (WRITE_MS, UNIT_SIZE, 41, 41)
    assert (version, stamp) == (0, WRITE_MS + 123)
    assert len(bytes.fromhex(RECORDED["timercheck"]["hex"])) == 56


def test_java_begins_with_the_first_message_that_is_late() -> None:
    late = WaitingRecord(WRITE_MS - 7_001, 206, 293, "TT")
    files = made(WaitingRecord(WRITE_MS + 60_000, 1, 2, "TT"), late)
    assert unpack_from(">q", files.checkpoint)[0] == WRITE_MS - 8_000
    assert units(files)[1][3:5] == (WRITE_MS, -7_001)
    assert slot(files, WRITE_MS // 1000 - 8) == (WRITE_MS // 1000 - 8, 52, 52, 1, 0)


def test_what_is_late_by_more_than_java_looks_back_is_delivered_first() -> None:
    files = made(WaitingRecord(WRITE_MS - 30 * DAY_MS, 206, 293, "TT"))
    assert unpack_from(">q", files.checkpoint)[0] == WRITE_MS - 6 * DAY_MS
    assert units(files)[0][4] == -6 * DAY_MS


def test_what_java_has_to_put_again_on_the_way_has_its_mark() -> None:
    window = 2 * DAY_MS
    waits = (window - 1, window, window + window // 3 - 1, window + window // 3)
    files = made(*[WaitingRecord(WRITE_MS + wait, 1, 2, "TT") for wait in waits])
    assert [(unit[2], unit[4]) for unit in units(files)] == [
        (1, window - 1),
        (3, window // 2),
        (3, window // 2),
        (3, window),
    ]


def test_a_last_record_that_does_not_wait_gets_a_slot_that_is_over() -> None:
    """Java goes on to read the queue behind the record of the last unit."""
    last = WaitingRecord(0, 777, 88, "TT")
    files = made(WaitingRecord(WRITE_MS + 1, 1, 2, "TT"), last=last)
    unit = units(files)[-1]
    assert (unit[5], unit[6]) == (777, 88)
    assert unit[3] + unit[4] < unpack_from(">q", files.checkpoint)[0] - 5 * DAY_MS


def test_a_full_file_ends_with_a_blank() -> None:
    waiting = [WaitingRecord(WRITE_MS + 1, number, 2, "TT") for number in range(40)]
    files = java_timer_files(waiting, None, 40, WRITE_MS, 1024)
    assert sorted(files.log) == [0, 1024, 2048]
    first = files.log[0]
    assert len(first) == 19 * UNIT_SIZE + 16
    assert unpack_from(">iqi", first, 19 * UNIT_SIZE) == (1024 - 19 * 52, 0, -875286124)
    assert unpack_from(">q", files.log[1024], 4)[0] == 18 * UNIT_SIZE, "the one before it"
    assert slot(files, WRITE_MS // 1000) == (WRITE_MS // 1000, 0, 2048 + UNIT_SIZE, 40, 0)
    assert unpack_from(">7q", files.checkpoint)[1] == 2048 + 2 * UNIT_SIZE
