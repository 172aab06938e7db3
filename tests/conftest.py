"""For all tests: hypothesis measures no time, as the machine may be busy with something else."""

from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("rmq-ha", deadline=None)
settings.load_profile("rmq-ha")


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
