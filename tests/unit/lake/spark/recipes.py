"""The recipes that docs/spark.md begins with: commands, and what they answer."""

import re
from collections.abc import Iterator
from pathlib import Path

DOCUMENT = Path(__file__).parents[4] / "docs" / "spark.md"


def first_page() -> str:
    return DOCUMENT.read_text().partition("## In short")[0]


def recipes() -> Iterator[tuple[str, list[str]]]:
    """Each command of the first page, and the lines below it."""
    for block in re.findall(r"(?:^    .*\n)+", first_page(), re.MULTILINE):
        first, *answer = (line[4:] for line in block.splitlines())
        if first.startswith("$ "):
            yield first[2:], answer


def answer_of(job: str) -> str:
    """The last line that the page has below `rmqha-admin JOB ...`."""
    return next(
        answer[-1] for command, answer in recipes() if command.startswith(f"rmqha-admin {job} ")
    )
