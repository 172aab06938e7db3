"""Faults that are planted on purpose, and taken out again."""

from collections.abc import Callable
from typing import Any, NamedTuple

PAIR, CLUSTER, CONTROLLED = "pair", "cluster", "controlled"


class Patches:
    """
    What is replaced by something else, to be put back.

    :ivar replaced: owner, name and what was there.
    """

    def __init__(self) -> None:
        self.replaced: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> Any:
        """
        Replace an attribute of a class or module.

        :returns: what it was.
        """
        before = getattr(owner, name)
        self.replaced.append((owner, name, before))
        setattr(owner, name, value)
        return before

    def undo(self) -> None:
        """Put everything back."""
        for owner, name, before in reversed(self.replaced):
            setattr(owner, name, before)
        self.replaced.clear()


class Mutant(NamedTuple):
    """
    A fault that can be planted.

    :ivar what: what goes wrong.
    :ivar origin: where it was found.
    :ivar seed: one that found it; -1: none is known.
    :ivar plant: puts it in place.
    :ivar kind: of simulation that it takes.
    """

    name: str
    what: str
    origin: str
    seed: int
    plant: Callable[[Patches], None]
    kind: str = PAIR
