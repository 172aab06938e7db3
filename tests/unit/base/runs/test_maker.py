"""Which maker works: chosen once, and never another one than was asked for."""

from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.runs import pure
from rmq_ha.base.runs.face import FACE_VERSION
from rmq_ha.base.runs.maker import choose

KERNEL = SimpleNamespace(VERSION=FACE_VERSION)


def absent(name: str) -> Any:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def broken(name: str) -> Any:
    raise ImportError("libc is too old")


def test_the_native_one_works_where_it_is_installed() -> None:
    choice = choose("", lambda name: KERNEL)
    assert (choice.module, choice.name) == (KERNEL, "native")
    assert choice.reason == "the package rmq_ha_kernel is installed"
    assert choose("1", lambda name: KERNEL).reason == "RMQ_HA_KERNEL=1 asks for it"


def test_the_pure_one_works_where_it_is_asked_for() -> None:
    choice = choose("0", lambda name: KERNEL)
    assert (choice.module, choice.name) == (pure, "pure")
    assert choice.reason == "RMQ_HA_KERNEL=0 asks for it"


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (absent, "the package rmq_ha_kernel is not installed"),
        (broken, "the package rmq_ha_kernel cannot be loaded (libc is too old)"),
        (
            lambda name: SimpleNamespace(VERSION=FACE_VERSION + 1),
            f"the package rmq_ha_kernel has version {FACE_VERSION + 1}, but {FACE_VERSION} is "
            "needed",
        ),
        (
            lambda name: SimpleNamespace(),
            f"the package rmq_ha_kernel has version None, but {FACE_VERSION} is needed",
        ),
    ],
)
def test_a_kernel_that_does_not_fit_is_not_used_and_the_reason_is_kept(
    load: Any, reason: str
) -> None:
    choice = choose("", load)
    assert (choice.module, choice.name) == (pure, "pure")
    assert choice.reason == f"{reason}; `pip install ./kernel` installs it"
    with pytest.raises(ConfigurationError) as refusal:
        choose("1", load)
    assert reason in str(refusal.value)
    assert "pip install ./kernel" in str(refusal.value)


def test_an_unknown_switch_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="RMQ_HA_KERNEL=yes is not known"):
        choose("yes", lambda name: KERNEL)
