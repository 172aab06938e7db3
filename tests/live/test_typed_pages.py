"""docs/first-hour.md and README.md with real processes: each command as it stands, in one shell."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_ha.base.host.ports import free_ports
from tests.kits.pages import COMMANDS, REPO, type_commands, with_ports

BLOCKS = re.compile(r"^```sh\n.*?^```\n(?:\n```text\n(.*?)^```$)?", re.M | re.S)
"""With what stands below a block of commands; a block without any prints nothing."""
MARK = "next block of the page"
PORTS = (9876, 9877, 5557, 5558, 5567, 5568, *range(10909, 10914), *range(11009, 11014))

pytestmark = pytest.mark.trials


class Shell:
    """One shell in a folder, on ports that no other test of this machine has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        base = free_ports(len(PORTS))
        self._ports = {str(port): base + number for number, port in enumerate(PORTS)}

    def with_my_ports(self, text: str) -> str:
        """The page's words with the ports of this test."""
        return with_ports(text, self._ports)

    def type(self, init: str, rest: str) -> str:
        """:param init: the command that writes the files; `rest` finds the ports moved in them."""
        change = ";".join(rf"s/\b{old}\b/{new}/g" for old, new in self._ports.items())
        moved = f"sed -i -E '{change}' demo/*.properties"
        script = f"exec 2>&1\n{init}\n{moved}\n{self.with_my_ports(rest)}"
        return type_commands(script, self.folder, seconds=180).stdout

    def end(self) -> None:
        """Ends whatever a page has left behind."""
        for pid in (self.folder / "demo").glob("*.pid"):
            with suppress(FileNotFoundError):  # a server that is ending removes its file
                subprocess.run(["kill", "-9", pid.read_text()], check=False)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.end()


def plain(text: str) -> str:
    """Without the spaces that make columns."""
    return " ".join(text.split())


def test_each_command_of_the_first_hour_prints_what_the_page_shows(shell: Shell) -> None:
    page = (REPO / "docs" / "first-hour.md").read_text()
    typed = [f"{block}echo '{MARK}'\n" for block in COMMANDS.findall(page)]
    text = shell.type(typed[0], "".join(typed[1:]))
    shown = [found[1] or "" for found in BLOCKS.finditer(page)]
    assert len(shown) == len(typed) > 6
    for number, (wanted, printed) in enumerate(zip(shown, text.split(f"{MARK}\n"), strict=False)):
        lines = [line if number == 0 else shell.with_my_ports(line) for line in wanted.splitlines()]
        assert lines or not printed, printed
        for line in lines:
            expected = plain(line).replace("/demo/", f"{shell.folder}/demo/")
            assert expected in plain(printed), f"{expected}\nis not in\n{text}"


def test_the_pair_of_the_readme_keeps_a_message(shell: Shell) -> None:
    section = (REPO / "README.md").read_text().split("## Run a pair\n")[1].split("\n## ")[0]
    typed = "".join(re.findall(r"^ {4}(.*\n)", section, re.M))
    init, _, rest = typed.partition("\n")
    text = shell.type(init, f"{rest}\necho '{MARK}'\nkill $(jobs -p)\nwait\n")
    printed = text.partition(f"{MARK}\n")[0]
    assert "problems: -" in printed, text
    assert "SEND_OK broker-a" in printed, text
    assert re.search(r" broker-a:\d:0 hello$", printed, re.M), text
