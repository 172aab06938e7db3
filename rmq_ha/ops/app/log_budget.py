"""Limits the number of log lines, so that no peer can fill the disk with lines that it causes."""

from twisted.logger import ILogObserver, LogEvent, LogLevel
from zope.interface import implementer

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
