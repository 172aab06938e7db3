"""The archive job: plan, and for each run write, verify, commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rmq_ha.offsets.findings import Finding, Outcome, Severity
from rmq_ha.offsets.places import Place, StorePlace
from rmq_ha.spark.archive import commit
from rmq_ha.spark.archive.files import Files, Found
from rmq_ha.spark.archive.manifest import DataFile, Kept, Manifest, Run, batches
from rmq_ha.spark.archive.planning import Plan, Took, plan, verify
from rmq_ha.spark.archive.writing import Sums, read_back, stage, staged
from rmq_ha.spark.audit.shape import frame_of
from rmq_ha.spark.audit.stored import source_options
from rmq_ha.spark.result import JobResult, Table
from rmq_ha.spark.running import Job
from rmq_ha.spark.source.batch import queues_of
from rmq_ha.spark.source.options import parse_options
from rmq_ha.spark.source.reading import QueueId, QueueRange

_SHOWN = 100
_WHICH = ("subscribe", "subscribePattern", "scan")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """
    What is to be archived.

    :ivar to: directory of the archive; a path, or a URI of any Hadoop file system.
    :ivar topics: empty: all but those in which brokers keep messages on their way.
    :ivar before_ms: only what was stored before; None: everything.
    :ivar broker_name: of a store.
    :ivar most: messages of a run; so much is repeated when a run is killed.
    :ivar options: further ones of the data source.
    """

    place: Place
    to: str
    topics: Sequence[str] = ()
    before_ms: int | None = None
    broker_name: str = ""
    most: int = 5_000_000
    options: Mapping[str, str] = field(default_factory=dict)


def archive(job: Job, asked: Asked, step: commit.Step = lambda _: None) -> JobResult:
    """
    Archive; see docs/spark.md, "archive". Nothing is deleted from the broker.

    :param step: told what is done, step by step.
    :raises WrongUsage: messages cannot be read from the place.
    :raises CannotDecide: source or archive cannot be read.
    """
    return _Archive(job, asked, step).result()


class _Archive:
    """One job: perhaps several runs."""

    def __init__(self, job: Job, asked: Asked, step: commit.Step) -> None:
        self._job = job
        self._asked = asked
        self._step = step
        self._files = Files(job.spark, asked.to)
        self._options = source_options(asked.place, asked.topics) | dict(asked.options)
        self._options.pop("scan", None)
        if isinstance(asked.place, StorePlace) and asked.broker_name:
            self._options["brokerName"] = asked.broker_name
        self._findings: list[Finding] = []
        self._runs: list[Run] = []

    def result(self) -> JobResult:
        """Recover, plan, run by run."""
        job, files = self._job, self._files
        finished = commit.recover(files, job.now_ms(), self._step)
        if finished is not None:
            job.note(f"finished run {finished}, which was killed")
        manifest = commit.load(files)
        planned = self._plan(manifest)
        self._findings += planned.findings
        self._step("planned")
        # The numbers that follow what was planned upon: whoever commits in between takes one of
        # them, and this job stops, rather than archive the same messages again.
        numbered = enumerate(batches(planned.ranges, self._asked.most), manifest.next_number)
        for number, ranges in numbered:
            if not self._run(number, ranges):
                break
        return self._answer(commit.load(files))

    def _plan(self, manifest: Manifest) -> Plan:
        options = parse_options(self._options)
        now, before = self._job.now_ms(), self._asked.before_ms
        return plan(queues_of(options), options.subscription, manifest, before, now)

    def _run(self, number: int, ranges: Sequence[QueueRange]) -> bool:
        """True: it is committed."""
        job, files = self._job, self._files
        now = job.now_ms()
        token = f"{number:06d}-{now}-{job.spark.sparkContext.applicationId}"
        staging = commit.staging_of(token)
        files.delete(staging)
        options = {key: value for key, value in self._options.items() if key not in _WHICH}
        count = sum(each.stop - each.start for each in ranges)
        with job.progress(f"run {number}: writing {count:,} messages"):
            written = stage(job.spark, files, options, ranges, staging)
        self._step("written")
        found = [each for each in files.below(staging, ".parquet") if each.size]
        with job.progress(f"run {number}: verifying"):
            took = self._verified(ranges, written, staging, [each.path for each in found])
        if took is None:
            files.delete(staging)
            return False
        self._step("verified")
        run = Run(
            number=number,
            token=token,
            source=str(self._asked.place),
            created_ms=now,
            ranges=[_kept(each, took.get(each.queue)) for each in ranges],
            files=[_file(each, staging, number) for each in found],
            rows=written.rows,
            bad_crc=written.bad_crc,
            digest=written.digest,
        )
        commit.commit(files, run, self._step)
        self._runs.append(run)
        return True

    def _verified(
        self, ranges: Sequence[QueueRange], written: Sums, staging: str, paths: Sequence[str]
    ) -> dict[QueueId, Took] | None:
        """What was read back by queue; None: it is not what was asked for."""
        job, now = self._job, self._job.now_ms()
        back, took = read_back(job.spark, self._files, staging, paths)
        found = verify(ranges, took, now)
        if back != written:
            found.append(_differs(written, back, now))
        self._findings += found
        if any(each.severity == Severity.ERROR for each in found):
            return None
        if back.bad_crc:
            self._findings += self._damaged(staging, paths)
        return took

    def _damaged(self, staging: str, paths: Sequence[str]) -> list[Finding]:
        rows = staged(self._job.spark, self._files, staging, paths).where("not crcOk")
        wanted = rows.select(
            "brokerName", "topic", "queueId", "queueOffset", "commitLogOffset", "msgId"
        )
        return [
            Finding(
                Severity.WARN,
                "BAD_CRC",
                "the body did not fit its CRC in the source; archived as it is, with crcOk=false."
                " Take it from a replica while there is one",
                row["brokerName"],
                row["topic"],
                row["queueId"],
                physical_offset=row["commitLogOffset"],
                queue_offset=row["queueOffset"],
                msg_id=row["msgId"],
            )
            for row in wanted.limit(_SHOWN).collect()
        ]

    def _answer(self, manifest: Manifest) -> JobResult:
        rows = sum(run.rows for run in self._runs)
        files = sum(len(run.files) for run in self._runs)
        size = sum(file.size for run in self._runs for file in run.files)
        errors = [each for each in self._findings if each.severity == Severity.ERROR]
        done = f"{rows:,} messages archived in {files:,} files; the archive has {manifest.rows:,}"
        verdict = f"HOLDS: {done}, each once and verified"
        if errors:
            kinds = ", ".join(sorted({each.code for each in errors}))
            verdict = f"VIOLATED: {kinds}: {errors[0].detail}; {done}"
        return JobResult(
            frame_of(self._job.spark, self._findings),
            Outcome.VIOLATED if errors else Outcome.HOLDS,
            verdict,
            {
                "rows": rows,
                "files": files,
                "bytes": size,
                "runs": len(self._runs),
                "archiveRows": manifest.rows,
                "archiveRuns": len(manifest.runs),
                "badCrc": sum(run.bad_crc for run in self._runs),
                "beforeMs": self._asked.before_ms,
            },
            [_topics(self._runs)],
        )


def _kept(asked: QueueRange, took: Took | None) -> Kept:
    if took is None:
        return Kept(asked.queue, asked.start, asked.stop, 0)
    last = took.last if took.most == asked.stop - 1 else ""
    return Kept(asked.queue, asked.start, asked.stop, took.rows, last)


def _file(found: Found, staging: str, number: int) -> DataFile:
    """The name of a run in front of Spark's own keeps files of runs apart for people."""
    directory, _, name = found.path.removeprefix(f"{staging}/").rpartition("/")
    return DataFile(f"{directory}/run-{number:06d}-{name}", found.path, found.size)


def _differs(written: Sums, back: Sums, now_ms: int) -> Finding:
    def shown(sums: Sums) -> str:
        return f"{sums.rows} rows, digest {sums.digest & (1 << 64) - 1:016x}"

    return Finding(
        Severity.ERROR,
        "VERIFY_FAILED",
        "what was read back is not what was written; nothing of the run counts. Look at the file"
        " system, and run it again",
        expected=shown(written),
        actual=shown(back),
        observed_at=now_ms,
    )


def _topics(runs: Sequence[Run]) -> Table:
    rows: dict[str, list[int]] = {}
    for run in runs:
        for kept in run.ranges:
            counts = rows.setdefault(kept.queue.topic, [0, 0])
            counts[0] += 1
            counts[1] += kept.rows
    largest = sorted(rows.items(), key=lambda each: -each[1][1])[:_SHOWN]
    return Table(
        "Archived now",
        ("topic", "ranges of queues", "messages"),
        [(topic, *counts) for topic, counts in largest],
    )
