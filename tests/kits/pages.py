"""Lists the pages of the documentation, and runs their commands as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REPO = Path(__file__).parents[2]
DOCUMENTS = sorted([*(REPO / "docs").glob("*.md"), *(REPO / "docs" / "reference").glob("*.md")])
PAGES = [*sorted(REPO.glob("*.md")), *DOCUMENTS]

COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
"""Matches a block of shell commands of a page."""
FILE = re.compile(r"^`([\w.-]+)`[^\n]*:\n\n```\w+\n(.*?)^```$", re.M | re.S)
"""Matches a file that a page shows: its name, and its text."""


def with_ports(text: str, ports: Mapping[str, int]) -> str:
    """
    Return the text of a page with its port numbers replaced by ports that are free on this machine.
    """
    return re.sub(r"\b\d{4,5}\b", lambda port: str(ports.get(port[0], port[0])), text)


def type_commands(
    script: str, folder: Path, *, seconds: float, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """
    Run commands of a page in one shell of a reader who has just installed rmq-ha.

    :param folder: the current directory of that shell.
    :param seconds: after this time the shell is killed.
    :param environ: variables beside those of this process.
    """
    mine = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**mine, "PATH": path, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
