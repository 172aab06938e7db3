"""Tests over loopback sockets, with a reactor that is nobody's global one."""

import time

from twisted.internet.defer import maybeDeferred
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase


class SocketCase(SynchronousTestCase):
    """Turns a reactor of its own, which is nobody's global one."""

    def setUp(self):
        self.reactor = EPollReactor()
        self.addCleanup(self.close_reactor)
        self.reactor.getThreadPool().start()  # for the resolver

    def close_reactor(self):
        self.reactor.iterate(0)
        for selectable in self.reactor.removeAll():
            selectable.connectionLost(Failure(ConnectionDone()))
        self.reactor._poller.close()
        for selectable in self.reactor._internalReaders:
            selectable.connectionLost(Failure(ConnectionDone()))
        self.reactor.getThreadPool().stop()

    def spin(self, function, *args):
        """Turn the reactor until a function's Deferred or coroutine is done; its result."""
        waiting = maybeDeferred(function, *args)
        give_up = time.monotonic() + 20
        while not waiting.called or waiting.paused:
            self.assertLess(time.monotonic(), give_up, "nothing happens")
            self.reactor.iterate(0.01)
        return self.successResultOf(waiting)
