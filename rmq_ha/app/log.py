"""Where twistd logs to, and how it looks.

One line less: on a read-only installation Twisted says at every start, and at every search for
plugins, that it cannot write its plugin cache. It works without one.
"""

import signal
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from twisted.logger import (
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    PredicateResult,
    textFileLogObserver,
)
from twisted.python.logfile import LogFile
from zope.interface import provider

from rmq_ha.app.json_log import JsonObserver
from rmq_ha.config.log_format import LogFormat

DAEMON_LOG = "twistd.log"
_CACHE_MESSAGE = "Unable to write to plugin cache "


class LogStyle(NamedTuple):
    """:ivar constants: what each line of JSON says of this server."""

    format: LogFormat = LogFormat.text
    constants: Mapping[str, Any] = {}


@provider(ILogFilterPredicate)
def no_cache_message(event: LogEvent) -> Any:
    """Lets every event pass but that one, known by its format."""
    is_it = str(event.get("format", "")).startswith(_CACHE_MESSAGE)
    return PredicateResult.no if is_it else PredicateResult.maybe


def server_observer(twistd_options: Any, style: LogStyle | None = None) -> ILogObserver | None:
    """
    What twistd is to log with, in place of its own choice.

    :param twistd_options: the parent of our options; None outside twistd.
    :returns: None leaves it to twistd: for text that goes anywhere but to standard output, and
        wherever the command line chose syslog or an observer.
    """
    options = twistd_options or {}
    style = style or LogStyle()
    if options.get("logger") or options.get("syslog"):
        return None
    name = options.get("logfile") or ("-" if options.get("nodaemon") else DAEMON_LOG)
    if name == "-":
        _survive_sigusr1()
    if name == "-" and not options.get("nodaemon"):
        return None  # twistd refuses that itself
    observer: ILogObserver
    if style.format is LogFormat.json:
        out = sys.stdout if name == "-" else _rotated(name)
        observer = JsonObserver(out, style.constants)
    elif name == "-":
        observer = textFileLogObserver(sys.stdout)
    else:
        return None
    return FilteringLogObserver(observer, [no_cache_message])


def _survive_sigusr1() -> None:
    """Who rotates logs sends it to all servers; one whose log is no file has nothing to do."""
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _rotated(path: str) -> Any:
    """As twistd does it: by size, and at SIGUSR1 where nobody else has that signal."""
    file = LogFile.fromFullPath(path)  # type: ignore[no-untyped-call]
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda *_: _rotate_soon(file))
    return file


def _rotate_soon(file: Any) -> None:
    from twisted.internet import reactor

    reactor.callFromThread(file.rotate)  # type: ignore[attr-defined]
