"""What was said to each mistake the last time, and the table that tells of it."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.mistakes.bench import Bench
from tests.mistakes.forks import Forks
from tests.mistakes.mistake import Answer, Mistake
from tests.mistakes.rooms import ROOMS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SAID = HERE / "said.json"
TABLE = ROOT / "docs" / "mistakes.md"
LONGEST = 320
QUICK = "tests/mistakes/test_mistakes.py"


def mistakes() -> Iterator[Mistake]:
    for room in ROOMS:
        yield from room.mistakes


def make(mistake: Mistake, forks: Forks) -> Answer:
    """Make it now, in a directory of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="mistake-") as folder,
        Bench(Path(folder) / "here", forks) as bench,
    ):
        return mistake.make(bench)


def recorded() -> dict[str, Answer]:
    """What the last run of the command saw."""
    if not SAID.exists():
        return {}
    return {name: Answer(**answer) for name, answer in json.loads(SAID.read_text()).items()}


def record(answers: dict[str, Answer]) -> None:
    """Keep what was said, and write the table; mistakes that are gone go from both."""
    known = {**recorded(), **answers}
    kept = {item.name: known[item.name] for item in mistakes() if item.name in known}
    table = {name: answer._asdict() for name, answer in kept.items()}
    SAID.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    TABLE.write_text(render(kept))


HEAD = """\
# What operators type wrongly, and what they are told

{count} mistakes, each made with real processes, as it is typed here, and what was said. Generated
by `python -m tests.mistakes`, never edited. A: cause and fix are named; B: the cause; C: neither,
or nothing is said. Then: the grade in the trial that met the mistake (its rows about several
things stand here one by one); the {new} without one are new. Now: {grades}. The grade is given
by words that the row's author expects in the answer, so read the answers, too.

Each line is held by a test: `{quick}` makes the quick ones at every run, and all of them
with `RMQ_HA_MISTAKES=1`; what is too slow for every run names a test that asks for the same with
less around it. Times, colours and directories are left out; ports are shown as the usual ones.
"""
TITLES = "| # | mistake | typed | said | then | now | test |\n|---|---|---|---|---|---|---|\n"


def render(found: dict[str, Answer]) -> str:
    """The document."""
    every = list(mistakes())
    counts = Counter(found[item.name].grade for item in every if item.name in found)
    grades = ", ".join(f"{counts[grade]} {grade}" for grade in "ABC")
    new = sum(not item.then for item in every)
    parts = [HEAD.format(count=len(every), new=new, grades=grades, quick=QUICK)]
    number = 0
    for room in ROOMS:
        parts.append(f"\n## {room.title}\n\n{TITLES}")
        for item in room.mistakes:
            number += 1
            parts.append(_row(number, item, found.get(item.name)))
    return "".join(parts)


def _row(number: int, item: Mistake, answer: Answer | None) -> str:
    typed, said, grade = answer or Answer("", "", "")
    test = f"`{item.held}`" if item.held else f"`[{item.name}]`"
    cells = [str(number), item.what, _code(typed), _code(said), item.then, grade, test]
    return f"| {' | '.join(cells)} |\n"


def _code(text: str) -> str:
    """In one line of a table."""
    line = " ".join(text.split()).replace("|", "¦").replace("`", "'")
    return f"`{line if len(line) <= LONGEST else line[: LONGEST - 3] + '...'}`" if line else ""


def worst(answers: Iterable[Answer]) -> str:
    """The last grade of the alphabet that was given."""
    return max((answer.grade for answer in answers), default="A")
