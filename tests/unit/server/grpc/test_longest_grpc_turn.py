"""No client of the gRPC port holds the reactor for long: the work of each turn, for each attack.

Work is what `sys.setprofile` counts, as in `tests/unit/server/broker/test_longest_turn.py`: 9,000
calls take a millisecond. A connection serves `PIECE` bytes between two looks at the time, so the
tests write pieces of this size. Work of C that no call shows is bounded by the sizes of texts.
"""

from collections.abc import Iterator

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

pytest.importorskip("google.protobuf")
pytest.importorskip("hpack")

from rmq_ha.server.grpc.protocol import PIECE
from tests.kits.calls import count_calls
from tests.kits.grpc_attacks import FLOODS, REQUESTS, call
from tests.unit.server.grpc.front.test_consumers import PoppingDoor
from tests.unit.server.grpc.raw_frames import BEGIN

MOST = 90_000
"""Calls in a turn: 10 ms."""
FEW = 27_000
"""3 ms, for frames that begin no work of the broker."""
FLOOD_BYTES = 1 << 15
BIG = 1 << 17
"""Bytes of a large request. A larger one is refused at the same place."""


@pytest.fixture(scope="module")
def broker() -> Iterator[PoppingDoor]:
    made = PoppingDoor()
    made.start()
    yield made
    made.stop()


class Hostile:
    """
    A connection of a hostile client.

    :ivar most: calls of the longest turn.
    """

    def __init__(self, broker: PoppingDoor) -> None:
        self._clock = broker.world.clock
        self._door = broker.broker.grpc.server
        self.protocol = self._door.build_plain()
        self.transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.66", 5))
        self.transport.abortConnection = self.transport.loseConnection
        self.protocol.makeConnection(self.transport)
        self.most = 0

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE):
            if self.transport.disconnecting:
                return
            piece = data[at : at + PIECE]
            self._count(lambda piece=piece: self.protocol.dataReceived(piece))
            if at % 65536 == 0:
                self.transport.clear()

    def settle(self) -> None:
        """Do the work that later turns have to do."""
        end = self._clock.seconds() + 0.5
        while self._clock.seconds() < end and self._count(self._clock.step):
            pass

    def leave(self) -> None:
        self._count(lambda: self.protocol.connectionLost(Failure(ConnectionDone())))
        self.settle()

    def _count(self, work: object) -> object:
        result, calls = count_calls(work)
        self.most = max(self.most, calls)
        return result


@pytest.mark.parametrize("name", REQUESTS)
def test_the_largest_requests(broker: PoppingDoor, name: str) -> None:
    method, payload = REQUESTS[name]
    hostile = Hostile(broker)
    hostile.write(BEGIN)
    for piece in call(method, payload(BIG)):
        hostile.protocol.dataReceived(piece[:-1])
        hostile.write(piece[-1:])
        hostile.transport.clear()
    hostile.settle()
    hostile.leave()
    assert hostile.most <= MOST


@pytest.mark.parametrize("name", FLOODS)
def test_floods(broker: PoppingDoor, name: str) -> None:
    hostile = Hostile(broker)
    size, waiting = 0, b""
    pieces = FLOODS[name]()
    hostile.write(next(pieces))
    for piece in pieces:
        waiting += piece
        if len(waiting) < PIECE:
            continue
        hostile.write(waiting)
        size += len(waiting)
        waiting = b""
        if size > FLOOD_BYTES or hostile.transport.disconnecting:
            break
    hostile.settle()
    hostile.leave()
    assert hostile.most <= FEW
