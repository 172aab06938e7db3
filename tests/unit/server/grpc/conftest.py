"""What the log got."""

import pytest
from twisted.logger import LogLevel, formatEvent, globalLogPublisher


@pytest.fixture
def caught_lines():
    """Warnings, as the log shows them."""
    lines = []

    def note(event):
        if event["log_level"] is LogLevel.warn:
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(note)
    yield lines
    globalLogPublisher.removeObserver(note)


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
