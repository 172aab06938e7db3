"""One broker judged by facts made by hand: which windows differ, and what is said of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmq_ha.lake.scan.fleet.facts import SCHEMAS, WINDOWS, ReplicaFacts, State, directory_of, keep
from rmq_ha.lake.scan.fleet.judging import (
    DAY_MS,
    BrokerVerdict,
    JudgingLimits,
    judge,
    matching,
    scanned_twice,
)
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offsets.findings import Finding, Outcome
from rmq_ha.ops.offsets.model import NUMBERS, SLAVE_ROLE, TEXTS, Snapshot, log_fact
from rmq_ha.ops.offsets.snapshot_history import append
from rmq_ha.ops.offsets.verdict import Limits

Window = tuple[int, int, str]
NOW = 1_000_000_000
MINUTE = 60_000


def replica(
    to: Path, broker_id: int, windows: Sequence[Window], end: int = 0, **more: Any
) -> ReplicaFacts:
    """Its facts and its tables, as a scan keeps them; a window's content is a letter."""
    directory = directory_of(str(to), "b", broker_id)
    rows = [(low, high, text.encode() * 16, NOW) for low, high, text in windows]
    table = pa.table([*zip(*rows, strict=True)] or [[], [], [], []], SCHEMAS[WINDOWS])
    files = keep(directory, (), [(WINDOWS, False, table)], "0")
    place = f"/nowhere/{broker_id}"
    given = {"host": "host-1", "low": 0, "high": end, "scanned_at": NOW} | more
    given = {"window": 16, "end": given.pop("whole", end), "place": place} | given
    state = State("b", broker_id, files=files, **given)
    role = SLAVE_ROLE if broker_id else "ASYNC_MASTER"
    kinds = frozenset(NUMBERS + TEXTS)
    facts = (log_fact(0, 99),)
    append(
        Snapshot(place, "b", broker_id, role, True, 0, 0, kinds, facts), f"{directory}/snapshots"
    )
    return ReplicaFacts(directory, state)


def judged(*replicas: ReplicaFacts, now: int = NOW, **given: Any) -> BrokerVerdict:
    return judge(replicas, Limits(), JudgingLimits(0, **given), now)


def codes(told: BrokerVerdict) -> list[str]:
    return [one.code for one in told.findings]


MASTER: list[Window] = [(0, 16, "a"), (16, 32, "b"), (32, 48, "c")]


@pytest.mark.parametrize(
    ("slave", "bounds", "same", "spans"),
    [
        (MASTER, (0, 48), 48, []),
        ([(0, 16, "a"), (16, 32, "x"), (32, 48, "c")], (0, 48), 32, [(16, 32)]),
        # Whatever the order in which they were found, they are told in the log's.
        ([(32, 48, "z"), (16, 32, "y"), (0, 16, "x")], (0, 48), 0, [(0, 16), (16, 32), (32, 48)]),
        # Of one that grew the digests cannot be compared.
        ([(0, 16, "a"), (16, 30, "x")], (0, 48), 16, []),
        # Only what both have from end to end.
        ([(0, 16, "x"), (16, 32, "b"), (32, 48, "z")], (1, 47), 16, []),
        ([(0, 16, "x"), (16, 32, "b"), (32, 48, "z")], (0, 48), 16, [(0, 16), (32, 48)]),
        ([(16, 32, "x"), (48, 64, "d")], (0, 48), 0, [(16, 32)]),
        # What was read twice is as it was read last.
        ([(0, 16, "a"), (16, 32, "x"), (16, 32, "b")], (0, 48), 32, []),
        (
            [(0, 16, "a"), (16, 30, "x"), (16, 32, "y"), (0, 16, "z")],
            (0, 48),
            0,
            [(0, 16), (16, 32)],
        ),
        ([], (0, 48), 0, []),
    ],
)
def test_windows_are_compared_where_both_sides_have_the_same_one(
    tmp_path: Path,
    slave: list[Window],
    bounds: tuple[int, int],
    same: int,
    spans: list[tuple[int, int]],
) -> None:
    one, other = replica(tmp_path, 0, MASTER), replica(tmp_path, 1, slave)
    for left, right in ((one, other), (other, one)):
        match = matching(left, right, *bounds)
        assert match.spans == spans
        assert match.compared == same + sum(high - low for low, high in spans)


def test_all_bytes_of_a_comparison_are_accounted_for(tmp_path: Path) -> None:
    """What is equal and what differs is compared; of the rest only one side has a digest."""
    master = replica(tmp_path, 0, MASTER, 50)
    told = judged(
        master,
        replica(tmp_path, 1, [(0, 16, "a"), (16, 32, "x")], 50),
        replica(tmp_path, 2, [(16, 32, "x"), (32, 48, "y")], 48, low=16),
    )
    assert (told.replicas, told.compared, told.differing, told.left) == (3, 64, 3, 16)
    assert told.fetched == 0  # these stores are not seen from here
    assert told.outcome is Outcome.VIOLATED
    assert told.verdict.startswith("3 errors, first DIGEST_DIFFERS; safe to fail over: yes")
    assert told.is_safe is False
    nothing = judged(master, replica(tmp_path, 3, [], 10, low=60))
    assert (nothing.compared, nothing.left) == (0, 0)


def test_of_many_windows_that_differ_the_first_sixteen_are_looked_at(tmp_path: Path) -> None:
    windows = [(16 * at, 16 * at + 16, "a") for at in range(20)]
    master = replica(tmp_path, 0, windows, 320)
    slave = replica(tmp_path, 1, [(low, high, "x") for low, high, _ in windows], 320)
    for fetches, count in ((True, 16), (False, 0)):
        found = [
            one for one in judged(master, slave, fetches=fetches).findings if one.code[0] == "D"
        ]
        assert [one.physical_offset for one in found] == [low for low, *_ in windows]
        assert {one.broker for one in found} == {"/nowhere/1"}
        seen = ["it was not fetched" not in one.detail for one in found]
        assert seen == [at < count for at in range(20)]
        assert found[0].detail.startswith("[0, 16) of /nowhere/0 and /nowhere/1; ")


@pytest.mark.parametrize(
    ("master", "slave", "told"),
    [
        ((48, NOW), (48, NOW), []),
        ((48, NOW), (64, NOW), ["SLAVE_AHEAD"]),
        ((48, NOW), (64, NOW - 1), ["SLAVE_AHEAD"]),
        ((48, NOW), (64, NOW + 1), []),  # it was scanned later: its master has grown as well
        ((48, NOW), (32, NOW + 1), ["MASTER_AHEAD"]),
        ((48, NOW), (32, NOW - 1), ["MASTER_AHEAD"]),
    ],
)
def test_who_is_ahead_is_judged_as_far_as_the_times_of_the_scans_allow(
    tmp_path: Path, master: tuple[int, int], slave: tuple[int, int], told: list[str]
) -> None:
    sides = [
        replica(tmp_path, number, MASTER, high, scanned_at=at)
        for number, (high, at) in enumerate((master, slave))
    ]
    assert codes(judged(*sides)) == told


def test_facts_that_are_older_than_wanted_are_named(tmp_path: Path) -> None:
    sides = [replica(tmp_path, 0, MASTER, 48), replica(tmp_path, 1, MASTER, 48, host="")]
    assert codes(judged(*sides, now=NOW + 5 * MINUTE, age_ms=5 * MINUTE)) == []
    told = judged(*sides, now=NOW + 5 * MINUTE + 1, age_ms=5 * MINUTE)
    assert codes(told) == ["FACTS_OLD"] * 2
    assert [one.broker for one in told.findings] == ["/nowhere/0", "/nowhere/1"]
    assert told.findings[0].detail.startswith("Scanned 5 minutes ago on host-1.")
    assert told.findings[1].detail.startswith("Scanned 5 minutes ago on an unnamed host.")


def test_a_broker_without_a_slave_is_neither_safe_nor_undecided(tmp_path: Path) -> None:
    told = judged(replica(tmp_path, 0, MASTER, 48))
    assert (told.is_safe, told.outcome, codes(told)) == (None, Outcome.UNDECIDED, ["NO_REPLICA"])
    assert told.verdict == "could not decide: NO_REPLICA; no slave"
    told = judged(replica(tmp_path, 0, MASTER, 48), alone=frozenset({"b"}))
    assert (told.is_safe, told.outcome, codes(told)) == (None, Outcome.HOLDS, ["ALONE"])


def test_slaves_without_their_master_are_not_compared(tmp_path: Path) -> None:
    told = judged(*(replica(tmp_path, number, MASTER, 48) for number in (1, 2)))
    assert (told.is_safe, told.outcome, codes(told)) == (None, Outcome.UNDECIDED, ["NO_MASTER"])
    assert told.verdict == "could not decide: there are no facts of the master"


@pytest.mark.parametrize(
    ("windows", "more", "code"),
    [
        ([(0, 24, "a"), (24, 48, "b")], {"window": 24}, "GRID_DIFFERS"),
        ([], {}, "NOT_COMPARED"),
        (MASTER[:2], {}, "NOT_COMPARED"),
        (MASTER[:2], {"whole": 32}, ""),  # it was scanned before the third one was whole
        (MASTER, {}, ""),
    ],
)
def test_a_log_that_was_not_compared_is_not_safe(
    tmp_path: Path, windows: list[Window], more: dict[str, Any], code: str
) -> None:
    """The bytes were counted, and the verdict was "safe"."""
    told = judged(
        replica(tmp_path, 0, MASTER, 48, oldest_look=NOW),
        replica(tmp_path, 1, windows, 48, oldest_look=NOW, **more),
    )
    assert codes(told) == [code] * bool(code)
    assert told.is_safe is (None if code else True)
    assert told.outcome is (Outcome.UNDECIDED if code else Outcome.HOLDS)
    said = f"could not decide: {code}; safe" if code else "safe to fail over: yes; "
    assert told.verdict.startswith(said)
    if not code:
        assert told.verdict.endswith("; each window of the logs was read in the last 1 d")


@pytest.mark.parametrize(
    ("mine", "theirs", "is_one"),
    [
        ({"place": "/data"}, {"place": "/data"}, True),
        ({"place": "/data"}, {"place": "/data", "host": "host-2"}, False),
        ({"identity": "8:15"}, {"identity": "8:15"}, True),
        ({"identity": "8:15"}, {"identity": "8:16"}, False),
        ({"identity": "8:15"}, {"identity": "8:15", "host": "host-2"}, False),
        ({}, {}, False),
    ],
)
def test_one_store_under_two_names_is_an_error(
    tmp_path: Path, mine: dict[str, str], theirs: dict[str, str], is_one: bool
) -> None:
    """As when a line of cron was copied."""
    sides = replica(tmp_path, 0, MASTER, 48, **mine), replica(tmp_path, 1, MASTER, 48, **theirs)
    told = judged(*sides)
    assert codes(told) == ["SAME_STORE"] * 2 * is_one
    assert told.is_safe is not is_one
    twice = scanned_twice(sides)
    assert twice == {one.directory for one in sides} if is_one else not twice
    other = judge(sides[:1], Limits(), JudgingLimits(0, alone=frozenset("b")), NOW, twice)
    assert codes(other) == ["SAME_STORE"] * is_one + ["ALONE"]


def test_how_long_ago_the_oldest_look_was_is_told(tmp_path: Path) -> None:
    sides = [replica(tmp_path, at, MASTER, 48, oldest_look=NOW - at * 40 * DAY_MS) for at in (0, 1)]
    told = judged(*sides)
    assert (told.is_safe, codes(told), told.oldest_look) == (True, [], NOW - 40 * DAY_MS)
    assert told.verdict.endswith("read in the last 41 d")
    told = judged(*sides, now=NOW + 6 * DAY_MS, age_ms=9 * DAY_MS)
    assert (told.is_safe, codes(told)) == (True, ["LOOK_OLD"])
    unknown = judged(sides[0], replica(tmp_path, 2, MASTER, 48))
    assert unknown.verdict.endswith("it is not known when each window of the logs was read")


def test_facts_from_the_future_decide_nothing(tmp_path: Path) -> None:
    sides = [replica(tmp_path, at, MASTER, 48, scanned_at=NOW + at * 3_600_000) for at in (0, 1)]
    told = judged(*sides)
    assert (told.is_safe, codes(told)) == (None, ["FACTS_OLD"])
    assert "minutes from now" in told.findings[0].detail


def test_without_a_slaves_tables_nothing_is_decided(tmp_path: Path) -> None:
    """What its log said before stays said."""
    master, slave = replica(tmp_path, 0, MASTER, 48), replica(tmp_path, 1, MASTER[:1], 16)
    for path in sorted((tmp_path / "b-1" / "snapshots").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    told = judged(master, slave)
    assert told.verdict.startswith("could not decide: snapshot:")
    assert (told.is_safe, told.outcome, told.compared) == (None, Outcome.UNDECIDED, 16)
    assert codes(told) == ["MASTER_AHEAD", "FACTS_DAMAGED"]


@pytest.mark.parametrize(
    ("is_safe", "replicas", "found", "outcome"),
    [
        (True, 2, [], Outcome.HOLDS),
        (False, 2, [], Outcome.VIOLATED),
        (None, 2, [], Outcome.UNDECIDED),
        (None, 1, [], Outcome.UNDECIDED),
        (None, 1, [finding("ALONE")], Outcome.HOLDS),
        (None, 2, [finding("LOG_DIFFERS")], Outcome.VIOLATED),
        (True, 2, [finding("NO_REPLICA"), finding("LOG_DIFFERS")], Outcome.VIOLATED),
        (True, 2, [finding("MASTER_AHEAD")], Outcome.HOLDS),
    ],
)
def test_the_outcome_of_one_broker(
    is_safe: bool | None, replicas: int, found: list[Finding], outcome: Outcome
) -> None:
    assert BrokerVerdict("b", replicas, is_safe, "", found).outcome is outcome
