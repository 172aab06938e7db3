"""The line that operators act on, and the exit code under it."""

import pytest

from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.judgement import WorstGroup, findings, judged, sums, worst_groups
from rmq_ha.ops.offsets.model import NUMBERS, OFFSET, Fact, Snapshot, queue_fact
from rmq_ha.ops.offsets.pairing import Forecast, Pairing
from rmq_ha.ops.offsets.verdict import Limits, best_of, decided, head_findings

HOLDS, VIOLATED, UNDECIDED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("forecast", "limits", "outcome", "says"),
    [
        (Forecast(repeats=7), Limits(), HOLDS, "yes; 7 messages would be repeated"),
        (Forecast(repeats=7), Limits(max_repeats=7), HOLDS, "yes; 7 "),
        (Forecast(repeats=7), Limits(max_repeats=6), VIOLATED, "no: more than 6 repeats; 7 "),
        (Forecast(errors=1), Limits(), VIOLATED, "no: 1 error; "),
        (Forecast(errors=2, lost=5), Limits(), VIOLATED, "no: 2 errors; 0 messages"),
        (Forecast(unsettled=2), Limits(), UNDECIDED, "no: 2 differences that may still go away;"),
        (Forecast(lost=5), Limits(), UNDECIDED, "no: the slave's log is still being copied;"),
        (
            Forecast(lost=5),
            Limits(max_lag=5),
            HOLDS,
            "yes; 0 messages would be repeated, 0 skipped, 5 lost",
        ),
        (Forecast(skipped=3), Limits(), UNDECIDED, "no: messages would be skipped;"),
    ],
)
def test_one_slave(forecast: Forecast, limits: Limits, outcome: Outcome, says: str) -> None:
    found, verdict = decided({"s": forecast}, [], limits, 0)
    assert found is outcome
    assert verdict.startswith(f"safe to fail over: {says}"), verdict


def test_of_several_slaves_the_best_decides_but_a_fault_is_told() -> None:
    by_slave = {"bad": Forecast(errors=3, repeats=1), "good": Forecast(repeats=9)}
    worst = [WorstGroup("bad", "g", 1, 0, "t", 0), WorstGroup("good", "h", 9, 0, "u", 4)]
    outcome, verdict = decided(by_slave, worst, Limits(), 0)
    assert outcome is VIOLATED
    assert verdict == (
        "safe to fail over: yes; 9 messages would be repeated, 0 skipped, 0 lost; worst: group h,"
        " queue 4 of u (with good, the best of 2 slaves)"
    )
    by_slave["bad"] = Forecast(repeats=10)
    assert decided(by_slave, worst, Limits(), 0)[0] is HOLDS


def test_the_past_is_told_too() -> None:
    outcome, verdict = decided({"s": Forecast()}, [], Limits(), 2)
    assert outcome is VIOLATED
    assert verdict.startswith("safe to fail over: yes;")
    assert verdict.endswith("; the history holds 2 violations")


def replica(place: str, broker: str | None, number: int | None, role: str | None) -> Snapshot:
    return Snapshot(place, broker, number, role, False, 0, 0, frozenset(), ())


@pytest.mark.parametrize(
    ("master", "slave", "codes"),
    [
        (("b", 0, "SYNC_MASTER"), ("b", 1, "SLAVE"), []),
        ((None, None, None), (None, None, None), []),
        (("b", 0, "SYNC_MASTER"), ("c", 1, "SLAVE"), ["OTHER_BROKER"]),
        (("b", 0, "SYNC_MASTER"), ("b", 0, "SYNC_MASTER"), ["NOT_A_SLAVE", "SAME_BROKER"]),
        (("b", 1, "SLAVE"), ("b", 0, "ASYNC_MASTER"), ["NOT_THE_MASTER", "NOT_A_SLAVE"]),
    ],
)
def test_is_it_a_pair(
    master: tuple[str | None, int | None, str | None],
    slave: tuple[str | None, int | None, str | None],
    codes: list[str],
) -> None:
    pairing = Pairing([replica("m", *master)], replica("s", *slave), True)
    assert [item.code for item in head_findings(pairing)] == codes


def test_what_is_said_of_each_key_adds_up() -> None:
    """The operator reads who is wrong and by how much; the group that suffers most comes first."""

    def snapshot(place: str, *offsets: int) -> Snapshot:
        facts = [Fact(OFFSET, "t", f"g{number}", 0, at) for number, at in enumerate(offsets)]
        facts.append(queue_fact("t", 0, 0, 10))
        return Snapshot(place, None, None, None, True, 7, 7, frozenset(NUMBERS), tuple(facts))

    rows = judged([Pairing([snapshot("m", 9, 9, 12)], snapshot("s", 7, 2, 12), True)])
    assert sums(rows) == {"s": Forecast(repeats=9, errors=4)}
    assert [item[:3] for item in worst_groups(rows, 5)] == [("s", "g1", 7), ("s", "g0", 2)]
    assert worst_groups(rows, 1)[0].queue_id == 0
    told = {(one.code, one.group): one for one in findings(rows)}
    stale = told["STALE", "g1"]
    assert (stale.broker, stale.expected, stale.actual, stale.observed_at) == ("s", "9", "2", 7)
    assert "repeats 7 messages" in stale.detail
    beyond = told["MASTER_BEYOND_MAX", "g2"]
    assert (beyond.broker, beyond.expected, beyond.actual) == ("m", "10", "12")


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Forecast(repeats=99), Forecast(skipped=1)),
        (Forecast(lost=1), Forecast(lost=2)),
        (Forecast(skipped=1), Forecast(skipped=2)),
        (Forecast(skipped=1, lost=1), Forecast(skipped=1, lost=2)),
        (Forecast(errors=2), Forecast(errors=1, lost=2)),
        (Forecast(errors=1, skipped=1), Forecast(errors=3)),
        (Forecast(repeats=3), Forecast(repeats=4)),
        (Forecast(lost=1, repeats=9), Forecast(lost=2, repeats=1)),
    ],
)
def test_the_best_slave_is_safe_lacks_least_and_repeats_least(
    better: Forecast, worse: Forecast
) -> None:
    for row in ({"a": better, "b": worse}, {"b": worse, "a": better}):
        assert best_of(row, Limits()) == ("a", better)


def test_with_a_lag_that_is_allowed_what_is_still_copied_is_no_danger() -> None:
    row = {"a": Forecast(lost=5), "b": Forecast(unsettled=1)}
    assert best_of(row, Limits(max_lag=10))[0] == "a"
    assert best_of(row, Limits())[0] == "b"
