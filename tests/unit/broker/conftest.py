"""For all tests of a broker: whatever a test is about, no timer and no protocol raises anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.python.failure import Failure

from rmq_ha.testing.clock import SimClock


@pytest.fixture(autouse=True)
def nothing_is_raised_in_a_simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A reactor would log it and go on, and so does the simulation: the test would not see it."""
    raised: list[str] = []
    really = SimClock.fail

    def fail(clock: SimClock, what: str, failure: Failure) -> None:
        raised.append(failure.getTraceback())
        really(clock, what, failure)

    monkeypatch.setattr(SimClock, "fail", fail)
    yield
    assert not raised, "\n".join(raised)
