"""The first page of docs/spark.md: what needs no Spark is run as it stands, on a store of Java."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.admin.main import main as admin
from rmq_ha.scan.command import main as scan
from tests.unit.spark.golden_stores import java_store

DOCUMENT = Path(__file__).parents[3] / "docs" / "spark.md"
COMMANDS: dict[str, Any] = {"rmqha-admin": admin, "rmqha-scan": scan}


def recipes() -> Iterator[tuple[str, list[str]]]:
    """Each command of the first page, and the lines below it."""
    page = DOCUMENT.read_text().partition("## In short")[0]
    for block in re.findall(r"(?:^    .*\n)+", page, re.MULTILINE):
        first, *answer = (line[4:] for line in block.splitlines())
        if first.startswith("$ "):
            yield first[2:], answer


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    master = java_store("clean", folder / "unpacked")
    for name in ("master", "slave", "store"):
        shutil.copytree(master, folder / name)
    return folder


def test_the_page_is_short_and_has_five_recipes() -> None:
    page = DOCUMENT.read_text().partition("## In short")[0]
    assert len(page.splitlines()) <= 45
    assert len(list(recipes())) == 5


def test_each_recipe_without_spark_answers_what_the_page_says(data: Path) -> None:
    run = 0
    for command, answer in recipes():
        here = command.replace("s3://facts/prod", str(data / "facts")).replace("/data/", f"{data}/")
        program, *arguments = shlex.split(here)
        if program in COMMANDS:
            run += 1
            done = CliRunner().invoke(COMMANDS[program], arguments)
            assert done.output.splitlines() == answer, command
    assert run == 2
