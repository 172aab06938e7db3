"""One end of a simulated TCP connection.

Bytes go from the writer's buffer over the wire (ordered, with a delay, never more than a window
of them on the way) into the reader's inbox, and from there in chunks of any size to its protocol.
"""

from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any, Protocol

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IConsumer,
    IProtocol,
    IPushProducer,
    ITCPTransport,
)
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.testing.clock import SimClock
from rmq_ha.testing.trace import CLOSED, CONNECTED, DELIVERY


class Machine(Protocol):
    """
    The machine that has an end of a connection.

    :ivar is_up: the machine answers.
    :ivar index: its number in a trace.
    """

    name: str
    index: int
    is_up: bool

    def forget(self, end: "SimTransport") -> None:
        """Forget a connection that is lost."""


class Wires(Protocol):
    """
    The network between machines.

    :ivar window: bytes that may be on their way in one direction.
    :ivar stalled: ends that wait until their direction is no longer cut.
    """

    clock: SimClock
    random: Random
    window: int
    stalled: "dict[SimTransport, None]"

    def is_up(self, name: str) -> bool:
        """Return whether the machine is up and answers."""

    def is_cut(self, source: "SimTransport", destination: "SimTransport") -> bool:
        """Return whether segments of this direction get lost."""

    def delay(self, source: Machine, destination: Machine) -> float:
        """Return the seconds that the next segment travels."""

    def chunk(self, size: int) -> int:
        """Return how many of the waiting bytes the next `dataReceived` gets."""

    def trace(self, kind: int, end: "SimTransport", number: int, data: bytes = b"") -> None:
        """Note an event of a connection."""


RECEIVE_LIMIT = 65536
_END = b""  # a segment without bytes says that nothing comes after it


@implementer(ITCPTransport, IConsumer, IPushProducer)
class SimTransport:
    """
    The transport of a protocol.

    :param owner: the machine that this end is on.
    :ivar peer: the other end.
    """

    bufferSize = 65536

    def __init__(
        self, network: Wires, owner: Machine, own_address: IPv4Address, peer_address: IPv4Address
    ) -> None:
        self.owner = owner
        self.protocol: IProtocol | None = None
        self.peer: SimTransport
        self.connected = True
        self.disconnecting = False
        self.vanished = False
        self.serves: Factory | None = None
        self._network = network
        self._clock = network.clock
        self._own_address = own_address
        self._peer_address = peer_address
        self._options: dict[str, bool] = {"no_delay": False, "keep_alive": False}
        self._out: deque[bytes] = deque()
        self._out_size = 0
        self._pump_queued = False
        self._write_closed = False
        self._end_sent = False
        self._aborting = False
        self._producer: Any = None
        self._streaming = False
        self._producer_paused = False
        self._wire: deque[tuple[float, bytes]] = deque()
        self._in_flight = 0
        self.last_arrival = 0.0
        self._inbox = bytearray()
        self._at_end = False
        self._paused = False
        self._read_queued = False

    # Called by protocols

    def write(self, data: bytes) -> None:
        """Queue bytes, which leave in the next event. On a lost connection nothing is done."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"Data must be bytes, not {type(data).__name__}")
        if not self.connected or self._write_closed or self._aborting or not data:
            return
        self._out.append(bytes(data))
        self._out_size += len(data)
        if self._streaming and not self._producer_paused and self._out_size > self.bufferSize:
            self._producer_paused = True
            self._producer.pauseProducing()
        self._queue_pump()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Queue several pieces."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """
        Close when all is written and the producer is done; incoming bytes are ignored from now on.
        """
        if self.connected and not self.disconnecting:
            self.disconnecting = True
            self._queue_pump()

    def loseWriteConnection(self) -> None:
        """Tell the peer that no more bytes will be written; go on reading."""
        if self.connected and not self._write_closed:
            self._write_closed = True
            self._queue_pump()

    def abortConnection(self) -> None:
        """Close now; bytes that are not delivered yet are lost on both sides."""
        if self.connected and not self._aborting:
            self._aborting = self.disconnecting = True
            self._out.clear()
            self._out_size = 0
            self._clock.call_at(0.0, self._abort)

    def getHost(self) -> IPv4Address:
        """Return the address of this end."""
        return self._own_address

    def getPeer(self) -> IPv4Address:
        """Return the address of the other end."""
        return self._peer_address

    def getTcpNoDelay(self) -> bool:
        """Return the value that was set."""
        return self._options["no_delay"]

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Remember the value; the simulation never joins small segments."""
        self._options["no_delay"] = bool(enabled)

    def getTcpKeepAlive(self) -> bool:
        """Return the value that was set."""
        return self._options["keep_alive"]

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Remember the value; the default of two hours is longer than any simulation."""
        self._options["keep_alive"] = bool(enabled)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """
        Let a producer feed this end.

        :raises RuntimeError: another producer is registered.
        """
        if self._producer is not None:
            raise RuntimeError(f"cannot register {producer}: {self._producer} is not unregistered")
        if not self.connected:
            producer.stopProducing()
            return
        self._producer = producer
        self._streaming = streaming
        self._producer_paused = False
        if not streaming:
            producer.resumeProducing()

    def unregisterProducer(self) -> None:
        """Forget the producer, which is done."""
        self._producer = None
        self._streaming = False
        if self.connected and self.disconnecting:
            self._queue_pump()

    def pauseProducing(self) -> None:
        """Stop reading for now; the sender's window fills up."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Read again."""
        if self.connected and not self.disconnecting:
            self._paused = False
            self._queue_read(0.0)

    def stopProducing(self) -> None:
        """Close."""
        self.loseConnection()

    # Sending

    def _queue_pump(self, time: float = 0.0) -> None:
        if not self._pump_queued:
            self._pump_queued = True
            self._clock.call_at(time, self._pump)

    def _pump(self) -> None:
        """
        Put as many bytes on the wire as the window allows; ask the producer for more when all have
        left.
        """
        self._pump_queued = False
        if not self.connected or self._aborting:
            return
        room = self._network.window - self._in_flight
        if self._out_size and room > 0:
            data = b"".join(self._out)
            self._out.clear()
            if len(data) > room:
                self._out.append(data[room:])
                data = data[:room]
            self._out_size -= len(data)
            self._in_flight += len(data)
            self._send(data)
        if self._out_size:
            return
        if self._producer is not None and (not self._streaming or self._producer_paused):
            self._producer_paused = False
            self._producer.resumeProducing()
        elif self.disconnecting:
            self._send_end()
            self.lose(ConnectionDone())
        elif self._write_closed:
            self._send_end()

    def _send_end(self) -> None:
        if not self._end_sent:
            self._end_sent = True
            self._send(_END)

    def _send(self, data: bytes) -> None:
        delay = self._network.delay(self.owner, self.peer.owner)
        self.last_arrival = max(self.last_arrival, self._clock.seconds() + delay)
        self._wire.append((self.last_arrival, data))
        self._clock.call_at(self.last_arrival, self._arrive)

    def _arrive(self) -> None:
        """Deliver segments that are due to the other machine. If the way is cut, they wait."""
        if self._network.is_cut(self, self.peer):
            if self.owner.is_up:
                self._network.stalled[self] = None
            else:
                self._wire.clear()  # no machine is left to send it again
            return
        now = self._clock.seconds()
        wire = self._wire
        while wire and wire[0][0] <= now:
            data = wire.popleft()[1]
            if data:
                self.peer.receive(data)
            else:
                self.peer.end()

    def healed(self) -> None:
        """Send lost segments again, because the way may be open."""
        now = self._clock.seconds()
        if not self.owner.is_up:
            self._wire.clear()
        elif self._wire:
            delay = self._network.delay(self.owner, self.peer.owner)
            self._clock.call_at(now + delay * 4, self._arrive)
        if self._out_size or self.disconnecting:
            self._queue_pump(now + self._network.delay(self.peer.owner, self.owner) * 4)

    def _acknowledged(self, size: int) -> None:
        """Count bytes that the other side has read."""
        self._in_flight -= size
        if self._out_size and not self._network.is_cut(self.peer, self):
            delay = self._network.delay(self.peer.owner, self.owner)
            self._queue_pump(self._clock.seconds() + delay)

    # Receiving

    def receive(self, data: bytes) -> None:
        """Take bytes from the other end."""
        if self.vanished:
            self._refuse()
        elif self.connected and not self.disconnecting:
            self._inbox += data
            if not self._read_queued:
                self._read()

    def end(self) -> None:
        """Note that the other end writes no more."""
        if self.connected and not self.vanished:
            self._at_end = True
            if not self._read_queued:
                self._read()

    def _refuse(self) -> None:
        """
        Answer a segment for an end that is gone: a running machine resets the connection, a dead
        one is silent.
        """
        if self._network.is_up(self.owner.name) and not self._network.is_cut(self, self.peer):
            delay = self._network.delay(self.owner, self.peer.owner)
            self._clock.call_at(
                self._clock.seconds() + delay, self.peer.lose_by, ConnectionLost("reset by peer")
            )

    def _queue_read(self, delay: float) -> None:
        if not self._read_queued:
            self._read_queued = True
            self._clock.call_at(self._clock.seconds() + delay, self._read)

    def _read(self) -> None:
        """Give the protocol the next chunk, or the end of the stream."""
        self._read_queued = False
        if not self.connected or self._paused or self.disconnecting:
            return
        if not self._inbox:
            if self._at_end:
                self.lose(ConnectionDone())
            return
        size = self._network.chunk(min(len(self._inbox), RECEIVE_LIMIT))
        chunk = bytes(self._inbox[:size])
        del self._inbox[:size]
        self._network.trace(DELIVERY, self, size, chunk)
        self.peer._acknowledged(size)
        self._call("dataReceived", chunk)
        if self._inbox or self._at_end:
            self._queue_read(self._network.random.random() * 0.0002)

    # Beginning and end

    def establish(self, protocol: IProtocol) -> None:
        """Connect a protocol."""
        self.protocol = protocol
        self._network.trace(CONNECTED, self, self._peer_address.port)
        self._call("makeConnection", self)

    def _call(self, name: str, *args: Any) -> None:
        """Call the protocol; an exception closes the connection, as in a reactor."""
        try:
            getattr(self.protocol, name)(*args)
        except Exception as error:
            self._clock.fail(f"{type(self.protocol).__name__}.{name} raised", Failure())  # type: ignore[no-untyped-call]
            self._reset_peer()
            self.lose(error)

    def _abort(self) -> None:
        if self.connected:
            self._reset_peer()
            self.lose(ConnectionAborted())

    def _reset_peer(self) -> None:
        """Tell the other end that the connection is gone, unless the way is cut."""
        if not self._network.is_cut(self, self.peer):
            delay = self._network.delay(self.owner, self.peer.owner)
            self._clock.call_at(
                self._clock.seconds() + delay, self.peer.lose_by, ConnectionLost("reset by peer")
            )
        self.vanished = True

    def lose_by(self, error: Exception) -> None:
        """Lose the connection, because the other end reset it."""
        self._inbox.clear()
        self.lose(error)

    def lose(self, error: Exception) -> None:
        """Lose this end, and tell its protocol once."""
        if not self.connected:
            return
        self.connected = False
        self.disconnecting = False
        self._out.clear()
        self._out_size = 0
        self.owner.forget(self)
        producer, self._producer = self._producer, None
        if self.protocol is None:
            return
        self._network.trace(CLOSED, self, self._peer_address.port, type(error).__name__.encode())
        if producer is not None:
            producer.stopProducing()
        try:
            self.protocol.connectionLost(Failure(error))  # type: ignore[no-untyped-call]
        except Exception:
            self._clock.fail(f"{type(self.protocol).__name__}.connectionLost raised", Failure())  # type: ignore[no-untyped-call]
        if self.serves is not None:
            self.serves.doStop()  # type: ignore[no-untyped-call]

    def vanish(self) -> None:
        """Drop this end without a call, because its machine or process is gone."""
        self.connected = False
        self.vanished = True
        self.protocol = None
        self._producer = None
        self._out.clear()
        self._inbox.clear()
