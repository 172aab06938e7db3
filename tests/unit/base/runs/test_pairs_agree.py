"""Pairs of brokers with one of both makers each give the same answers and the same files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.runs.maker import SWITCH
from tests.kits.draws import EXPLORES

ROOT = Path(__file__).parents[4]
SEEDS = 100 if EXPLORES else 3
STEPS = 80


def test_a_pair_with_either_maker_writes_and_answers_the_same(tmp_path: Path) -> None:
    pytest.importorskip("rmq_ha_kernel", reason="`pip install ./kernel` was not run")
    runs = {maker: started(maker, tmp_path / maker) for maker in ("0", "1")}
    pure, native = [told(run) for run in runs.values()]
    assert {line.pop("maker") for line in pure} == {"pure"}
    assert {line.pop("maker") for line in native} == {"native"}
    assert all(line["faults"] == {} for line in native)
    assert len(pure) == SEEDS
    assert all(line["sends"] > 300 and line["master.end"] > 100_000 for line in pure), pure
    assert native == pure


def started(maker: str, directory: Path, **env: str) -> "subprocess.Popen[str]":
    """:param env: added to the environment of the process."""
    seeds = [str(seed) for seed in range(SEEDS)]
    command = [sys.executable, "-m", "tests.unit.base.runs.pair_run", directory, str(STEPS), *seeds]
    path = os.pathsep.join([str(ROOT), str(ROOT / "bench"), env.pop("PYTHONPATH", "")])
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **env, SWITCH: maker, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )


def told(run: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    output, _ = run.communicate()
    assert run.returncode == 0, output
    return [json.loads(line) for line in output.splitlines()]
