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
    found = java.Java(tmp_path, 21, True, "JAVA_HOME", "", ("PATH: /old is Java 8", "/opt: none"))
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
