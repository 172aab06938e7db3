"""What the museum shows: a problem that users met, and a way to provoke it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.museum.sides import Side


class Fact(NamedTuple):
    """
    What a scenario saw on one side.

    :ivar has: the fault is there.
    :ivar seen: the numbers that say so, one line.
    """

    has: bool
    seen: str


class NotHere(Exception):
    """This machine lacks what a scenario needs."""


Scenario = Callable[["Side"], Fact]


@dataclass(frozen=True)
class Exhibit:
    """
    One problem.

    :ivar name: of the function that provokes it.
    :ivar problem: what happens to users, one line.
    :ivar refs: where it was reported: `RMQ#1` is an issue of apache/rocketmq, `F1` a finding of our
        own trials, `A12` a row of the list of field problems.
    :ivar kept: why ours has it too, on purpose; `docs/differences.md` has the row.
    :ivar not_java: why a Java broker cannot be driven into it.
    :ivar quick_java: cheap enough to look at Java, too, at every run of the tests.
    """

    name: str
    problem: str
    refs: str
    provoke: Scenario
    kept: str = ""
    not_java: str = ""
    quick_java: bool = False


class Room:
    """The problems of one kind, in the order of the table."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.exhibits: list[Exhibit] = []

    def exhibit(
        self, refs: str, *, kept: str = "", not_java: str = "", quick_java: bool = False
    ) -> Callable[[Scenario], Scenario]:
        """Hang a scenario: its name is the exhibit's, its docstring says what happens to users."""

        def hang(scenario: Scenario) -> Scenario:
            problem = " ".join((scenario.__doc__ or "").split())
            made = Exhibit(scenario.__name__, problem, refs, scenario, kept, not_java, quick_java)
            self.exhibits.append(made)
            return scenario

        return hang
