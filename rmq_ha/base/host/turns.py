"""Lean turns of a reactor of this program, which leave out work that Twisted does for its old log.

Twisted's epoll reactor serves each descriptor through `log.callWithLogger`, which makes a context
that names the descriptor's owner. That is two thirds of the cost of a turn, and rmq-ha does not
read the context. Timers of 0 seconds are most of the rest; `soon` calls a function in the next turn
without one.
"""

import errno
import select
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet import tcp
from twisted.internet.interfaces import IReactorTime
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python import log

from rmq_ha.base.host.network import EagerClient, EagerServer
from rmq_ha.base.seams import Soon

_NEEDED = ("_poller", "_selectables", "_doReadOrWrite", "_disconnectSelectable", "doPoll")
_READABLE: int = getattr(select, "EPOLLIN", 1)
"""The event of a descriptor that has something to read; a system without epoll has no such name."""
_PLAIN = frozenset({tcp.Server, tcp.Client, EagerServer, EagerClient})
"""Transports whose `doRead` reads the socket once and gives the bytes to the protocol."""


def make_lean(reactor: Any) -> bool:
    """
    Make the turns of a reactor of this program faster, if it is Twisted's epoll reactor.

    :returns: whether its turns are lean now. Any other reactor stays as it is, and so does one of a
        class that is derived from the epoll reactor.
    """
    kind = type(reactor)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name != "twisted.internet.epollreactor.EPollReactor":
        return False
    if not all(hasattr(reactor, needed) for needed in _NEEDED):
        return False
    reactor.doIteration = reactor.doPoll = _LeanTurn(reactor)
    return True


def soon_of(reactor: Any, clock: IReactorTime) -> Soon:
    """
    Return `Host.soon` of a reactor.

    :param clock: its timers of 0 seconds serve a reactor whose turns are not lean.
    """
    turn = getattr(reactor, "doPoll", None)
    return turn.soon if isinstance(turn, _LeanTurn) else partial(clock.callLater, 0)


class _LeanTurn:
    """
    `EPollReactor.doPoll`, with fewer calls for a descriptor that only has something to read.

    :ivar soon: see `Host.soon`. A call from another thread is an error.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._poll = reactor._poller.poll
        self._selectables: dict[int, Any] = reactor._selectables
        self._hooks: list[Callable[[], object]] = []
        self.soon: Soon = self._hooks.append

    def __call__(self, timeout: float | None) -> None:
        """
        Wait for events, serve them, and call the hooks.

        :param timeout: how many seconds to wait at most; None: for ever. If a hook is
            to be called, it waits for nothing.
        """
        selectables, hooks = self._selectables, self._hooks
        if hooks:
            timeout = 0
        events = self._poll(-1 if timeout is None else timeout, len(selectables))
        for descriptor, event in events:
            selectable = selectables.get(descriptor)
            if selectable is None:
                continue  # a descriptor that was served before has closed it
            if event != _READABLE:
                self._reactor._doReadOrWrite(selectable, descriptor, event)
                continue
            why: Any
            try:
                if type(selectable) in _PLAIN and not selectable.TLS:
                    # Connection.doRead, without its two calls.
                    try:
                        data = selectable.socket.recv(selectable.bufferSize)
                    except OSError as error:
                        why = None if error.errno == errno.EWOULDBLOCK else CONNECTION_LOST
                    else:
                        if data:
                            selectable.protocol.dataReceived(data)
                            continue
                        why = CONNECTION_DONE
                else:
                    why = selectable.doRead()
            except BaseException:  # as Twisted: it is logged, and the descriptor is given up
                why = sys.exc_info()[1]
                log.err()  # type: ignore[no-untyped-call]
            if why:
                self._reactor._disconnectSelectable(selectable, why, True)
        if hooks:
            self._call_hooks()

    def _call_hooks(self) -> None:
        """Call the hooks that wait now. A hook that one of them adds waits for the next turn."""
        calls = self._hooks[:]
        self._hooks.clear()
        for call in calls:
            try:
                call()
            except BaseException:  # as Twisted does with timers
                log.err()  # type: ignore[no-untyped-call]
