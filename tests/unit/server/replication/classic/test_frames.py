"""Frames and reports of a classic connection: their bytes, and any cut of the stream."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ReplicationError
from rmq_ha.server.replication.classic.frames import (
    HEADER_SIZE,
    MAX_BODY_SIZE,
    FramePieceReader,
    ReportReader,
    encode_frame,
    encode_report,
)

OFFSETS = st.integers(0, 2**63 - 1)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, cut at `places`."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def read_frames(reader: FramePieceReader, chunks: list[bytes]) -> list[tuple[int, bytes]]:
    """The whole frames of a stream."""
    frames, body = [], b""
    for chunk in chunks:
        for place, part, size, is_last in reader.receive_data(chunk):
            if size is not None:
                offset, body = place, b""
            assert place == offset + len(body)
            body += part
            if is_last:
                frames.append((offset, body))
    return frames


def test_bytes_of_a_report() -> None:
    assert encode_report(444).hex() == "00000000000001bc"


def test_bytes_of_a_frame() -> None:
    assert encode_frame(444, b"ab").hex() == "00000000000001bc000000026162"
    assert encode_frame(444).hex() == "00000000000001bc00000000"


@given(st.lists(OFFSETS, min_size=1), st.lists(st.integers(0, 10_000)))
def test_the_last_complete_report_of_a_chunk_counts(offsets: list[int], places: list[int]) -> None:
    reader, received, seen = ReportReader(), b"", []
    for chunk in cut(b"".join(map(encode_report, offsets)), places):
        before = len(received) // 8
        received += chunk
        after = len(received) // 8
        report = reader.receive_data(chunk)
        assert report == (offsets[after - 1] if after > before else None)
        seen.append(report)
    assert [r for r in seen if r is not None][-1] == offsets[-1]


@given(st.lists(st.binary(max_size=20)))
def test_any_bytes_are_reports(chunks: list[bytes]) -> None:
    reader = ReportReader()
    for chunk in chunks:
        reader.receive_data(chunk)
        assert len(reader._rest) < 8


@given(st.lists(st.tuples(OFFSETS, st.binary(max_size=60))), st.lists(st.integers(0, 10_000)))
def test_frames_survive_any_cut(frames: list[tuple[int, bytes]], places: list[int]) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    assert read_frames(FramePieceReader(), cut(stream, places)) == frames


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_frames_or_refused(chunks: list[bytes]) -> None:
    """Progress or ReplicationError, and never more than a header is held back."""
    reader = FramePieceReader()
    with suppress(ReplicationError):
        for chunk in chunks:
            taken = sum(len(body) for _, body, _, _ in reader.receive_data(chunk))
            assert taken <= len(chunk)
            assert len(reader._rest) < HEADER_SIZE


def test_a_header_is_reported_before_its_body() -> None:
    reader = FramePieceReader()
    assert not list(reader.receive_data(encode_frame(7, b"abc")[:11]))
    assert list(reader.receive_data(encode_frame(7, b"abc")[11:12])) == [(7, b"", 3, False)]
    assert list(reader.receive_data(b"abc")) == [(7, b"abc", None, True)]


@pytest.mark.parametrize(
    "header",
    [
        encode_frame(0)[:8] + (0xFFFFFFFF).to_bytes(4, "big"),
        encode_frame(0)[:8] + (MAX_BODY_SIZE + 1).to_bytes(4, "big"),
        b"\xff" * 8 + bytes(4),
    ],
)
def test_impossible_headers_are_refused(header: bytes) -> None:
    with pytest.raises(ReplicationError):
        list(FramePieceReader().receive_data(header))


def test_frames_before_an_impossible_header_are_delivered() -> None:
    pieces = FramePieceReader().receive_data(encode_frame(0, b"ab") + b"\xff" * 12)
    assert next(pieces)[1] == b"ab"
    with pytest.raises(ReplicationError):
        next(pieces)


def test_the_largest_frame_is_accepted() -> None:
    body = bytes(MAX_BODY_SIZE)
    assert read_frames(FramePieceReader(), [encode_frame(1, body)]) == [(1, body)]
