"""
For all tests: hypothesis measures no time, as the machine may be busy with something else, and
draws the same examples in each run, so that a change is judged by what it changed.
`RMQ_HA_EXPLORE=1` draws new ones in each run (`tox -e explore`).
"""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

_EXPLORES = os.environ.get("RMQ_HA_EXPLORE") == "1"
settings.register_profile("rmq-ha", deadline=None, derandomize=not _EXPLORES)
settings.load_profile("rmq-ha")

# Rooms whose files take up to minutes. They begin first: a worker that got one of them last would
# go on alone while the others have nothing left to do.
LONG = ("spark", "interop", "live", "museum", "packaging", "rehearsal", "mistakes", "page", "sim")
_ROOMS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long rooms first; within a room the order of names stays."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    room = item.path.relative_to(_ROOMS).parts[0]
    return LONG.index(room) if room in LONG else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay together, and all tests of Spark do: they share one session."""
    from xdist.scheduler import LoadFileScheduling

    class OneSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/spark/"):
                return "tests/spark"
            scope: str = super()._split_scope(nodeid)
            return scope

    return OneSpark(config, log)
