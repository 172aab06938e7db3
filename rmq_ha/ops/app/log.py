"""Where twistd logs to, how it looks, and how much it may become.

One line less: on a read-only installation Twisted says at every start, and at every search for
plugins, that it cannot write its plugin cache. It works without one.
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
    :ivar constants: what each line of JSON says of this server.
    :ivar most_files: how many rotated files are kept; 0: all.
    :ivar least: what is below this level is not logged.
    """

    format: LogFormat = LogFormat.text
    constants: Mapping[str, Any] = {}
    most_files: int = 100
    least: LogThreshold = LogThreshold.info


@provider(ILogFilterPredicate)
def no_cache_message(event: LogEvent) -> Any:
    """Lets every event pass but that one, known by its format."""
    is_it = str(event.get("format", "")).startswith(_CACHE_MESSAGE)
    return PredicateResult.no if is_it else PredicateResult.maybe


def at_least(threshold: LogThreshold) -> Any:
    """
    A predicate for events of this level and above, whoever logs them.

    What has no level passes: it is somebody's who knows nothing of levels.
    """
    least = LogLevel.levelWithName(threshold.value)

    @provider(ILogFilterPredicate)
    def is_high(event: LogEvent) -> Any:
        level = event.get("log_level")
        return PredicateResult.no if level is not None and level < least else PredicateResult.maybe

    return is_high


def text_line(event: LogEvent) -> str | None:
    """As Twisted writes it, but what a peer's name holds does nothing to the reader's terminal."""
    text = formatEventAsClassicLogText(event)
    return None if text is None else printable(text)


def server_observer(twistd_options: Any, style: LogStyle | None = None) -> ILogObserver | None:
    """
    What twistd is to log with, in place of its own choice.

    :param twistd_options: the parent of our options; None outside twistd.
    :returns: None leaves it to twistd, wherever the command line chose syslog or an observer, or
        to whoever runs text outside it.
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
    """Who rotates logs sends it to all servers; one whose log is no file has nothing to do."""
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _rotated(path: str, most: int) -> Any:
    """As twistd does it, by size, and at SIGUSR1 where nobody else has that signal; but not all
    of them are kept."""
    file = LogFile.fromFullPath(path, maxRotatedFiles=most or None)  # type: ignore[no-untyped-call]
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda *_: _rotate_soon(file))
    return file


def _rotate_soon(file: Any) -> None:
    from twisted.internet import reactor

    reactor.callFromThread(file.rotate)  # type: ignore[attr-defined]
