"""Items of index files against keys of records, and a file by itself: each verdict and its edge."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.store_format.commitlog import encode_blank
from rmq_ha.base.store_format.index import ITEM, key_hash
from rmq_ha.lake.scan.replica.auditing import INDEX, audit, required_items
from rmq_ha.lake.scan.replica.settings import StoreAt, opened
from rmq_ha.ops.checks.index_items import Counts, Index, check_items, check_structure
from rmq_ha.ops.offsets.findings import Finding
from tests.unit.lake.scan.parts_kit import HeldLog, Item, facts_of, index_of, log_of

STORED = 100_000
GIVEN: list[dict[str, Any]] = [
    {
        "properties_string": f"KEYS\x01{key}",
        "store_timestamp": STORED + 1000 * at,
        "queue_offset": at,
    }
    for at, key in enumerate(("a", "b c", "d", "e", "f"))
]
KEYS = [(0, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (4, "f")]
SIZES = [len(log_of(one)) for one in GIVEN]
PLACES = [sum(SIZES[:at]) for at in range(6)]
END = PLACES[-1]
ITEMS: list[Item] = [(key_hash("T", key), PLACES[at], at, 0) for at, key in KEYS]


def told(found: Sequence[Finding]) -> list[tuple[str, int | None, str | None, str | None]]:
    return [(one.code, one.physical_offset, one.expected, one.actual) for one in found]


def checked(
    folder: Path, *files: Sequence[Item], low: int = 0, high: int = END, **more: Any
) -> tuple[Counts, list[Finding]]:
    begin_ms = more.pop("begin_ms", STORED)
    index = Index([index_of(folder, items, {}, begin_ms=begin_ms, **more) for items in files])
    given = [one for one, at in zip(GIVEN, PLACES, strict=False) if low <= at < high]
    items = required_items(facts_of(*given, base=low))
    return check_items(HeldLog(log_of(*GIVEN)), index, items, low, high, "s")


def items_in(index: Index, low: int, high: int) -> list[tuple[int, int]]:
    """Hashes and places of the items that point into a stretch."""
    parts = [data for *_, data in index.stretch(low, high)]
    return [item[:2] for data in parts for item in ITEM.iter_unpack(data)]


def without(*numbers: int) -> list[Item]:
    return [item for number, item in enumerate(ITEMS) if number not in numbers]


HOLE_OF_B, HOLE = (f"an entry with hash {key_hash('T', key)}" for key in "bc")


@pytest.mark.parametrize(
    ("files", "counts", "findings"),
    [
        ([ITEMS], (6, 0, 0), []),
        ([ITEMS[3:], ITEMS[:3]], (6, 0, 0), []),  # in any order of files
        ([without(2)], (6, 0, 0), [("INDEX_HOLE", PLACES[1], HOLE, "none")]),
        ([ITEMS[:3], [], ITEMS[4:]], (6, 0, 0), [("INDEX_GAP", PLACES[2], None, None)]),
        ([ITEMS[:1], ITEMS[4:]], (6, 0, 0), [("INDEX_GAP", PLACES[1], None, None)]),
        ([ITEMS[1:]], (6, 1, 0), []),  # older than the index
        ([ITEMS[:5]], (6, 0, 1), []),  # newer
        # Two keys of one record, and the index begins or ends with the other one.
        ([ITEMS[2:]], (6, 1, 0), [("INDEX_HOLE", PLACES[1], HOLE_OF_B, "none")]),
        ([ITEMS[:2]], (6, 0, 3), [("INDEX_HOLE", PLACES[1], HOLE, "none")]),
        (
            [[*ITEMS[:2], (7, PLACES[1], 1, 0), *ITEMS[3:]]],
            (6, 0, 0),
            [
                ("INDEX_HOLE", PLACES[1], HOLE, "none"),
                ("INDEX_WRONG", PLACES[1], "a key of the message there", "hash 7"),
            ],
        ),
        (
            [[*ITEMS[:3], (9, PLACES[2] + 1, 2, 0), *ITEMS[3:]]],
            (6, 0, 0),
            [("INDEX_WRONG", PLACES[2] + 1, "a key of the message there", "hash 9")],
        ),
        # Doubled, as one that was built again after a crash.
        ([[*ITEMS[:3], ITEMS[2], *ITEMS[3:]]], (6, 0, 0), []),
    ],
)  # fmt: skip
def test_each_key_finds_its_item(
    tmp_path: Path,
    files: list[list[Item]],
    counts: tuple[int, int, int],
    findings: list[tuple[str, int | None, str | None, str | None]],
) -> None:
    found, told_of = checked(tmp_path, *files)
    assert (found, told(told_of)) == (Counts(*counts), findings)
    for one in told_of:
        if one.code == "INDEX_HOLE":
            assert (one.topic, one.queue_id, one.queue_offset, one.broker) == ("T", 0, 1, "s")
            assert one.msg_id is not None


def test_a_gap_says_how_far_it_reaches(tmp_path: Path) -> None:
    _, found = checked(tmp_path, ITEMS[:1], ITEMS[5:])
    (one,) = found
    assert one.detail.startswith(f"4 keys, up to offset {PLACES[3]}. ")


@pytest.mark.parametrize(
    ("off_ms", "is_told"), [(0, False), (1000, False), (2000, True), (-2000, False), (-2001, True)]
)
def test_an_items_time_is_its_records_to_a_second(
    tmp_path: Path, off_ms: int, is_told: bool
) -> None:
    """A second is counted from the file's first record on, and cut off."""
    count, found = checked(tmp_path, ITEMS, begin_ms=STORED + off_ms)
    assert count == Counts(6, 0, 0)
    # The first item may have the seconds since the file before it.
    assert [one.code for one in found] == ["INDEX_TIME"] * 5 * is_told
    if is_told:
        assert [one.physical_offset for one in found] == [at for _, at, *_ in ITEMS[1:]]
        second = STORED // 1000 + 2
        assert (found[2].topic, found[2].expected) == ("T", f"stored in second {second}")
        assert found[2].actual == f"second {second + off_ms // 1000}"


@pytest.mark.parametrize(
    ("seconds", "begin_ms", "late"),
    [
        ((50, 50, 1, 2, 3, 4), STORED, [1]),  # the first one is not judged, the second is
        ((0, 0, 1, 2, 3, 4), STORED - 50_000, [2, 3, 4, 5]),  # 0 is said of what came in one second
        ((0, -1, 1, 2, 3, 50), STORED, [5]),
        ((0, 50, 50, 50, 50, 50), 0, []),  # the file does not say when it begins
        ((0, 50, 50, 50, 50, 50), -1, []),
        ((0, 150, 101, 102, 103, 104), 1, [1]),
    ],
)
def test_items_whose_time_says_nothing_are_not_judged(
    tmp_path: Path, seconds: tuple[int, ...], begin_ms: int, late: list[int]
) -> None:
    items = [(*item[:2], took, 0) for item, took in zip(ITEMS, seconds, strict=True)]
    _, found = checked(tmp_path, items, begin_ms=begin_ms)
    assert {one.code for one in found} <= {"INDEX_TIME"}
    assert [one.physical_offset for one in found] == [ITEMS[number][1] for number in late]


def test_only_what_points_into_the_stretch_is_looked_at(tmp_path: Path) -> None:
    """Stretches follow each other, and one may also be asked for alone or again."""
    index = Index(
        [index_of(tmp_path, items, {}, begin_ms=STORED) for items in (ITEMS[:3], ITEMS[3:])]
    )
    spans = list(pairwise(PLACES))
    for order in (spans, spans[::-1], [*spans[3:], *spans]):
        for low, high in order:
            wanted = [item[:2] for item in ITEMS if low <= item[1] < high]
            assert items_in(index, low, high) == wanted
    assert items_in(index, END, END + 9) == []
    assert items_in(index, 0, END) == [item[:2] for item in ITEMS]
    one, two = PLACES[1:3]
    asked = [0, one, one + 1, two - 1, two, PLACES[4], END]
    assert [index.covers(at) for at in asked] == [
        True, True, False, False, True, True, False,
    ]  # fmt: skip


def test_a_long_file_is_searched_and_not_read(tmp_path: Path) -> None:
    """From any place to any other: 8,192 rows are jumped over at first."""
    items = [(at, 10 * at, 0, 0) for at in range(20_000)]
    file = index_of(tmp_path, items, {})
    for low, high in ((0, 5), (5, 10), (81_910, 81_930), (81_925, 163_850), (199_980, 300_000)):
        index = Index([file])
        wanted = [at for _, at, *_ in items if low <= at < high]
        assert [at for _, at in items_in(index, low, high)] == wanted
        assert [at for _, at in items_in(index, high, high + 30)] == [
            at for _, at, *_ in items if high <= at < high + 30
        ]


# A file by itself


def chained(*hashes: int) -> tuple[list[Item], dict[int, int]]:
    """Items with five slots, each of which leads to the one before it in its slot."""
    heads: dict[int, int] = {}
    items: list[Item] = []
    for number, each in enumerate(hashes, 1):
        items.append((each, 10 * number, 0, heads.get(each % 5, 0)))
        heads[each % 5] = number
    return items, heads


def test_a_sound_file_says_nothing(tmp_path: Path) -> None:
    items, heads = chained(0, 5, 1, 10, 4, 4, 9)
    assert check_structure(index_of(tmp_path, items, heads), "s") == []
    assert check_structure(index_of(tmp_path, [], {}), "s") == []
    full = index_of(tmp_path, items, heads, room=8)
    assert (full.count, check_structure(full, "s")) == (7, [])
    # Records of one place: two keys of one message.
    same = [(hash_, 10, 0, back) for hash_, _, _, back in items]
    assert check_structure(index_of(tmp_path, same, heads), "s") == []
    first = [(hash_, at - 10, 0, back) for hash_, at, _, back in items]
    assert check_structure(index_of(tmp_path, first, heads), "s") == []  # from the log's start


@pytest.mark.parametrize(
    ("bounds", "is_told"), [((10, 70), False), ((11, 70), True), ((10, 71), True), ((0, 70), True)]
)
def test_a_header_names_its_first_and_last_record(
    tmp_path: Path, bounds: tuple[int, int], is_told: bool
) -> None:
    items, heads = chained(0, 5, 1, 10, 4, 4, 9)
    found = check_structure(index_of(tmp_path, items, heads, bounds=bounds), "s")
    wanted = ("INDEX_HEADER", 70, "records 10 to 70", f"records {bounds[0]} to {bounds[1]}")
    assert told(found) == [wanted] * is_told


def test_items_are_in_the_order_of_the_log(tmp_path: Path) -> None:
    items, heads = chained(0, 5, 1, 10, 4, 4, 9)
    items[3] = (10, 25, 0, items[3][3])  # behind 30
    items[5] = (4, 20, 0, items[5][3])  # only the first one is named
    found = check_structure(index_of(tmp_path, items, heads), "s")
    assert [(one.code, one.physical_offset, one.broker) for one in found] == [
        ("INDEX_ORDER", 25, "s")
    ]
    items, heads = chained(0, 5)
    items[1] = (5, 0, 0, 1)  # the very first record of the log
    (one,) = check_structure(index_of(tmp_path, items, heads), "s")
    assert (one.code, one.physical_offset) == ("INDEX_ORDER", 0)


@pytest.mark.parametrize(
    ("item", "back", "head", "odd"),
    [
        (4, 2, None, []),  # as it should be
        (4, 0, None, [1, 2]),  # a chain that ends too early: all behind it
        (4, 1, None, [2]),
        (4, 3, None, [1, 2]),  # to an item of another slot
        (4, 4, None, [1, 2]),  # to itself
        (4, 7, None, [1, 2]),  # forward
        (2, 0, None, [1]),
        (1, 1, None, [1]),  # the first of its slot leads somewhere
        (None, 0, {0: 2}, [4]),  # the slot has forgotten its newest
        (None, 0, {0: 0}, [1, 2, 4]),
        (None, 0, {0: 3}, [1, 2, 4]),  # or names one of another slot
        (None, 0, {0: 99}, [1, 2, 4]),  # or none at all
        (None, 0, {0: -4}, [1, 2, 4]),
        (None, 0, {4: 0}, [5, 6, 7]),
        (None, 0, {1: 0}, [3]),
    ],
)
def test_items_that_nothing_leads_to_are_named(
    tmp_path: Path, item: int | None, back: int, head: dict[int, int] | None, odd: list[int]
) -> None:
    """And those that only such items lead to."""
    items, heads = chained(0, 5, 1, 10, 4, 4, 9)
    if item is not None:
        items[item - 1] = (*items[item - 1][:3], back)
    file = index_of(tmp_path, items, heads | (head or {}))
    found = check_structure(file, "s")
    assert {one.code for one in found} <= {"INDEX_CHAIN"}
    assert sorted(one.physical_offset or 0 for one in found) == [10 * number for number in odd]


def test_an_item_that_the_header_does_not_count_yet_leads_on(tmp_path: Path) -> None:
    """A broker writes the item, then its slot, and the header behind both."""
    items, heads = chained(0, 5, 1, 10, 4, 4, 9)
    file = index_of(tmp_path, items, heads, count=7, bounds=(10, 60))
    assert (file.count, check_structure(file, "s")) == (6, [])


def test_of_many_items_that_are_lost_twenty_are_named(tmp_path: Path) -> None:
    items: list[Item] = [(0, 10 * at, 0, 0) for at in range(1, 301)]
    found = check_structure(index_of(tmp_path, items, {0: 300}), "s")
    assert [one.physical_offset for one in found] == [10 * at for at in range(1, 21)]


def test_items_that_point_behind_the_last_record_of_a_stretch_are_looked_at(tmp_path: Path) -> None:
    """As into the blank of a file: no record of the stretch stands there."""
    for name in ("commitlog", "index"):
        (tmp_path / name).mkdir()
    log = log_of(*GIVEN) + encode_blank(60)
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(log.ljust(END + 60, b"\0"))
    stray = (9, END + 20, 5, 0)
    index_of(tmp_path / "index", [*ITEMS, stray], {}, begin_ms=STORED)
    side = opened(StoreAt(str(tmp_path)), (5, 10)).side("s", END)
    for low, high, places in ((0, END, []), (0, END + 60, [END + 20]), (END, END + 60, [END + 20])):
        seen = list(audit([side], low, high, frozenset({INDEX})))
        found = [one for each in seen for one in each.findings]
        assert [one.physical_offset for one in found] == places
        assert {one.code for one in found} <= {"INDEX_WRONG"}
        assert sum(each.records for each in seen) == (0 if low else 5)
        assert not any(
            each.findings or each.counts for each in audit([side], low, high, frozenset())
        )


@pytest.mark.parametrize("count", [20, 21, 25])
def test_of_many_keys_and_items_that_do_not_fit_twenty_are_named(
    tmp_path: Path, count: int
) -> None:
    """And how many keys there are: to look for them all would take as long as to build it anew."""
    keys = [f"k{at}" for at in range(count)]
    properties = [f"KEYS\x01{key}" for key in keys]
    given = [{"properties_string": text, "store_timestamp": STORED} for text in properties]
    facts, log = facts_of(*given), HeldLog(log_of(*given))
    places, end = facts.offsets.tolist(), int(facts.offsets[-1] + facts.records.sizes[-1])
    items: list[Item] = [(key_hash("T", "other"), at, 0, 0) for at in places]
    index = Index([index_of(tmp_path, items, {}, begin_ms=STORED)])
    counts, found = check_items(log, index, required_items(facts), 0, end, "s")
    assert counts == Counts(count, 0, 0)
    for code in ("INDEX_HOLE", "INDEX_WRONG"):
        mine = [each for each in found if each.code == code]
        assert [each.physical_offset for each in mine] == places[:20]
    (detail,) = {each.detail.partition(".")[0] for each in found if each.code == "INDEX_HOLE"}
    assert (detail == f"{count} keys in this stretch") is (count > 20)
    late = Index(
        [
            index_of(
                tmp_path,
                [(key_hash("T", key), at, 9, 0) for key, at in zip(keys, places, strict=True)],
                {},
                begin_ms=STORED,
            )
        ]
    )
    _, found = check_items(log, late, required_items(facts), 0, end, "s")
    # The first item of a file says nothing of its time.
    assert [(each.code, each.physical_offset) for each in found] == [
        ("INDEX_TIME", at) for at in places[1:21]
    ]
