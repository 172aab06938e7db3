"""`rmqha-spark`: its commands, found lazily."""

import re
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rmq_ha.lake.spark.cli import COMMANDS, main
from rmq_ha.lake.spark.host import java, packing
from rmq_ha.ops.admin import groups
from rmq_ha.ops.admin.groups import Lazy
from tests.kits.cluster_packages import link_cluster_packages
from tests.unit.lake.spark.golden_stores import java_store

ROOT = Path(__file__).parents[4]


def test_help_lists_all_commands_and_imports_none_of_them() -> None:
    script = (
        "import sys; from rmq_ha.lake.spark.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('pyspark', 'pyarrow', 'numpy', 'twisted')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert all(name in done.stdout for name in COMMANDS)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_where_the_table_says(name: str) -> None:
    module, _, attribute = COMMANDS[name].where.partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    done = CliRunner().invoke(main, [name.replace("-", "_"), "--help"])
    assert done.exit_code == 0, done.output


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    monkeypatch.setattr(groups, "import_module", missing)
    done = CliRunner().invoke(main, ["archive"])
    assert done.exit_code == 4
    assert done.output == "Error: pyspark is not installed: pip install 'rmq-ha[spark]'\n"


def test_a_fault_of_ours_is_not_taken_for_something_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(COMMANDS, "gone", Lazy("rmq_ha.lake.spark.gone:gone", ""))
    assert isinstance(CliRunner().invoke(main, ["gone"]).exception, ModuleNotFoundError)


def test_ctrl_c_before_a_job_begins_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 would say: violated."""

    def slow(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(groups, "import_module", slow)
    done = CliRunner().invoke(main, ["archive"])
    assert done.exit_code == 4
    assert done.output == "failed: interrupted, so there is no verdict; run it again\n"


def test_a_zip_that_cannot_be_written_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    done = CliRunner().invoke(main, ["pack", str(tmp_path / "r.zip")])
    assert done.exit_code == 4
    assert done.output.endswith("r.zip cannot be written: No space left on device\n")
    assert not list(tmp_path.iterdir())


def test_a_command_that_is_not_there() -> None:
    done = CliRunner().invoke(main, ["verify-ofsets"])
    assert (done.exit_code, "verify-offsets" in done.output) == (2, True)


@pytest.mark.parametrize(
    "script", sorted((ROOT / "spark").glob("*.py")), ids=lambda path: path.stem
)
def test_each_script_runs_its_job(script: Path) -> None:
    job = script.stem.replace("_", "-")
    assert job in COMMANDS
    assert re.findall(r'main\(\["([a-z-]+)"', script.read_text()) == [job]


def test_a_zip_holds_what_executors_import_and_is_the_same_each_time(tmp_path: Path) -> None:
    zips = [tmp_path / name / "rmq_ha.zip" for name in ("a", "b")]
    for path in zips:
        done = CliRunner().invoke(main, ["pack", str(path)])
        assert done.exit_code == 0, done.output
    assert zips[0].read_bytes() == zips[1].read_bytes()
    with zipfile.ZipFile(zips[0]) as archive:
        names = set(archive.namelist())
    assert {"rmq_ha/__init__.py", "rmq_ha/lake/spark/source/datasource.py"} <= names
    assert "rmq_ha/lake/spark/report/report.html.jinja" in names
    assert not [name for name in names if name.endswith(".pyc") or "/testing/" in name]
    with zipfile.ZipFile(zips[0]) as archive:
        entries = archive.infolist()
    assert done.output == f"{zips[1]}: {len(entries)} files\n"
    assert all(entry.compress_type == zipfile.ZIP_DEFLATED for entry in entries)
    assert all(entry.external_attr == 0o644 << 16 for entry in entries)
    assert not [name for name in names if name.endswith("/")]


def test_a_zip_replaces_the_one_of_before_and_its_directory_is_made(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "r.zip"
    count = packing.write_zip(str(target))
    assert packing.write_zip(str(target)) == count
    assert list(target.parent.iterdir()) == [target]
    with zipfile.ZipFile(target) as archive:
        assert len(archive.namelist()) == count
        inside = archive.read("rmq_ha/lake/spark/host/packing.py")
    assert inside == Path(packing.__file__).read_bytes()


def test_a_zip_has_to_be_called_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["pack", str(tmp_path / "rmq_ha")])
    assert done.exit_code == 2
    assert "*.zip" in done.output


def test_a_zip_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["pack", str(tmp_path / "file" / "a.zip")])
    assert (done.exit_code, done.output.startswith("Error: ")) == (4, True)


def test_nothing_is_packed_out_of_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing.rmq_ha, "__file__", "/x/rmq_ha.zip/rmq_ha/__init__.py")
    with pytest.raises(FileNotFoundError, match="from a zip already"):
        packing.write_zip(str(tmp_path / "a.zip"))


def test_java_home_is_printed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = java.Java(tmp_path, 21, "JAVA_HOME", ("PATH: /old is Java 8", "/opt: none"))
    monkeypatch.setattr(java, "find_java", lambda: found)
    assert CliRunner().invoke(main, ["java-home"]).output == f"{tmp_path}\n"
    said = CliRunner().invoke(main, ["java-home", "-v"]).stderr
    assert said.splitlines() == [
        "not taken: PATH: /old is Java 8",
        "not taken: /opt: none",
        f"Java 21 of JAVA_HOME: {tmp_path}",
    ]


def test_no_java_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise java.NoJava("no Java for Spark")

    monkeypatch.setattr(java, "find_java", none)
    done = CliRunner().invoke(main, ["java-home"])
    assert (done.exit_code, done.output) == (4, "Error: no Java for Spark\n")


JOBS = ("verify-offsets", "verify-replica", "verify-fleet", "audit-messages")


@pytest.mark.parametrize("job", JOBS)
def test_both_commands_have_the_same_options_but_those_of_spark(job: str) -> None:
    from rmq_ha.lake.spark import cli
    from rmq_ha.lake.spark.running import SparkOption
    from rmq_ha.ops.admin import main as admin

    def options(table: click.Group) -> dict[str, str]:
        command = table.get_command(click.Context(table), job)
        assert command is not None
        return {param.opts[0]: getattr(param, "help", "") or "" for param in command.params
                if not isinstance(param, SparkOption)}  # fmt: skip

    assert options(admin.main) == options(cli.main)
    assert "--findings" in options(admin.main)


def test_small_work_needs_no_spark(tmp_path: Path) -> None:
    """All four jobs in a Python that has no pyspark: verdicts, exit codes and --out are there."""
    store = java_store("clean", tmp_path)
    program = f"""
import sys
sys.modules["pyspark"] = None
from rmq_ha.lake.scan.command import main as scan
from rmq_ha.ops.admin.main import main
def run(*line):
    try:
        main(line, prog_name="rmqha-admin")
    except SystemExit as ended:
        print(line[0], ended.code)
run("verify-replica", {str(store)!r}, "-q")
run("verify-replica", {str(store)!r}, "--from", "99999999", "-q")
run("verify-offsets", "--master", {str(store)!r}, "--slave", {str(store)!r}, "-q")
run("audit-messages", {str(store)!r}, "--out", {str(tmp_path / "out")!r}, "-q")
try:
    scan(["{store}", "--to", "{tmp_path / "facts"}", "--broker", "b"])
except SystemExit:
    pass
run("verify-fleet", {str(tmp_path / "facts")!r}, "-q", "--alone", "b")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    lines = done.stdout.splitlines()
    codes = [line for line in lines if line.startswith(JOBS)]
    assert codes == [
        "verify-replica 0", "verify-replica 3", "verify-offsets 2", "audit-messages 0",
        "verify-fleet 0",
    ], done.stdout + done.stderr  # fmt: skip
    assert any(line.startswith("HOLDS: 189 messages in 16 queues") for line in lines)
    assert (tmp_path / "out" / "windows" / "part-0.parquet").exists()
    assert "HOLDS: 189 messages" in (tmp_path / "out" / "report.html").read_text()


def test_a_pair_needs_nothing_but_rmq_ha_itself(tmp_path: Path) -> None:
    """Whether a pair can fail over; of the other jobs it says what they need."""
    master, slave = (java_store("clean", tmp_path / name) for name in ("m", "s"))
    program = f"""
import sys
for name in ("pyspark", "numpy", "pyarrow", "pandas", "duckdb", "jinja2"):
    sys.modules[name] = None
from rmq_ha.ops.admin.main import main
def run(*line):
    try:
        main(line, prog_name="rmqha-admin")
    except SystemExit as ended:
        print(ended.code)
run("verify-offsets", "--master", {str(master)!r}, "--slave", {str(slave)!r}, "-q", "--findings")
run("verify-replica", {str(master)!r})
run("audit-messages", {str(master)!r}, "-q")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    said = done.stdout.splitlines()
    assert said[0].startswith("safe to fail over: yes; 0 messages would be repeated"), done.stderr
    assert said[1:3] == ["0", "4"], done.stderr
    assert "Error: numpy is not installed: pip install 'rmq-ha[scan]'" in done.stderr
    assert said[3].startswith("failed: pyarrow is not installed: pip install 'rmq-ha[scan]'") or (
        said[3].startswith("failed: numpy is not installed: pip install 'rmq-ha[scan]'")
    )
    assert said[4:] == ["4"]


TASKS = """
lake.frames.functions lake.scan.fleet.judging lake.scan.replica.tasks lake.spark.audit.job
lake.spark.fleet lake.spark.host.engine lake.spark.offsets.history lake.spark.offsets.many_pairs
lake.spark.replica.job lake.spark.source.batch lake.spark.source.sink lake.spark.source.streaming
lake.spark.source.tables_live lake.spark.source.tables_offline
"""


def test_the_zip_has_all_that_tasks_load(tmp_path: Path) -> None:
    """On a Python of pyspark, pyarrow, numpy and pandas; the format is found, too."""
    site = tmp_path / "site"
    site.mkdir()
    link_cluster_packages(site)
    packing.write_zip(str(tmp_path / "rmq_ha.zip"))
    program = f"""
from importlib import import_module
for name in {TASKS.split()!r}:
    import_module("rmq_ha." + name)
import msgspec, pyspark_rocketmq
assert msgspec.json.decode(b"[1]") == [1]
print(msgspec.__file__, pyspark_rocketmq.DefaultSource.name())
"""
    environ = {"TMPDIR": str(tmp_path), "PYTHONPATH": f"{tmp_path}/rmq_ha.zip:{site}"}
    for _ in range(2):  # unpacked, and found
        done = subprocess.run(
            [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False,
            timeout=60, env=environ, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{tmp_path}/rmqha-")
        assert done.stdout.endswith("rocketmq\n")
