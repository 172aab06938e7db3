"""docs/capacity.md: what it tells to type is understood, and shows what it says.

`RMQ_HA_CAPACITY=1` runs each measurement, made short: what they measure then means nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from functools import cache
from pathlib import Path

import pytest

from rmq_ha.base.host.ports import free_ports
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.messages import Message
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.testing.real_brokers import ServerProcess

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "capacity.md").read_text()
TYPED = re.findall(r"`python (bench/\w+\.py[^`]*)`", TEXT)
SHORT = {
    "bench/hotpath.py": "--messages 640",
    "bench/restart.py": "--rate 50 --down 1",
    "bench/scale.py": "--sides ours --connections 200 --topics 20 --seconds 2",
    "bench/compare.py": "--short --repeats 1 --seconds 1 --warm 0 --mebibytes 8",
    "bench/failover.py": "--kills 1 --pairs ours --spread 1",
}
SETTINGS = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
mappedFileSizeCommitLog=4194304
maxHashSlotNum=5000
maxIndexNum=20000
maxMessageSize=4096
storePathRootDir=store
"""


def run(*words: str, seconds: float = 60.0) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout[-1000:], done.stderr[-2000:])
    return done.stdout


def is_shown(url: str, name: str) -> bool:
    with urllib.request.urlopen(url, timeout=30) as answer:
        shown = answer.read().decode()
    return re.search(rf"^{name}", shown, re.MULTILINE) is not None


@cache
def help_of(script: str) -> str:
    return run(script, "--help")


@pytest.mark.parametrize("line", TYPED)
def test_a_measurement_knows_its_options(line: str) -> None:
    script, *words = shlex.split(line)
    known = help_of(script)
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{option}\b", known), line
    assert set(SHORT) == {item.split()[0] for item in TYPED}


def test_where_a_send_spends_its_time_is_shown() -> None:
    """The one that needs no Java, and no quiet machine to be tried."""
    out = run("bench/hotpath.py", "--part", "send", "--messages", "640")
    assert re.search(r"\d", out)


@pytest.mark.skipif("RMQ_HA_CAPACITY" not in os.environ, reason="minutes: RMQ_HA_CAPACITY=1")
@pytest.mark.parametrize("line", TYPED)
def test_each_measurement_runs_to_its_end(line: str, tmp_path: Path) -> None:
    script, *words = shlex.split(line)
    given = shlex.split(SHORT[script])
    if script in ("bench/scale.py", "bench/compare.py"):
        given += ["--work", str(tmp_path), "--out", str(tmp_path / "out.md")]
    assert run(script, *words, *given, seconds=900.0)


def test_what_it_reads_of_a_broker_is_there(tmp_path: Path) -> None:
    """The metrics that `grep` looks for, and the two lines of the log between which a start is."""
    base = free_ports(5)
    server = ServerProcess(tmp_path / "broker", "rmqha")
    server.begin(
        f"{SETTINGS}listenPort={base + 2}\nembeddedNamesrvPort={base + 1}\nmetricsPort={base + 4}\n"
    )
    try:
        server.wait()
        with BlockingClient(f"127.0.0.1:{base + 1}") as client:
            for _ in range(4):
                client.send(Message("T", b"x" * 3000))
        (metrics,) = re.findall(r"/metrics \| grep -E '([^']+)'", TEXT)
        url = f"http://127.0.0.1:{base + 4}/metrics"
        deadline = time.monotonic() + 20
        while missing := [name for name in metrics.split("|") if not is_shown(url, name)]:
            assert time.monotonic() < deadline, missing
    finally:
        server.end()
    (words,) = re.findall(r"rmqha-broker \\\| grep -E '([^']+)'", TEXT)
    wanted = words.replace("\\|", "|")  # as a table has to write it
    found = [line for line in server.output.splitlines() if re.search(wanted, line)]
    assert len(found) == 2, found


def test_the_metrics_that_it_names_exist() -> None:
    """A metric of the client library's, of the process, is none of ours."""
    named = set(re.findall(r"\b((?:rmqha|rocketmq)_[a-z_]+)", TEXT))
    bases = {re.sub("_(bucket|sum|count)$", "", name) for name in named}
    assert {name for name in bases if name not in CATALOGUE} == set()
