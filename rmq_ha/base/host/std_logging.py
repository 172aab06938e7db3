"""Passes rmq-ha's log events on to Python's `logging`, for programs without Twisted's log."""

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
    """
    Log one event by the logger of its module and class, such as `rmq_ha.client.send.sender.Sender`.
    """
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
    Pass events on to `logging`, unless this process logs by Twisted already. A second call changes
    nothing.

    Until a log begins, Twisted keeps the events, and prints failures to stderr. `twistd` and
    `startLogging` begin a log before anything runs. Printed text and warnings are not redirected.
    """
    if globalLogBeginner._temporaryObserver is None:
        return  # there is no public way to ask
    shown = warnings.showwarning
    globalLogBeginner.beginLoggingTo([to_logging], redirectStandardIO=False)
    warnings.showwarning = shown
