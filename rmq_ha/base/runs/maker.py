"""
The maker of runs that this process uses; it is chosen once, when this module is imported.

`RMQ_HA_KERNEL` says which: `0` the pure one; `1` the native one, or an error; unset or empty: the
native one if the package `rmq_ha_kernel` is installed and of the right version, else the pure one.
"""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.runs import pure
from rmq_ha.base.runs.face import FACE_VERSION, Rows, Sends
from rmq_ha.base.runs.row_list import joined

SWITCH = "RMQ_HA_KERNEL"
_PACKAGE = "rmq_ha_kernel"
_HOW = "pip install ./kernel"


class Choice(NamedTuple):
    """
    A maker, and the reason why it was chosen.

    :ivar module: has the functions of `rmq_ha.base.runs.face.Maker`.
    :ivar name: `native` or `pure`.
    :ivar reason: for people.
    """

    module: Any
    name: str
    reason: str

    def text(self) -> str:
        """Return which maker works, and why."""
        where = "in Rust" if self.name == "native" else "in Python"
        return f"runs of messages are made {where} ({self.name}): {self.reason}"


def choose(switch: str, load: Callable[[str], Any] = import_module) -> Choice:
    """
    Choose a maker.

    :param switch: the value of `RMQ_HA_KERNEL`.
    :param load: imports a module by its name.
    :raises ConfigurationError: the switch is none of the values `0`, `1` and empty, or it demands a
        kernel that is not installed.
    """
    if switch not in ("", "0", "1"):
        raise ConfigurationError(f"{SWITCH}={switch} is not known; set it to 0 or 1, or unset it")
    if switch == "0":
        return Choice(pure, "pure", f"{SWITCH}=0 asks for it")
    try:
        kernel = load(_PACKAGE)
    except ImportError as error:
        problem = (
            f"the package {_PACKAGE} is not installed"
            if isinstance(error, ModuleNotFoundError) and error.name == _PACKAGE
            else f"the package {_PACKAGE} cannot be loaded ({error})"
        )
    else:
        version = getattr(kernel, "VERSION", None)
        if version == FACE_VERSION:
            asked = f"{SWITCH}=1 asks for it" if switch else f"the package {_PACKAGE} is installed"
            return Choice(kernel, "native", asked)
        problem = f"the package {_PACKAGE} has version {version}, but {FACE_VERSION} is needed"
    if switch:
        raise ConfigurationError(
            f"{SWITCH}=1 asks for the native kernel, but {problem}; run `{_HOW}` in the source "
            f"of this release, or unset {SWITCH}"
        )
    return Choice(pure, "pure", f"{problem}; `{_HOW}` installs it")


CHOICE = choose(os.environ.get(SWITCH, ""))

cut: Callable[[bytes, int, int], Sends | None] = CHOICE.module.cut
walk: Callable[[bytes, int, int, int, int, bool, int], Rows | None] = CHOICE.module.walk
_concat: Callable[[Sequence[Rows]], Rows | None] = CHOICE.module.concat
faults: Callable[[], dict[str, int]] = getattr(CHOICE.module, "faults", dict)


def concat(parts: Sequence[Rows]) -> Rows:
    """Return the rows of all parts as one, whichever maker made each part."""
    if len(parts) == 1:
        return parts[0]
    rows = _concat(parts)
    return joined(parts) if rows is None else rows
