"""Replication and TLS: both ends of each connection."""

import ssl
from collections.abc import Callable
from functools import cache
from struct import pack
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import TlsRefused
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.ends import TlsDoor
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.tls.std_session import StdSession
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.classic.feed import Feed
from rmq_ha.server.replication.classic.frames import ReportReader, encode_frame, encode_report
from rmq_ha.server.replication.classic.greeting import encode_greeting, greet
from rmq_ha.server.replication.classic.replica import ClassicReplica
from rmq_ha.server.replication.door import SecretCall, SecretDoor
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed
from rmq_ha.server.replication.epochs.frames import (
    MasterHandshake,
    SlaveHandshake,
    TablePiece,
    Transfer,
    encode_master_handshake,
    encode_piece,
    encode_slave_handshake,
    encode_transfer,
)
from rmq_ha.server.replication.epochs.frames import encode_report as switch_report
from rmq_ha.server.replication.epochs.replica import EpochReplica
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.server.replication.protocol import FeedProtocol, ReplicaProtocol
from rmq_ha.server.replication.secret import ANSWER, CHALLENGE, PROOF, MasterProof, SlaveProof
from tests.fuzz.of_wire import RECORDS
from tests.fuzz.target import target
from tests.unit.base.tls.material import Files, now_ms
from tests.unit.server.broker.slave_tables import TableSet
from tests.unit.server.replication.memory_log import MemoryLog

LOG = b"".join(RECORDS)
SECRET, NONCE = b"secret", bytes(32)


class Pipe(StringTransport):
    """A connection to nobody; whoever aborts it hears that it is gone."""

    def __init__(self) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", "10.0.0.9", 4000))

    def abortConnection(self) -> None:
        self.loseConnection()

    def setTcpNoDelay(self, enabled: bool) -> None:
        """As a real one."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """As a real one."""


class Owner:
    """Hears what connections tell, and does nothing about it."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *told: None


def deliver(protocol: Any, data: bytes, *first: bytes) -> None:
    """All that is `first`, then `data` in two chunks, then time passes and the end."""
    protocol.makeConnection(Pipe())
    at = data[0] if data else 0
    for chunk in (*first, data[:at], data[at:]):
        if chunk and not protocol.transport.disconnecting:
            protocol.dataReceived(chunk)
    protocol.connectionLost()


def a_log() -> MemoryLog:
    return MemoryLog(4096, 0, LOG)


def shared(clock: Clock, inner: Callable[[], IProtocol]) -> SecretDoor:
    return SecretDoor(clock, inner, MasterProof([SECRET], NONCE), lambda *told: None, {})


GREETED = greet(MemoryLog(4096, 0, LOG), len(LOG))
REPORTS = [
    encode_report(0),
    encode_report(len(LOG)) * 3,
    encode_greeting(GREETED) if GREETED else b"",
    encode_report(-1),
    encode_report(2**62) + encode_report(5),
    b"GET / HTTP/1.1\r\n\r\n",
]
TRANSFERS = [
    encode_frame(len(LOG), RECORDS[0]) + encode_frame(len(LOG) + len(RECORDS[0])),
    encode_frame(len(LOG)),
    encode_frame(0, LOG),
    encode_frame(2**62, b"x"),
]


@target("ha.master", REPORTS, ())
def read_reports(data: bytes) -> None:
    """A feed, and what it sends then; it vouches for nothing that was not sent or proven."""
    clock, configuration = Clock(), BrokerConfiguration()
    feed = Feed(a_log(), configuration, 0.0)
    protocol = FeedProtocol(feed, Owner(), clock, lambda: None)
    deliver(protocol, data)
    assert feed.proven <= len(LOG)
    ReportReader().receive_data(data)


@target("ha.slave", TRANSFERS, ())
def read_transfers(data: bytes) -> None:
    """A slave whose log only ever grows at its end."""
    clock, log = Clock(), a_log()
    deliver(ReplicaProtocol(ClassicReplica(log, MessageStoreConfig(), 0.0), Owner(), clock), data)
    assert log.data.startswith(LOG)
    empty = MemoryLog(4096)
    deliver(ReplicaProtocol(ClassicReplica(empty, MessageStoreConfig(), 0.0), Owner(), clock), data)


@target("ha.secret.master", [pack(">q32s32s", PROOF, NONCE, NONCE), *REPORTS], ())
def read_proof(data: bytes) -> None:
    """Nobody is let in who does not know the secret."""
    deliver(shared(Clock(), never), data)


CHALLENGED = pack(">qi32s", CHALLENGE, 32, NONCE)


@target("ha.secret.slave", [CHALLENGED, pack(">qi32s", ANSWER, 32, NONCE), *TRANSFERS], ())
def read_answer(data: bytes) -> None:
    """No master is followed that does not; the question came already, or is this."""
    for first in ((), (CHALLENGED,)):
        call = SecretCall(Clock(), never, SlaveProof(SECRET, NONCE), is_required=True)
        call.opened.addErrback(lambda _: None)
        deliver(call, data, *first)


def never() -> IProtocol:
    raise AssertionError("a stranger is in")


@cache
def tls_rules() -> ServerTls:
    """Made once, as keys are slow."""
    files = Files()
    options = files.put_pair("tls.server", "localhost") | {"tls.test.mode.enable": "false"}
    return ServerTls(options, files.read_bytes, now_ms)


@cache
def hello() -> bytes:
    """What OpenSSL says first."""
    files = Files()
    options = {"tls.enable": "true", "tls.test.mode.enable": "false"}
    session = ClientTls(options | files.put_root("tls.client"), files.read_bytes, now_ms)
    talking = session.session("localhost")
    talking.start()
    return talking.data_to_send()


@target(
    "tls.context", [b"\x16\x03\x03\x00\x02\x02\x28", b"\x15\x03\x03\x00\x02\x02\x28"], (TlsRefused,)
)
def read_by_context(data: bytes) -> None:
    """What a server says to a client whose rules are an application's `ssl.SSLContext`."""
    session = StdSession(ssl.create_default_context(), "localhost")
    session.start()
    session.receive_data(data)
    session.data_to_send()


@target("tls.first_byte", [hello(), b"\x16", b"\x16\x03\x01\x00\x05hello", *REPORTS], ())
def read_first_byte(data: bytes) -> None:
    """Plain or TLS: who speaks TLS is not in before the handshake is over."""
    clock = Clock()
    made: list[Protocol] = []

    def build() -> Protocol:
        made.append(Protocol())
        return made[0]

    deliver(TlsDoor(clock, build, tls_rules(), Refusals(clock), 10.0, {}), data)
    assert not made or data[:1] != b"\x16"


GREETING = encode_slave_handshake(SlaveHandshake(2))
EPOCHS = Epochs([Epoch(1, 0)])


@target("autoswitch.slave", [GREETING + switch_report(0), GREETING * 2], ())
def read_slave_of_controller_mode(data: bytes) -> None:
    log, settings = a_log(), ReplicationSettings()
    state = SyncState(1, log, EPOCHS, SyncStateSet((1,), 1), settings, 0.0)
    feed = EpochFeed(log, state, settings, 0.0)
    deliver(FeedProtocol(feed, Owner(), Clock(), lambda: None), data)


class AtOnceOwner(Owner):
    """Does each task, or so it says."""

    def fulfil(self, task: object) -> Deferred[None]:
        return succeed(None)


@target(
    "autoswitch.master",
    [
        encode_master_handshake(MasterHandshake(len(LOG), 1, EPOCHS))
        + encode_transfer(Transfer(0, Epoch(1, 0), 0, LOG)),
        *(
            encode_piece(TablePiece(1, 1, piece))
            + encode_master_handshake(MasterHandshake(0, 1, EPOCHS))
            for piece in TableSet().tables.all_pieces()
        ),
    ],
    (),
)
def read_master_of_controller_mode(data: bytes) -> None:
    tables = TableSet().tables
    replica = EpochReplica(2, MemoryLog(4096), Epochs(), 0, ReplicationSettings(), 0.0, tables)
    deliver(ReplicaProtocol(replica, AtOnceOwner(), Clock()), data)
