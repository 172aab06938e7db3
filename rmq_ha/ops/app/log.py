"""
The log of a server that twistd runs: its place, format and size.

The format is text, or JSON: one object a line, with every field that the event was logged with.
No peer can fill the disk: the lines of one kind are limited in each minute.

One line of Twisted is left out. On a read-only installation Twisted logs at every start, and at
every search for plugins, that it cannot write its plugin cache, which it does not need.
"""

import json
import re
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    LogLevel,
    PredicateResult,
    formatEvent,
    formatEventAsClassicLogText,
)
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile
from zope.interface import implementer, provider

from rmq_ha.base.config.log_format import LogFormat
from rmq_ha.base.config.log_level import LogThreshold
from rmq_ha.base.model.printable import printable

WINDOW_S = 60.0
LINES, TRACEBACKS = 600, 30
_MOST_TOLD = 20


@implementer(ILogObserver)
class LogBudget:
    """
    Lets only so many events of one kind pass in a minute; the number of dropped events is logged.

    A kind is the format of a message; what a peer sends only fills it in. An event may name another
    kind (`log_kind`), so that one peer's lines do not crowd out others. The time is that of the
    events.

    :param observer: called with the events that pass.
    """

    def __init__(self, observer: ILogObserver) -> None:
        self._observer = observer
        self._since = 0.0
        self._seen: dict[object, int] = {}
        self._left_out: dict[object, int] = {}

    def __call__(self, event: LogEvent) -> None:
        now = float(event.get("log_time", self._since))
        if not 0 <= now - self._since < WINDOW_S:
            self._since = now
            self._seen.clear()
            self._tell(now)
        kind = event.get("log_kind") or event.get("log_format") or event.get("format")
        if kind is None:
            self._observer(event)
            return
        most = TRACEBACKS if "log_failure" in event else LINES
        count = self._seen[kind] = self._seen.get(kind, 0) + 1
        if count <= most:
            self._observer(event)
        else:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1

    def _tell(self, now: float) -> None:
        """Log how many events of the minute before were dropped."""
        left_out, self._left_out = self._left_out, {}
        for kind, count in list(left_out.items())[:_MOST_TOLD]:
            self._observer(
                {
                    "log_format": "{count} more lines like {kind!r} in a minute were left out",
                    "log_level": LogLevel.warn,
                    "log_namespace": __name__,
                    "log_time": now,
                    "count": count,
                    "kind": kind,
                }
            )


MOST_TEXT = 4000
"""Most characters of one field; a traceback may have four times as many."""
HIDDEN = "***"

# Twisted's own fields; the members of the line have what matters of them.
_NOT_FIELDS = frozenset(
    {"format", "message", "isError", "time", "system", "why", "failure", "factory", "eventText"}
)
_SECRET = re.compile("password|passwd|secret|signature|private_?key|credential", re.IGNORECASE)


def json_line(event: LogEvent, constants: Mapping[str, Any]) -> str:
    """
    Return one event as a line: `time` (UTC), `level`, `namespace`, `message`, the constants,
    `fields`, `traceback`.

    Fields whose name tells of a secret are hidden. Never fails.

    :param constants: members that describe this server.
    """
    record: dict[str, Any] = {
        "time": _time(event.get("log_time")),
        "level": getattr(event.get("log_level"), "name", "info"),
        "namespace": str(event.get("log_namespace", "")),
        "message": _cut(formatEvent(event), MOST_TEXT),
        **constants,
    }
    fields = {
        name: HIDDEN if _SECRET.search(name) else _plain(value)
        for name, value in event.items()
        if not name.startswith("log_") and name not in _NOT_FIELDS
    }
    if fields:
        record["fields"] = fields
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        record["traceback"] = _cut(_traceback(failure), 4 * MOST_TEXT)
    # Write ASCII alone, because a peer's text may hold characters that the output's encoding lacks.
    return json.dumps(record, separators=(",", ":"))


@implementer(ILogObserver)
class JsonObserver:
    """
    Writes events to a file, a line each.

    :param out: a text file, flushed after each line.
    """

    def __init__(self, out: TextIO, constants: Mapping[str, Any]) -> None:
        self._out = out
        self._constants = dict(constants)

    def __call__(self, event: LogEvent) -> None:
        self._out.write(json_line(event, self._constants) + "\n")
        self._out.flush()


def _time(seconds: object) -> str | None:
    if not isinstance(seconds, int | float):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _plain(value: object, depth: int = 0) -> Any:
    """Return a value as JSON can hold it; values of other types as text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # no NaN, no infinity in JSON
    if isinstance(value, bytes):
        return _cut(value.decode("utf-8", "replace"), MOST_TEXT)
    if isinstance(value, Mapping) and depth < 3:
        return {
            str(key): HIDDEN if _SECRET.search(str(key)) else _plain(item, depth + 1)
            for key, item in list(value.items())[:100]
        }
    if isinstance(value, list | tuple | set | frozenset) and depth < 3:
        return [_plain(item, depth + 1) for item in list(value)[:100]]
    try:
        return _cut(str(value), MOST_TEXT)
    except Exception:  # a broken __str__ must not cost the line
        return object.__repr__(value)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def _traceback(failure: Failure) -> str:
    try:
        return failure.getTraceback()
    except Exception:
        return repr(failure.value)


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
    out = sys.stdout if name == "-" else _rotating_file(name, style.most_files)
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


def _rotating_file(path: str, most: int) -> Any:
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
