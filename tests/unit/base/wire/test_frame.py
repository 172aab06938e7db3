"""Cutting frames. Spec: remoting.md, section 1.2."""

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import MAX_FRAME_SIZE, FrameReader, decode_frame, encode_frame

TEXT = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
COMMANDS = st.builds(
    RemotingCommand,
    code=st.integers(-32768, 32767),
    ext=st.none() | st.dictionaries(TEXT.filter(bool), TEXT.filter(bool), max_size=5, min_size=1),
    body=st.none() | st.binary(min_size=1, max_size=200),
    opaque=INT32,
    flag=INT32,
    remark=st.none() | TEXT.filter(bool),
    language=st.sampled_from(["JAVA", "GO", "PYTHON"]),
    version=st.integers(0, 32767),
    binary=st.booleans(),
)


def frame(length, word, rest=b""):
    return struct.pack(">iI", length, word) + rest


@given(st.lists(COMMANDS, max_size=5), st.data())
def test_round_trip_whatever_the_chunks(commands, data):
    stream = b"".join(map(encode_frame, commands))
    reader = FrameReader()
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.receive_data(stream[:size])
        stream = stream[size:]
    assert [decode_frame(*item) for item in found] == commands


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", 16777213), "16777217 bytes; at most 16777216 are allowed"),
        (b"GET / HTTP/1.1\r\n", "is this remoting"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "speaks HTTP/2"),
        (struct.pack(">i", -1), "length of -1"),
        (struct.pack(">i", 0), "length of 0"),
        (struct.pack(">i", 3), "length of 3"),
        (frame(4, 1), "longer than its frame"),
        (frame(4, 2 << 24), "serialisation 2"),
        (frame(4, 0xFF << 24), "serialisation 255"),
    ],
)
def test_malformed_frames_are_violations(data, reason):
    reader = FrameReader()
    with pytest.raises(ProtocolViolation, match=reason):
        reader.receive_data(data)
    with pytest.raises(ProtocolViolation, match=reason):
        reader.receive_data(b"more")


def test_largest_length_is_accepted():
    """The limit counts the length word; one byte more is refused as soon as it is announced."""
    assert FrameReader().receive_data(struct.pack(">i", 16777212)) == []
    largest = struct.pack(">iI", 64 - 4, 0) + b"x" * 56
    assert FrameReader(64).receive_data(largest) == [(0, b"", b"x" * 56)]
    for data in (struct.pack(">i", 64 - 3), struct.pack(">iI", 64 - 3, 0)):
        with pytest.raises(ProtocolViolation):
            FrameReader(64).receive_data(data)


def test_frames_before_a_malformed_one_are_returned():
    good = encode_frame(RemotingCommand(1))
    reader = FrameReader()
    assert len(reader.receive_data(good + good + struct.pack(">i", -5))) == 2
    assert reader.fault is not None


def test_partial_frame_waits():
    data = encode_frame(RemotingCommand(34, body=b"x" * 10))
    reader = FrameReader()
    assert reader.receive_data(data[:-1]) == []
    assert len(reader.receive_data(data[-1:])) == 1


def test_many_small_chunks_cost_linear_time():
    data = encode_frame(RemotingCommand(10, body=bytes(2_000_000)))
    reader = FrameReader()
    started = time.perf_counter()
    found = []
    for position in range(0, len(data), 50):
        found += reader.receive_data(data[position : position + 50])
    assert len(found) == 1
    assert len(found[0][2]) == 2_000_000
    assert time.perf_counter() - started < 5  # 40 000 copies of 1 MB would take longer


def test_a_frame_that_no_peer_takes_is_not_encoded():
    with pytest.raises(ProtocolViolation, match="cannot be sent"):
        encode_frame(RemotingCommand(1, body=bytes(MAX_FRAME_SIZE)))


@given(st.binary(max_size=100))
def test_any_bytes_give_frames_or_a_violation(data):
    try:
        FrameReader().receive_data(data)
    except ProtocolViolation:
        pass


@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_smallest_frame_is_one_however_it_comes(size):
    """Also behind one that was waited for: what that needed is no matter of the next one."""
    long = encode_frame(RemotingCommand(34, body=b"x" * 100))
    small = frame(4, 0)
    for stream, count in ((small, 1), (long + small + small, 3)):
        reader = FrameReader()
        found = []
        for at in range(0, len(stream), size):
            found += reader.receive_data(stream[at : at + size])
        assert len(found) == count
        assert found[-1] == (0, b"", b"")
        assert reader.unfinished == 0


def test_a_short_frame_behind_a_long_one_does_not_wait_for_as_much():
    long = encode_frame(RemotingCommand(34, body=b"x" * 1000))
    reader = FrameReader()
    assert reader.receive_data(long[:-1]) == []
    assert reader.unfinished == len(long) - 1
    assert len(reader.receive_data(long[-1:] + frame(4, 0)[:2])) == 1
    assert reader.receive_data(frame(4, 0)[2:]) == [(0, b"", b"")]


def test_a_header_may_be_just_as_long_as_allowed():
    whole = frame(4 + 8, 8, b"x" * 8)
    assert FrameReader(max_header_size=8).receive_data(whole) == [(0, b"x" * 8, b"")]
    reader = FrameReader(max_header_size=7)
    assert reader.receive_data(whole[:6]) == []
    assert reader.unfinished == 6
    with pytest.raises(ProtocolViolation, match="a header of 8 bytes; maxHeaderSize allows 7"):
        reader.receive_data(whole[6:8])
    assert reader.unfinished == 0


def test_the_largest_frame_that_is_encoded_is_the_largest_that_is_read():
    """The limit counts the length word on both sides."""
    overhead = len(encode_frame(RemotingCommand(1, body=b"x"))) - 1
    largest = encode_frame(RemotingCommand(1, body=bytes(MAX_FRAME_SIZE - overhead)))
    assert len(largest) == MAX_FRAME_SIZE
    assert len(FrameReader().receive_data(largest)) == 1
    with pytest.raises(ProtocolViolation, match="cannot be sent"):
        encode_frame(RemotingCommand(1, body=bytes(MAX_FRAME_SIZE - overhead + 1)))
