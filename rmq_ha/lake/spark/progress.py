"""Shows Spark's progress: a bar on a terminal, a line every few seconds elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark import StatusTracker
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from rmq_ha.base.host import blocking
from rmq_ha.lake.spark.host.threads import call_every

_LOOK_SECONDS = 0.5
_LINE_SECONDS = 5.0


class Tasks(NamedTuple):
    """Numbers of the tasks of the stages that run now."""

    done: int
    total: int


Count = Callable[[], Tasks]


def tasks_of(tracker: StatusTracker) -> Tasks:
    """Return the numbers of the tasks of the stages that run now."""
    done = total = 0
    for stage_id in tracker.getActiveStageIds():
        stage = tracker.getStageInfo(stage_id)
        if stage is not None:
            done += stage.numCompletedTasks
            total += stage.numTasks
    return Tasks(done, total)


class ConnectProgress:
    """The progress of the running query, as Spark Connect reports it."""

    def __init__(self) -> None:
        self._tasks = Tasks(0, 0)

    def __call__(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        """Note the numbers of tasks; pyspark calls this while it waits for a query."""
        running = [] if done else [stage for stage in stages or () if not stage.done]
        self._tasks = Tasks(
            sum(stage.num_completed_tasks for stage in running),
            sum(stage.num_tasks for stage in running),
        )

    def tasks(self) -> Tasks:
        """Return the numbers of the tasks of the stages that run now."""
        return self._tasks


@contextmanager
def show_stages(spark: SparkSession, label: str, console: Console | None = None) -> Iterator[None]:
    """Show the progress of the stages that run during the block, on stderr."""
    console = console or Console(stderr=True, highlight=False)
    with _counter_of(spark) as count:
        if console.is_terminal:
            with _bar(console, count, label):
                yield
        else:
            with call_every(_LINE_SECONDS, line_by_line(count, label, console, blocking.seconds)):
                yield


@contextmanager
def _counter_of(spark: SparkSession) -> Iterator[Count]:
    """Yield a function that counts the tasks of the stages that run now."""
    if not is_remote():
        tracker = spark.sparkContext.statusTracker()
        yield lambda: tasks_of(tracker)
        return
    told: Any = ConnectProgress()
    spark.registerProgressHandler(told)
    try:
        yield told.tasks
    finally:
        spark.removeProgressHandler(told)


@contextmanager
def _bar(console: Console, count: Count, label: str) -> Iterator[None]:
    """Show a bar while the block runs."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
    bar = Progress(
        *columns, MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True
    )
    with bar:
        task = bar.add_task(label, total=None)

        def look() -> None:
            tasks = count()
            if tasks.total:
                bar.update(task, completed=tasks.done, total=tasks.total)

        with call_every(_LOOK_SECONDS, look):
            yield


def line_by_line(
    count: Count, label: str, console: Console, seconds: Callable[[], float]
) -> Callable[[], None]:
    """Return a function that writes one line of progress, by a count of tasks and a clock."""
    began = seconds()

    def look() -> None:
        tasks = count()
        if tasks.total:
            percent = 100 * tasks.done // tasks.total
            console.print(
                f"{label}: {tasks.done} of {tasks.total} tasks ({percent} %),"
                f" {seconds() - began:.0f} s",
                markup=False,
                soft_wrap=True,
            )

    return look
