"""
pytest-rmqha: brokers as fixtures, real ones and simulated ones. See docs/testing.md.

Every pytest where rmq-ha is installed reads this file, so it imports rmq-ha only when a test uses a
fixture.
"""

from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rmq_ha.testing.client_world import ClientWorld
    from rmq_ha.testing.real_brokers import RealBroker, RealPair

_WORLD = "rmqha_world"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, for `pytest --markers` and `--strict-markers`."""
    options = "seed=1, pair=False, duplicate_window_millis=0"
    text = f"{_WORLD}({options}): which world the fixture {_WORLD} is"
    config.addinivalue_line("markers", text)


@pytest.fixture(scope="session")
def rmqha_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RealBroker]":
    """A real broker with its name server, one for the session: `.namesrv_addr`, `.new_topic()`."""
    from rmq_ha.testing.real_brokers import RealBroker

    with RealBroker(tmp_path_factory.mktemp("rmqha-broker")) as broker:
        yield broker


@pytest.fixture
def rmqha_pair(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RealPair]":
    """A real master and its slave: `.kill_master()`, `.pause()`, `.fail_over()`, `.rejoin()`."""
    from rmq_ha.testing.real_brokers import RealPair

    with RealPair(tmp_path_factory.mktemp("rmqha-pair")) as pair:
        yield pair


@pytest.fixture
def rmqha_world(request: pytest.FixtureRequest) -> "Iterator[ClientWorld]":
    """Broker, name server and clients on a clock that the test winds: `.run()`, `.connect()`."""
    from rmq_ha.testing.client_world import ClientWorld

    marker = request.node.get_closest_marker(_WORLD)
    options: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    if hasattr(request, "param"):
        options["seed"] = request.param
    with ClientWorld(**options) as world:
        yield world


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """
    Run an `async def` test that uses a world on the world's time, whatever other plugin runs such
    tests.
    """
    if _WORLD not in pyfuncitem.fixturenames:
        return None
    test = pyfuncitem.obj
    if type(pyfuncitem).__module__.startswith("pytest_asyncio"):
        test = getattr(test, "__wrapped__", test)  # wrapped by pytest_asyncio
    if not iscoroutinefunction(test):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    world: Any = pyfuncitem.funcargs[_WORLD]
    world.run(test(**given))
    return True
