"""The cores of a slave in controller mode, driven by a plain socket: a member of a Java set."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from random import Random

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.server.replication.epochs.epochs import Epochs
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica
from rmq_ha.server.replication.epochs.roles.actions import (
    Accept,
    Apply,
    AskController,
    ControllerAnswer,
    Follow,
    LogProgress,
    Withdraw,
)
from rmq_ha.server.replication.epochs.roles.identity import KnownIds
from rmq_ha.server.replication.epochs.roles.manager import ReplicasManager
from rmq_ha.server.replication.epochs.settings import ManagerSettings, ReplicationSettings
from tests.unit.server.replication.memory_log import MemoryLog

Asking = Callable[[str, RemotingCommand], RemotingCommand]


class Slave:
    """
    Applies for an id, and follows whoever leads; runs in a thread of its own.

    :ivar fault: what ended it.
    """

    def __init__(self, controller: str, port: int, asking: Asking) -> None:
        self.log = MemoryLog(1 << 30)
        self.epochs = Epochs()
        self.confirm_offset = 0
        self.follows: Follow | None = None
        self.fault: BaseException | None = None
        self._asking = asking
        self._door = socket.create_server(("127.0.0.1", port))  # a controller looks who is alive
        self.manager = ReplicasManager(
            ManagerSettings(
                cluster_name="Peer5Cluster",
                broker_name="broker-c",
                broker_address=f"127.0.0.1:{port}",
                controllers=(controller,),
            ),
            KnownIds(), self._progress, lambda: int(time.time() * 1000), Random(1),
        )  # fmt: skip
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join(10)
        self._door.close()
        if self.fault is not None:
            raise self.fault

    def _progress(self) -> LogProgress:
        return LogProgress(self.epochs.last_epoch, self.log.max_offset, self.confirm_offset)

    def _run(self) -> None:
        try:
            self._live()
        except BaseException as fault:
            self.fault = fault

    def _live(self) -> None:
        while self.follows is None and not self._is_stopped.is_set():
            self._talk()
            time.sleep(0.02)
        assert self.follows is not None
        host, _, port = self.follows.master_address.rpartition(":")
        assert self.manager.identity is not None
        replica = EpochReplica(
            self.manager.identity.broker_id, self.log, self.epochs, 0, ReplicationSettings(),
            time.monotonic(),
        )  # fmt: skip
        with socket.create_connection((host, int(port) + 1), 5) as connection:
            connection.settimeout(0.02)
            connection.sendall(replica.connected(time.monotonic()))
            while not self._is_stopped.is_set():
                self._talk()
                connection.sendall(replica.on_time(time.monotonic()))
                try:
                    data = connection.recv(65536)
                except TimeoutError:
                    continue
                assert data, "the master closed the connection"
                connection.sendall(replica.receive_data(data, time.monotonic()))
                while replica.task is not None:
                    if isinstance(replica.task, Cut):
                        del self.log.data[replica.task.end :]
                    connection.sendall(replica.done(time.monotonic()))
                self.epochs, self.confirm_offset = replica.epochs, replica.confirm_offset

    def _talk(self) -> None:
        """With the controller."""
        self.manager.tick(time.monotonic())
        for action in self.manager.take():
            if isinstance(action, AskController):
                ext = None if action.header is None else ext_fields(action.header)
                said = self._asking(
                    action.address, RemotingCommand(action.code, ext, action.body or None)
                )
                answer = ControllerAnswer(said.code, said.remark, said.ext or {}, said.body or b"")
                self.manager.answered(action, answer, time.monotonic())
            elif isinstance(action, Apply | Accept | Withdraw):
                self.manager.write_done(time.monotonic())
            elif isinstance(action, Follow):
                self.follows = action
