"""The frame around jobs: exit codes, what is printed, what is written."""

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.scan.replica.settings import Settings, StoreAt
from rmq_ha.lake.spark.failing import meaning_of
from rmq_ha.lake.spark.host import output
from rmq_ha.lake.spark.host import session as sessions
from rmq_ha.lake.spark.host.java import NoJava
from rmq_ha.lake.spark.host.masters import NoSparkMaster, is_master, refuse_unreachable
from rmq_ha.lake.spark.host.output import JobOutput
from rmq_ha.lake.spark.replica import job as replica_job
from rmq_ha.lake.spark.replica.command import verify_replica
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.running import Job, current_frame, job_options, run_job
from rmq_ha.lake.spark.source.live_reading import BrokerAway
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.sink_sending import NotSent
from rmq_ha.ops.offsets.digest import digest
from rmq_ha.ops.offsets.findings import Outcome


class FakeSession:
    """Nothing is started before somebody asks."""

    made: "list[FakeSession]" = []

    def __init__(self, name: str, **given: Any) -> None:
        self.name = name
        self.given = given
        self.calls: list[str] = []
        FakeSession.made.append(self)

    def get(self) -> str:
        self.calls.append("get")
        return "a session"

    def close(self, *, interrupted: bool) -> None:
        self.calls.append("close")


@pytest.fixture(autouse=True)
def fake_session(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSession.made.clear()
    monkeypatch.setattr(sessions, "JobSession", FakeSession)


def run(body: Callable[[Job], Any], *arguments: str) -> Result:
    @click.command()
    @job_options
    def command() -> None:
        run_job("look", {"store": "/s"}, body)

    return CliRunner().invoke(command, arguments)


def raising(error: BaseException) -> Callable[[Job], Any]:
    def body(job: Job) -> Any:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (WrongUsage("write it so"), 2, "Error: write it so"),
        (click.UsageError("both go together"), 2, "Error: both go together"),
        (CannotDecide("/s: no such directory"), 3, "could not decide: /s: no such directory"),
        (KeyboardInterrupt(), 4, "failed: interrupted, so there is no verdict; run it again"),
        (ValueError("odd\nmore"), 4, "failed: ValueError: odd (--verbose shows where)"),
        (NoJava("none; install one"), 4, "failed: NoJava: none; install one"),
        (RuntimeError("[JAVA_GATEWAY_EXITED] Java ended"), 4, "java-home --verbose"),
        (MemoryError("java.lang.OutOfMemoryError: heap"), 4, "--driver-memory 2g"),
        (OSError(28, "No space left on device"), 4, "--conf spark.local.dir=DIR"),
    ],
)
def test_each_end_has_its_code_and_its_sentence(error: BaseException, code: int, said: str) -> None:
    result = run(raising(error))
    assert result.exit_code == code
    assert said in result.output.strip().splitlines()[-1]
    assert "Traceback" not in result.output
    assert FakeSession.made[0].calls[-1] == "close"


def test_a_traceback_only_for_who_asks() -> None:
    result = run(raising(ValueError("odd")), "--verbose")
    assert result.exit_code == 4
    assert "Traceback" in result.stderr
    assert result.stdout == "failed: ValueError: odd (--verbose shows where)\n"


def test_a_refusal_is_written_too(tmp_path: Path) -> None:
    result = run(raising(CannotDecide("it moved")), "--out", str(tmp_path / "new"), "--json")
    assert result.exit_code == 3
    told = json.loads(result.stdout)
    assert told.pop("findings") == []
    assert told == json.loads((tmp_path / "new" / "summary.json").read_text())
    assert (told["outcome"], told["exitCode"]) == ("UNDECIDED", 3)
    assert told["verdict"] == "could not decide: it moved"
    assert told["inputs"] == {"store": "/s"}


def test_a_directory_with_other_things_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    result = run(raising(AssertionError("never run")), "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "holds other things" in result.stderr
    assert not FakeSession.made


def test_where_out_cannot_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(raising(AssertionError("never run")), "--out", str(tmp_path / "file" / "below"))
    assert result.exit_code == 2
    assert "cannot be written: Not a directory; name another place" in result.stderr
    assert not FakeSession.made


def test_a_refusal_of_ours_goes_to_stderr_and_a_verdict_to_stdout() -> None:
    usage = run(raising(WrongUsage("write it so")))
    assert (usage.stdout, usage.stderr) == ("", "Error: write it so\n")
    undecided = run(raising(CannotDecide("it moved")))
    assert (undecided.stdout, undecided.stderr) == ("could not decide: it moved\n", "")
    verbose = run(raising(CannotDecide("it moved")), "--verbose")
    assert verbose.stdout == "could not decide: it moved\n"
    assert "Traceback" in verbose.stderr


@pytest.mark.parametrize(
    ("error", "session"),
    [(CannotDecide("it moved"), "a session"), (KeyboardInterrupt(), None)],
)
def test_who_writes_a_refusal_has_the_session_unless_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, session: Any
) -> None:
    """An interrupted one may not answer any more."""
    given: list[Any] = []

    def write_refusal(*arguments: Any) -> JobOutput:
        given.append(arguments)
        return JobOutput(arguments[2], arguments[3], digest((), (), 0), {})

    def body(job: Job) -> Any:
        assert job.spark
        raise error

    monkeypatch.setattr(output, "write_refusal", write_refusal)
    run(body, "--out", "/o")
    ((name, inputs, *_, out, timings, spark),) = given
    found = None if spark is None else spark.spark
    assert (name, inputs, out, found) == ("look", {"store": "/s"}, "/o", session)
    assert timings.start >= 0


def test_a_refusal_before_there_is_a_session_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise NoJava("none; install one")

    monkeypatch.setattr(sessions, "JobSession", none)
    result = run(raising(AssertionError("never run")))
    assert (result.exit_code, result.stdout) == (4, "failed: NoJava: none; install one\n")


def test_where_out_becomes_unwritable_the_verdict_is_still_said(tmp_path: Path) -> None:
    def body(job: Job) -> Any:
        (tmp_path / "out").rmdir()
        (tmp_path / "out").touch()
        raise CannotDecide("it moved")

    result = run(body, "--out", str(tmp_path / "out"))
    assert result.exit_code == 3
    assert result.stdout == "could not decide: it moved\n"
    assert result.stderr.startswith("and --out could not be written: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_a_job_gets_no_verdict(number: signal.Signals) -> None:
    """As with Ctrl-C."""

    def body(job: Job) -> Any:
        signal.raise_signal(number)

    before = signal.signal(number, signal.SIG_DFL)
    try:
        result = run(body)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert result.exit_code == 4
    assert result.stdout == "failed: interrupted, so there is no verdict; run it again\n"
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--master", "nonsense"), "write local, local[4]"),
        (("--master", "local[x]"), "write local, local[4]"),
        (("--conf", "spark.master=spark:/h"), "write local, local[4]"),
        (("--conf", "nonsense"), "write KEY=VALUE"),
    ],
)
def test_no_spark_can_be_there(arguments: tuple[str, ...], said: str) -> None:
    result = run(raising(AssertionError("never run")), *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*, 3]",
        "local-cluster[1,1,1024]",
        "spark://a:1,b:2",
        "yarn",
        "sc://h",
        "sc://h:1/;x=y",
    ],
)
def test_masters_that_spark_knows(master: str) -> None:
    assert is_master(master)


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(NoSparkMaster, match=f"127.0.0.1:{port}.*refused"):
            refuse_unreachable(f"spark://127.0.0.1:{port}", {})
        with pytest.raises(NoSparkMaster, match=f"at sc://127.0.0.1:{port} .*refused") as connect:
            refuse_unreachable(f"sc://127.0.0.1:{port}/;token=hidden", {})
        assert "hidden" not in str(connect.value)
        closed.listen()
        refuse_unreachable(f"sc://127.0.0.1:{port}", {})
        refuse_unreachable(f"spark://localhost.invalid:1,127.0.0.1:{port}", {})
    with pytest.raises(WrongUsage, match="HADOOP_CONF_DIR"):
        refuse_unreachable("yarn", {})
    refuse_unreachable("yarn", {"YARN_CONF_DIR": "/etc/yarn"})


def test_of_an_error_of_java_its_cause_is_told() -> None:
    text = (
        "An error occurred while calling o185.parquet.\n"
        ": org.apache.spark.SparkException: Job aborted.\n"
        "\tat org.apache.spark.X.y(X.scala:1)\n"
        "Caused by: java.io.IOException: Mkdirs failed to create file:/proc/x\n"
        "\tat java.base/Thread.run(Thread.java:840)\n"
    )
    outcome, reason = meaning_of(RuntimeError(text))
    assert outcome is Outcome.FAILED
    expected = "IOException: Mkdirs failed to create file:/proc/x (--verbose shows where)"
    assert reason == expected


def written(outcome: Outcome, verdict: str) -> JobOutput:
    counted = digest([("ERROR", "MISSING", 12345), ("WARN", "LAG", 2)], (), 0)
    return JobOutput(outcome, verdict, counted, {"verdict": verdict})


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []

    def write_output(*arguments: Any, **more: Any) -> JobOutput:
        seen.append((arguments, more))
        return written(Outcome.VIOLATED, "safe to fail over: no")

    monkeypatch.setattr(output, "write_output", write_output)
    return seen


def a_result(job: Job) -> JobResult:
    assert job.spark is not None
    return JobResult([], Outcome.VIOLATED, "safe to fail over: no")


def test_counts_stand_before_the_verdict_and_the_verdict_stands_last(writes: list[Any]) -> None:
    result = run(a_result, "--strict", "--out", "/o", "--quiet")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "ERROR  MISSING        12,345",
        "WARN   LAG                 2",
        "safe to fail over: no",
    ]
    assert result.stderr == ""
    arguments, more = writes[0]
    assert arguments[0] == "look"
    assert arguments[3] == "/o"
    assert more == {"strict": True}
    assert FakeSession.made[0].calls == ["get", "close"]


def test_programs_get_the_summary(writes: list[Any]) -> None:
    said = json.loads(run(a_result, "--json").stdout)
    assert said == {"verdict": "safe to fail over: no", "findings": []}


def test_options_reach_the_session(writes: list[Any]) -> None:
    run(
        a_result,
        *("--master", "local[3]", "--driver-memory", "2g"),
        *("--conf", "a.b=c=d", "--conf", "e="),
    )
    session = FakeSession.made[0]
    assert session.name == "rmq-ha look"
    assert session.given == {
        "master": "local[3]",
        "conf": {"a.b": "c=d", "e": ""},
        "driver_memory": "2g",
        "log_level": "off",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--conf", "novalue"], "write KEY=VALUE"), (["--driver-memory", "1024"], "write 1g")],
)
def test_options_that_make_no_sense(arguments: list[str], said: str) -> None:
    result = run(raising(AssertionError("never run")), *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_paths_are_absolute_before_executors_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They work in other directories."""
    seen: list[Settings] = []

    def verify(job: Job, settings: Settings) -> JobResult:
        seen.append(settings)
        raise CannotDecide("seen enough")

    monkeypatch.setattr(replica_job, "verify", verify)
    monkeypatch.chdir(tmp_path)
    for name in ("m", "s"):
        (tmp_path / name).mkdir()
    arguments = ["m", "s", "--slave-commit-log", "log"]
    assert CliRunner().invoke(verify_replica, arguments).exit_code == 3
    assert seen[0].master == StoreAt(f"{tmp_path}/m")
    assert seen[0].slave == StoreAt(f"{tmp_path}/s", f"{tmp_path}/log")
    given = parse_options({"path": "m", "storePathCommitLog": "log"})
    assert (given.path, given.commit_log) == (f"{tmp_path}/m", f"{tmp_path}/log")
    assert parse_options({"path": "s3://bucket/m"}).path == "s3://bucket/m"
    assert parse_options({"path": "file:/m"}).path == "/m"


def test_notes_go_to_stderr_and_can_be_left_out() -> None:
    def body(job: Job) -> Any:
        job.note("reading")
        with job.progress("nothing"):
            raise CannotDecide("enough")

    result = run(body, "--quiet")
    assert (result.exit_code, result.stderr) == (3, "")
    assert "reading" in run(lambda job: job.note("reading") or a_result(job)).stderr


def test_live_brokers_are_asked_as_the_options_say() -> None:
    configs = []

    def body(job: Job) -> Any:
        configs.append(job.client)
        raise CannotDecide("enough")

    run(body, "--namesrv", "127.0.0.1:9", "--access-key", "a", "--secret-key", "b")
    assert configs[0].namesrv_addr == "127.0.0.1:9"
    assert configs[0].credentials is not None


def test_what_a_worker_raised_means_the_same() -> None:
    """The text as Spark gives it, with the worker's traceback in it."""
    text = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 3, in read
    raise CannotDecide("gone")
rmq_ha.base.errors.{}: /s/commitlog/0: the file is gone; run again
"""
    assert meaning_of(RuntimeError(text.format("CannotDecide"))) == (
        Outcome.UNDECIDED,
        "/s/commitlog/0: the file is gone; run again",
    )
    assert meaning_of(RuntimeError(text.format("WrongUsage")))[0] is Outcome.USAGE


@pytest.mark.parametrize(("kind", "outcome"), [(BrokerAway, "UNDECIDED"), (NotSent, "FAILED")])
def test_every_error_of_ours_is_told_as_its_sentence(kind: type, outcome: str) -> None:
    """As Spark gives it of a task that failed, where the worker wrote no traceback down."""
    text = (
        "Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times, most recent failure:"
        " Lost task 0.0 in stage 2.0 (TID 2) (localhost executor driver):"
        f" org.apache.spark.api.python.PythonException: {kind.__module__}.{kind.__name__}: nobody"
        " answers\n\n\tat org.apache.spark.X.y(X.scala:1)\n"
    )
    assert meaning_of(RuntimeError(text)) == (Outcome[outcome], "nobody answers")


def test_without_options_of_ours_there_are_defaults() -> None:
    @click.command()
    def command() -> None:
        click.echo(repr(current_frame()))

    assert "out=None" in CliRunner().invoke(command).output


def test_a_workers_traceback_is_told_by_its_last_line() -> None:
    """It says what happened; the lines before it only where."""
    text = (
        "[DATA_SOURCE_ERROR] Failed to create it: Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in main\n'
        "    read()\n"
        "ModuleNotFoundError: No module named 'rmq_ha'\n"
        "\n"
        "SQLSTATE: 38000"
    )
    assert meaning_of(RuntimeError(text)) == (
        Outcome.FAILED,
        "RuntimeError: [DATA_SOURCE_ERROR] Failed to create it: ModuleNotFoundError: No module"
        " named 'rmq_ha' (--verbose shows where)",
    )
