"""One broker's replication in controller mode, without a store: the test is all others."""

from __future__ import annotations

from random import Random
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.model.status import BrokerRole, FlushDiskType, PutMessageStatus
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.masters import TrustedMasters
from rmq_ha.server.controller.codec import encode_set
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.commit_log import EpochCommitLog
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs, encode_epochs
from rmq_ha.server.replication.epochs.frames import (
    SlaveHandshake,
    encode_report,
    encode_slave_handshake,
)
from rmq_ha.server.replication.epochs.service import AutoSwitchHAService
from rmq_ha.server.store.log.layout import log_files
from rmq_ha.testing.cluster import ROOT, small_configuration
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce
from tests.unit.server.replication.ha_fakes import FakeNetwork, Wire
from tests.unit.server.replication.record_logs import record

CONTROLLER = "10.0.0.9:9878"
ADDRESS = "10.0.0.1:10911"
OTHER = "10.0.0.2:10911"
EPOCH_FILE = f"{ROOT}/epochFileCheckpoint"


class Tables:
    """A broker's tables, of which nothing is told but what the test says."""

    def __init__(self) -> None:
        self.changed: Any = None
        self.said: list[str] = []

    def watch(self, changed: Any) -> None:
        self.changed = changed

    def all_pieces(self) -> list[bytes]:
        return []

    def news(self, entries: Any) -> list[bytes]:
        return [entry.name.encode() for entry in sorted(entries)]

    def awaited(self) -> None:
        self.said.append("awaited")

    def absent(self) -> None:
        self.said.append("absent")

    def ended(self) -> None:
        self.said.append("ended")


class Station:
    """
    A broker of id 1 of the set `b`, its disk, and whom it talks with.

    :param change: of its configuration.
    :param bodies: of the records that are in its log.
    :param known: what its epoch file says; empty: there is none.
    """

    def __init__(
        self, change: Any = lambda _: None, *, bodies: tuple[bytes, ...] = (), known: Any = ()
    ) -> None:
        self.clock = Clock()
        self.suspended = 0.0
        self.network = FakeNetwork()
        self.worker = AtOnce()
        self.disk = SimDisk(Random(1), self.now_ms)
        self.disk.make_dirs(ROOT)
        self.configuration = small_configuration(
            "10.0.0.1", BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH
        )
        self.configuration.broker.broker_cluster_name = "c"
        self.configuration.broker.broker_name = "b"
        self.configuration.controlled.controller_addr = CONTROLLER
        self.configuration.controlled.all_ack_in_sync_state_set = True
        change(self.configuration)
        self.epochs = Epochs(Epoch(*entry) for entry in known)
        if known:
            self.disk.replace(EPOCH_FILE, encode_epochs(self.epochs))
        self.disk.replace(f"{ROOT}/brokerIdentity", b"c#b#1")
        self.log = EpochCommitLog(*log_files(self.disk, self.configuration.store))
        for body in bodies:
            self.log.append_raw(self.log.max_offset, record(self.log.max_offset, body))
        self.service = self.made(self.configuration)
        self.tables = Tables()
        self.masters: list[str | None] = []
        self.roles: list[int | str] = []
        self.asked: list[tuple[str, RemotingCommand, Deferred[Any]]] = []
        self.aside: list[int] = []
        self.setting_aside: Deferred[None] | None = None
        self.dispatched_to = 0
        self.trusted = TrustedMasters(Networks())
        self.service.attach(self, self, self.tables, self.masters.append, self.trusted)  # type: ignore[arg-type]
        self.service.role.observe(self)
        self.log.subscribe(self.service.appended)

    def made(self, configuration: BrokerConfiguration) -> AutoSwitchHAService:
        host = Host(
            clock=self.clock,  # type: ignore[arg-type]
            now_ms=self.now_ms,
            network=self.network,  # type: ignore[arg-type]
            disk=self.disk,
            worker=self.worker,
            random=Random(7),
            boot_clock=lambda: self.clock.seconds() + self.suspended,
        )
        return AutoSwitchHAService(host, configuration, self.log)

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.clock.seconds() * 1000)

    # ------------------------------------------------------------ what it asks, and is told by

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> Deferred[Any]:
        self.asked.append((address, command, Deferred()))
        return self.asked[-1][2]

    def set_aside(self, end: int, why: str) -> Deferred[None]:
        """As a journal does it, when the test says so."""
        self.aside.append(end)

        def cut() -> None:
            self.log.recovered(end, end)

        if self.setting_aside is None:
            return maybeDeferred(cut)
        return self.setting_aside.addCallback(lambda _: cut())

    def why_not_stored(self) -> str:
        return ""

    def follow(self) -> None:
        self.roles.append("follow")

    def lead(self, term: int) -> None:
        self.roles.append(term)

    # ------------------------------------------------------------ what tests do

    def start(self) -> Station:
        self.service.start()
        return self

    def answer(self, code: int, body: bytes = b"", status: int = 0, **ext: str) -> None:
        """All requests of this code that wait."""
        waiting = [each for each in self.asked if each[1].code == code]
        self.asked = [each for each in self.asked if each[1].code != code]
        for _, _, asked in waiting:
            asked.callback(RemotingCommand(status, ext=ext, body=body))

    def talk(self, epoch: int, *members: int, at: int = 1) -> None:
        """The controllers answer what they are asked: broker 1 leads."""
        told = {"masterBrokerId": "1", "masterAddress": ADDRESS, "masterEpoch": str(epoch)}
        for _ in range(4):
            self.answer(904)
            self.answer(1005, group="controller", controllerLeaderAddress=CONTROLLER)
            for code in (1003, 1004):
                self.answer(code, encode_set(SyncStateSet(members or (1,), at)), **told)

    def leads(self, epoch: int, *members: int) -> Station:
        """It is started, has heard that it leads, and has its lease."""
        self.start()
        for _ in range(7):
            self.talk(epoch, *members)
            self.clock.advance(1.0)
        self.talk(epoch, *members)
        assert self.service.may_append
        return self

    def slave(self, broker_id: int, offset: int | None = None, **handshake: bool) -> Wire:
        """A slave connects, and maybe reports."""
        protocol = self.network.listeners[0].factory.buildProtocol(
            IPv4Address("TCP", f"10.0.0.{broker_id}", 5000)
        )
        wire = Wire(protocol, f"10.0.0.{broker_id}")
        wire.send(encode_slave_handshake(SlaveHandshake(broker_id, **handshake)))
        if offset is not None:
            wire.send(encode_report(offset))
        return wire

    def put(self, body: bytes = b"a message") -> tuple[int, list[PutMessageStatus]]:
        """One more record, for which somebody waits: its end, and what he is told."""
        start = self.log.max_offset
        self.log.append_raw(start, record(start, body))
        told: list[PutMessageStatus] = []
        end = self.log.max_offset
        at_once = self.service.when_replicated(end, start, lambda status, _: told.append(status))
        return end, [at_once] if at_once is not None else told

    def epoch_file(self) -> bytes:
        return self.disk.read_bytes(EPOCH_FILE)
