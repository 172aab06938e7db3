"""The page of one status port: its gate, its board, and the time during which it is shown."""

from collections.abc import Callable
from typing import NamedTuple

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from twisted.web.resource import Resource
from zope.interface import implementer

from rmq_ha.base.model.networks import is_loopback
from rmq_ha.base.remoting.audit import NAMESPACE as AUDIT
from rmq_ha.base.seams import Host
from rmq_ha.ops.app.page.answers import Answers
from rmq_ha.ops.app.page.board import Board
from rmq_ha.ops.app.page.events import EventKind, EventSeverity
from rmq_ha.ops.app.page.files import page_files
from rmq_ha.ops.app.page.gate import Administrator, Gate
from rmq_ha.ops.app.page.resources import Api, PageFiles

_REFUSALS = (
    "rmq_ha.server.acl",
    "rmq_ha.server.replication.entrance",
    "rmq_ha.base.tls",
    "rmq_ha.base.remoting",
    "rmq_ha.base.host",
)
_KINDS = (
    ("rmq_ha.server.replication", EventKind.REPLICATION),
    ("rmq_ha.server.dledger", EventKind.REPLICATION),
    ("rmq_ha.server.broker.registration", EventKind.REGISTRATION),
    ("rmq_ha.server.namesrv", EventKind.REGISTRATION),
)
_SEVERITIES = {
    LogLevel.info: EventSeverity.INFO,
    LogLevel.warn: EventSeverity.WARN,
    LogLevel.error: EventSeverity.ERROR,
    LogLevel.critical: EventSeverity.ERROR,
}


@implementer(ILogObserver)
class LogTap:
    """
    Passes warnings and worse, and the whole audit log, on to the page.

    :param note: called with kind, severity and text.
    """

    def __init__(self, note: Callable[[EventKind, EventSeverity, str], None]) -> None:
        self._note = note

    def __call__(self, event: LogEvent) -> None:
        """Take one log event; most of them are ignored."""
        severity = _SEVERITIES.get(event.get("log_level"))
        namespace = str(event.get("log_namespace", ""))
        if severity is None or (severity is EventSeverity.INFO and namespace != AUDIT):
            return
        self._note(_kind(namespace), severity, formatEvent(event))


def _kind(namespace: str) -> EventKind:
    if namespace == AUDIT:
        return EventKind.CHANGE
    if namespace.startswith(_REFUSALS):
        return EventKind.REFUSAL
    for prefix, kind in _KINDS:
        if namespace.startswith(prefix):
            return kind
    return EventKind.LOG


class PageSettings(NamedTuple):
    """
    The settings of the page.

    :ivar token: `pageToken`.
    :ivar has_accounts: access control by rmq-ha's own accounts is in force.
    :ivar is_guarded: access control of any kind is in force, so clients on this machine must enter
        as well.
    """

    token: str = ""
    has_accounts: bool = False
    is_guarded: bool = False


class PagePort:
    """
    The page's part of a status port, beside /metrics and /healthz.

    :ivar administrator: checks signatures; set when access control has started.
    """

    def __init__(self, host: Host, settings: PageSettings, interface: str) -> None:
        self.administrator: Administrator = lambda account, signature, content, host: False
        is_exposed = not (interface == "localhost" or is_loopback(interface))
        self.gate = Gate(
            host.random,
            token=settings.token,
            administrator=self._is_administrator if settings.has_accounts else None,
            is_guarded=settings.is_guarded or is_exposed,
        )
        self._clock = host.clock
        self._answers: Answers | None = None
        self._tap: Callable[[LogEvent], None] = lambda event: None

    def put_into(self, root: Resource) -> None:
        """Add the page's resources to the tree of the status port."""
        files = PageFiles(page_files())
        root.putChild(b"", files)
        root.putChild(b"page", files)
        root.putChild(b"api", Api(self.gate, self._clock, lambda: self._answers))

    def show(self, board: Board) -> None:
        """Show this board from now on, since the server serves now."""
        self._answers = Answers(board)
        self._tap = LogTap(board.note)
        board.start()

    def hide(self) -> None:
        answers, self._answers = self._answers, None
        self._tap = lambda event: None
        if answers is not None:
            answers.board.stop()

    def observe(self, event: LogEvent) -> None:
        self._tap(event)

    def _is_administrator(self, account: str, signature: str, content: bytes, host: str) -> bool:
        return self.administrator(account, signature, content, host)
