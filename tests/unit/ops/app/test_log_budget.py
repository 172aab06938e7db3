"""What a log may become in a minute."""

from typing import Any

from twisted.python.failure import Failure

from rmq_ha.ops.app.log import LINES, TRACEBACKS, WINDOW_S, LogBudget


def run(budget: LogBudget, count: int, now: float, kind: str = "{peer} lies", **more: Any) -> None:
    for number in range(count):
        budget({"log_format": kind, "peer": number, "log_time": now, **more})


def test_so_many_lines_of_a_kind_in_a_minute_and_the_rest_in_one() -> None:
    passed: list[Any] = []
    budget = LogBudget(passed.append)
    run(budget, 50_000, 1000.0)
    run(budget, 3, 1001.0, "other")
    assert len(passed) == LINES + 3
    run(budget, 1, 1000.0 + WINDOW_S)
    summary, line = passed[-2:]
    assert (summary["count"], summary["kind"]) == (50_000 - LINES, "{peer} lies")
    assert line["peer"] == 0
    run(budget, 1, 1000.0 + 3 * WINDOW_S)
    assert len(passed) == LINES + 6, "told once"


def test_tracebacks_are_longer() -> None:
    passed: list[Any] = []
    run(LogBudget(passed.append), 3267, 1.0, log_failure=Failure(ValueError()))
    assert len(passed) == TRACEBACKS


def test_a_clock_that_is_set_back_ends_the_minute() -> None:
    passed: list[Any] = []
    budget = LogBudget(passed.append)
    run(budget, LINES + 5, 5000.0)
    run(budget, LINES, 10.0)
    assert len(passed) == 2 * LINES + 1


def test_events_of_old_code_pass() -> None:
    passed: list[Any] = []
    budget = LogBudget(passed.append)
    for _ in range(LINES + 9):
        budget({"message": ("x",), "log_time": 1.0})
    assert len(passed) == LINES + 9
