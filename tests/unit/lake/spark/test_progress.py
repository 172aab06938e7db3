"""What is seen of a long scan."""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from rmq_ha.lake.spark import progress
from rmq_ha.lake.spark.host.threads import call_every
from rmq_ha.lake.spark.progress import ConnectProgress, Tasks, line_by_line, show_stages, tasks_of


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
    told = ConnectProgress()
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
    with show_stages(spark_with(tracker), "reading", Console(file=out, force_terminal=True)):
        assert looked.wait(10)
    assert "reading" in out.getvalue()


def test_a_bar_says_how_many_tasks_are_done_and_leaves_no_line(monkeypatch: Any) -> None:
    """The names of files are text, whatever brackets they have."""
    out = io.StringIO()
    tracker = FakeTracker({1: (1, 4)})
    monkeypatch.setattr(progress, "call_every", once)
    with show_stages(spark_with(tracker), "[red]4 files", Console(file=out, force_terminal=True)):
        pass
    text = out.getvalue()
    assert "[red]4 files" in text
    assert "1/4" in text
    assert text.endswith("\x1b[1A\x1b[2K"), "the line of the bar is cleared"


def test_a_bar_stays_as_it_was_between_two_stages(monkeypatch: Any) -> None:
    counts = iter([Tasks(3, 4), Tasks(0, 0)])
    out = io.StringIO()
    monkeypatch.setattr(progress, "tasks_of", lambda _: next(counts))
    monkeypatch.setattr(progress, "call_every", twice)
    with show_stages(
        spark_with(FakeTracker({})), "reading", Console(file=out, force_terminal=True)
    ):
        pass
    assert "3/4" in out.getvalue()
    assert "0/0" not in out.getvalue()


@contextmanager
def once(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    call()
    yield


@contextmanager
def twice(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    call()
    call()
    yield


def test_elsewhere_lines_come_every_few_seconds(monkeypatch: Any) -> None:
    out, waits = io.StringIO(), []

    def ticks(seconds: float, call: Callable[[], None]) -> Any:
        waits.append(seconds)
        return once(seconds, call)

    monkeypatch.setattr(progress, "call_every", ticks)
    with show_stages(spark_with(FakeTracker({1: (1, 4)})), "reading", Console(file=out, width=20)):
        pass
    assert waits == [5.0]
    assert out.getvalue() == "reading: 1 of 4 tasks (25 %), 0 s\n", "and are not cut into two"


def test_over_connect_who_shows_the_progress_is_told_of_it_and_no_longer(monkeypatch: Any) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    handlers: list[Any] = []
    spark: Any = SimpleNamespace(
        registerProgressHandler=handlers.append, removeProgressHandler=handlers.remove
    )
    out = io.StringIO()
    stage = SimpleNamespace(num_tasks=4, num_completed_tasks=1, done=False)

    @contextmanager
    def told(seconds: float, call: Callable[[], None]) -> Iterator[None]:
        call()  # nothing is known yet
        (handler,) = handlers
        handler([stage], 1, "op", False)
        call()
        yield

    monkeypatch.setattr(progress, "call_every", told)
    with show_stages(spark, "reading", Console(file=out)):
        assert len(handlers) == 1
    assert handlers == []
    assert out.getvalue() == "reading: 1 of 4 tasks (25 %), 0 s\n"


def test_ticking_ends_with_the_block_and_survives_an_error() -> None:
    ticked = threading.Event()

    def fail() -> None:
        ticked.set()
        raise ValueError("the session is gone")

    before = threading.active_count()
    with call_every(0.001, fail):
        assert ticked.wait(10)
    assert threading.active_count() <= before
    with call_every(0.001, ticked.set):
        assert ticked.wait(10)
    assert threading.active_count() <= before, "nobody is called after the end"
