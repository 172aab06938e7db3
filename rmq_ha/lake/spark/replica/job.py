"""Runs `rmq_ha.lake.scan.replica.verifying` with its tasks on an engine."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import msgpack

from rmq_ha.base.host.blocking import pause
from rmq_ha.lake.scan.arrays import schema
from rmq_ha.lake.scan.replica import verifying
from rmq_ha.lake.scan.replica.settings import Settings
from rmq_ha.lake.scan.replica.tasks import Answers, Run, Task, TaskResult, Work, run
from rmq_ha.lake.spark.replica.report import sections_of
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.offsets.findings import Outcome

if TYPE_CHECKING:  # executors load this module, and have no click
    from rmq_ha.lake.spark.running import Job

_ANSWERS = schema("number:long answer:binary")


def verify(job: "Job", settings: Settings) -> JobResult:
    """
    Compare two stores.

    :raises CannotDecide: a store cannot be read, or they have nothing in common.
    """
    told = verifying.verify(settings, _on_executors(job), job.note, pause)
    return JobResult(
        told.findings,
        Outcome.VIOLATED if told.errors else Outcome.HOLDS,
        told.verdict,
        told.numbers,
        sections_of(told),
    )


def _on_executors(job: "Job") -> Run:
    """Return the function that has the engine run the tasks of `verifying.verify`."""

    def run_tasks(label: str, work: Work, tasks: Sequence[Task], is_apart: bool) -> Answers:
        with job.progress(label):
            rows = job.engine().spread(tasks, _work(work, is_apart), _ANSWERS).collect()
        return {row.number: msgpack.decode(row.answer, type=TaskResult) for row in rows}

    return run_tasks


def _work(work: Work, is_apart: bool) -> Callable[[Iterator[Task]], Iterator[Any]]:
    """Return the function that runs tasks on an executor, and adds up answers unless apart."""

    def run_all(some: Iterator[Task]) -> Iterator[Any]:
        answers: dict[int, TaskResult] = {}
        first = None
        for task in some:
            first = task.number if first is None or is_apart else first
            answer = TaskResult()
            run(work, task, answer)
            answers.setdefault(first, TaskResult()).add(answer)
        rows = [{"number": at, "answer": msgpack.encode(answer)} for at, answer in answers.items()]
        yield pa.RecordBatch.from_pylist(rows, _ANSWERS)

    return run_all
