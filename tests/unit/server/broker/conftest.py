"""For all tests of a broker: whatever a test is about, no timer and no protocol raises anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.testing.clock import SimClock


@pytest.fixture(autouse=True)
def nothing_is_raised_in_a_simulation(logged: list[Any]) -> Iterator[None]:
    """A reactor would log it and go on, and so does the simulation: the test would not see it."""
    yield
    raised = [
        event["log_failure"].getTraceback()
        for event in logged
        if "log_failure" in event and event["log_namespace"] == SimClock.log.namespace
    ]
    assert not raised, "\n".join(raised)
