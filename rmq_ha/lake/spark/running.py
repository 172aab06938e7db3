"""Runs a job: options, session, printed and written output, exit code."""

import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.host import blocking
from rmq_ha.base.host.files import absolute
from rmq_ha.base.model.printable import in_json, one_line
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.spark.failing import meaning_of, was_interrupted
from rmq_ha.lake.spark.host import ending, masters
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.admin.options import Options, combine_options, common_options, current_options
from rmq_ha.ops.offsets.digest import counts_of, finding_line
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.summary import Timings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmq_ha.lake.frames.frame import Engine
    from rmq_ha.lake.spark.host.output import JobOutput
    from rmq_ha.lake.spark.host.session import JobSession
    from rmq_ha.ops.offsets.places import Place

F = TypeVar("F", bound=Callable[..., Any])
_KEY = "rmq_ha.lake.spark.running"


class Frame(NamedTuple):
    """
    The values of the options that all jobs have.

    :ivar master: Spark's master; None: that of Spark's settings, else this machine.
    :ivar strict: whether a warning counts as a violation.
    :ivar shows: whether each finding is printed, and not only the numbers of findings.
    :ivar plain: whether the job runs in this process, without Spark.
    """

    out: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = {}
    driver_memory: str | None = None
    strict: bool = False
    quiet: bool = False
    shows: bool = False
    plain: bool = False


class SparkOption(click.Option):
    """An option that is left out when a job runs without Spark."""


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--conf`; raise ValueError for another form."""
    conf = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{pair!r}: write KEY=VALUE")
        conf[key.strip()] = value
    if "spark.master" in conf:
        _master(conf["spark.master"])
    return conf


def _master(text: str) -> str:
    if not masters.is_master(text):
        raise ValueError(f"{text!r}: write {masters.FORMS}")
    return text


def _memory(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[kmgt]", text, re.IGNORECASE):
        raise ValueError(f"{text!r}: write 1g, or 512m")
    return text


def _frame_option(
    *names: str, read: Callable[[Any], Any] = lambda value: value, **attributes: Any
) -> Any:
    """
    Return an option that `current_frame` has, and that is not passed to the command's function.

    :param read: makes its value; raises ValueError with a text that says what to write.
    """

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        try:
            kept = None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None
        context.meta.setdefault(_KEY, {})[parameter.name] = kept

    return click.option(*names, expose_value=False, callback=keep, **attributes)


def _options(*names_of_master: str) -> Callable[[F], F]:
    """Return a decorator for the options of all jobs; that for Spark's master has these names."""
    return combine_options(
        _frame_option(
            "--out",
            metavar="DIR",
            help="Write findings (Parquet), summary.json and report.html into this directory. It "
            "must be new, empty, or hold the result of an earlier run, which is replaced.",
        ),
        _frame_option(
            *names_of_master,
            cls=SparkOption,
            read=_master,
            metavar="URL",
            help="Where Spark runs: local[4], spark://host:7077, yarn, k8s://...; default: all"
            " processors of this machine.",
        ),
        _frame_option(
            "--conf",
            cls=SparkOption,
            multiple=True,
            read=_settings,
            metavar="KEY=VALUE",
            help="A setting of Spark; repeatable.",
        ),
        _frame_option(
            "--driver-memory",
            cls=SparkOption,
            read=_memory,
            metavar="SIZE",
            help="Heap of the driver. The default of 1g is enough for a store of any size.",
        ),
        _frame_option(
            "--findings",
            "shows",
            is_flag=True,
            help="Print each finding, not only their numbers; of many the worst thousand.",
        ),
        _frame_option("--strict", is_flag=True, help="Exit with 1 on warnings, too."),
        _frame_option(
            "--quiet", "-q", is_flag=True, help="Print no notes and no progress on stderr."
        ),
        common_options,
    )


job_options = _options("--master")
"""Gives a command the options of all jobs, and those for live brokers."""
job_options_of_pairs = _options("--spark-master", "master")
"""
Gives a command the same options for jobs whose `--master` is a broker: Spark's master is
`--spark-master`.
"""


def plain_command(command: click.Command) -> click.Command:
    """Return a job's command for `rmqha-admin`: it runs here, without options of Spark."""
    plain = copy(command)
    plain.params = [param for param in command.params if not isinstance(param, SparkOption)]

    def call(**given: Any) -> Any:
        click.get_current_context().meta.setdefault(_KEY, {})["plain"] = True
        assert command.callback is not None
        return command.callback(**given)

    plain.callback = call
    return plain


def current_frame() -> Frame:
    """Return the options of the running command."""
    kept = click.get_current_context().meta.get(_KEY, {})
    return Frame(**{name: value for name, value in kept.items() if name in Frame._fields})


class Job:
    """The services that a job uses; `start_seconds` is how long it waited for Spark."""

    def __init__(
        self, name: str, frame: Frame, options: Options, job_session: "JobSession | None"
    ) -> None:
        self.name = name
        self.start_seconds = 0.0
        self._frame = frame
        self._options = options
        self._job_session = job_session
        self.session: SparkSession | None = None
        self._engine: Engine | None = None

    @property
    def spark(self) -> "SparkSession":
        """The session; the first use waits for it."""
        if self.session is None:
            if self._job_session is None:
                raise WrongUsage(f"{self.name} has a part that only rmqha-spark runs")
            began = blocking.seconds()
            self.session = self._job_session.get()
            self.start_seconds = blocking.seconds() - began
        return self.session

    def engine(self) -> "Engine":
        """Return the engine of frames: Spark, or DuckDB here. The first call starts it."""
        if self._engine is None:
            if self._frame.plain:
                from rmq_ha.lake.spark.host.duck import DuckEngine
                from rmq_ha.lake.spark.source.messages import messages

                self._engine = DuckEngine(messages)
            else:
                from rmq_ha.lake.spark.host.engine import SparkEngine

                self._engine = SparkEngine(self.spark)
        return self._engine

    @cached_property
    def client(self) -> ClientConfig:
        """Settings of the client for live brokers: name servers, account, TLS."""
        return self._options.client_config()

    def now_ms(self) -> int:
        """Return ms since the epoch."""
        return blocking.now_ms()

    def place(self, text: str) -> "Place":
        """
        Return a place as `parse_place` reads it, with an absolute path, because executors work in
        other directories. A store that only Hadoop can open is copied here.

        :raises WrongUsage: the text is no place.
        :raises CannotDecide: the store cannot be copied.
        """
        from rmq_ha.ops.offsets.places import StorePlace, parse_place

        place = parse_place(text)
        if not isinstance(place, StorePlace):
            return place
        if not self._frame.plain:
            from rmq_ha.lake.spark.host.staging import needs_staging, stage

            if needs_staging(place.uri):
                self.note(f"copying {place}")
                return StorePlace(stage(self.spark, place.uri), copy_of=place.uri)
        return StorePlace(absolute(place.uri), place.copy_of)

    def note(self, text: str) -> None:
        """Print a line for the user on stderr."""
        if not self._frame.quiet:
            click.echo(one_line(text), err=True)

    @contextmanager
    def progress(self, label: str) -> Iterator[None]:
        """Show progress while the block runs; the label says what the job does."""
        if self._frame.quiet:
            yield
            return
        if self._frame.plain:
            from rmq_ha.ops.admin.output import Output  # the bar of rich takes its time

            with Output(self._options.as_json).progress(label, None):
                yield
            return
        from rmq_ha.lake.spark.progress import show_stages

        with show_stages(self.spark, label):
            yield


def run_job(name: str, inputs: Mapping[str, str], body: Callable[[Job], JobResult]) -> NoReturn:
    """Run a job, print and write its result, and exit with its code."""
    run = _JobRun(name, inputs, current_frame(), current_options())
    with ending.interruptible():
        outcome = run.outcome(body)
    sys.exit(int(outcome))


class _JobRun:
    """One run of a job: session, output and exit code."""

    def __init__(
        self, name: str, inputs: Mapping[str, str], frame: Frame, options: Options
    ) -> None:
        self._name = name
        self._inputs = inputs
        self._frame = frame
        self._options = options
        self._started_at = blocking.now_ms()
        self._began = blocking.seconds()
        self._job: Job | None = None
        self._interrupted = False

    def outcome(self, body: Callable[[Job], JobResult]) -> Outcome:
        """Run the job, print the verdict or the reason of a failure, and return the outcome."""
        job_session = None
        if not self._options.verbose:
            ending.quiet_libraries()
        try:
            if self._frame.out is not None:
                from rmq_ha.lake.spark.host.output import prepare

                prepare(self._frame.out)
            if not self._frame.plain:
                job_session = self._session()
            self._job = Job(self._name, self._frame, self._options, job_session)
            return self._write_result(body(self._job))
        except (Exception, KeyboardInterrupt) as error:
            self._interrupted = was_interrupted(error)
            if self._interrupted:
                ending.ignore_more()
            meant, reason = meaning_of(error)
            return self._write_refusal(meant, reason, error)
        finally:
            if job_session is not None:
                job_session.close(interrupted=self._interrupted)

    def _session(self) -> "JobSession":
        from rmq_ha.lake.spark.host.session import JobSession

        return JobSession(
            f"rmq-ha {self._name}",
            master=self._frame.master,
            conf=self._frame.conf,
            driver_memory=self._frame.driver_memory,
            log_level="warn" if self._options.verbose else "off",
        )

    def _timings(self) -> Timings:
        start = self._job.start_seconds if self._job is not None else 0.0
        return Timings(self._started_at, start, blocking.seconds() - self._began - start)

    def _write_result(self, result: JobResult) -> Outcome:
        """Write and print the result of a job, and return its outcome after `--strict`."""
        from rmq_ha.lake.spark.host.output import write_output

        assert self._job is not None
        written = write_output(
            self._name,
            self._inputs,
            result,
            self._frame.out,
            self._timings(),
            self._job.engine,
            strict=self._frame.strict,
        )
        self._tell(written)
        return written.outcome

    def _write_refusal(self, outcome: Outcome, reason: str, error: BaseException) -> Outcome:
        """Print why a job has no result, and write this into its output directory."""
        if self._options.verbose:
            click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
        if outcome is Outcome.USAGE:
            click.echo(one_line(f"Error: {reason}"), err=True)
            return outcome
        words = {Outcome.UNDECIDED: "could not decide", Outcome.FAILED: "failed"}
        verdict = f"{words[outcome]}: {reason}"
        try:
            from rmq_ha.lake.spark.host.output import write_refusal

            job = None if self._interrupted else self._job
            has_engine = job is not None and (self._frame.plain or job.session is not None)
            about = self._name, self._inputs, outcome, verdict
            engine = job.engine() if job is not None and has_engine else None
            self._tell(write_refusal(*about, self._frame.out, self._timings(), engine))
        except Exception as failed:
            click.echo(one_line(verdict))
            click.echo(one_line(f"and --out could not be written: {failed}"), err=True)
        return outcome

    def _tell(self, written: "JobOutput") -> None:
        """Print the counts and the verdict on stdout, or the summary as JSON."""
        rows = written.findings.top
        if self._options.as_json:
            summary = {**written.summary, "findings": list(map(_in_ms, rows))}
            click.echo(in_json(json.dumps(summary, ensure_ascii=False)))
            return
        lines = list(map(finding_line, rows)) if self._frame.shows else []
        lines += [*counts_of(written.findings), written.verdict]
        click.echo("\n".join(map(one_line, lines)))


def _in_ms(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finding for JSON: a time is a number of ms."""
    at = row["observedAt"]
    return {**row, "observedAt": round(at.timestamp() * 1000) if isinstance(at, datetime) else at}
