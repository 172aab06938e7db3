"""The end of a server process: its exit code, and the signals that end it or reload its files."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger


def spare_what_is_there() -> None:
    """
    Keep the garbage collector from visiting the objects that a start made, most of which stay for
    ever.

    Without this, each full collection took 45 ms. A collection ran whenever a request had made many
    objects.
    """
    gc.freeze()


class ProcessEnd:
    """
    The exit code of a process that twistd runs, and SIGTERM as a regular end.

    A service of twistd that fails after the reactor has started cannot set a non-zero exit code.
    And a twistd that a signal stops kills itself with that signal. But a supervisor must see exit
    code 1 for a failed start, and 0 for a stop that it asked for.

    :param reactor: the running reactor.
    """

    log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._failed = False
        self._is_stopping = False
        # Registered early, so that it runs after functions that are registered later.
        atexit.register(self._leave)

    def fail(self) -> None:
        """Stop the reactor; the process then exits with 1."""
        self._failed = True
        self.stop()

    def stop(self) -> None:
        """Stop the reactor, unless it is stopping already."""
        if self._reactor.running and not self._is_stopping:
            self._is_stopping = True
            self._reactor.stop()

    def catch_sigterm(self) -> None:
        """
        Replace the reactor's handler of SIGTERM; call it when the reactor runs, since it sets its
        handler at its start.
        """
        signal.signal(signal.SIGTERM, self._terminated)

    def catch_sighup(self, reload: Callable[[], object]) -> None:
        """
        Read certificates again at each SIGHUP.

        :param reload: called in the reactor's thread.
        """
        signal.signal(
            signal.SIGHUP, lambda number, frame: self._reactor.callFromThread(self._hup, reload)
        )

    def _hup(self, reload: Callable[[], object]) -> None:
        self.log.info("SIGHUP: reading the TLS settings again")
        reload()

    def _terminated(self, number: int, frame: Any) -> None:
        self._reactor.callFromThread(self._stop_as_told)

    def _stop_as_told(self) -> None:
        self.log.info("SIGTERM: stopping")
        self.stop()

    def _leave(self) -> None:
        if self._failed:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
