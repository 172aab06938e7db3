"""`rmqha-admin verify-offsets`: the answer for one pair, without Spark, Java, numpy or pyarrow."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.base.wire import fastjson
from rmq_ha.ops.admin.main import main

FIXTURES = Path(__file__).parents[3] / "fixtures" / "store"


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """A store that the Java broker wrote, and a copy of it."""
    shutil.unpack_archive(FIXTURES / "clean.tar.gz", tmp_path)
    (tmp_path / "clean").rename(tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "s")
    return tmp_path / "m", tmp_path / "s"


def run(*arguments: Any) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["verify-offsets", "--quiet", *map(str, arguments)])
    return done.exit_code, done.output


def put_back(slave: Path) -> None:
    """One offset of the slave, by 18."""
    config = slave / "config" / "consumerOffset.json"
    table = fastjson.parse(config.read_bytes())
    table["offsetTable"]["TopicA@CG_fixture"][0] = 12
    config.write_bytes(fastjson.pretty(table))


ALONE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pyarrow", "numpy", "pandas", "twisted"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
from rmq_ha.ops.admin.main import main
main()
"""


def test_it_needs_nothing_that_is_not_installed_with_a_broker(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    def alone(*arguments: Any) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", ALONE, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    master, slave = stores
    assert alone("verify-offsets", "--master", master, "--slave", slave) == (
        0,
        "safe to fail over: yes; 0 messages would be repeated, 0 skipped, 0 lost; compared the"
        " ends of 1081 queues, read 100 messages of the slave\n",
    )
    code, output = alone("snapshot", master, "--role", "master", "--to", tmp_path / "past")
    assert (code, Path(output.strip()).suffix) == (0, ".gz")


def test_what_is_found_is_told_and_repairable(stores: tuple[Path, Path], tmp_path: Path) -> None:
    master, slave = stores
    put_back(slave)
    pair = ("--master", master, "--slave", slave)
    code, output = run(*pair, "--json", "--repair", tmp_path / "plan")
    assert code == 1
    told = json.loads(output)
    assert (told["counts"], told["exitCode"], told["numbers"]["safe"]) == ({"STALE": 1}, 1, False)
    (one,) = told["findings"]
    assert (one["group"], one["queueId"], one["expected"], one["actual"]) == (
        *("CG_fixture", 0),
        *("30", "12"),
    )
    code, output = run(*pair, "--findings")
    first, counts, verdict = output.splitlines()
    where = "group CG_fixture, queue 0, topic TopicA"
    assert first.startswith(f"ERROR  STALE  {slave} {where}: 30 / 12: the slave has not")
    assert counts.split() == ["ERROR", "STALE", "1"]
    assert verdict.startswith("safe to fail over: no: 1 error; 18 messages would be repeated")
    shutil.copy(tmp_path / "plan" / "consumerOffset.json", slave / "config")
    assert run(*pair)[0] == 0


def test_exit_codes(stores: tuple[Path, Path], tmp_path: Path) -> None:
    master, slave = stores
    code, output = run("--master", master, "--slave", tmp_path / "nothing")
    assert (code, output.partition(":")[0]) == (3, "could not decide")
    code, output = run("--master", master, "--slave", master)
    assert (code, "no pair" in output) == (2, True)
    code, output = run("--master", master, "--slave", tmp_path / "nothing", "--json")
    assert (code, json.loads(output)["outcome"]) == (3, "UNDECIDED")
    code, output = run("--master", master, "--slave", slave, "--repair", master / "lock" / "x")
    assert (code, output.partition(":")[0]) == (4, "failed")


def test_a_warning_violates_where_that_is_asked_for(stores: tuple[Path, Path]) -> None:
    """A group that only the slave has."""
    master, slave = stores
    config = slave / "config" / "consumerOffset.json"
    table = fastjson.parse(config.read_bytes())
    table["offsetTable"]["TopicA@CG_gone"] = {0: 1}
    config.write_bytes(fastjson.pretty(table))
    pair = ("--master", master, "--slave", slave)
    assert run(*pair)[0] == 0
    code, output = run(*pair, "--strict")
    assert (code, "a warning is a violation" in output) == (1, True)
