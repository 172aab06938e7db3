"""docs/first-hour.md with real processes: its commands as they stand, in one shell, in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_ha.base.host.ports import free_ports

TEXT = (Path(__file__).parents[2] / "docs" / "first-hour.md").read_text()
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.M | re.S)
BIN = Path(sys.executable).parent
MARK = "next block of the page"
PORTS = (9876, 9877, 5557, 5558, 5567, 5568, *range(10909, 10914), *range(11009, 11014))
# `init` writes the ports that the page shows; other tests of this machine may have these.
MOVE = "sed -i -E '{}' demo/*.properties\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Whatever still runs in it is ended."""
    yield tmp_path
    for pid in (tmp_path / "demo").glob("*.pid"):
        subprocess.run(["kill", "-9", pid.read_text().strip()], check=False)


def plain(line: str) -> str:
    """Without the spaces that make columns."""
    return " ".join(line.split())


def test_each_command_prints_what_the_page_shows(folder: Path) -> None:
    base = free_ports(len(PORTS))
    moved = {str(port): str(base + number) for number, port in enumerate(PORTS)}

    def here(text: str) -> str:
        return re.sub(r"\b\d{4,5}\b", lambda found: moved.get(found[0], found[0]), text)

    blocks = BLOCK.findall(TEXT)
    move = MOVE.format(";".join(rf"s/\b{port}\b/{moved[port]}/g" for port in moved))
    typed = [here(block) for kind, block in blocks if kind == "sh"]
    first, *others = [f"{block}echo '{MARK}'\n" for block in typed]
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    environ.pop("NAMESRV_ADDR", None)
    done = subprocess.run(
        ["bash", "-c", "exec 2>&1\n" + "".join([first, move, *others])],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        timeout=180,
        check=False,
    )
    printed = iter(done.stdout.split(f"{MARK}\n"))
    output = ""
    for kind, block in blocks:
        if kind == "sh":
            output = plain(next(printed))
            continue
        for line in block.splitlines():
            # The first block prints the ports before they are moved.
            wanted = plain(line if "rmqha-" in line and "-c /" in line else here(line))
            wanted = wanted.replace("/demo/", f"{folder}/demo/")
            assert wanted in output, f"{wanted}\nis not in\n{done.stdout}"
