"""For all unit tests: what went to the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import globalLogPublisher


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """Events, as they come."""
    events: list[Any] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)
