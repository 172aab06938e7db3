"""
For all tests: hypothesis measures no time, as the machine may be busy with something else, and
draws the same examples in each run, so that a change is judged by what it changed.
`RMQ_HA_EXPLORE=1` draws new ones in each run, and more of the dear ones (`tox -e explore`).
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.kits.draws import EXPLORES

pytest_plugins = ["tests.kits.rings", "tests.kits.shown_texts"]

settings.register_profile("rmq-ha", deadline=None, derandomize=not EXPLORES)
settings.load_profile("rmq-ha")

QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -Dtls.server.mode=disabled "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

# Rooms whose files take up to minutes. They begin first: a worker that got one of them last would
# go on alone while the others have nothing left to do.
LONG = ("spark", "interop", "live", "museum", "packaging", "rehearsal", "mistakes", "page", "sim")
_ROOMS = Path(__file__).parent


def pytest_collection() -> None:
    """Nothing that is collected is garbage: to look for it took a fifth of the processor time."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long rooms first; within a room the order of names stays."""
    items.sort(key=_place)


def pytest_collection_finish() -> None:
    """
    The modules and items stay to the end, so the garbage collector does not look at them again and
    again. It took a fourteenth of the processor time of 721 unit tests.
    """
    gc.freeze()
    gc.enable()


def _place(item: pytest.Item) -> int:
    room = item.path.relative_to(_ROOMS).parts[0]
    return LONG.index(room) if room in LONG else len(LONG)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """
    A test that lowers the priority of its process makes all that come after it in the same worker
    wait for everybody else on the machine.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    yield
    assert os.getpriority(os.PRIO_PROCESS, 0) == before, "this test has lowered our priority"


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


@pytest.fixture(scope="module")
def quick_java() -> Iterator[None]:
    """
    Every JVM that a module starts compiles once and quickly, and makes no key that nobody uses.

    None lives long enough to win back what the second compiler costs. Java's servers make an RSA
    key at each start, for TLS, which is 3 of the 4.4 s of processor time that a broker needs until
    it is ready; whoever wants TLS says so on the command line, which wins. That RocketMQ's classes
    are well-formed needs no proof at each start, either: an eighth of what is left.
    """
    with pytest.MonkeyPatch.context() as patched:
        before = os.environ.get("JDK_JAVA_OPTIONS", "")
        patched.setenv("JDK_JAVA_OPTIONS", f"{before} {QUICK_JAVA}".strip())
        yield
