"""`.github/workflows/ci.yml` runs what a contributor runs, with no right that it does not need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[4]
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")


@pytest.fixture
def workflow() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    return loaded


def test_it_runs_the_script_of_the_repository(workflow: dict[str, Any]) -> None:
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step][-1] == ".ci/run"
    assert (ROOT / ".ci/run").stat().st_mode & 0o100
    assert job["timeout-minutes"] == 30


def test_it_may_only_read(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert "permissions" not in job


def test_each_action_is_pinned_by_its_commit(workflow: dict[str, Any]) -> None:
    (job,) = workflow["jobs"].values()
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert used
    assert [name for name in used if not PINNED.fullmatch(name)] == []


def test_its_python_is_the_oldest_that_the_package_names(workflow: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (job,) = workflow["jobs"].values()
    (python,) = (
        step["with"]["python-version"]
        for step in job["steps"]
        if "setup-python" in step.get("uses", "")
    )
    assert project["requires-python"] == f">={python}"
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]
