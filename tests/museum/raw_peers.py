"""Slaves and masters that are nothing but a socket: they say what a scenario wants them to say."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from rmq_ha.server.replication.classic.frames import FramePieceReader, encode_frame, encode_report
from tests.interop.rig import Server
from tests.museum.sides import port_of


class RawSlave:
    """One connection to a broker's replication port."""

    def __init__(self, master: Server, buffer: int = 0) -> None:
        self._socket = socket.socket()
        if buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._socket.settimeout(10)
        self._socket.connect(("127.0.0.1", port_of(master) + 1))
        self._reader = FramePieceReader()
        self.sizes: list[int] = []
        self.received = 0
        self.end = 0
        self._following: threading.Thread | None = None
        self._silent = threading.Event()

    def __enter__(self) -> RawSlave:
        return self

    def __exit__(self, *_: object) -> None:
        self._silent.set()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def report(self, offset: int) -> None:
        self.send(encode_report(offset))

    def read(self, seconds: float) -> bool:
        """
        Take what comes in that time.

        :returns: whether the master still holds the connection.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._take(data)
        return True

    def _take(self, data: bytes) -> None:
        for offset, body, size, _ in self._reader.receive_data(data):
            if size is not None:
                self.sizes.append(size)
            self.received += len(body)
            self.end = offset + len(body)

    def follow(self, offset: int) -> None:
        """Be a good slave from there on, until `fall_silent`."""
        self.report(offset)
        self._following = threading.Thread(target=self._follow, daemon=True)
        self._following.start()

    def _follow(self) -> None:
        reported = 0
        while not self._silent.is_set() and self.read(0.02):
            if self.end > reported:
                reported = self.end
                with contextlib.suppress(OSError):
                    self.report(reported)

    def fall_silent(self) -> None:
        """Keep the connection, and say nothing more."""
        self._silent.set()
        if self._following is not None:
            self._following.join(5)


class RawMaster:
    """
    Takes slaves and gives them what a scenario wants.

    :ivar connections: how many came.
    :ivar lost: how many of them ended.
    :ivar received: bytes of reports.
    """

    def __init__(self, port: int) -> None:
        self.connections = 0
        self.lost = 0
        self.received = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self._slaves: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> RawMaster:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for slave in self._slaves:
            slave.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                slave, _ = self._listener.accept()
                self._slaves.append(slave)
                self.connections += 1
                threading.Thread(target=self._watch, args=(slave,), daemon=True).start()

    def _watch(self, slave: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := slave.recv(1 << 16):
                self.received += len(data)
        self.lost += 1

    def send(self, offset: int, body: bytes = b"") -> None:
        """A frame for the slave that came last."""
        self.send_bytes(encode_frame(offset, body))

    def send_bytes(self, data: bytes) -> None:
        self._slaves[-1].sendall(data)
