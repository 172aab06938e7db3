"""ObservedSettings: a configuration object that tells of each change of one of its values."""

from collections.abc import Callable
from typing import Any


class ObservedSettings:
    """
    The base of configuration objects whose changes other objects have to know.

    An object that keeps a result computed from these values, instead of reading them at each use,
    calls `watch`.
    """

    __slots__ = ("_watchers",)
    _watchers: list[Callable[[], object]]

    def watch(self, changed: Callable[[], object]) -> None:
        """Have a function called after each change of a value."""
        if not hasattr(self, "_watchers"):
            object.__setattr__(self, "_watchers", [])
        self._watchers.append(changed)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        for changed in getattr(self, "_watchers", ()):
            changed()
