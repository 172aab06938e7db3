"""What an operator does wrong, and what has to be said about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.mistakes.bench import Bench

Provoke = Callable[[Bench], str]


class Answer(NamedTuple):
    """
    What was seen when a mistake was made.

    :ivar typed: the command, without the directories of this run.
    :ivar said: the lines of the answer that speak of it.
    :ivar grade: A: they name cause and fix; B: the cause; C: neither.
    """

    typed: str
    said: str
    grade: str


@dataclass(frozen=True)
class Mistake:
    """
    :ivar name: of the function that makes it.
    :ivar what: the mistake, in an operator's words.
    :ivar cause: what the answer has to say for B.
    :ivar fix: what it has to say besides for A.
    :ivar then: the grade in the trial that met it (users-2, operator-3); empty: no trial did.
    :ivar held: the test of every run of CI, where this one is too slow for it.
    """

    name: str
    what: str
    provoke: Provoke
    cause: str
    fix: str
    then: str
    held: str

    @property
    def is_quick(self) -> bool:
        """Made at every run of the tests."""
        return not self.held

    def make(self, bench: Bench) -> Answer:
        """Make it now."""
        text = bench.plain(self.provoke(bench))
        has_cause, has_fix = self.cause in text, self.fix in text
        grade = "A" if has_cause and has_fix else "B" if has_cause else "C"
        lines = [
            line
            for line in text.splitlines()
            if self.cause in line or (has_cause and self.fix in line)
        ]
        said = " / ".join(dict.fromkeys(line.strip() for line in lines)) or text.strip()
        return Answer(bench.plain(bench.typed), said, grade)


class Room:
    """The mistakes of one kind, in the order of the table."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.mistakes: list[Mistake] = []

    def add(
        self, what: str, *, cause: str, fix: str, then: str = "", held: str = ""
    ) -> Callable[[Provoke], Provoke]:
        """Of a function that makes one."""

        def keep(provoke: Provoke) -> Provoke:
            name = provoke.__name__
            self.mistakes.append(Mistake(name, what, provoke, cause, fix, then, held))
            return provoke

        return keep
