"""The rules of HTTP/2, one by one, with frames written by hand."""

import pytest
from hpack import Decoder

from rmq_ha.server.grpc.http2.engine import (
    CONNECTION_WINDOW,
    STREAM_WINDOW,
    Http2Server,
    StreamData,
    StreamHeaders,
    StreamReset,
)
from rmq_ha.server.grpc.http2.headers import encode_headers
from tests.unit.server.grpc.raw_frames import (
    BEGIN,
    PREFACE,
    REQUEST,
    SETTINGS,
    block,
    data,
    frame,
    frames_in,
    headers,
    setting,
    word,
)

MOST = 2**31 - 1


def begun(*more: bytes) -> Http2Server:
    """A server that has got a preface, settings and more; what it said is taken."""
    engine = Http2Server()
    engine.receive(BEGIN + b"".join(more), 0.0)
    engine.take_output(1 << 20)
    return engine


def goaway_of(engine: Http2Server) -> int | None:
    codes = [
        int.from_bytes(item[3][4:8], "big")
        for item in frames_in(engine.take_output(1 << 20))
        if item[0] == 7
    ]
    return codes[-1] if codes else None


def resets_of(engine: Http2Server) -> list[tuple[int, int]]:
    output = engine.take_output(1 << 20)
    return [(item[2], int.from_bytes(item[3], "big")) for item in frames_in(output) if item[0] == 3]


def test_the_first_words_of_a_server():
    output = list(frames_in(Http2Server().take_output(0)))
    assert [item[0] for item in output] == [4, 8]
    assert output[0][3] == b"".join(
        [b"\0\3" + word(1000), b"\0\4" + word(STREAM_WINDOW), b"\0\6" + word(8192)]
    )


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(*values, id=name)
        for name, values in {
            "no preface": (b"GET / HTTP/1.1\r\n", 1),
            "no settings": (PREFACE + frame(6, 0, 0, bytes(8)), 1),
            "an answer to settings first": (PREFACE + frame(4, 1), 1),
            "data of nobody": (BEGIN + data(), 1),
            "data without a stream": (BEGIN + headers() + data(0), 1),
            "an even stream": (BEGIN + headers(2), 1),
            "headers without a stream": (BEGIN + headers(0), 1),
            "settings on a stream": (BEGIN + frame(4, 0, 1), 1),
            "settings of a wrong size": (BEGIN + frame(4, 0, 0, b"12345"), 6),
            "an answer with settings": (BEGIN + frame(4, 1, 0, bytes(6)), 6),
            "a push setting": (BEGIN + setting(2, 2), 1),
            "a small frame size": (BEGIN + setting(5, 16383), 1),
            "a large frame size": (BEGIN + setting(5, 1 << 24), 1),
            "a large first window": (BEGIN + setting(4, MOST + 1), 3),
            "a push": (BEGIN + frame(5, 4, 1, word(2)), 1),
            "a ping on a stream": (BEGIN + frame(6, 0, 1, bytes(8)), 1),
            "a short ping": (BEGIN + frame(6, 0, 0, bytes(7)), 6),
            "a short reset": (BEGIN + headers() + frame(3, 0, 1, b"123"), 6),
            "a reset of nobody": (BEGIN + frame(3, 0, 1, word(8)), 1),
            "a window of nobody": (BEGIN + frame(8, 0, 1, word(8)), 1),
            "a window of nothing": (BEGIN + frame(8, 0, 0, word(0)), 1),
            "a short window": (BEGIN + frame(8, 0, 0, b"123"), 6),
            "a window too large": (BEGIN + frame(8, 0, 0, word(MOST)), 3),
            "a frame too large": (BEGIN + headers() + data(1, bytes(16385)), 6),
            "a continuation of nothing": (BEGIN + frame(9, 4, 1), 1),
            "a continuation of another": (BEGIN + headers(1, 0) + frame(9, 4, 3), 1),
            "headers interrupted": (BEGIN + headers(1, 0) + frame(6, 0, 0, bytes(8)), 1),
            "padding too large": (BEGIN + headers(1, 4 | 8, b"\xff" + block()), 1),
            "padding of nothing": (BEGIN + headers() + data(1, b"", 8), 6),
            "headers that are none": (BEGIN + headers(1, 4, b"\xff\xff\xff\xff\xff\xff"), 9),
            "a table too large": (BEGIN + headers(1, 4, b"\x3f\xe2\x7f" + block()), 9),
            "headers after their end": (BEGIN + headers(1, 5) + headers(1, 5), 5),
            "trailers without an end": (BEGIN + headers() + headers(), 1),
            "a priority of no stream": (BEGIN + frame(2, 0, 0, bytes(5)), 1),
            "a lower number": (BEGIN + headers(5, 5) + headers(3, 5), 1),
            "headers after a reset": (BEGIN + headers(1) + frame(3, 0, 1, word(8)) + headers(1), 5),
            "a priority of a wrong size": (BEGIN + frame(2, 0, 1, bytes(4)), 6),
        }.items()
    ],
)
def test_a_broken_rule_ends_the_connection(sent, code):
    engine = Http2Server()
    engine.receive(sent, 0.0)
    assert engine.fault
    assert goaway_of(engine) == code
    assert engine.receive(SETTINGS, 0.0) == []


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (data(1, b"x"), 5),
        (frame(8, 0, 1, word(0)), 1),
        (frame(8, 0, 1, word(MOST)), 3),
    ],
    ids=["data after the end", "a window of nothing", "a window too large"],
)
def test_a_broken_rule_within_a_stream_resets_it(sent, code):
    engine = begun(headers(1, 5), headers(3, 5))
    events = engine.receive(sent, 0.0)
    assert events == [StreamReset(1, code)]
    assert resets_of(engine) == [(1, code)]
    assert not engine.fault
    assert engine.open_streams == 1


def test_more_than_the_windows_is_not_taken():
    engine = begun(headers(1))
    for _ in range(STREAM_WINDOW // 16384):
        engine.receive(data(1, bytes(16384)), 0.0)
    assert engine.open_streams == 1
    assert engine.receive(data(1, b"x"), 0.0) == [StreamReset(1, 3)]


def test_the_window_of_the_connection_is_given_back():
    engine = begun(headers(1))
    given = 0
    for _ in range(CONNECTION_WINDOW // 16384):
        engine.widen(1, 16384)
        engine.receive(data(1, bytes(16384)), 0.0)
        for kind, _, stream, payload in frames_in(engine.take_output(0)):
            given += int.from_bytes(payload, "big") if (kind, stream) == (8, 0) else 0
    assert given >= CONNECTION_WINDOW // 2


def test_padding_is_left_out_and_counts():
    engine = begun(headers(1))
    assert engine.receive(data(1, b"\5hello" + bytes(5), 8), 0.0) == [
        StreamData(1, b"hello", has_ended=False)
    ]
    assert [item[0] for item in frames_in(engine.take_output(0))] == [8]
    assert engine.receive_window(1) == STREAM_WINDOW - 5


def test_headers_in_pieces():
    whole = block()
    engine = begun()
    sent = headers(1, 1, whole[:5]) + frame(9, 0, 1, whole[5:9]) + frame(9, 4, 1, whole[9:])
    events = [event for byte in sent for event in engine.receive(bytes([byte]), 0.0)]
    assert events == [StreamHeaders(1, REQUEST, has_ended=True)]


def test_headers_with_priority_and_padding():
    engine = begun()
    events = engine.receive(headers(1, 4 | 8 | 32, b"\3" + bytes(5) + block() + bytes(3)), 0.0)
    assert events == [StreamHeaders(1, REQUEST, has_ended=False)]


@pytest.mark.parametrize(
    "wrong",
    [
        [*REQUEST, ("Upper", "x")],
        [*REQUEST, ("connection", "close")],
        [*REQUEST, (":late", "x")],
        [("early", "x"), *REQUEST],
        [*REQUEST[:1], *REQUEST],
        REQUEST[1:],
        [*REQUEST[:1], (":other", "x"), *REQUEST[1:]],
        [*REQUEST, ("", "x")],
        [*REQUEST[:2], (":path", "")],
        [*REQUEST, ("te", "gzip")],
        [*REQUEST, ("content-length", "-1")],
        [*REQUEST, ("content-length", "5")],
    ],
    ids=[
        "upper",
        "connection",
        "late",
        "early",
        "twice",
        "missing",
        "unknown",
        "empty",
        "path",
        "te",
        "size",
        "no data",
    ],
)
def test_malformed_headers_reset_their_stream(wrong):
    engine = begun()
    assert engine.receive(headers(1, 5, block(wrong)), 0.0) == []
    assert resets_of(engine) == [(1, 1)]
    assert [event.stream for event in engine.receive(headers(3, 5), 0.0)] == [3]


def test_one_stream_too_many_is_refused_alone():
    engine = begun(*(headers(number) for number in range(1, 2001, 2)))
    assert engine.open_streams == 1000
    assert engine.receive(headers(2001), 0.0) == []
    assert resets_of(engine) == [(2001, 7)]
    engine.reset(1, 0)
    assert [event.stream for event in engine.receive(headers(2003), 0.0)] == [2003]


def test_trailers_end_a_request():
    engine = begun(headers(1))
    assert engine.receive(headers(1, 5, block([("x", "y")])), 0.0) == [
        StreamData(1, b"", has_ended=True)
    ]


def test_what_comes_after_a_reset_is_left_alone():
    engine = begun(headers(1))
    engine.reset(1, 8)
    engine.take_output(0)
    late = data(1, b"x") + headers(1, 5) + frame(8, 0, 1, word(5)) + frame(3, 0, 1, word(8))
    assert engine.receive(late, 0.0) == []
    assert not engine.fault
    assert not engine.has_output


def test_a_ping_is_answered_and_an_answer_is_not():
    engine = begun()
    engine.receive(frame(6, 0, 0, b"12345678") + frame(6, 1, 0, b"12345678"), 0.0)
    assert list(frames_in(engine.take_output(0))) == [(6, 1, 0, b"12345678")]


def test_settings_are_answered():
    engine = begun()
    engine.receive(setting(4, 10) + frame(4, 1) + setting(99, 7), 0.0)
    assert list(frames_in(engine.take_output(0))) == [(4, 1, 0, b"")] * 2


def test_frames_that_nobody_knows_are_left_out():
    engine = begun()
    assert engine.receive(frame(200, 255, 7, b"x") + frame(2, 0, 9, bytes(5)), 0.0) == []
    assert not engine.fault


def test_an_answer_waits_for_both_windows():
    engine = begun(setting(4, 10), headers(1, 5))
    engine.send_headers(1, encode_headers([(b":status", b"200")]))
    engine.send_data(1, bytes(25))
    engine.send_end(1, encode_headers([(b"grpc-status", b"0")]))
    assert [len(item[3]) for item in frames_in(engine.take_output(1000)) if item[0] == 0] == [10]
    assert engine.queued == 15
    engine.receive(frame(8, 0, 1, word(5)), 0.0)
    assert [len(item[3]) for item in frames_in(engine.take_output(1000))] == [5]
    engine.receive(setting(4, 25), 0.0)
    output = [(item[0], len(item[3])) for item in frames_in(engine.take_output(1000))]
    assert output[:2] == [(4, 0), (0, 10)]
    assert output[2][0] == 1
    assert (engine.queued, engine.open_streams) == (0, 0)


def test_a_window_may_shrink_below_nothing():
    engine = begun(setting(4, 10), headers(1, 5))
    engine.send_data(1, bytes(30))
    engine.take_output(1000)
    engine.receive(setting(4, 0), 0.0)
    engine.receive(frame(8, 0, 1, word(10)), 0.0)
    assert not [item for item in frames_in(engine.take_output(1000)) if item[0] == 0]
    engine.receive(frame(8, 0, 1, word(1)), 0.0)
    assert [len(item[3]) for item in frames_in(engine.take_output(1000))] == [1]


def test_answers_of_many_streams_share_the_connection():
    engine = begun(*(headers(number, 5) for number in (1, 3, 5)))
    for number in (1, 3, 5):
        engine.send_data(number, bytes(60000))
    sizes = {}
    for kind, _, stream, payload in frames_in(engine.take_output(1 << 20)):
        assert kind == 0
        sizes[stream] = sizes.get(stream, 0) + len(payload)
    assert sum(sizes.values()) == 65535
    assert min(sizes.values()) > 16000


def test_a_request_that_is_answered_early_is_told_to_stop():
    engine = begun(headers(1))
    engine.send_end(1, encode_headers([(b":status", b"415")]))
    output = list(frames_in(engine.take_output(1000)))
    assert [item[0] for item in output] == [1, 3]
    assert output[1][3] == word(0)
    assert engine.open_streams == 0


def test_headers_of_this_side_are_read_by_others():
    pairs = [
        (b":status", b"200"),
        (b":status", b"415"),
        (b"content-type", b"x" * 300),
        (b"a-b", b""),
    ]
    decoder = Decoder()
    assert [
        (bytes(name), bytes(value))
        for name, value in decoder.decode(encode_headers(pairs), raw=True)
    ] == pairs


def test_a_client_that_leaves_is_still_answered():
    engine = begun(headers(1, 5))
    engine.receive(frame(7, 0, 0, bytes(8)), 0.0)
    assert engine.peer_leaves
    engine.send_end(1, encode_headers([(b":status", b"200")]))
    assert [item[0] for item in frames_in(engine.take_output(1000))] == [1]


def test_data_after_a_reset_of_the_peer_is_refused():
    engine = begun(headers(1), frame(3, 0, 1, word(8)))
    assert engine.receive(data(1, b"x"), 0.0) == []
    assert resets_of(engine) == [(1, 5)]


@pytest.mark.parametrize(
    ("sent", "is_whole"),
    [
        (data(1, b"12345", 1), True),
        (data(1, b"123") + data(1, b"45") + data(1, b"", 1), True),
        (data(1, b"1234", 1), False),
        (data(1, b"123456"), False),
        (data(1, b"\1" + b"12345" + b"x", 9), True),
    ],
    ids=["whole", "pieces", "short", "long", "padded"],
)
def test_data_are_as_long_as_the_headers_say(sent, is_whole):
    engine = begun(headers(1, 4, block([*REQUEST, ("content-length", "5")])))
    events = engine.receive(sent, 0.0)
    assert (events[-1] == StreamReset(1, 1)) == (not is_whole)
    assert resets_of(engine) == ([] if is_whole else [(1, 1)])
