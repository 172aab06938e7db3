"""
The image and the composed pair, as `docs/install.md` has them built and run: by Docker.

`RMQ_HA_CONTAINERS=1`, with a Docker daemon (`DOCKER_HOST`), Compose 2 (`docker compose`, or the
program that `RMQ_HA_COMPOSE` names) and `python:3.12-slim`, which `tests/packaging/stand_in.sh`
makes where no registry is reached.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "conf" / "docker" / "compose.yaml"
COMPOSE = shlex.split(os.environ.get("RMQ_HA_COMPOSE", "docker compose"))
BUILD = ["docker", "build", "-f", "conf/docker/Dockerfile", "-t", "rmq-ha"]
HARDENED = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
SENDER = """\
import sys, time
from rmq_ha.client import BlockingClient, Message
with BlockingClient("namesrv-1:9876;namesrv-2:9876") as client:
    print("connected", flush=True)
    number = 0
    while True:
        number += 1
        try:
            result = client.send(Message("T", f"message {number}".encode()))
            print(result.send_status.name, number, flush=True)
        except Exception as error:
            print("failed", number, error, flush=True)
        time.sleep(0.02)
"""


def why_not() -> str:
    """The reason why none of this can run here; empty: it can."""
    if os.environ.get("RMQ_HA_CONTAINERS") != "1":
        return "some minutes, and a Docker daemon: set RMQ_HA_CONTAINERS=1"
    for command in (["docker", "info"], [*COMPOSE, "version"]):
        if shutil.which(command[0]) is None:
            return f"there is no {command[0]}"
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            return f"{shlex.join(command)}: {done.stderr.strip()}"
    return ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can run")


def said(*command: str, seconds: float = 300, code: int | None = 0) -> str:
    """What it printed, on both; it has to end with this exit code."""
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert code is None or done.returncode == code, (shlex.join(command), done.stdout)
    return done.stdout


def until(look: Callable[[], bool], what: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def health(name: str) -> str:
    return said("docker", "inspect", name, "--format", "{{.State.Health.Status}}").strip()


@pytest.fixture(scope="module")
def image() -> str:
    """`docker build`, with the network of this machine: its way to packages may be there only."""
    environ = {**os.environ, "DOCKER_BUILDKIT": "1"}
    command = [*BUILD, "--network", "host", "."]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return "rmq-ha"


@pytest.fixture
def alone(image: str) -> Iterator[str]:
    """A broker as the image starts one, that may write nowhere but in its volume."""
    name = "rmqha-alone"
    said("docker", "run", "-d", "--name", name, *HARDENED, "-v", f"{name}:/var/lib/rmqha", image)
    yield name
    said("docker", "rm", "-f", name)
    said("docker", "volume", "rm", name)


def test_the_image_serves_without_privileges_is_healthy_and_stops_cleanly(alone: str) -> None:
    until(lambda: health(alone) == "healthy", "never healthy")
    assert said("docker", "exec", alone, "id", "-u").strip() == "3000"
    assert said("docker", "exec", alone, "ls", "-A", "/var/lib/rmqha").split() == ["store"]
    said("docker", "exec", alone, "touch", "/opt/rmqha/x", code=1)
    said("docker", "stop", "-t", "60", alone)
    assert said("docker", "inspect", alone, "--format", "{{.State.ExitCode}}").strip() == "0"
    assert "Server Shut Down" in said("docker", "logs", alone)
    said("docker", "start", alone)
    words = "the commit log ends at 0 after a clean stop"
    until(lambda: said("docker", "logs", alone).count(words) == 2, "the store is taken for unclean")


@pytest.fixture
def pair(image: str, tmp_path: Path) -> Iterator[list[str]]:
    """Compose's; where this machine allows fewer open files than the file asks for, with those."""
    files = [str(COMPOSE_FILE)]
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if allowed < 65536:
        names = said(*COMPOSE, "-f", files[0], "config", "--services").split()
        override = tmp_path / "limits.yaml"
        limits = {name: {"ulimits": {"nofile": allowed}} for name in names}
        override.write_text(json.dumps({"services": limits}))
        files.append(str(override))
    compose = [*COMPOSE, *(part for file in files for part in ("-f", file))]
    said(*compose, "up", "-d", "--no-build", "--wait", seconds=600)
    yield compose
    said(*compose, "down", "-v", "--timeout", "20")


INSIDE = ("docker", "exec", "rmqha-controller-1", "rmqha-admin")
NAMESRV = ("-n", "namesrv-1:9876")


def brokers() -> dict[str, dict[str, object]]:
    """Rows of `ha status`, by role."""
    text = said(*INSIDE, "ha", "status", *NAMESRV, "--json", code=None)
    try:
        return {row["role"]: row for row in json.loads(text)["rows"]}
    except ValueError:
        return {}


def container_of(row: dict[str, object]) -> str:
    """Whose address it is."""
    address, wanted = (
        "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}",
        str(row["address"]),
    )
    for name in ("rmqha-broker-1-1", "rmqha-broker-2-1"):
        own = said("docker", "inspect", name, "--format", address).strip()
        if own == wanted.partition(":")[0]:
            return name
    raise AssertionError(row)


def has_both() -> bool:
    found = brokers()
    return "SLAVE" in found and found["SLAVE"]["behind"] == 0 and len(found) == 2


@pytest.fixture
def sender(pair: list[str], image: str, tmp_path: Path) -> Iterator[str]:
    """Another container of the network, which sends all the time."""
    script = tmp_path / "sender.py"
    script.write_text(SENDER)
    said(*INSIDE, "topic", "create", "T", *NAMESRV)
    said(
        *("docker", "run", "-d", "--name", "rmqha-sender", "--network", "rmqha_rmqha"),
        *("-v", f"{script}:/sender.py:ro", image, "python", "/sender.py"),
    )
    yield "rmqha-sender"
    said("docker", "rm", "-f", "-v", "rmqha-sender")


def kept() -> list[str]:
    """Numbers of the messages that were answered SEND_OK."""
    lines = said("docker", "logs", "rmqha-sender").splitlines()
    return [line.split()[1] for line in lines if line.startswith("SEND_OK ")]


def so_many_more(count: int) -> None:
    wanted = len(kept()) + count
    until(lambda: len(kept()) >= wanted, f"fewer than {wanted} are taken")


def test_the_masters_container_is_killed_and_nothing_is_lost(sender: str) -> None:
    until(has_both, "no pair")
    so_many_more(100)
    first = container_of(brokers()["SYNC_MASTER"])
    said("docker", "kill", first)
    so_many_more(100)
    assert container_of(brokers()["SYNC_MASTER"]) != first
    said("docker", "start", first)
    until(has_both, "the old master does not follow")
    so_many_more(100)
    said("docker", "stop", sender)
    read = said(*INSIDE, "consume", "T", "-g", "g", "--until-end", *NAMESRV)
    numbers = {line.rpartition(" ")[2] for line in read.splitlines() if " message " in line}
    print(f"{len(kept())} answered SEND_OK")
    assert set(kept()) - numbers == set()
