"""All rooms of the museum, what was measured in them, and the table that tells of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.museum.exhibit import Exhibit, Fact, Room
from tests.museum.rooms import ROOMS
from tests.museum.sides import side_in

HERE = Path(__file__).parent
MEASURED = HERE / "measured.json"
TABLE = HERE.parents[1] / "docs" / "museum.md"
SIDES = {False: "ours", True: "java"}
Measured = dict[str, dict[str, Fact]]


def exhibits() -> Iterator[Exhibit]:
    for room in ROOMS.values():
        yield from room.exhibits


def provoke(exhibit: Exhibit, java: bool) -> Fact:
    """Look at one side now."""
    with (
        tempfile.TemporaryDirectory(prefix="museum-") as folder,
        side_in(Path(folder) / exhibit.name, java) as side,
    ):
        fact = exhibit.provoke(side)
        return fact._replace(seen=fact.seen.replace(f"{side.rig.directory}/", ""))


def measured() -> Measured:
    """What the last run of the command saw, by exhibit and side."""
    if not MEASURED.exists():
        return {}
    table = json.loads(MEASURED.read_text())
    return {
        name: {side: Fact(**fact) for side, fact in facts.items()} for name, facts in table.items()
    }


def record(name: str, side: str, fact: Fact) -> None:
    """Keep what was measured, and write the table of all; exhibits that are gone go from both."""
    found = measured()
    found.setdefault(name, {})[side] = fact
    found = {exhibit.name: found.get(exhibit.name, {}) for exhibit in exhibits()}
    table = {
        name: {side: fact._asdict() for side, fact in sorted(facts.items())}
        for name, facts in found.items()
    }
    MEASURED.write_text(json.dumps(table, indent=1) + "\n")
    TABLE.write_text(render(found))


HEAD = """\
# The museum

After this page you know which problems of RocketMQ's high availability rmq-ha shares, and which
not. It lists {count} problems that users of RocketMQ met, or that this project's own trials
found. Each was provoked on brokers of Java 4.9.7 and of rmq-ha. Java 4.9.7 has {theirs} of the
{driven} that can be provoked there. rmq-ha has {mine}{why}.

`tox -e museum` measures both sides and writes this page; nobody edits it.
`tests/museum/test_<room>.py` provokes each problem on rmq-ha in every run of CI, and those with †
on Java, too.

In the column "references", `RMQ#1` is an issue or pull request of apache/rocketmq, and `ali#1` of
alibaba/rocketmq. `F1`, `D2` and `N1` are findings of this project's own trials.
[Differences](differences.md) also lists the problems that rmq-ha keeps, with the reason.
"""
TITLES = "| # | problem | references | Java 4.9.7 | rmq-ha | case |\n|---|---|---|---|---|---|\n"


def render(found: Measured) -> str:
    """The table."""
    parts = [_head(found)]
    number = 0
    for name, room in ROOMS.items():
        parts.append(f"\n## {room.title}\n\n`tests/museum/test_{name}.py`\n\n{TITLES}")
        for exhibit in room.exhibits:
            number += 1
            parts.append(_row(number, exhibit, found.get(exhibit.name, {})))
    return "".join(parts)


def _head(found: Measured) -> str:
    theirs = [facts["java"].has for facts in found.values() if "java" in facts]
    mine = [exhibit for exhibit in exhibits() if _has(found, exhibit, "ours")]
    kept = sum(bool(exhibit.kept) for exhibit in mine)
    why = (
        (", all on purpose" if kept == len(mine) else f", {kept} of them on purpose")
        if kept
        else ""
    )
    return HEAD.format(
        count=len(found), theirs=sum(theirs), driven=len(theirs), mine=len(mine), why=why
    )


def _has(found: Measured, exhibit: Exhibit, side: str) -> bool:
    fact = found.get(exhibit.name, {}).get(side)
    return fact is not None and fact.has


def _row(number: int, exhibit: Exhibit, facts: dict[str, Fact]) -> str:
    java = _cell(facts.get("java"), exhibit.not_java or "not measured")
    ours = _cell(facts.get("ours"), "not measured")
    if exhibit.kept and facts.get("ours", Fact(False, "")).has:
        ours += f". On purpose: {exhibit.kept}"
    mark = " †" if exhibit.quick_java else ""
    cells = [number, exhibit.problem, exhibit.refs, java, ours, f"`{exhibit.name}`{mark}"]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _cell(fact: Fact | None, otherwise: str) -> str:
    if fact is None:
        return otherwise
    return f"**has it**: {fact.seen}" if fact.has else f"does not have it: {fact.seen}"


__all__ = ["ROOMS", "Exhibit", "Room", "exhibits", "measured", "provoke", "record", "render"]
