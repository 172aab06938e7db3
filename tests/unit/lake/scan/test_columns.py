"""Arrow columns out of pieces of a buffer: the quick way and the other one say the same."""

import numpy as np
import pytest

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.lake.scan.log.columns import (
    NotUtf8,
    _is_utf8,
    _make_unchecked,
    binary,
    repeated,
    schema_of,
    strict_text,
    take_bytes,
    text,
    text_of,
    times,
)
from rmq_ha.lake.scan.log.shape import Bytes, Ints


def ints(*numbers: int) -> Ints:
    return np.array(numbers, np.int64)


def held(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [
        ((1, 3, 0), (3, 3, 3)),  # of one length
        ((0, 4, 1), (1, 3, 0)),
        ((0, 7), (5, 3)),  # a window of the longest one would reach over the end
        ((8, 9, 0), (1, 1, 9)),
        ((2, 2), (0, 0)),
        ((), ()),
    ],
)
def test_pieces_lie_one_behind_the_other(starts: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    data = b"abcdefghij"
    content, offsets = take_bytes(held(data), ints(*starts), ints(*lengths))
    parts = [data[at : at + size] for at, size in zip(starts, lengths, strict=True)]
    assert content.tobytes() == b"".join(parts)
    assert offsets.tolist() == [sum(lengths[:at]) for at in range(len(lengths) + 1)]
    found = text(held(data), ints(*starts), ints(*lengths))
    assert found.to_pylist() == [part.decode() for part in parts]


def test_one_long_piece_among_many_short_ones_is_not_paid_for_by_each() -> None:
    data = b"x" * 9000 + b"yz"
    starts, lengths = ints(0, *[9000] * 20), ints(9000, *[2] * 20)
    content, offsets = take_bytes(held(data), starts, lengths)
    assert content.tobytes() == b"x" * 9000 + b"yz" * 20
    assert offsets[-1] == len(content)


@pytest.mark.parametrize(
    ("present", "texts"),
    [
        (None, ["ab", "", "cd"]),
        ([True, True, True], ["ab", "", "cd"]),
        ([True, False, True], ["ab", None, "cd"]),
        ([False, True, False], [None, "", None]),
    ],
)
@pytest.mark.parametrize("bad", [b"", b"\xff", b"\x80"])
def test_texts_are_null_where_there_is_none_and_each_bad_byte_is_told(
    present: list[bool] | None, texts: list[str | None], bad: bytes
) -> None:
    offsets = ints(0, 2, 2, 4 + len(bad))
    flags = None if present is None else np.array(present)
    found = text_of(held(b"abcd" + bad), offsets, flags)
    found.validate(full=True)
    wanted = [*texts[:2], texts[2] and texts[2] + "\ufffd" * len(bad)]
    assert found.to_pylist() == wanted


@pytest.mark.parametrize(
    ("content", "is_text"),
    [(b"", True), (b"a", True), ("\u4e2d".encode(), True), (b"\x80", False), (b"ab\xff", False)],
)
def test_text_is_told_from_other_bytes(content: bytes, is_text: bool) -> None:
    array = _make_unchecked(held(content), ints(0, len(content)), None)
    assert _is_utf8(array, held(content)) is is_text
    starts, lengths = ints(0), ints(len(content))
    if is_text:
        assert strict_text(held(content), starts, lengths).to_pylist() == [content.decode()]
    else:
        with pytest.raises(NotUtf8):
            strict_text(held(content), starts, lengths)


def test_bodies_are_cut_out_of_what_lies_together() -> None:
    found = binary(held(b"abcdef"), ints(2, 0, 3, 1))
    found.validate(full=True)
    assert found.to_pylist() == [b"ab", b"", b"cde", b"f"]


def test_the_same_in_each_row() -> None:
    assert repeated("b", 2).to_pylist() == ["b", "b"]
    assert repeated(None, 3).to_pylist() == [None] * 3
    assert repeated(None, 3).type == repeated("b", 3).type


def test_a_column_that_nobody_has_is_named() -> None:
    assert schema_of(["tags", "queueId"]).names == ["tags", "queueId"]
    with pytest.raises(ProtocolViolation, match="no such column: a, b; there are"):
        schema_of(["tags", "a", "b"])


def test_times_without_room_in_arrow_are_the_last_that_have() -> None:
    most = (1 << 63) // 1000 - 1
    found = times(ints(0, 5, most + 1, 1 << 62, -(1 << 62)))
    assert found.cast("int64").to_pylist() == [0, 5000, most * 1000, most * 1000, -most * 1000]
