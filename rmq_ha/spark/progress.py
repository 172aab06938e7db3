"""How far Spark is: a bar on a terminal, a line every few seconds elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyspark import StatusTracker
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from rmq_ha.spark.host import clock
from rmq_ha.spark.host.ticking import every

_LOOK_SECONDS = 0.5
_LINE_SECONDS = 5.0


class Tasks(NamedTuple):
    """Of the stages that run now."""

    done: int
    total: int


def tasks_of(tracker: StatusTracker) -> Tasks:
    """Count them."""
    done = total = 0
    for stage_id in tracker.getActiveStageIds():
        stage = tracker.getStageInfo(stage_id)
        if stage is not None:
            done += stage.numCompletedTasks
            total += stage.numTasks
    return Tasks(done, total)


@contextmanager
def shown(spark: SparkSession, label: str, console: Console | None = None) -> Iterator[None]:
    """
    Show how far the stages are that run during the block, on stderr.

    :param label: what is being done.
    """
    console = console or Console(stderr=True, highlight=False)
    tracker = spark.sparkContext.statusTracker()
    if console.is_terminal:
        with _bar(console, tracker, label):
            yield
    else:
        with every(_LINE_SECONDS, line_by_line(tracker, label, console, clock.seconds)):
            yield


@contextmanager
def _bar(console: Console, tracker: StatusTracker, label: str) -> Iterator[None]:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
    bar = Progress(
        *columns, MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True
    )
    with bar:
        task = bar.add_task(label, total=None)

        def look() -> None:
            tasks = tasks_of(tracker)
            if tasks.total:
                bar.update(task, completed=tasks.done, total=tasks.total)

        with every(_LOOK_SECONDS, look):
            yield


def line_by_line(
    tracker: StatusTracker, label: str, console: Console, seconds: Callable[[], float]
) -> Callable[[], None]:
    """
    What writes one line of progress.

    :param seconds: a clock.
    """
    began = seconds()

    def look() -> None:
        tasks = tasks_of(tracker)
        if tasks.total:
            percent = 100 * tasks.done // tasks.total
            console.print(
                f"{label}: {tasks.done} of {tasks.total} tasks ({percent} %),"
                f" {seconds() - began:.0f} s",
                markup=False,
                soft_wrap=True,
            )

    return look
