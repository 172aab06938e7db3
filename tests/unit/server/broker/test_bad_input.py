"""What a hostile or broken peer or disk does to a running broker: nothing that outlasts it."""

import time
from collections.abc import Callable, Iterator
from struct import pack
from typing import Any

import pytest
from twisted.internet.defer import gatherResults
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import formatEvent, globalLogPublisher

from rmq_ha.base.errors import StoreError
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.server.store.log.dispatch import GATHER_S
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import FAST_PORT, TOPIC, SimBroker

PORTS = (LISTEN_PORT, FAST_PORT)
CONFIG = "/store/config"


class Raw(Protocol):
    """A peer that sends bytes as it likes."""

    def __init__(self) -> None:
        self.received = b""
        self.is_closed = False

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Any = None) -> None:
        self.is_closed = True

    def answers(self) -> list[RemotingCommand]:
        return [decode_frame(*frame) for frame in FrameReader().receive_data(self.received)]


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """What is logged from warnings on."""
    lines: list[str] = []

    def observe(event: Any) -> None:
        if event["log_level"].name in ("warn", "error", "critical"):
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    """Running."""
    broker = SimBroker().start()
    yield broker
    broker.stop()


def connect(broker: SimBroker, port: int) -> Raw:
    endpoint = broker.client_host.seams.network.client(broker.host.ip, port)
    raw: Raw = broker.wait(endpoint.connect(Factory.forProtocol(Raw)))
    return raw


def write(broker: SimBroker, raw: Raw, data: bytes, seconds: float = 1.0) -> None:
    assert raw.transport is not None
    raw.transport.write(data)
    broker.world.clock.run_for(seconds)


# ------------------------------------------------------------------ frames


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "is this remoting at all?"),
        (pack(">i", 1 << 30), "a frame of 1073741828 bytes"),
        (pack(">i", -5), "a frame length of -5"),
        (pack(">i", 0), "a frame length of 0"),
        (pack(">iI", 8, 100) + b"{}{}", "a header is longer than its frame"),
        (pack(">iI", 6, 7 << 24 | 2) + b"{}", "unknown header serialisation 7"),
        (pack(">iI", 6, 2) + b"no", "not JSON"),
        (pack(">iI", 18, 14) + b'{"code":310,!!', "not JSON"),
        (pack(">iI", 25, 21) + b'{"code":310,"flag":"x', "not JSON"),
        (pack(">iI", 6, 1 << 24 | 2) + b"no", "header"),
    ],
)
def test_malformed_frames_close_their_connection_and_no_other(
    broker: SimBroker, log_lines: list[str], port: int, data: bytes, reason: str
) -> None:
    """What came before them on it is answered; one line of the log tells peer and reason."""
    good = encode_frame(broker.message())
    bystander = connect(broker, port)
    raw = connect(broker, port)
    write(broker, raw, good + data + good)
    assert raw.is_closed
    assert [answer.code for answer in raw.answers()] == [0]
    assert not bystander.is_closed
    (line,) = log_lines
    assert line.startswith(f"closing {broker.client_host.ip}:")
    assert reason in line
    write(broker, bystander, good)
    assert [answer.code for answer in bystander.answers()] == [0]
    assert broker.broker.store.max_offset_in_queue(TOPIC, 0) == 2


def test_a_frame_that_is_cut_off_does_nothing(broker: SimBroker, log_lines: list[str]) -> None:
    raw = connect(broker, LISTEN_PORT)
    write(broker, raw, encode_frame(broker.message())[:-1])
    assert raw.transport is not None
    raw.transport.loseConnection()
    broker.world.clock.run_for(1)
    assert broker.broker.store.log.max_offset == 0
    assert broker.broker.main_server.channels == []
    assert log_lines == []


def test_unknown_codes_are_answered_3(broker: SimBroker) -> None:
    for port in PORTS:
        for code in (0, -1, 9999, 2**31 - 1):
            answer = broker.call(RemotingCommand(code), port)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert str(code) in (answer.remark or "")
    pulled = broker.call(RemotingCommand(RequestCode.PULL_MESSAGE), FAST_PORT)
    assert pulled.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_a_handler_that_fails_is_answered_1_and_the_connection_stays(
    broker: SimBroker, log_lines: list[str]
) -> None:
    def fails(channel: Any, request: Any) -> Any:
        raise ZeroDivisionError("of all things")

    broker.broker.dispatcher.routes[4242] = fails
    raw = connect(broker, LISTEN_PORT)
    write(broker, raw, encode_frame(RemotingCommand(4242)) + encode_frame(broker.message()))
    failed, stored = raw.answers()
    assert failed.code == ResponseCode.SYSTEM_ERROR
    assert "ZeroDivisionError" in (failed.remark or "")
    assert stored.code == ResponseCode.SUCCESS
    assert any("request 4242 from" in line for line in log_lines)


def server_cost(broker: SimBroker, size: int, chunks: int) -> float:
    """Processor seconds for one request whose body comes in so many chunks."""
    dispatcher = RequestDispatcher()
    dispatcher.routes[1] = lambda channel, request: request.response()
    server = RemotingServer(broker.host.seams, broker.configuration.server, dispatcher)
    protocol = server.build_protocol()
    raw = Transport()
    protocol.makeConnection(raw)  # type: ignore[arg-type]
    frame = encode_frame(RemotingCommand(1, body=bytes(size)))
    step = len(frame) // chunks + 1
    began = time.process_time()
    for position in range(0, len(frame), step):
        protocol.dataReceived(frame[position : position + step])
    took = time.process_time() - began
    assert len(raw.written) == 1
    protocol.connectionLost()
    return took


class Transport:
    """As much of one as an accepted connection needs."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def getPeer(self) -> None:
        return None

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """It is never full."""

    def write(self, data: bytes) -> None:
        self.written.append(data)


def test_ten_thousand_chunks_cost_no_quadratic_time(broker: SimBroker) -> None:
    """8 MiB in 10,000 chunks: joining anew each time would copy 40 GiB."""
    assert server_cost(broker, 8 << 20, 10_000) < 2.0


def test_a_name_server_that_sends_garbage_harms_nobody(log_lines: list[str]) -> None:
    """The start goes on without it, and so does every later round."""
    broker = SimBroker()
    garbage = [b"HTTP/1.1 400 Bad Request\r\n\r\n", pack(">iI", 6, 2) + b"{}", b"\0" * 64, b""]
    built: list[Raw] = []

    class Garbage(Raw):
        def connectionMade(self) -> None:
            built.append(self)

        def dataReceived(self, data: bytes) -> None:
            assert self.transport is not None
            self.transport.write(garbage[len(built) % len(garbage)])

    endpoint = broker.client_host.seams.network.server(9876)
    broker.wait(endpoint.listen(Factory.forProtocol(Garbage)))
    broker.configuration.broker.namesrv_addr = f"{broker.client_host.ip}:9876"
    broker.start()
    assert broker.send().code == ResponseCode.SUCCESS
    broker.world.clock.run_for(200)
    assert len(built) > 3
    assert broker.send().code == ResponseCode.SUCCESS
    assert broker.broker.registration.failures > 0
    assert any(f"{broker.client_host.ip}:9876" in line for line in log_lines)
    broker.stop()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"table":5}', b'"x"', b"\xff" * 20, b'{"table":{"a":{"b":[]}}}'],
)
def test_a_name_server_that_answers_nonsense_harms_nobody(body: bytes) -> None:
    broker = SimBroker()
    dispatcher = RequestDispatcher()
    dispatcher.default = lambda channel, request: request.response(
        ext={"masterAddr": "nowhere", "haServerAddr": ":::"}, body=body
    )
    server = RemotingServer(broker.client_host.seams, broker.configuration.server, dispatcher)
    broker.wait(server.listen(9876))
    broker.configuration.broker.namesrv_addr = f"{broker.client_host.ip}:9876"
    broker.start()
    broker.world.clock.run_for(70)
    assert broker.send().code == ResponseCode.SUCCESS
    broker.stop()


# ------------------------------------------------------------------ files


def a_stopped_broker() -> SimBroker:
    """With a topic, a group, an offset and a delayed message that was delivered, twice written."""
    broker = SimBroker().start()
    for number in range(2):
        broker.call(broker.message(topic=f"Topic{number}"))
        broker.call(broker.message(topic=f"Topic{number}", DELAY="1"))
        broker.broker.groups.find(f"Group{number}")
        offset = RemotingCommand(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {
                "consumerGroup": f"Group{number}",
                "topic": f"Topic{number}",
                "queueId": "0",
                "commitOffset": "1",
            },
        )
        assert broker.call(offset).code == ResponseCode.SUCCESS
        broker.world.clock.run_for(20)
    broker.stop()
    return broker


HOLDS: dict[str, Callable[[Any], bool]] = {
    "topics.json": lambda it: it.topics.get("Topic0") is not None,
    "subscriptionGroup.json": lambda it: it.groups.get("Group0") is not None,
    "consumerOffset.json": lambda it: it.consumer_offsets.query("Group0", "Topic0", 0) == 1,
    "delayOffset.json": lambda it: it.store.schedule.offset_table.get(1, 0) >= 1,
}


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "binary"])
@pytest.mark.parametrize("name", HOLDS)
def test_a_torn_table_comes_back_from_its_backup(
    name: str, damage: str, log_lines: list[str]
) -> None:
    """The start says which file it took, and the next write does not spoil the backup."""
    broker = a_stopped_broker()
    disk, path = broker.host.disk, f"{CONFIG}/{name}"
    whole, backup = disk.read_bytes(path), disk.read_bytes(f"{path}.bak")
    assert backup
    if damage == "gone":
        disk.remove(path)
    else:
        torn = {"cut": whole[: len(whole) // 2], "empty": b"", "binary": b"\0\xff" * 50}
        disk.replace(path, torn[damage])
    broker.start()
    assert HOLDS[name](broker.broker)
    assert disk.read_bytes(f"{path}.bak") == backup
    assert any(path in line and f"{path}.bak" in line for line in log_lines)
    broker.stop()


@pytest.mark.parametrize("name", HOLDS)
def test_a_table_that_is_torn_twice_stops_the_start(name: str) -> None:
    """With both paths and what to do; afterwards the store can be opened as before."""
    broker = a_stopped_broker()
    disk, path = broker.host.disk, f"{CONFIG}/{name}"
    whole, backup = disk.read_bytes(path), disk.read_bytes(f"{path}.bak")
    disk.replace(path, whole[: len(whole) // 2])
    disk.replace(f"{path}.bak", backup[: len(backup) // 2])
    with pytest.raises(StoreError) as caught:
        broker.start()
    text = str(caught.value)
    assert f"{path} " in text
    assert f"{path}.bak" in text
    assert "Repair one of them" in text
    disk.replace(path, whole)
    broker.start()
    assert HOLDS[name](broker.broker)
    broker.stop()


# ------------------------------------------------------------------ a full disk


def test_a_full_disk_refuses_sends_with_the_reason_and_recovers(broker: SimBroker) -> None:
    """Nothing that was acknowledged is lost, and nothing that was refused is there."""
    sent: list[bytes] = []

    def send(count: int, mark: str) -> list[RemotingCommand]:
        bodies = [f"{mark}{number:04d}".encode() * 100 for number in range(count)]
        waiting = [broker.ask(broker.message(body)) for body in bodies]
        answers: list[RemotingCommand] = broker.wait(gatherResults(waiting))
        stored = [body for body, answer in zip(bodies, answers, strict=True) if answer.code == 0]
        sent.extend(stored)
        return answers

    assert {answer.code for answer in send(20, "a")} == {0}
    broker.world.clock.run_for(GATHER_S)  # they are in queues by then
    broker.host.disk.is_full = True
    refused = [answer for answer in send(200, "b") if answer.code != 0]
    assert {answer.code for answer in refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert all("No space left on device" in (answer.remark or "") for answer in refused)
    assert broker.pull().code == ResponseCode.SUCCESS
    broker.host.disk.is_full = False
    broker.world.clock.run_for(30)
    assert {answer.code for answer in send(20, "c")} == {0}
    broker.world.clock.run_for(1)
    assert read_all(broker) == sent
    broker.stop()
    broker.start()
    assert read_all(broker) == sent


def read_all(broker: SimBroker) -> list[bytes]:
    """The bodies in queue 0, in order."""
    bodies: list[bytes] = []
    store = broker.broker.store
    while len(bodies) < store.max_offset_in_queue(TOPIC, 0):
        result = store.get_message("g", TOPIC, 0, len(bodies), 32, None)
        for record in result.messages:
            size = int.from_bytes(record[84:88], "big")
            bodies.append(bytes(record[88 : 88 + size]))
    return bodies
