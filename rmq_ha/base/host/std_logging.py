"""What rmq-ha says, for programs that know Python's `logging` and nothing of Twisted's."""

import logging
import warnings
from typing import Any

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import provider

_LEVELS = {
    LogLevel.debug: logging.DEBUG,
    LogLevel.info: logging.INFO,
    LogLevel.warn: logging.WARNING,
    LogLevel.error: logging.ERROR,
    LogLevel.critical: logging.CRITICAL,
}


@provider(ILogObserver)
def to_logging(event: LogEvent) -> None:
    """One event, for the logger of its module and class: `rmq_ha.client.send.sender.Sender`."""
    logger = logging.getLogger(event.get("log_namespace") or "twisted")
    failure = event.get("log_failure")
    level = _LEVELS.get(event.get("log_level", LogLevel.info), logging.INFO)
    if failure is not None:
        level = logging.ERROR  # to Twisted all of them are critical
    if not logger.isEnabledFor(level):
        return
    raised: Any = None
    if failure is not None:
        raised = (failure.type, failure.value, failure.getTracebackObject())
    logger.log(level, "%s", formatEvent(event), exc_info=raised)


def begin_logging() -> None:
    """
    Have it go to `logging`, unless this process has a log of Twisted's. Twice is harmless.

    Until somebody begins, Twisted keeps what is said, and prints failures to stderr; twistd and
    `startLogging` begin before anything runs. What is printed, and how warnings are shown, stays
    the application's.
    """
    if globalLogBeginner._temporaryObserver is None:
        return  # there is no public way to ask
    shown = warnings.showwarning
    globalLogBeginner.beginLoggingTo([to_logging], redirectStandardIO=False)
    warnings.showwarning = shown
