"""Floods end their own connection; a busy honest client is never taken for one."""

import pytest

from rmq_ha.server.grpc.http2.engine import Http2Server
from rmq_ha.server.grpc.http2.headers import encode_headers
from tests.unit.server.grpc.raw_frames import BEGIN, block, data, frame, headers, setting, word

HUGE = headers(1, 0) + frame(9, 0, 1, bytes(16000)) * 2
BOMB = block([("x", "y" * 4000)])


def resets():
    return (headers(number, 5) + frame(3, 0, number, word(8)) for number in range(1, 2**20, 2))


@pytest.mark.parametrize(
    ("flood", "budget"),
    [
        (resets(), "resets"),
        ((frame(6, 0, 0, bytes(8)) for _ in range(20000)), "control frames"),
        ((setting(4, 100) for _ in range(20000)), "control frames"),
        ((frame(2, 0, 1, bytes(5)) for _ in range(20000)), "control frames"),
        ((frame(99, 0, 1, b"") for _ in range(20000)), "control frames"),
        ((frame(8, 0, 0, word(1)) for _ in range(20000)), "control frames"),
        ((headers(1), *(data(1) for _ in range(20000))), "control frames"),
        ((headers(1), *(data(1, b"\7" + bytes(7), 8) for _ in range(20000))), "control frames"),
        ((headers(1, 0), *(frame(9, 0, 1, b"") for _ in range(20000))), "header blocks"),
        ((headers(1, 0), *(frame(9, 0, 1, bytes(9000)) for _ in range(20000))), "header blocks"),
        ((headers(number, 5, block([])) for number in range(1, 2**20, 2)), "resets"),
        ((headers(1, 4, BOMB[:-1] + BOMB[-1:]), headers(3, 4, b"\xbe" * 16000)), ""),
    ],
    ids=[
        "rapid reset",
        "ping",
        "settings",
        "priority",
        "unknown",
        "window",
        "empty data",
        "padding",
        "continuation",
        "long headers",
        "malformed",
        "header bomb",
    ],
)
def test_a_flood_ends_its_connection(flood, budget):
    engine = Http2Server()
    engine.receive(BEGIN, 0.0)
    out = 0
    for piece in flood:
        engine.receive(piece, 0.0)
        out += len(engine.take_output(1 << 16))
        if engine.fault:
            break
    assert engine.fault
    assert engine.fault_budget == budget
    assert out < 1 << 20


def test_a_flood_that_is_slow_enough_goes_on():
    engine = Http2Server()
    engine.receive(BEGIN, 0.0)
    for number in range(30000):
        engine.receive(frame(6, 0, 0, bytes(8)), number / 400)
    assert not engine.fault
    for number in range(3000):
        stream = 2 * number + 1
        engine.receive(headers(stream, 5) + frame(3, 0, stream, word(8)), 1000 + number / 30)
    assert not engine.fault


def test_a_busy_client_pings_and_widens_with_each_call():
    """As grpc-java and grpcio do: a PING and two WINDOW_UPDATE frames for each answer."""
    engine = Http2Server()
    engine.receive(BEGIN, 0.0)
    end = encode_headers([(b":status", b"200")])
    for number in range(1, 12000, 2):
        more = frame(6, 0, 0, bytes(8)) + frame(8, 0, 0, word(100)) + frame(8, 0, number, word(100))
        engine.receive(headers(number) + data(number, b"12345", 1) + more, 1.0)
        engine.send_end(number, end)
        engine.take_output(1 << 16)
        assert not engine.fault
