"""Where the parts of records are; of what is none, that nothing outside of it is read."""

from struct import pack

import numpy as np
import pytest

from rmq_ha.lake.scan.log.shape import (
    HEAD_V4,
    Shape,
    fields,
    head_field,
    inside_window,
    shape_of,
    windows,
)

BORN_V6, STORE_V6 = 0x10, 0x20


def raw(
    body: bytes = b"",
    topic: bytes = b"",
    properties: bytes = b"",
    flag: int = 0,
    *,
    says: int | None = None,
) -> bytes:
    """
    A record of which nothing but its lengths means anything.

    :param says: length of its body, whatever it is.
    """
    more = 12 * ((flag & BORN_V6 > 0) + (flag & STORE_V6 > 0))
    head = bytes(36) + pack(">i", flag) + bytes(HEAD_V4 - 44 + more)
    length = len(body) if says is None else says
    return (
        head
        + pack(">i", length)
        + body
        + pack(">B", len(topic))
        + topic
        + pack(">H", len(properties))
        + properties
    )


def shape_in(*records: bytes) -> Shape:
    sizes = np.array([len(one) for one in records])
    data = np.frombuffer(b"".join(records), np.uint8)
    return shape_of(data, np.cumsum(sizes) - sizes, sizes)


@pytest.mark.parametrize("flags", [(0, 0, 0), (0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6)])
def test_the_parts_of_a_record_follow_each_other(flags: tuple[int, ...]) -> None:
    parts = [
        (b"x" * (3 * at), b"T" * (1 + 2 * at), b"p" * (at * 300), flag)
        for at, flag in enumerate(flags)
    ]
    found = shape_in(*(raw(*part) for part in parts))
    at, places, ends = 0, [], []
    for body, topic, properties, flag in parts:
        begin = at + HEAD_V4 + 12 * ((flag & BORN_V6 > 0) + (flag & STORE_V6 > 0))
        end = begin + len(body)
        places.append((begin, end, end + 1, end + 1 + len(topic), end + 3 + len(topic)))
        at = end + 3 + len(topic) + len(properties)
        ends.append(at)
    columns = (found.body, found.body_end, found.topic, found.topic_end, found.properties)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == places
    assert found.end.tolist() == ends
    assert found.hosts.tolist() == [flag >> 4 for flag in flags]
    assert found.fits.all()


@pytest.mark.parametrize("flag", [0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
@pytest.mark.parametrize(
    ("topic", "properties", "fits"),
    [
        (b"", b"", True),
        (b"T" * 127, b"", True),
        (b"T" * 128, b"", False),
        (b"", b"p" * 32767, True),
        (b"", b"p" * 32768, False),
    ],
)
def test_the_smallest_and_the_largest_parts_fit(
    flag: int, topic: bytes, properties: bytes, fits: bool
) -> None:
    assert shape_in(raw(b"", topic, properties, flag)).fits.tolist() == [fits]


BOTH = BORN_V6 | STORE_V6
WHOLE = raw(b"body", b"T", b"a\x01b")


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(raw(b"body", b"T", says=-1), id="a body of less than nothing"),
        pytest.param(raw(b"body", b"T", says=1 << 30), id="a body behind all bytes"),
        pytest.param(raw(says=3), id="a body up to the record's end"),
        pytest.param(raw(says=2), id="a topic's length as the last byte"),
        pytest.param(raw(b"body") + b"x", id="a byte too many"),
        pytest.param(raw(b"body", b"", b"abc")[:-1], id="a byte too few"),
        pytest.param(raw(b"body", b"\x64" * 5, says=4 + 1), id="a topic behind all bytes"),
        pytest.param(raw(flag=BOTH)[:91], id="no room for its hosts"),
        pytest.param(raw(flag=BOTH)[:110], id="no room for its body's length"),
        pytest.param(raw(flag=BORN_V6)[:-1], id="no room for its lengths"),
    ],
)
@pytest.mark.parametrize("before", [[], [WHOLE]])
def test_parts_that_do_not_add_up_are_no_record_and_lie_inside_all_the_same(
    bad: bytes, before: list[bytes]
) -> None:
    """The record is the last of the bytes: a look behind it would fail."""
    found = shape_in(*before, bad)
    assert found.fits.tolist() == [True] * len(before) + [False]
    start = len(b"".join(before))
    for place in (found.properties[-1] - 2, found.properties[-1] - 1):
        assert start <= place < start + len(bad)


def test_some_of_the_records_have_their_own_shape() -> None:
    found = shape_in(WHOLE, raw(b"other"), WHOLE)
    mine = found.select(np.array([False, True, True]))
    assert mine.body.tolist() == found.body[1:].tolist()
    assert len(mine.heads) == len(mine.fits) == 2


@pytest.mark.parametrize("width", [4, 1 << 16, 70_000])
def test_the_bytes_of_a_piece_are_told_from_those_behind_it(width: int) -> None:
    """However long it is: 16 bits count the short ones."""
    found = inside_window(np.array([0, 2, width]), width)
    assert found.sum(axis=1).tolist() == [0, 2, width]
    assert found[1, :4].tolist() == [True, True, False, False]


def test_windows_of_nothing_have_their_width_all_the_same() -> None:
    assert windows(np.zeros(3, np.uint8), np.zeros(0, np.int64), 5).shape == (0, 5)


def test_numbers_are_read_where_they_are() -> None:
    data = np.frombuffer(pack(">xiqxi", -2, 1 << 40, 7), np.uint8)
    assert fields(data, np.array([1, 14]), ">i4").tolist() == [-2, 7]
    assert head_field(data[None, :], 5, ">i8").tolist() == [1 << 40]
    assert head_field(data[None, :], 5, ">i8").dtype == np.dtype("i8")
