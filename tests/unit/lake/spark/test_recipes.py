"""
The first page of docs/spark.md: what needs no Spark is run as it stands, on a store of Java.

What Spark's jobs answer is compared in tests/spark (test_verify_fleet.py, test_audit_stores.py);
the tasks of verify-replica run here, without Spark.
"""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.lake.scan import command
from rmq_ha.lake.scan.replica.verifying import run_here, verify
from rmq_ha.ops.admin.main import main as admin
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.recipes import answer_of, first_page, recipes
from tests.unit.lake.spark.replica_kit import settings_of

COMMANDS: dict[str, Any] = {"rmqha-admin": admin, "rmqha-scan": command.main}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    master = java_store("clean", folder / "unpacked")
    for name in ("master", "slave", "store"):
        shutil.copytree(master, folder / name)
    return folder


def test_the_page_is_short_and_has_five_recipes() -> None:
    assert len(first_page().splitlines()) <= 45
    assert len(list(recipes())) == 5


def test_each_recipe_answers_what_the_page_says(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "lower_priority", lambda: None)  # it would be ours
    run = 0
    for line, answer in recipes():
        here = line.replace("s3://facts/prod", str(data / "facts")).replace("/data/", f"{data}/")
        program, *arguments = shlex.split(here)
        is_exact = not any("..." in text or "N messages" in text for text in answer)
        if program in COMMANDS and is_exact:
            run += 1
            done = CliRunner().invoke(COMMANDS[program], arguments)
            assert done.output.splitlines() == answer, line
    assert run == 3


def test_two_stores_that_are_the_same_answer_what_the_page_says(data: Path) -> None:
    settings = settings_of(data / "master", data / "slave")
    told = verify(settings, run_here)
    assert told.verdict == answer_of("verify-replica")
