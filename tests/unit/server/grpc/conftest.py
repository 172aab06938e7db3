"""What the log got."""

import pytest
from twisted.logger import LogLevel, globalLogPublisher


@pytest.fixture
def caught():
    """Events of failures."""
    events = []

    def note(event):
        if event["log_level"] in (LogLevel.critical, LogLevel.error):
            events.append(event)

    globalLogPublisher.addObserver(note)
    yield events
    globalLogPublisher.removeObserver(note)
