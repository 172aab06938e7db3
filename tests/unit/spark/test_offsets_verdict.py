"""The line that operators act on, and the exit code under it."""

import pytest

from rmq_ha.spark.offsets.job import Limits, decided, head_findings
from rmq_ha.spark.offsets.model import Snapshot
from rmq_ha.spark.offsets.pairing import Forecast, Pairing
from rmq_ha.spark.offsets.report import Worst
from rmq_ha.spark.result import Outcome

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
    worst = [Worst("bad", "g", 1, 0, "t", 0), Worst("good", "h", 9, 0, "u", 4)]
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
