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

After this page you know what rmq-ha answers to {count} mistakes of operators. Each was made with
real processes: the table has what was typed, and the answer. `python -m tests.mistakes` writes
this page; nobody edits it.

| grade | the answer |
|---|---|
| A | names the cause and the cure |
| B | names the cause |
| C | names neither, or nothing is said |

"Before" is the grade in the trial that first met the mistake; {new} mistakes have none. Now the
grades are {grades}. A grade is given by words that the author of the row expects in the answer,
so read the answers, too.

`{quick}` makes the quick mistakes in every run of CI, and all of them with
`RMQ_HA_MISTAKES=1`. A mistake that is too slow for every run names a smaller test. Times, colours
and directories are left out of the answers, and ports are shown as the usual ones.
"""
TITLES = "| # | mistake | typed | answer | before | now | test |\n|---|---|---|---|---|---|---|\n"


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
