"""Fixtures of the interop tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.rig import Rig, missing, rig_in

_REASON = missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, where the Java peer cannot run."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if _REASON:
                item.add_marker(pytest.mark.skip(reason=_REASON))


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_java: None) -> None:
    """All of this folder's JVMs are quick ones."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A rig for one test."""
    with rig_in(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A rig for all tests of a module."""
    with rig_in(tmp_path_factory.mktemp("rig")) as made:
        yield made
