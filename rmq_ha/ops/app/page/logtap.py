"""Picks the log lines that belong among the events of the page."""

from collections.abc import Callable

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from zope.interface import implementer

from rmq_ha.base.remoting.audit import NAMESPACE as AUDIT
from rmq_ha.ops.app.page.events import Kind, Severity

_REFUSALS = (
    "rmq_ha.server.acl",
    "rmq_ha.server.replication.entrance",
    "rmq_ha.base.tls",
    "rmq_ha.base.remoting",
    "rmq_ha.base.host",
)
_KINDS = (
    ("rmq_ha.server.replication", Kind.REPLICATION),
    ("rmq_ha.server.dledger", Kind.REPLICATION),
    ("rmq_ha.server.broker.registration", Kind.REGISTRATION),
    ("rmq_ha.server.namesrv", Kind.REGISTRATION),
)
_SEVERITIES = {
    LogLevel.info: Severity.INFO,
    LogLevel.warn: Severity.WARN,
    LogLevel.error: Severity.ERROR,
    LogLevel.critical: Severity.ERROR,
}


@implementer(ILogObserver)
class LogTap:
    """
    Passes warnings and worse, and the whole audit log, on to the page.

    :param note: called with kind, severity and text.
    """

    def __init__(self, note: Callable[[Kind, Severity, str], None]) -> None:
        self._note = note

    def __call__(self, event: LogEvent) -> None:
        """Take one log event; most of them are ignored."""
        severity = _SEVERITIES.get(event.get("log_level"))
        namespace = str(event.get("log_namespace", ""))
        if severity is None or (severity is Severity.INFO and namespace != AUDIT):
            return
        self._note(_kind(namespace), severity, formatEvent(event))


def _kind(namespace: str) -> Kind:
    if namespace == AUDIT:
        return Kind.CHANGE
    if namespace.startswith(_REFUSALS):
        return Kind.REFUSAL
    for prefix, kind in _KINDS:
        if namespace.startswith(prefix):
            return kind
    return Kind.LOG
