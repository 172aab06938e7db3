"""A client that does not read costs a bounded amount of memory."""

from typing import Any

from twisted.internet.protocol import Factory, Protocol

from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker

SIZE = 100_000


class Silent(Protocol):
    """Sends what it is told to."""

    def __init__(self) -> None:
        self.received = bytearray()

    def dataReceived(self, data: bytes) -> None:
        self.received += data


def connect(broker: SimBroker) -> Any:
    endpoint = broker.client_host.seams.network.client(broker.host.ip, LISTEN_PORT)
    return broker.wait(endpoint.connect(Factory.forProtocol(Silent)))


def unsent(broker: SimBroker) -> int:
    """Bytes that wait in the broker for clients."""
    return sum(channel._transport._out_size for channel in broker.broker.main_server.channels)


def pulls(count: int, offset: int, hold_ms: int) -> bytes:
    frames = []
    for number in range(count):
        request = pull_request("g", TOPIC, 0, offset, 1, hold_ms)
        request.opaque = number
        frames.append(encode_frame(request))
    return b"".join(frames)


def test_pulls_that_were_held() -> None:
    """300 wait for the same message of 100 kB; the client reads none of them, and then all."""
    broker = SimBroker()
    broker.configuration.store.mapped_file_size_commit_log = 1 << 20
    broker.start()
    client = connect(broker)
    client.transport.write(pulls(300, 0, 15_000))
    broker.world.clock.run_for(1)
    assert len(broker.broker.hold) == 300
    client.transport.pauseProducing()
    assert broker.send(b"x" * SIZE).code == 0
    broker.world.clock.run_for(1)
    assert len(broker.broker.hold) == 0
    assert 0 < unsent(broker) < 5 * SIZE
    client.transport.resumeProducing()
    broker.world.clock.run_for(5)
    assert unsent(broker) == 0
    assert client.received.count(b'"opaque":') == 300
    broker.stop()


def test_requests_that_it_goes_on_sending() -> None:
    """They stay in the sockets: 300 pulls of 100 kB each, unread."""
    broker = SimBroker()
    broker.configuration.store.mapped_file_size_commit_log = 1 << 20
    broker.start()
    assert broker.send(b"x" * SIZE).code == 0
    client = connect(broker)
    client.transport.pauseProducing()
    client.transport.write(pulls(300, 0, 0))
    broker.world.clock.run_for(5)
    assert 0 < unsent(broker) < 8 * SIZE
    client.transport.resumeProducing()
    broker.world.clock.run_for(20)
    assert client.received.count(b"x" * SIZE) == 300
    broker.stop()
