"""Entries of a queue against its records, and a queue read by itself: each verdict and its edge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE, UNIT
from rmq_ha.lake.scan.replica.auditing import look_up
from rmq_ha.lake.scan.store.directory import open_store
from rmq_ha.ops.checks.sums import DelaySum
from rmq_ha.ops.checks.units import (
    UnitCheck,
    check_files,
    dangling_units,
    scan_queue,
    written_units,
)
from rmq_ha.ops.offsets.findings import Finding
from tests.unit.lake.scan.parts_kit import HeldLog, Unit, facts_of, log_of, queue_of, records_of

COUNT = 12
GIVEN: list[dict[str, Any]] = [{"queue_offset": at} for at in range(COUNT)]
SIZE = len(log_of(GIVEN[0]))
UNITS: list[Unit] = [(SIZE * at, SIZE, 0) for at in range(COUNT)]
NOTHING: Unit = (0, 0, 0)
FILLER: Unit = (0, FILLER_SIZE, 0)
LACKS_3 = ("CQ_MISSING", 3, f"offset {3 * SIZE}", "no entry")


def checked(
    folder: Path, *files: Sequence[Unit], dispatched: int = 1 << 40, first: int = 0, **more: Any
) -> UnitCheck:
    given = more.pop("given", GIVEN)
    facts = facts_of(*given)
    (mine,) = facts.queues
    queue = queue_of(folder, *files, first=first)
    check = UnitCheck(HeldLog(log_of(*given)), queue, dispatched, "s")
    look_up(facts, mine, check, 0)
    return check


def told(found: Sequence[Finding]) -> list[tuple[str, int | None, str | None, str | None]]:
    return [(one.code, one.queue_offset, one.expected, one.actual) for one in found]


def changed(at: int, *units: Unit) -> list[Unit]:
    return [*UNITS[:at], *units, *UNITS[at + len(units) :]]


@pytest.mark.parametrize(
    ("units", "tally", "findings"),
    [
        (UNITS, (12, 0, 0, 0, 0), []),
        (
            changed(3, (9, SIZE, 0)),
            (11, 1, 0, 0, 0),
            [("CQ_OFFSET", 3, f"offset {3 * SIZE}", "offset 9")],
        ),
        (changed(3, NOTHING), (11, 0, 1, 0, 0), [LACKS_3]),
        (changed(3, FILLER), (11, 0, 1, 0, 0), [LACKS_3]),
        (
            changed(3, (3 * SIZE, SIZE + 1, 0)),
            (12, 0, 0, 0, 0),
            [("CQ_SIZE", 3, f"size {SIZE}", f"size {SIZE + 1}")],
        ),
        (
            changed(3, (3 * SIZE, SIZE, 7)),
            (12, 0, 0, 0, 0),
            [("CQ_TAGS", 3, "tagsCode 0", "tagsCode 7")],
        ),
        # Wiped out at its start: it was there, as the queue still has the place.
        (
            changed(0, NOTHING, NOTHING),
            (10, 0, 2, 0, 0),
            [("CQ_MISSING", 0, "offset 0", "no entry")],
        ),
        # What a queue has never had, as one that came with a filled log.
        (changed(0, FILLER, FILLER), (10, 0, 0, 0, 2), []),
        ([FILLER] * COUNT, (0, 0, 0, 0, 12), []),
    ],
)  # fmt: skip
def test_each_record_finds_its_entry(
    tmp_path: Path,
    units: list[Unit],
    tally: tuple[int, ...],
    findings: list[tuple[str, int | None, str | None, str | None]],
) -> None:
    for files in ([units], [units[:4], units[4:]]):
        for path in tmp_path.iterdir():
            path.unlink()
        found = checked(tmp_path, *files)
        assert found.counts == tally
        assert told(found.findings) == findings


@pytest.mark.parametrize(
    ("dispatched", "tally"),
    [(12 * SIZE, (10, 0, 2, 0, 0)), (11 * SIZE, (10, 0, 1, 1, 0)), (10 * SIZE, (10, 0, 0, 2, 0))],
)
def test_what_was_not_dispatched_is_not_missing(
    tmp_path: Path, dispatched: int, tally: tuple[int, ...]
) -> None:
    found = checked(tmp_path, UNITS[:10], dispatched=dispatched)
    assert found.counts == tally


def test_a_queue_that_begins_later_knows_nothing_of_what_came_before(tmp_path: Path) -> None:
    found = checked(tmp_path, UNITS[5:], first=5)
    assert (found.counts, found.findings) == ((7, 0, 0, 0, 5), [])
    (tmp_path / "more").mkdir()
    wiped = checked(tmp_path / "more", [NOTHING, *UNITS[6:]], first=5)
    assert (wiped.counts, told(wiped.findings)) == (
        (6, 0, 1, 0, 5),
        [("CQ_MISSING", 5, f"offset {5 * SIZE}", "no entry")],
    )


def test_neighbours_are_told_of_together_and_ten_runs_at_most(tmp_path: Path) -> None:
    bad = [(at + 1, size, code) for at, size, code in UNITS]
    three = checked(tmp_path, [*UNITS[:2], *bad[2:5], *UNITS[5:]])
    (one,) = three.findings
    assert one.detail.startswith("Entry 2 is wrong, as are the 2 behind it in the queue.")
    assert (one.topic, one.queue_id, one.physical_offset, one.broker) == ("T", 0, 2 * SIZE, "s")
    assert one.msg_id == records_of(*GIVEN).msg_id[2].as_py()
    given = [{"queue_offset": at} for at in range(40)]
    units = [(SIZE * at + at % 2, SIZE, 0) for at in range(40)]
    (tmp_path / "more").mkdir()
    many = checked(tmp_path / "more", units, given=given)
    assert [one.queue_offset for one in many.findings] == list(range(1, 21, 2))
    assert many.findings[0].detail.startswith("Entry 1 is wrong. ")
    assert many.wrong == 20


def test_tags_and_delays_are_held_against_the_record(tmp_path: Path) -> None:
    given = [
        {
            "topic": "SCHEDULE_TOPIC_XXXX",
            "queue_offset": at,
            "properties_string": f"DELAY\x01{level}",
        }
        | {"store_timestamp": 100 + at}
        for at, level in enumerate((2, 2, 2, 3, 2))
    ]
    sizes, at = [], 0
    for one in given:
        data = log_of(one, base=at)
        sizes.append((at, len(data)))
        at += len(data)
    codes = [5100, 5101, 7102, 9103, 5104]
    units = [(place, size, code) for (place, size), code in zip(sizes, codes, strict=True)]
    found = checked(tmp_path, units, given=given)
    assert found.findings == []
    assert found.delays == [
        DelaySum("s", 2, 5000, 3, 0, sizes[4][0], 0, 0),
        DelaySum("s", 2, 7000, 1, sizes[2][0], sizes[2][0], 0, 2),
        DelaySum("s", 3, 9000, 1, sizes[3][0], sizes[3][0], 0, 3),
    ]
    (tmp_path / "more").mkdir()
    tagged = [
        {"properties_string": "TAGS\x01a"},
        {"queue_offset": 1, "properties_string": "TAGS\x01b"},
    ]
    size = len(log_of(tagged[0]))
    a, b = tags_code("a"), tags_code("b")
    right = [(0, size, a), (size, size, b)]
    assert checked(tmp_path / "more", right, given=tagged).findings == []
    (tmp_path / "most").mkdir()
    wrong = checked(tmp_path / "most", [(0, size, a), (size, size, a)], given=tagged)
    assert told(wrong.findings) == [("CQ_TAGS", 1, f"tagsCode {b}", f"tagsCode {a}")]


# A queue by itself


def test_where_a_queue_begins_and_ends(tmp_path: Path) -> None:
    units = [NOTHING, FILLER, *UNITS[:3]]
    queue = queue_of(tmp_path, units, first=7)
    assert queue.bounds == (7, 12)
    assert [unit[:2] for unit in written_units(queue)] == [(9 + at, SIZE * at) for at in range(3)]
    (tmp_path / "blank").mkdir()
    assert not list(written_units(queue_of(tmp_path / "blank", [NOTHING, FILLER], first=3)))
    assert queue_of(tmp_path).bounds == (0, 0)
    assert queue.data(6, 8) == bytes(40)
    assert queue.data(11, 14) == UNIT.pack(*UNITS[2]) + bytes(40)


@pytest.mark.parametrize(
    ("units", "low", "high", "scan"),
    [
        (UNITS, 0, 12 * SIZE, (12, 12 * SIZE, 11, 0)),
        (UNITS, SIZE, 11 * SIZE, (10, 12 * SIZE, 11, 1)),
        (UNITS, SIZE + 1, 11 * SIZE - 1, (8, 12 * SIZE, 11, 2)),
        (UNITS, 12 * SIZE, 13 * SIZE, (0, 12 * SIZE, 11, -1)),
        ([NOTHING, FILLER, *UNITS[2:4]], 0, 99 * SIZE, (2, 4 * SIZE, 3, 2)),
        ([NOTHING, FILLER], 0, 99 * SIZE, (0, -1, -1, -1)),
    ],
)
def test_all_entries_of_a_queue(
    tmp_path: Path, units: list[Unit], low: int, high: int, scan: tuple[int, int, int, int]
) -> None:
    found = scan_queue(queue_of(tmp_path, units), low, high, "s")
    assert (found[:4], found.findings) == (scan, ())


def test_a_wild_offset_amid_others_is_damage(tmp_path: Path) -> None:
    """At the end of a queue it says that the log lost what it leads to."""
    for number, end, last in ((3, 12, 11), (11, 1000, 11)):
        folder = tmp_path / str(number)
        folder.mkdir()
        queue = queue_of(folder, changed(number, (999 * SIZE, SIZE, 0)))
        scan = scan_queue(queue, 0, 12 * SIZE, "s")
        assert (scan.entries, scan.end, scan.last) == (11, end * SIZE, last)


def test_entries_lead_on_in_the_log(tmp_path: Path) -> None:
    """An entry that leads back, or to where the one before it leads, is out of order."""
    places = [5, 5, 9, 7, 8, 8, 20]
    found = scan_queue(queue_of(tmp_path, [(at, 1, 0) for at in places], first=3), 0, 99, "s")
    assert told(found.findings) == [
        ("CQ_ORDER", 4, "an offset above 5", "offset 5"),
        ("CQ_ORDER", 6, "an offset above 9", "offset 7"),
        ("CQ_ORDER", 8, "an offset above 8", "offset 8"),
    ]
    assert [one.physical_offset for one in found.findings] == [5, 7, 8]
    assert (found.end, found.last) == (21, 9)
    (tmp_path / "more").mkdir()
    many = scan_queue(queue_of(tmp_path / "more", [(5, 1, 0)] * 30), 0, 99, "s")
    assert [one.queue_offset for one in many.findings] == list(range(1, 11))


def test_queues_are_read_in_pieces_that_know_of_each_other(tmp_path: Path) -> None:
    """65,536 units at once: the first of the next piece follows the last of this one."""
    count = (1 << 16) + 3
    units = [(at, 1, 0) for at in range(count)]
    units[1 << 16] = ((1 << 16) - 1, 1, 0)
    found = scan_queue(queue_of(tmp_path, units), 0, count, "s")
    assert (found.entries, found.end, found.last, found.first) == (count, count, count - 1, 0)
    assert told(found.findings) == [("CQ_ORDER", 65536, "an offset above 65535", "offset 65535")]
    (tmp_path / "more").mkdir()
    late = queue_of(tmp_path / "more", [*[FILLER] * ((1 << 16) + 1), (3, 1, 0)], first=2)
    assert [unit[:2] for unit in written_units(late)] == [((1 << 16) + 3, 3)]


def test_files_that_are_missing_or_of_another_size(tmp_path: Path) -> None:
    usual = 4 * 20
    queue = queue_of(tmp_path, UNITS[:4], [], UNITS[8:10], [], UNITS[:2], damaged=True)
    details = [one.detail for one in check_files(queue, usual, "s")]
    assert len(details) == 3
    assert [("lacks the file between" in one) for one in details] == [True, True, False]
    assert "has 40 bytes, those of other queues 80." in details[2]
    (tmp_path / "more").mkdir()
    whole = queue_of(tmp_path / "more", UNITS[:4], UNITS[4:8])
    assert list(check_files(whole, usual, "s")) == []
    (one,) = check_files(whole, usual + 20, "s")
    assert (one.code, one.topic, one.queue_id, one.broker) == ("CQ_FILE", "T", 0, "s")


def test_entries_without_a_record_of_their_own(tmp_path: Path) -> None:
    """One that another queue's record stands behind, one that leads nowhere; neighbours once."""
    given = [
        {"queue_offset": 0},
        {"queue_offset": 0, "queue_id": 1},
        {"queue_offset": 1},
        {"topic": "U", "properties_string": "INNER_MULTI_DISPATCH\x01S,T"},
        {"topic": "U", "properties_string": "INNER_MULTI_DISPATCH\x01S,TT"},
        {"queue_offset": 9},
        {"queue_offset": 10},
    ]
    data, places = b"", list[tuple[int, int]]()
    for one in given:
        record = log_of(one, base=len(data))
        places.append((len(data), len(record)))
        data += record
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(data)
    store = open_store(str(tmp_path))
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    order = [0, 1, 2, 3, 4, 5, 6]
    queue = queue_of(folder, [(*places[at], 0) for at in order])
    found = list(dangling_units(store, queue, len(data), "s"))
    assert told(found) == [
        ("CQ_DANGLING", 1, "message 1 of the queue", "no message of it"),
        ("CQ_DANGLING", 4, "message 4 of the queue", "no message of it"),
    ]
    assert [one.physical_offset for one in found] == [places[1][0], places[4][0]]
    # What leads behind the end is not looked at, and an entry up to it is.
    assert len(list(dangling_units(store, queue, places[1][0], "s"))) == 0
    assert len(list(dangling_units(store, queue, sum(places[1]), "s"))) == 1
    (tmp_path / "more").mkdir()
    some = [unit for at in range(24) for unit in (NOTHING, (*places[1], 0))]
    many = list(dangling_units(store, queue_of(tmp_path / "more", some), len(data), "s"))
    assert [one.queue_offset for one in many] == list(range(1, 21, 2))
