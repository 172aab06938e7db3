"""The frame around every job: options, session, what is printed and written, exit code."""

import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from rmq_ha.admin.options import Options, common_options, current_options
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.offsets.digest import counts_of
from rmq_ha.offsets.findings import Outcome
from rmq_ha.spark.failing import meaning_of, was_interrupted
from rmq_ha.spark.host import clock, ending, masters
from rmq_ha.spark.result import JobResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmq_ha.offsets.places import Place
    from rmq_ha.spark.host.output import Written
    from rmq_ha.spark.host.session import Session

F = TypeVar("F", bound=Callable[..., Any])
_KEY = "rmq_ha.spark.running"


class Frame(NamedTuple):
    """
    What the options of all jobs said.

    :ivar out: where findings, summary and report go.
    :ivar master: where Spark runs; None: what its settings say, else this machine.
    :ivar conf: settings of Spark.
    :ivar driver_memory: the driver's heap.
    :ivar strict: a warning violates, too.
    :ivar quiet: no notes and no progress.
    """

    out: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = {}
    driver_memory: str | None = None
    strict: bool = False
    quiet: bool = False


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    assert parameter.name is not None
    context.meta.setdefault(_KEY, {})[parameter.name] = value


def _settings(context: click.Context, parameter: click.Parameter, pairs: Sequence[str]) -> None:
    conf = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{pair!r}: write KEY=VALUE", context, parameter)
        conf[key.strip()] = value
    if "spark.master" in conf:
        _refuse_odd(conf["spark.master"], context, parameter)
    _keep(context, parameter, conf)


def _master(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        _refuse_odd(value, context, parameter)
    _keep(context, parameter, value)


def _refuse_odd(master: str, context: click.Context, parameter: click.Parameter) -> None:
    if not masters.is_master(master):
        raise click.BadParameter(f"{master!r}: write {masters.FORMS}", context, parameter)


_MEMORY = re.compile(r"[1-9]\d*[kmgt]", re.IGNORECASE)


def _memory(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and not _MEMORY.fullmatch(value):
        raise click.BadParameter(f"{value!r}: write 1g, or 512m", context, parameter)
    _keep(context, parameter, value)


def _own(*names: str, callback: Callable[..., None] = _keep, **attributes: Any) -> Any:
    return click.option(*names, expose_value=False, callback=callback, **attributes)


_WHERE = (
    "Where Spark runs: local[4], spark://host:7077, yarn, k8s://...; default: all processors of"
    " this machine."
)
_MASTER = _own("--master", callback=_master, metavar="URL", help=_WHERE)
_SPARK_MASTER = _own("--spark-master", "master", callback=_master, metavar="URL", help=_WHERE)
_OPTIONS = (
    _own(
        "--out",
        metavar="DIR",
        help="Write findings (Parquet), summary.json and report.html there: a new or an empty"
        " directory, or one of an earlier run, which is replaced.",
    ),
    _MASTER,
    _own(
        "--conf",
        multiple=True,
        callback=_settings,
        metavar="KEY=VALUE",
        help="A setting of Spark; as often as needed.",
    ),
    _own(
        "--driver-memory",
        callback=_memory,
        metavar="SIZE",
        help="Heap of the driver; default 1g, which is enough for any size of store.",
    ),
    _own("--strict", is_flag=True, help="Warnings violate, too: exit code 1."),
    _own("--quiet", "-q", is_flag=True, help="No notes and no progress on stderr."),
)


def job_options(function: F) -> F:
    """Give a command the options of all jobs and those for live brokers."""
    return _with_options(function, _OPTIONS)


def job_options_of_pairs(function: F) -> F:
    """The same for jobs whose `--master` is a broker's: Spark's is `--spark-master`."""
    mine = [option for option in _OPTIONS if option is not _MASTER]
    return _with_options(function, [*mine, _SPARK_MASTER])


def _with_options(function: F, options: Sequence[Any]) -> F:
    function = common_options(function)
    for option in reversed(options):
        function = option(function)
    return function


def current_frame() -> Frame:
    """What the command line that is being run says."""
    kept = click.get_current_context().meta.get(_KEY, {})
    return Frame(**{name: value for name, value in kept.items() if name in Frame._fields})


class Job:
    """
    What a job works with.

    :ivar name: of the job.
    :ivar start_seconds: how long it waited for Spark.
    """

    def __init__(self, name: str, frame: Frame, options: Options, starting: "Session") -> None:
        self.name = name
        self.start_seconds = 0.0
        self._frame = frame
        self._options = options
        self._starting = starting
        self._session: SparkSession | None = None

    @property
    def spark(self) -> "SparkSession":
        """The session; its first use waits for it."""
        if self._session is None:
            began = clock.seconds()
            self._session = self._starting.get()
            self.start_seconds = clock.seconds() - began
        return self._session

    @property
    def session(self) -> "SparkSession | None":
        """The session if it was used."""
        return self._session

    @cached_property
    def client(self) -> ClientConfig:
        """How live brokers are asked: name servers, account, TLS."""
        return self._options.client_config()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return clock.now_ms()

    def place(self, text: str) -> "Place":
        """
        A place as `parse_place` reads it, its path absolute: executors work in other directories.
        A store that only Hadoop can open is copied here.

        :raises WrongUsage: it is none.
        :raises CannotDecide: it cannot be copied.
        """
        from rmq_ha.host.files import absolute
        from rmq_ha.offsets.places import StorePlace, parse_place
        from rmq_ha.spark.host.staging import needs_staging, stage

        place = parse_place(text)
        if not isinstance(place, StorePlace):
            return place
        if needs_staging(place.uri):
            self.note(f"copying {place}")
            return StorePlace(stage(self.spark, place.uri), copy_of=place.uri)
        return StorePlace(absolute(place.uri), place.copy_of)

    def directory(self, text: str) -> str:
        """A directory for Spark, whatever directory its executors work in."""
        from rmq_ha.host.files import absolute

        return absolute(text)

    def note(self, text: str) -> None:
        """A line for who looks on, on stderr."""
        if not self._frame.quiet:
            click.echo(text, err=True)

    @contextmanager
    def progress(self, label: str) -> Iterator[None]:
        """
        Show how far Spark is while the block runs.

        :param label: what it does: `reading 12 files`.
        """
        if self._frame.quiet:
            yield
            return
        from rmq_ha.spark.progress import shown

        with shown(self.spark, label):
            yield


def run_job(
    name: str,
    inputs: Mapping[str, str],
    body: Callable[[Job], JobResult],
) -> NoReturn:
    """
    Run a job, print and write what it answers, and exit with its code.

    :param name: of the job, as in the command.
    :param inputs: what it was given, for the summary.
    """
    run = _Run(name, inputs, current_frame(), current_options())
    with ending.interruptible():
        outcome = run.outcome(body)
    sys.exit(int(outcome))


class _Run:
    """One run of a job."""

    def __init__(
        self, name: str, inputs: Mapping[str, str], frame: Frame, options: Options
    ) -> None:
        self._name = name
        self._inputs = inputs
        self._frame = frame
        self._options = options
        self._started_at = clock.now_ms()
        self._began = clock.seconds()
        self._job: Job | None = None
        self._interrupted = False

    def outcome(self, body: Callable[[Job], JobResult]) -> Outcome:
        """Run it, say how it ended."""
        starting = None
        if not self._options.verbose:
            ending.quiet_libraries()
        try:
            self._prepare_out()
            starting = self._start()
            self._job = Job(self._name, self._frame, self._options, starting)
            return self._written(body(self._job))
        except (Exception, KeyboardInterrupt) as error:
            self._interrupted = was_interrupted(error)
            if self._interrupted:
                ending.ignore_more()
            meant, reason = meaning_of(error)
            return self._refused(meant, reason, error)
        finally:
            if starting is not None:
                starting.close(interrupted=self._interrupted)

    def _prepare_out(self) -> None:
        if self._frame.out is not None:
            from rmq_ha.spark.host.output import prepare

            prepare(self._frame.out)

    def _start(self) -> "Session":
        from rmq_ha.spark.host.session import Session

        return Session(
            f"rmq-ha {self._name}",
            master=self._frame.master,
            conf=self._frame.conf,
            driver_memory=self._frame.driver_memory,
            log_level="warn" if self._options.verbose else "off",
        )

    def _timings(self) -> Any:
        from rmq_ha.offsets.summary import Timings

        start = self._job.start_seconds if self._job is not None else 0.0
        return Timings(self._started_at, start, clock.seconds() - self._began - start)

    def _written(self, result: JobResult) -> Outcome:
        from rmq_ha.spark.host.output import write_output

        written = write_output(
            self._name,
            self._inputs,
            result,
            self._frame.out,
            self._timings(),
            strict=self._frame.strict,
        )
        self._tell(written)
        return written.outcome

    def _refused(self, outcome: Outcome, reason: str, error: BaseException) -> Outcome:
        if self._options.verbose:
            click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
        if outcome is Outcome.USAGE:
            click.echo(f"Error: {reason}", err=True)
            return outcome
        words = {Outcome.UNDECIDED: "could not decide", Outcome.FAILED: "failed"}
        verdict = f"{words[outcome]}: {reason}"
        try:
            self._tell(self._write_refusal(outcome, verdict))
        except Exception as failed:
            click.echo(verdict)
            click.echo(f"and --out could not be written: {failed}", err=True)
        return outcome

    def _write_refusal(self, outcome: Outcome, verdict: str) -> "Written":
        from rmq_ha.spark.host.output import write_refusal

        session = self._job.session if self._job is not None and not self._interrupted else None
        return write_refusal(
            self._name, self._inputs, outcome, verdict, self._frame.out, self._timings(), session
        )

    def _tell(self, written: "Written") -> None:
        """On stdout: programs get the summary, people the counts; the verdict stands last."""
        if self._options.as_json:
            click.echo(json.dumps(written.summary, ensure_ascii=False))
            return
        click.echo("\n".join([*counts_of(written.findings), written.verdict]))
