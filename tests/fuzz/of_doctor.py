"""What `rmqha-admin doctor` reads of whoever listens where a broker should."""

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.admin.contexts import Contexts
from rmq_ha.ops.admin.doctor.brokers import clock_ahead, samples_in
from rmq_ha.ops.admin.doctor.probe import Exchange, Handshake, page_in
from tests.fuzz.target import target

METRICS = b"""# HELP rmqha_queues Consume queues
# TYPE rmqha_queues gauge
rmqha_queues{cluster="c",broker="b\\"x\\n"} 4.0 1700000000000
# TYPE rmqha_put_seconds histogram
rmqha_put_seconds_bucket{le="+Inf"} 3
rmqha_put_seconds_count 3
rmqha_put_seconds_sum NaN
"""
PAGE = b"HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nServer: x\r\n\r\n" + METRICS


@target(
    "doctor.page", [PAGE, PAGE[:70], b"HTTP/1.0 503 no\r\n\r\nnot ready: starting\n"], (OSError,)
)
def read_page(data: bytes) -> None:
    """As it comes: in pieces, until the other end closes."""
    asking = Exchange(b"GET / HTTP/1.0\r\n\r\n")
    asking.makeConnection(StringTransport())
    for start in range(0, len(data), 100):
        asking.dataReceived(data[start : start + 100])
    asking.connectionLost(Failure(ConnectionDone()))
    got: list[bytes] = []
    asking.done.addCallback(got.append)
    assert got == [data]
    page = page_in(data)
    clock_ahead(page.headers.get("date", ""), 1_700_000_000_000)
    try:
        samples_in(page.text)
    except ValueError:
        raise OSError("no metrics") from None


SERVER_HELLO = bytes.fromhex("160303003a0200003603030000000000000000") + bytes(44)


@target("doctor.handshake", [SERVER_HELLO, b"\x15\x03\x03\x00\x02\x02\x28", b"HTTP/1.0 400 no\r\n"])
def shake_hands(data: bytes) -> None:
    """Whatever comes, it ends with a certificate or without one."""
    hand = Handshake()
    hand.makeConnection(StringTransport())
    hand.dataReceived(data)
    hand.dataReceived(data)
    hand.connectionLost(Failure(ConnectionDone()))
    assert hand.done.called


@target(
    "admin.contexts",
    [b'{"used": "a", "contexts": {"a": {"namesrv": "h:9876", "tls": true}}}', b"{}"],
    (ConfigurationError,),
)
def read_contexts(data: bytes) -> None:
    Contexts.decode(data, "contexts.json")
