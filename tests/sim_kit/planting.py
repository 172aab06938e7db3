"""Plants faults in the product, and removes them again."""

from collections.abc import Callable
from typing import Any, NamedTuple

PAIR, CLUSTER, CONTROLLED = "pair", "cluster", "controlled"


class Patches:
    """
    Replaces attributes of classes and modules, and restores them.

    :ivar replaced: owner, name and former value of each attribute.
    """

    def __init__(self) -> None:
        self.replaced: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> Any:
        """
        Replace an attribute of a class or module.

        :returns: the former value.
        """
        before = getattr(owner, name)
        self.replaced.append((owner, name, before))
        setattr(owner, name, value)
        return before

    def undo(self) -> None:
        """Restore all attributes."""
        for owner, name, before in reversed(self.replaced):
            setattr(owner, name, before)
        self.replaced.clear()


class Mutant(NamedTuple):
    """
    A fault that can be planted.

    :ivar what: a sentence about the fault.
    :ivar origin: where the fault was found.
    :ivar seed: a seed that finds the fault; -1: none is known.
    :ivar plant: plants the fault.
    :ivar kind: the kind of simulation that finds the fault.
    """

    name: str
    what: str
    origin: str
    seed: int
    plant: Callable[[Patches], None]
    kind: str = PAIR
