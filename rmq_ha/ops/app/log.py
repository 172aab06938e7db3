"""
Where twistd logs to, in which format, and how large the log may become.

One line of Twisted's is left out: on a read-only installation it says at every start, and at every
search for plugins, that it cannot write its plugin cache. It works without one.
"""

import signal
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    LogLevel,
    PredicateResult,
    formatEventAsClassicLogText,
)
from twisted.python.logfile import LogFile
from zope.interface import provider

from rmq_ha.base.config.log_format import LogFormat
from rmq_ha.base.config.log_level import LogThreshold
from rmq_ha.base.model.printable import printable
from rmq_ha.ops.app.json_log import JsonObserver
from rmq_ha.ops.app.log_budget import LogBudget

DAEMON_LOG = "twistd.log"
_CACHE_MESSAGE = "Unable to write to plugin cache "


class LogStyle(NamedTuple):
    """
    Format and limits of the log.

    :ivar constants: members that each line of JSON has, describing this server.
    :ivar most_files: how many rotated files are kept; 0: all.
    :ivar least: events below this level are not logged.
    """

    format: LogFormat = LogFormat.text
    constants: Mapping[str, Any] = {}
    most_files: int = 100
    least: LogThreshold = LogThreshold.info


@provider(ILogFilterPredicate)
def no_cache_message(event: LogEvent) -> Any:
    """Let every event pass except the one about Twisted's plugin cache, known by its format."""
    is_it = str(event.get("format", "")).startswith(_CACHE_MESSAGE)
    return PredicateResult.no if is_it else PredicateResult.maybe


def at_least(threshold: LogThreshold) -> Any:
    """
    Return a predicate that lets events of this level and above pass.

    An event without a level passes, because its logger knows nothing of levels.
    """
    least = LogLevel.levelWithName(threshold.value)

    @provider(ILogFilterPredicate)
    def is_high(event: LogEvent) -> Any:
        level = event.get("log_level")
        return PredicateResult.no if level is not None and level < least else PredicateResult.maybe

    return is_high


def text_line(event: LogEvent) -> str | None:
    """
    Return the line that Twisted writes, without control characters that a peer's text may hold.
    """
    text = formatEventAsClassicLogText(event)
    return None if text is None else printable(text)


def server_observer(twistd_options: Any, style: LogStyle | None = None) -> ILogObserver | None:
    """
    Return the log observer that twistd is to use in place of its own choice.

    :param twistd_options: the options of twistd, the parent of rmq-ha's; None outside twistd.
    :returns: None if the command line chose syslog or an observer, or if text is logged outside
        twistd; then twistd or the caller decides.
    """
    options = twistd_options or {}
    style = style or LogStyle()
    is_plain = style.format is LogFormat.text and style.least is LogThreshold.info
    is_nobodys = twistd_options is None and is_plain
    if is_nobodys or options.get("logger") or options.get("syslog"):
        return None
    name = options.get("logfile") or ("-" if options.get("nodaemon") else DAEMON_LOG)
    if name == "-":
        _survive_sigusr1()
    if name == "-" and not options.get("nodaemon"):
        return None  # twistd refuses that itself
    out = sys.stdout if name == "-" else _rotated(name, style.most_files)
    observer: ILogObserver
    if style.format is LogFormat.json:
        observer = JsonObserver(out, style.constants)
    else:
        observer = FileLogObserver(out, text_line)
    return FilteringLogObserver(LogBudget(observer), [no_cache_message, at_least(style.least)])


def _survive_sigusr1() -> None:
    """
    Ignore SIGUSR1 if nothing handles it. A tool that rotates logs sends it to all servers, and it
    would end one whose log is not a file.
    """
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _rotated(path: str, most: int) -> Any:
    """
    Return a log file that rotates by size, and at SIGUSR1 if nothing else handles that signal. Only
    `most` old files are kept.
    """
    file = LogFile.fromFullPath(path, maxRotatedFiles=most or None)  # type: ignore[no-untyped-call]
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda *_: _rotate_soon(file))
    return file


def _rotate_soon(file: Any) -> None:
    from twisted.internet import reactor

    reactor.callFromThread(file.rotate)  # type: ignore[attr-defined]
