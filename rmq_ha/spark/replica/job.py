"""The job: `rmq_ha.scan.replica.verifying`, its tasks run by Spark."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from rmq_ha.host.blocking import pause
from rmq_ha.offsets.findings import Outcome
from rmq_ha.scan.replica import verifying
from rmq_ha.scan.replica.settings import Settings
from rmq_ha.scan.replica.tasks import Answer, Task, Work, run
from rmq_ha.spark.findings import frame_of
from rmq_ha.spark.replica.report import sections_of
from rmq_ha.spark.result import JobResult
from rmq_ha.spark.running import Job

_ANSWERS = "number long, answer binary"
_FEW = 64
_MOST_PARTS = 1000


def verify(job: Job, settings: Settings) -> JobResult:
    """
    Compare two stores.

    :raises CannotDecide: one cannot be read, or they have nothing in common.
    """
    told = verifying.verify(settings, _on_executors(job), job.note, pause)
    return JobResult(
        frame_of(job.spark, told.findings),
        Outcome.VIOLATED if told.errors else Outcome.HOLDS,
        told.verdict,
        told.numbers,
        sections_of(told),
    )


def _on_executors(job: Job) -> verifying.Run:
    def run_tasks(
        label: str, work: Work, tasks: Sequence[Task], is_apart: bool
    ) -> verifying.Answers:
        # A task is a row, so that no executor holds those of others.
        rows = [(task.number, pickle.dumps(task)) for task in tasks]
        frame = job.spark.createDataFrame(rows, "number long, task binary")
        if len(tasks) > _FEW:
            frame = frame.repartition(min(len(tasks), _MOST_PARTS))
        with job.progress(label):
            found = frame.mapInArrow(_work(work, is_apart), _ANSWERS).collect()
        return {row.number: msgspec.msgpack.decode(row.answer, type=Answer) for row in found}

    return run_tasks


def _work(work: Work, is_apart: bool) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What an executor does with its rows; if nobody asks again, it adds its answers up."""

    def run_all(batches: Iterator[Any]) -> Iterator[Any]:
        found: dict[int, Answer] = {}
        first = None
        for batch in batches:
            for row in batch.to_pylist():
                first = row["number"] if first is None or is_apart else first
                answer = Answer()
                run(work, pickle.loads(row["task"]), answer)
                found.setdefault(first, Answer()).add(answer)
        numbers = pa.array(list(found), pa.int64())
        answers = pa.array([msgspec.msgpack.encode(one) for one in found.values()], pa.binary())
        yield pa.RecordBatch.from_arrays([numbers, answers], ["number", "answer"])

    return run_all
