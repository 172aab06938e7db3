"""Old names of settings, which are accepted with a DeprecationWarning that gives the new name."""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, NamedTuple, TypeVar
from warnings import warn

from rmq_ha.base.errors import ConfigurationError

T = TypeVar("T")
_OWN_FILES = (__file__.rpartition("rules")[0], dataclasses.__file__)


class NewName(NamedTuple):
    """
    The new name of a setting.

    :ivar unit: the unit of the old setting, if it was not ms; the new setting is in ms.
    :ivar unit_ms: how many ms the old unit has.
    """

    name: str
    unit: str = ""
    unit_ms: int = 1


def with_old_spellings(**renamed: str | NewName) -> Callable[[type[T]], type[T]]:
    """
    Let a dataclass of settings accept old names too, including the old names of its base classes.

    :param renamed: from old name to new name.
    """

    def decorate(cls: type[T]) -> type[T]:
        kind: Any = cls
        own = {
            old: new if isinstance(new, NewName) else NewName(new) for old, new in renamed.items()
        }
        known = kind._old_spellings = {**old_names(cls), **own}
        make = kind.__init__
        defaults = {item.name: item.default for item in fields(kind)}

        @wraps(make)
        def init(self: Any, **options: Any) -> None:
            for old in known.keys() & options.keys():
                _take(old, known[old], options, defaults)
            make(self, **options)

        kind.__init__ = init
        for old, new in own.items():
            setattr(kind, old, property(_reader(old, new)))
        return cls

    return decorate


def old_names(kind: type) -> Mapping[str, NewName]:
    """Return the new name for each old name that a class of settings accepts."""
    names: Mapping[str, NewName] = getattr(kind, "_old_spellings", {})
    return names


def _take(old: str, new: NewName, options: dict[str, Any], defaults: dict[str, Any]) -> None:
    given = options.pop(old)
    unit = f" ({new.unit})" if new.unit else ""
    if not isinstance(given, int | float):
        raise ConfigurationError(f"{old} is a number{unit}, not {given!r}")
    value = round(given * new.unit_ms) if new.unit else given
    if options.get(new.name, value) not in (value, defaults[new.name]):
        raise ConfigurationError(
            f"{old}={given}{unit} and {new.name}={options[new.name]} say two things: leave {old}"
            " out"
        )
    warn(f"{old}={given}{unit}: write {new.name}={value}", DeprecationWarning, level_of_caller())
    options[new.name] = value


def level_of_caller() -> int:
    """
    Return the `stacklevel` with which the calling function's `warn` names the first frame outside
    of the client.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_FILES):
        level, frame = level + 1, frame.f_back
    return level


def _reader(old: str, new: NewName) -> Callable[[Any], Any]:
    def read(self: Any) -> Any:
        warn(f"{old}: read {new.name}", DeprecationWarning, level_of_caller())
        value = getattr(self, new.name)
        return value / new.unit_ms if new.unit else value

    return read
