"""
Messages to systemd for a service of `Type=notify`: ready, stopping, alive.

A message is a datagram of lines to the socket that `NOTIFY_SOCKET` names (sd_notify(3)).
"""

import os
import socket
from collections.abc import Callable, Mapping

from twisted.internet.interfaces import IDelayedCall, IReactorTime

Send = Callable[[bytes], None]
SOCKET_VARIABLE, WATCHDOG_VARIABLE, PID_VARIABLE = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Notifier:
    """
    Tells the service manager the state of this process, if the manager asked for it.

    The reactor itself sends a sign of life at intervals. A reactor that hangs sends none, so the
    service manager ends the process.

    :param send: sends a datagram; None: the manager did not ask.
    :param watchdog_seconds: after so many seconds of silence the manager ends the process; 0:
        never.
    """

    def __init__(self, clock: IReactorTime, send: Send | None, watchdog_seconds: float = 0) -> None:
        self._clock = clock
        self._send = send
        self._every = watchdog_seconds / 2
        self._timer: IDelayedCall | None = None

    def ready(self, status: str) -> None:
        """Tell that the process serves, and begin with signs of life."""
        self._tell("READY=1", f"STATUS={status}")
        if self._send is not None and self._every > 0 and self._timer is None:
            self._live()

    def stopping(self) -> None:
        """Tell that the process stops, which may take a while."""
        self._tell("STOPPING=1")

    def _live(self) -> None:
        self._tell("WATCHDOG=1")
        self._timer = self._clock.callLater(self._every, self._live)

    def _tell(self, *lines: str) -> None:
        if self._send is None:
            return
        try:
            self._send("\n".join(lines).encode())
        except OSError:  # the manager is gone or busy: the next one is sent all the same
            return


def notifier(
    clock: IReactorTime,
    environ: Mapping[str, str],
    pid: int,
    make_send: "Callable[[str], Send]",
) -> Notifier:
    """
    Return a notifier as the environment variables ask for it.

    :param make_send: makes the sending function for the path in `NOTIFY_SOCKET`.
    """
    path = environ.get(SOCKET_VARIABLE, "")
    if not path.startswith(("/", "@")):
        return Notifier(clock, None)
    usec = environ.get(WATCHDOG_VARIABLE, "")
    is_ours = environ.get(PID_VARIABLE, str(pid)) == str(pid)
    seconds = int(usec) / 1e6 if usec.isdecimal() and is_ours else 0.0
    return Notifier(clock, make_send(path), seconds)


def unix_send(path: str) -> Send:
    """
    Return a function that sends datagrams to a socket, and never blocks.

    :param path: path of the socket; a leading `@` means an abstract socket.
    """
    address = "\0" + path[1:] if path.startswith("@") else path
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(data: bytes) -> None:
        sender.sendto(data, address)

    return send


def of_this_process(clock: IReactorTime) -> Notifier:
    """
    Return the notifier for the real environment, and remove its variables so that child processes
    do not inherit them.
    """
    made = notifier(clock, os.environ, os.getpid(), unix_send)
    for name in (SOCKET_VARIABLE, WATCHDOG_VARIABLE, PID_VARIABLE):
        os.environ.pop(name, None)
    return made
