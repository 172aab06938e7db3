"""Log events as JSON: one object a line, with every field that the event was logged with."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from twisted.logger import ILogObserver, LogEvent, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer

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
