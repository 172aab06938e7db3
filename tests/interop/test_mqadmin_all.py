"""
Every sub-command of mqadmin against our cluster and against Java's, on the same history.

`mqadmin_commands` holds the commands and the table of differences that may be; this fails on one
that is not listed and on a listed one that does not occur any more.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.interop.mqadmin_commands import (
    COMMANDS,
    DIFFERENCES,
    EARLY,
    SENT_AGAIN,
    STATS,
    STATS_OF_OURS,
    UNLISTED,
    Command,
    Difference,
)
from tests.interop.mqadmin_sides import Side, both_sides, flat, masked
from tests.interop.rig import ALL_JAVA, Rig

# A slave copies its master's tables every 10 s.
EVENTUALLY_S = 40.0


@dataclass
class Both:
    """Ours and Java's, with the same history, and what was seen so far."""

    ours: Side
    java: Side
    ran: list[Command] = field(default_factory=list)
    seen: set[Difference] = field(default_factory=set)


@pytest.fixture(scope="module")
def both(shared_rig: Rig) -> Iterator[Both]:
    """Two clusters."""
    ours, java = both_sides(shared_rig)
    yield Both(ours, java)
    for side in (ours, java):
        side.tools.close()


@pytest.fixture(scope="module")
def settled(both: Both) -> Both:
    """The same, when all is on the slaves: Java's starts to replicate after 10 s."""
    for side in (both.ours, both.java):
        side.rig.wait_same(side.slave, side.master)
    return both


def output(side: Side, command: Command) -> Counter[str]:
    """What the tool printed, and what it wrote into files."""
    text = side.mqadmin(*command)
    files = side.tools.directory / "files"
    for path in sorted(files.iterdir()) if files.exists() else ():
        text += "\n".join(("", path.name, *flat(json.loads(path.read_text()))))
        path.unlink()
    return masked(text, side)


def unexplained(both: Both, command: Command) -> list[str]:
    """Lines that differ and are not listed; notes which entries of the list were needed."""
    ours, java = output(both.ours, command), output(both.java, command)
    left = [("ours", line) for line in (ours - java).elements()]
    left += [("java", line) for line in (java - ours).elements()]
    for entry in DIFFERENCES:
        if entry.concerns(command):
            rest = [(side, line) for side, line in left if not _is_listed(entry, side, line)]
            if len(rest) < len(left):
                both.seen.add(entry)
            left = rest
    return [f"{side}: {line}" for side, line in left]


def _is_listed(entry: Difference, side: str, line: str) -> bool:
    pattern = entry.ours if side == "ours" else entry.java
    return bool(pattern) and re.fullmatch(pattern, line) is not None


def until_explained(both: Both, command: Command, seconds: float) -> None:
    """Run it again for so long; the last time has to have nothing that is not listed."""
    deadline = time.monotonic() + seconds
    while found := unexplained(both, command):
        assert time.monotonic() < deadline, "\n" + "\n".join(found)
        if command[0] in SENT_AGAIN:
            for side in (both.ours, both.java):
                side.mqadmin(*SENT_AGAIN[command[0]])
        time.sleep(0.5)


@pytest.mark.parametrize(("name", "key"), STATS, ids=str)
def test_same_statistics(both: Both, name: str, key: str) -> None:
    """VIEW_BROKER_STATS_DATA: the same sums and averages, or the same refusal."""
    assert both.ours.stats(name, key) == both.java.stats(name, key)


@pytest.mark.skipif(ALL_JAVA, reason="what Java does not count")
@pytest.mark.parametrize(("name", "key"), STATS_OF_OURS, ids=str)
def test_statistics_of_ours(both: Both, name: str, key: str) -> None:
    assert isinstance(both.ours.stats(name, key), list)


@pytest.mark.parametrize("command", EARLY, ids=" ".join)
def test_same_statistics_output(both: Both, command: Command) -> None:
    """Line by line the same, but for masks and listed differences."""
    both.ran.append(command)
    # Both count what was just done some moments later, each at its own pace.
    until_explained(both, command, EVENTUALLY_S)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_same_output(settled: Both, command: Command) -> None:
    """Line by line the same, but for masks and listed differences."""
    settled.ran.append(command)
    if command[0] == "@eventually":
        until_explained(settled, command[1:], EVENTUALLY_S)
    else:
        until_explained(settled, command, 0)


def test_every_sub_command_is_run(both: Both) -> None:
    """The tool's own list, and the commands that upstream has but does not list."""
    listed = re.findall(r"^ {3}(\w+) ", both.java.tools.ask("@help"), re.MULTILINE)
    names = {
        next(word for word in command if re.match("[a-zA-Z]", word)) for command in EARLY + COMMANDS
    }
    assert len(listed) > 60
    assert set(listed) == names
    assert names >= UNLISTED


@pytest.mark.skipif(ALL_JAVA, reason="Java does not differ from itself")
def test_every_listed_difference_occurs(both: Both) -> None:
    if len(both.ran) < len(EARLY + COMMANDS):
        pytest.skip("needs all commands")
    gone = [entry.why for entry in DIFFERENCES if entry not in both.seen]
    assert not gone
