"""
The Twisted service around a broker or a name server: starts it, prints that it is ready, stops it,
and reports a failed start.
"""

import errno
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.logger import ILogObserver, LogEvent, Logger, globalLogPublisher
from twisted.python.components import Componentized

from rmq_ha.base.config.ports import PlannedPort
from rmq_ha.base.config.settings import ConfigNotice
from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.host.ports import TAKEN
from rmq_ha.base.model.printable import NamedValues
from rmq_ha.ops.app.notify import Notifier
from rmq_ha.ops.app.process import ProcessEnd, spare_what_is_there


class Server(Protocol):
    def start(self) -> Deferred[Any]:
        """Start; the Deferred fires when the server serves."""

    def stop(self) -> Deferred[Any]:
        """
        Stop; the Deferred fires when all is closed. It works after a start that failed as well.
        """

    def ports(self) -> list[PlannedPort]:
        """Return the ports that the server listens on, or tried to."""

    def reload(self) -> object:
        """Read the TLS settings and certificates again; faults in them are logged."""

    def facts(self) -> dict[str, Any]: ...

    def observe(self, event: LogEvent) -> object:
        """Take an event of this process's log."""


_PLACE = "the path is of storePathRootDir, or of another storePath key"
_ADVICE = {
    errno.EACCES: f"give the user of this process the right to it ({_PLACE})",
    errno.ENOENT: f"make its directory, or mount its disk ({_PLACE})",
    errno.ENOSPC: f"free some disk space ({_PLACE})",
    errno.ENOTDIR: f"a part of it is a file and no directory ({_PLACE})",
    errno.EPERM: f"give the user of this process the right to it ({_PLACE})",
    errno.EROFS: f"mount the disk for writing ({_PLACE})",
}
"""Advice for operators, by the error number of a system call that failed at a start."""
_PORT_ADVICE = {
    errno.EADDRNOTAVAIL: "no interface of this machine has this address: correct bindAddress",
    errno.EACCES: "below 1024 ports are for root, or CAP_NET_BIND_SERVICE: set a higher one",
}


def explain(error: BaseException, ports: Iterable[PlannedPort]) -> str | None:
    """
    Return one line that says why a start failed; None: only the traceback says it.

    :param ports: the planned ports, to name the purpose of a port that is taken.
    """
    if isinstance(error, CannotListenError):
        cause = error.socketError
        if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            reason = f"{TAKEN}; end that one ('ss -ltnp' names it), or set another port"
        else:
            reason = getattr(cause, "strerror", None) or str(cause)
            advice = _PORT_ADVICE.get(getattr(cause, "errno", None) or 0)
            reason = f"{reason}; {advice}" if advice else reason
        purpose = next((f" for {item.purpose}" for item in ports if item.port == error.port), "")
        where = error.interface or "any address"
        return f"cannot listen on port {error.port} of {where}{purpose}: {reason}"
    if isinstance(error, RmqHaError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        advice = _ADVICE.get(error.errno or 0)
        return f"{text}; {advice}" if advice else text
    return None


class LogBeginning(NamedTuple):
    """
    The destination of the log, and its first line.

    :ivar observer: the log observer that twistd uses; None: twistd chooses.
    :ivar banner: the first line of the log: which program, which version.
    """

    observer: ILogObserver | None = None
    banner: str = ""


_NO_BEGINNING = LogBeginning()


class ServerService(Service):
    """
    Runs one server inside twistd.

    A start that fails gives one line in the log and exit code 1. SIGTERM stops the server in order
    and gives exit code 0. SIGHUP reads the TLS settings again.

    :param notices: remarks about the configuration, which are logged.
    :param is_ready_wanted: print the READY line.
    :param notifier: tells the service manager; None: there is none.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        server: Server,
        end: ProcessEnd,
        notices: Iterable[ConfigNotice] = (),
        is_ready_wanted: bool = False,
        beginning: LogBeginning = _NO_BEGINNING,
        notifier: Notifier | None = None,
    ) -> None:
        self._reactor = reactor
        self._server = server
        self._end = end
        self._notices = notices
        self._is_ready_wanted = is_ready_wanted
        self._observer, self._banner = beginning
        self._notifier = notifier or Notifier(reactor, None)
        self._started: Deferred[None] | None = None

    def setServiceParent(self, parent: Any) -> None:
        """
        Give the application the log observer, which twistd reads before it starts the service.
        """
        if self._observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._observer)  # type: ignore[no-untyped-call]
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]

    def startService(self) -> None:
        """Start when the reactor runs, so that a failure can stop it."""
        super().startService()  # type: ignore[no-untyped-call]
        globalLogPublisher.addObserver(self._server.observe)  # type: ignore[arg-type]
        if self._banner:
            self.log.info("{banner}", banner=self._banner)
        for notice in self._notices:
            self.log.warn("{notice}", notice=notice.text)
        self._reactor.callWhenRunning(self._start)

    def stopService(self) -> Deferred[None] | None:
        """Let a start that is under way end, then stop."""
        super().stopService()  # type: ignore[no-untyped-call]
        globalLogPublisher.removeObserver(self._server.observe)  # type: ignore[arg-type]
        self._notifier.stopping()
        return None if self._started is None else Deferred.fromCoroutine(self._stop_all())

    def _start(self) -> None:
        self._end.catch_sigterm()
        self._end.catch_sighup(self._server.reload)
        self._started = Deferred.fromCoroutine(self._start_all())

    async def _start_all(self) -> None:
        try:
            await self._server.start()
        except Exception as error:
            reason = explain(error, self._server.ports())
            if reason is None:
                self.log.failure("cannot start")
            else:
                self.log.error("cannot start: {reason}", reason=reason)
            # Fail only after this Deferred has fired, because the stop waits for it.
            self._reactor.callLater(0, self._end.fail)
            return
        spare_what_is_there()
        facts = {"pid": os.getpid(), **self._server.facts()}
        self.log.info("serving:{facts}", facts=NamedValues(facts))
        self._notifier.ready(f"serving on port {facts.get('listenPort')}")
        if self._is_ready_wanted and sys.__stdout__ is not None:
            # Not through the log: the line must start with READY, whatever the log looks like.
            print("READY " + json.dumps(facts), file=sys.__stdout__, flush=True)

    async def _stop_all(self) -> None:
        if self._started is not None:
            await self._started
        try:
            await self._server.stop()
        except Exception:
            self.log.failure("not stopped cleanly")
        else:
            self.log.info("stopped")
