"""
Whole ports: bytes to `RemotingProtocol`, through the dispatcher to the handlers and back.

A handler that raises what it should not is answered for by the dispatcher, which logs it: so what
counts here is what was logged.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import RemotingProtocol
from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.server.dledger.codec import encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode, PushType
from rmq_ha.server.dledger.members import Members
from rmq_ha.server.dledger.messages import (
    AppendEntryRequest,
    GetEntriesRequest,
    GroupMessage,
    HeartBeatRequest,
    LeadershipTransferRequest,
    MetadataRequest,
    PushEntryRequest,
    VoteRequest,
)
from rmq_ha.server.dledger.protocol import PeerRequests
from rmq_ha.testing.brokers import NamesrvNode
from rmq_ha.testing.host import World as SimWorld
from tests.fuzz.of_links import Pipe
from tests.fuzz.of_wire import FRAMES, REGISTRATION, SIGNED, frames_of
from tests.fuzz.target import target
from tests.sim_kit.dledger_script import GROUP, Script
from tests.unit.server.broker.guarded import NOBODY, Guarded, every_request
from tests.unit.server.broker.sim_broker import SimBroker


class Failures:
    """What is logged as a failure of ours meanwhile."""

    def __enter__(self) -> "Failures":
        self.events: list[Any] = []
        globalLogPublisher.addObserver(self)
        return self

    def __exit__(self, *told: object) -> None:
        globalLogPublisher.removeObserver(self)

    def __call__(self, event: Any) -> None:
        if "log_failure" in event:
            self.events.append(event)

    def check(self) -> None:
        """
        Nothing was.

        :raises RuntimeError: it was, with its traceback.
        """
        for event in self.events:
            raise RuntimeError(f"{event}\n{event['log_failure'].getTraceback()}")


class World(NamedTuple):
    """
    Something with a port.

    :ivar advance: lets that many seconds pass.
    :ivar state: what nobody may move who may do nothing.
    """

    clock: Any
    dispatcher: RequestDispatcher
    advance: Callable[[float], object]
    state: Callable[[], Any] = lambda: None


class Port:
    """
    Connections to a server that is made anew from time to time.

    :param make: the server.
    :param account: signs each request that is one.
    """

    def __init__(
        self, make: Callable[[], World], every: int = 500, account: Credentials | None = None
    ) -> None:
        self._make = make
        self._every = every
        self._account = account
        self._left = 0

    def __call__(self, data: bytes) -> None:
        if not self._left:
            self._left = self._every
            self._world = self._make()
            self._before = self._world.state()
        self._left -= 1
        world = self._world
        with Failures() as failures:
            protocol = RemotingProtocol(world.clock, world.dispatcher, 0, accepts=True)
            protocol.makeConnection(Pipe())
            protocol.dataReceived(data if self._account is None else signed(data, self._account))
            world.advance(0.02)
            protocol.connectionLost()
        failures.check()
        assert world.state() == self._before


def signed(data: bytes, account: Credentials) -> bytes:
    """The first frame, signed; what cannot be read stays as it is."""
    try:
        command = decode_frame(*FrameReader().receive_data(data)[0])
        command.ext = {k: v for k, v in (command.ext or {}).items() if k not in SIGNED}
        return encode_frame(sign(command, account))
    except (ProtocolViolation, IndexError):
        return data


def broker() -> World:
    """One that lets everybody do everything."""
    made = SimBroker().start()
    made.broker.topics.update(TopicConfig("TopicA", 4, 4))
    made.send()
    clock = made.world.clock
    return World(clock, made.broker.dispatcher, clock.run_for)


def guarded() -> World:
    """One with accounts."""
    made = Guarded()
    made.configuration.broker.transaction_check_interval = 86_400_000  # the owner's stays open
    made.start()
    clock = made.world.clock
    return World(clock, made.broker.dispatcher, clock.run_for, made.state)


def namesrv() -> World:
    """A name server for one broker, which is somewhere else."""
    world = SimWorld(1)
    node = NamesrvNode(world.add("namesrv"))
    node.start()
    return World(world.clock, node.namesrv._server.dispatcher, world.clock.run_for)


PEERS = {"n0": "10.0.0.9:1", "n1": "10.0.0.1:1", "n2": "10.0.0.2:1"}


def member() -> World:
    """
    A follower, and 10.0.0.9 is where its leader n0 is.

    What it holds of the two committed entries stays what it is; a leader that has them no more may
    have it give them up.
    """
    script = Script(2, voted_for="n0", entries=(1, 1, 2, 2)).follow("n0")
    tokens = count()

    def serve(code: int, message: GroupMessage, answered: "Deferred[GroupMessage]") -> None:
        script.node.request(code, message, next(tokens), script.now)
        script._collect()

    members = Members(DLedgerSettings(GROUP, "n1", PEERS), Networks(), Networks())
    made = RequestDispatcher()
    made.routes |= PeerRequests(serve, members, lambda *told: None).routes()
    committed = [script.ledger.entry(index) for index in range(2)]
    script.ledger.commit(1)
    return World(
        Clock(),
        made,
        lambda seconds: None,
        lambda: all(script.ledger.entry(index) in (None, committed[index]) for index in range(2)),
    )


MEMBERS = {
    "group": GROUP, "remote_id": "n1", "local_id": "n0", "leader_id": "n0", "term": 2,
}  # fmt: skip
ASKED: list[tuple[int, GroupMessage]] = [
    (DLedgerRequestCode.VOTE, VoteRequest(**MEMBERS, ledger_end_index=3, ledger_end_term=2)),
    (DLedgerRequestCode.HEART_BEAT, HeartBeatRequest(**MEMBERS)),
    (DLedgerRequestCode.GET, GetEntriesRequest(**MEMBERS)),
    (DLedgerRequestCode.APPEND, AppendEntryRequest(**MEMBERS, body=b"x")),
    (DLedgerRequestCode.METADATA, MetadataRequest(**MEMBERS)),
    (DLedgerRequestCode.LEADERSHIP_TRANSFER, LeadershipTransferRequest(**MEMBERS)),
    *(
        (
            DLedgerRequestCode.PUSH,
            PushEntryRequest(**MEMBERS, type=kind, entry=Entry(4, 2, 0, b"x")),
        )
        for kind in PushType
    ),
]
REGISTER = {
    "brokerName": "b", "brokerAddr": "10.0.0.3:1", "clusterName": "C", "brokerId": "0",
    "haServerAddr": "10.0.0.3:2", "compressed": "true", "bodyCrc32": "",
}  # fmt: skip
KV = {"namespace": "n", "key": "k", "value": "v"}
NAMESRV = [
    RemotingCommand(103, REGISTER, REGISTRATION.encode(compressed=True)),
    RemotingCommand(103, REGISTER | {"compressed": "false"}, REGISTRATION.encode()),
    *(
        RemotingCommand(code, REGISTER | KV | {"topic": "TopicA"}, b"a=1")
        for code in (100, 101, 102, 104, 105, 106, 205, 206, 216, 219, 224, 304, 312, 318, 319, 322)
    ),
]


def both(commands: Iterable[RemotingCommand]) -> list[bytes]:
    """A binary header has no room for the codes of pops, which have more than 16 bits."""
    return [
        frame
        for command in commands
        for frame in frames_of(command, can_be_binary=command.code < 1 << 15)
    ]


GUARDED = 2500
"""Inputs, 0.02 s each: after a minute the owner's lock ends by itself."""

REQUESTS = [*FRAMES, *both(every_request(Guarded().start()).values())]
"""One of each code at least."""

target("port.broker", REQUESTS, ())(Port(broker))
target("port.broker.strangers", REQUESTS, ())(Port(guarded, GUARDED))
target("port.broker.denied", REQUESTS, ())(Port(guarded, GUARDED, NOBODY))
target("port.namesrv", both(NAMESRV), ())(Port(namesrv, 2000))
target(
    "port.dledger",
    [encode_frame(RemotingCommand(code, None, encode_body(said))) for code, said in ASKED],
    (),
)(Port(member))
