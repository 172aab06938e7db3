"""A relay before a server that notes who asks what, and what is answered."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame


class Recorder:
    """
    Listens where clients look, and hands all bytes on.

    :param listen: host and port.
    :param target: of the server behind it.
    :ivar address: where it listens.
    :ivar answers: request code to the codes that were answered, from either side; empty: nobody was
        to answer.
    """

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self.answers: dict[int, set[int]] = defaultdict(set)
        self._target = target
        self._listener = socket.create_server(listen)
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Connections end with their ends."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            asked: dict[tuple[bool, int], int] = {}
            for source, sink, is_client in ((client, server, True), (server, client, False)):
                arguments = (source, sink, is_client, asked)
                threading.Thread(target=self._relay, args=arguments, daemon=True).start()

    def _relay(
        self,
        source: socket.socket,
        sink: socket.socket,
        is_client: bool,
        asked: dict[tuple[bool, int], int],
    ) -> None:
        reader = FrameReader()
        try:
            while data := source.recv(1 << 16):
                for frame in reader.receive_data(data):
                    self._note(decode_frame(*frame), is_client, asked)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _note(
        self, command: RemotingCommand, is_client: bool, asked: dict[tuple[bool, int], int]
    ) -> None:
        if command.is_response:
            code = asked.pop((not is_client, command.opaque), None)
            if code is not None:
                self.answers[code].add(command.code)
            return
        self.answers[command.code]  # it was asked, if only one-way
        if not command.is_oneway:
            asked[is_client, command.opaque] = command.code
