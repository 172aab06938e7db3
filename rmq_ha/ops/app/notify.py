"""What systemd is told of a service of `Type=notify`: ready, stopping, alive.

A datagram of lines to the socket that `NOTIFY_SOCKET` names (sd_notify(3)).
"""

import os
import socket
from collections.abc import Callable, Mapping

from twisted.internet.interfaces import IDelayedCall, IReactorTime

Send = Callable[[bytes], None]
SOCKET_VARIABLE, WATCHDOG_VARIABLE, PID_VARIABLE = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Notifier:
    """
    Tells whoever started this process how far it is; nobody, when nobody asked.

    A sign of life comes from the reactor itself: one that hangs gives none, and the service
    manager ends it.

    :param send: None: nobody asked.
    :param watchdog_seconds: how long silence is borne; 0: for ever.
    """

    def __init__(self, clock: IReactorTime, send: Send | None, watchdog_seconds: float = 0) -> None:
        self._clock = clock
        self._send = send
        self._every = watchdog_seconds / 2
        self._timer: IDelayedCall | None = None

    def ready(self, status: str) -> None:
        """It serves; signs of life begin."""
        self._tell("READY=1", f"STATUS={status}")
        if self._send is not None and self._every > 0 and self._timer is None:
            self._live()

    def stopping(self) -> None:
        """It stops, which may take a while."""
        self._tell("STOPPING=1")

    def _live(self) -> None:
        self._tell("WATCHDOG=1")
        self._timer = self._clock.callLater(self._every, self._live)

    def _tell(self, *lines: str) -> None:
        if self._send is None:
            return
        try:
            self._send("\n".join(lines).encode())
        except OSError:  # whoever asked is gone, or busy: the next one is sent all the same
            return


def notifier(
    clock: IReactorTime,
    environ: Mapping[str, str],
    pid: int,
    make_send: "Callable[[str], Send]",
) -> Notifier:
    """
    What the environment asks for.

    :param make_send: of the path in `NOTIFY_SOCKET`.
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
    Sends datagrams there, and never waits.

    :param path: of a socket; with `@` in front of an abstract one.
    """
    address = "\0" + path[1:] if path.startswith("@") else path
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(data: bytes) -> None:
        sender.sendto(data, address)

    return send


def of_this_process(clock: IReactorTime) -> Notifier:
    """As `notifier`, of the real environment; what we start ourselves does not inherit it."""
    made = notifier(clock, os.environ, os.getpid(), unix_send)
    for name in (SOCKET_VARIABLE, WATCHDOG_VARIABLE, PID_VARIABLE):
        os.environ.pop(name, None)
    return made
