"""What is seen of a long scan."""

import io
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from rmq_ha.spark import progress
from rmq_ha.spark.host.threads import every
from rmq_ha.spark.progress import Tasks, Told, line_by_line, shown, tasks_of


class FakeTracker:
    def __init__(self, stages: dict[int, tuple[int, int] | None]) -> None:
        self.stages = stages

    def getActiveStageIds(self) -> list[int]:
        return list(self.stages)

    def getStageInfo(self, stage_id: int) -> Any:
        found = self.stages[stage_id]
        if found is None:
            return None
        return SimpleNamespace(numCompletedTasks=found[0], numTasks=found[1])


def spark_with(tracker: FakeTracker) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_tasks_of_all_running_stages_count_and_a_stage_that_just_ended_does_not() -> None:
    tracker: Any = FakeTracker({1: (3, 10), 2: (0, 6), 3: None})
    assert tasks_of(tracker) == Tasks(3, 16)


def test_over_connect_the_stages_that_spark_tells_of_count_until_the_query_is_done() -> None:
    told = Told()
    stages = [
        SimpleNamespace(num_tasks=8, num_completed_tasks=8, done=True),
        SimpleNamespace(num_tasks=5, num_completed_tasks=2, done=False),
    ]
    told(stages, 1, "op", False)
    assert told.tasks() == Tasks(2, 5)
    told(None, 0, "op", True)
    assert told.tasks() == Tasks(0, 0)


def test_a_line_says_how_far_and_how_long() -> None:
    out = io.StringIO()
    clock = iter([10.0, 25.4])
    tracker: Any = FakeTracker({1: (32, 128)})
    count = partial(tasks_of, tracker)
    line_by_line(count, "reading [12] files", Console(file=out), lambda: next(clock))()
    assert out.getvalue() == "reading [12] files: 32 of 128 tasks (25 %), 15 s\n"


def test_nothing_is_said_while_nothing_runs() -> None:
    out = io.StringIO()
    tracker: Any = FakeTracker({})
    line_by_line(partial(tasks_of, tracker), "reading", Console(file=out), lambda: 0.0)()
    assert out.getvalue() == ""


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: Any) -> None:
    out = io.StringIO()
    looked = threading.Event()
    tracker = FakeTracker({1: (1, 4)})

    def look(given: Any) -> Tasks:
        looked.set()
        return tasks_of(given)

    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(progress, "tasks_of", look)
    with shown(spark_with(tracker), "reading", Console(file=out, force_terminal=True)):
        assert looked.wait(10)
    assert "reading" in out.getvalue()


def test_ticking_ends_with_the_block_and_survives_an_error() -> None:
    ticked = threading.Event()

    def fail() -> None:
        ticked.set()
        raise ValueError("the session is gone")

    before = threading.active_count()
    with every(0.001, fail):
        assert ticked.wait(10)
    assert threading.active_count() <= before
