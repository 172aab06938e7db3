"""What strangers send to the status port costs the server little, however much it is."""

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from rmq_ha.ops.app.status.channel import IDLE_S, MOST_BODY, TURN_MILLIS
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.names import AllowedHostNames
from rmq_ha.ops.app.status.server import StatusServer
from rmq_ha.ops.app.status.site import KEPT_S, Scrape, make_site
from rmq_ha.testing.host import World

HEALTH_S = 0.002
SCRAPE_S = 0.014
"""What /metrics took with a topic of 65,536 queues."""
GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
LONGEST_S = 0.1


class Turns:
    """A reactor whose time passes in requests only; a turn runs what was asked for before it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.number = 0
        self._soon: list[Any] = []
        self._late: list[Any] = []

    def seconds(self) -> float:
        return self.now

    def callLater(self, delay: float, function: Any, *arguments: Any) -> Any:
        call = Call(self.now + delay, function, arguments)
        (self._late if delay else self._soon).append(call)
        return call

    def turn(self) -> float:
        """How long it took."""
        began = self.now
        self.number += 1
        due, self._soon = self._soon, []
        due += [call for call in self._late if call.time <= self.now]
        self._late = [call for call in self._late if call.time > began]
        for call in due:
            if not call.is_cancelled:
                call.is_cancelled = True
                call.function(*call.arguments)
        return self.now - began

    @property
    def is_idle(self) -> bool:
        return not any(not call.is_cancelled for call in self._soon)


class Call:
    def __init__(self, time: float, function: Any, arguments: Any) -> None:
        self.time, self.function, self.arguments = time, function, arguments
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def reset(self, delay: float) -> None:
        """Nothing here waits so long twice."""

    def active(self) -> bool:
        return not self.is_cancelled


class Transport(StringTransport):
    """Of a peer that reads nothing: its producer is told to wait as a real transport would."""

    bufferSize = 65536

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.producer is not None and len(self.value()) > self.bufferSize:
            self.producer.pauseProducing()


class Port:
    """A status port; its /healthz and /metrics take their time."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.asked: list[int] = []
        self.scrapes = 0
        world = World(1)
        host = world.add("broker").seams
        server = StatusServer(host, "rmqha", 5557, "")
        server.registry.register(self)  # type: ignore[arg-type]
        object.__setattr__(host, "clock", self.turns)
        scrape = Scrape(server.registry, self.turns)  # type: ignore[arg-type]
        self.site = make_site(scrape, self.health, host, AllowedHostNames(""))

    def health(self) -> Health:
        self.turns.now += HEALTH_S
        self.asked.append(self.turns.number)
        return Health(True, "well")

    def collect(self) -> list[Any]:
        self.turns.now += SCRAPE_S
        self.scrapes += 1
        return []

    def connect(self, kind: type[StringTransport] = StringTransport) -> Any:
        channel: Any = self.site.buildProtocol(IPv4Address("TCP", "10.0.0.9", 4000))
        channel.makeConnection(kind(peerAddress=IPv4Address("TCP", "10.0.0.9", 4000)))
        return channel

    def settle(self) -> list[float]:
        """How long each turn took until nothing is left to do."""
        took = []
        while not self.turns.is_idle:
            took.append(self.turns.turn())
        return took


def answers(channel: Any) -> int:
    return int(channel.transport.value().count(b"HTTP/1.1 200 "))


def test_64_kib_of_pipelined_scrapes() -> None:
    """They were 2,259 scrapes in one turn: a broker stood still for 6 to 40 s."""
    port = Port()
    channel = port.connect()
    request = GET % b"/metrics"
    count = 65536 // len(request)
    channel.dataReceived(request * count)
    took = port.settle()
    assert answers(channel) == count
    assert max(took) <= SCRAPE_S + 1e-9
    assert port.scrapes == 1


def test_a_scrape_is_kept_for_half_a_second() -> None:
    port = Port()
    channel = port.connect()
    for after in (0.0, KEPT_S - 0.01, 0.02):
        port.turns.now += after
        channel.dataReceived(GET % b"/metrics")
        port.settle()
    assert answers(channel) == 3
    assert port.scrapes == 2


def test_a_connection_has_one_request_answered_in_a_turn() -> None:
    port = Port()
    channel = port.connect()
    channel.dataReceived((GET % b"/healthz") * 50)
    port.settle()
    assert len(port.asked) == 50
    assert len(set(port.asked)) == 50


def test_all_connections_together_have_a_share_of_a_turn() -> None:
    """And what a request took beyond it is paid back: others have turns without any."""
    port = Port()
    channels = [port.connect() for _ in range(200)]
    for channel in channels:
        channel.dataReceived((GET % b"/healthz") * 2)
    took = port.settle()
    assert [answers(channel) for channel in channels] == [2] * 200
    assert max(took) < TURN_MILLIS / 1000 + HEALTH_S
    assert sum(took) / len(took) <= TURN_MILLIS / 1000 + 1e-9


def test_who_does_not_read_gets_no_more_answers() -> None:
    """64 KiB of requests filled 72 MiB with answers; and who never reads is cut."""
    port = Port()
    channel = port.connect(Transport)
    channel.dataReceived((GET % b"/metrics") * 2000)
    port.settle()
    size = len(channel.transport.value())
    assert size < 2 * Transport.bufferSize
    channel.transport.clear()
    channel.resumeProducing()
    port.settle()
    assert len(channel.transport.value()) > Transport.bufferSize
    with capturedLogs() as lines:
        port.turns.now += IDLE_S + 1
        port.turns.turn()
    assert channel.transport.disconnecting
    shown = [formatEvent(line) for line in lines]
    assert shown == ["closing an idle connection of the status port: 10.0.0.9:4000"]
    port.turns.now += channel.abortTimeout
    port.turns.turn()
    assert channel.transport.disconnected


FORMS = {
    "15 MiB multipart": (b"multipart/form-data; boundary=x", b"--x\r\n", 15 << 20),
    "4 MiB of a form": (b"application/x-www-form-urlencoded", b"a&", 4 << 20),
    "no form": (b"application/octet-stream", b"x", 1 << 30),
    "one byte too many": (b"text/plain", b"x", MOST_BODY + 1),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("path", [b"/", b"/metrics", b"/healthz", b"/api/session", b"/x"])
def test_a_body_is_refused_by_its_length_before_it_is_read(name: str, path: bytes) -> None:
    """They were parsed for 6 s, or written into a file that nobody saw until the disk was full."""
    kind, piece, size = FORMS[name]
    port = Port()
    channel = port.connect()
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    channel.dataReceived(head % (path, kind, size) + piece)
    assert channel.transport.value().startswith(b"HTTP/1.1 413 ")
    assert channel.transport.disconnecting
    assert channel.requests[0].content is None
    channel.dataReceived(piece * 1000)
    assert port.settle() == []
    channel.connectionLost(Failure(ConnectionDone()))


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Transfer-Encoding: chunked", b"413"),
        (b"Content-Length: " + b"9" * 5000, b"400"),
        (b"Content-Length: 99999\r\nExpect: 100-continue", b"413"),
        (b"\r\n".join(b"A: %d" % n for n in range(101)), b"400"),
    ],
)
def test_other_ways_to_send_much(header: bytes, status: bytes) -> None:
    """A length of 5,000 digits was an error of ours in the log."""
    port = Port()
    channel = port.connect()
    channel.dataReceived(b"POST /api/session HTTP/1.1\r\nHost: a\r\n%s\r\n\r\nffff\r\n" % header)
    assert channel.transport.value().startswith(b"HTTP/1.1 %s " % status)
    assert channel.transport.disconnecting


def test_a_form_is_not_parsed() -> None:
    """A small one, too: nothing here takes any."""
    port = Port()
    channel = port.connect()
    channel.dataReceived(
        b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        b"Content-Length: 3\r\n\r\na=b"
    )
    request = channel.requests[0]
    port.settle()
    assert request.args == {}
    assert b"HTTP/1.1 405 " in channel.transport.value()


def test_who_leaves_before_the_turn_is_forgotten() -> None:
    port = Port()
    channel = port.connect()
    channel.dataReceived(GET % b"/healthz")
    channel.connectionLost(Failure(ConnectionDone()))
    port.settle()
    assert port.asked == []


def test_an_honest_scrape_beside_a_hundred_floods_waits_less_than_a_tenth_of_a_second() -> None:
    port = Port()
    for _ in range(100):
        port.connect().dataReceived((GET % b"/metrics") * 100)
    honest = port.connect()
    began = port.turns.now
    honest.dataReceived(GET % b"/metrics")
    while not answers(honest):
        port.turns.turn()
    assert port.turns.now - began < LONGEST_S


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("127.0.0.1", True), ("::1", True), ("10.1.2.3", True), ("localhost", True),
        ("broker-a", True), ("broker-a.local", True), ("b.prod.internal", True), ("", True),
        ("broker-a.example.com", True), ("Broker-A.Example.Com.", True),
        ("evil.example", False), ("evil.example.", False), ("127.0.0.1.evil.example", False),
        ("internal.evil.example", False), ("x.broker-a.example.com", False),
    ],
)  # fmt: skip
def test_names_by_which_metrics_are_asked_for(name: str, is_allowed: bool) -> None:
    assert (name in AllowedHostNames("other.example.com, broker-a.example.com")) is is_allowed
    assert name in AllowedHostNames("*")


def test_metrics_are_not_told_to_a_page_that_points_its_name_here() -> None:
    """And the answer says which key an operator sets who scrapes by such a name."""
    port = Port()
    channel = port.connect()
    channel.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: evil.example:5557\r\n\r\n")
    port.settle()
    assert channel.transport.value().startswith(b"HTTP/1.1 421 ")
    assert b"metricsHostNames" in channel.transport.value()
    assert port.scrapes == 0
