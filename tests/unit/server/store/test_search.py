"""Whole records are found whatever lies between them. Spec: store.md, sections 2.1 and 5.6."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import MESSAGE_MAGIC, Record, encode_record
from rmq_ha.server.store.log import search
from rmq_ha.server.store.log.search import whole_records

BASE = 1 << 20
READ_SIZE = 128
PAGE = 64
MAGIC = MESSAGE_MAGIC.to_bytes(4, "big")
PLACE = Address.parse("127.0.0.1", 1)
NOISE = bytes(range(7, 251)) * 8


@pytest.fixture(autouse=True, scope="module")
def small_reads() -> Iterator[None]:
    """Then records and what lies between them end anywhere in what is read at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "READ_SIZE", READ_SIZE)
        yield


def record(physical_offset: int, body_size: int = 0) -> bytes:
    return encode_record(
        Record(
            0, 0, 0, 0, 5, physical_offset, 0, 1, PLACE, 1, PLACE, 0, 0, b"x" * body_size, "T", ""
        )
    )


def test_a_file_that_is_shorter_than_it_should_be() -> None:
    """The look ends where nothing can be read any more; what was good before is found."""
    data = record(0, 9) + b"?" * 50
    for end in (len(data), len(data) + 1, 1000):
        batches = whole_records(lambda size, position: data[position : position + size], 0, end, [])
        assert [row[2] for batch in batches for row in batch] == [0]


class Stretch:
    """Bytes from `BASE` on; counts what is read of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes_read = 0

    def read(self, size: int, position: int) -> bytes:
        assert size > 0, "a read of nothing"
        assert BASE <= position <= position + size <= BASE + len(self.data)
        self.bytes_read += size
        return self.data[position - BASE : position - BASE + size]

    def next_data(self, position: int) -> int:
        """As a file system tells holes: by the page."""
        at = position - BASE
        rest = self.data[at:]
        zeros = len(rest) - len(rest.lstrip(b"\0"))
        return BASE + max(at, (at + zeros) // PAGE * PAGE if zeros < len(rest) else len(self.data))

    def records(
        self, begin: int = 0, next_data: Callable[[int], int] | None = None, *, check: bool = True
    ) -> list[int]:
        """Where the records are that are found."""
        options = {"next_data": next_data} if next_data else {}
        found = whole_records(
            self.read, BASE + begin, BASE + len(self.data), [], check_crc=check, **options
        )
        return [row[2] - BASE for batch in found for row in batch]


@pytest.mark.parametrize("between", [NOISE, bytes(2000), MAGIC * 300], ids=["noise", "0", "magic"])
def test_a_record_is_found_behind_any_number_of_bytes(between: bytes) -> None:
    """Also where a read ends in its head; and the next one, behind the same again."""
    for gap in range(1, 2 * READ_SIZE + 50):
        first = record(BASE + gap)
        second = record(BASE + gap + len(first) + gap, 3 * READ_SIZE)
        data = between[:gap] + first + between[:gap] + second
        wanted = [gap, gap + len(first) + gap]
        assert Stretch(data).records() == wanted
        holes = Stretch(data)
        assert holes.records(next_data=holes.next_data) == wanted


def test_holes_are_not_read() -> None:
    """The rest of a file that was just begun is a gibibyte of zeros."""
    at = 100 * READ_SIZE + 3
    stretch = Stretch(record(BASE) + bytes(at - len(record(BASE))) + record(BASE + at) + bytes(at))
    assert stretch.records(next_data=stretch.next_data) == [0, at]
    assert stretch.bytes_read <= 8 * READ_SIZE


def test_a_long_stretch_is_read_about_once() -> None:
    """Neither good records nor noise cost more than their bytes."""
    good = b"".join(record(BASE + at) for at in range(0, 200 * len(record(0)), len(record(0))))
    for data in (good, NOISE * 5, NOISE[:1] + good):
        stretch = Stretch(data)
        stretch.records()
        assert stretch.bytes_read <= 3 * len(data)


KINDS = ("record", "record", "noise", "zeros", "magic", "elsewhere", "cut", "flipped", "torn body")


@st.composite
def stretches(draw: st.DrawFn) -> tuple[bytes, list[int], list[int]]:
    """Bytes, the records that are whole in them, and those whose body is damaged."""
    data, whole, torn = b"", [], []
    for kind in draw(st.lists(st.sampled_from(KINDS), max_size=12)):
        at = len(data)
        size = draw(st.integers(1, 2 * READ_SIZE))
        good = record(BASE + at, size)
        if kind == "record":
            whole.append(at)
            data += good
        elif kind == "noise":
            data += NOISE[:size]
        elif kind == "zeros":
            data += bytes(size)
        elif kind == "magic":
            data += bytes(size % 9) + MAGIC + NOISE[:size]
        elif kind == "elsewhere":
            data += record(BASE + at + draw(st.integers(-300, 300).filter(bool)), size)
        elif kind == "cut":
            # Not by what follows, which could happen to make it whole again.
            data += good[: draw(st.integers(1, len(good) - 1))].ljust(len(good), b"\xff")
        elif kind == "flipped":
            place = draw(st.sampled_from([0, 1, 2, 3, 4, 7, 28, 35, 84, 87]))
            data += good[:place] + bytes([good[place] ^ 0x81]) + good[place + 1 :]
        else:
            torn.append(at)
            data += good[:88] + b"y" + good[89:]
    return data, whole, torn


@settings(max_examples=100)
@given(stretches(), st.integers(0, 3 * READ_SIZE), st.booleans())
def test_every_whole_record_is_found(
    made: tuple[bytes, list[int], list[int]], begin: int, with_holes: bool
) -> None:
    """Once, in order, from wherever one looks; and nothing else is."""
    data, whole, torn = made
    begin = min(begin, len(data))
    stretch = Stretch(data)
    next_data = stretch.next_data if with_holes else None
    assert stretch.records(begin, next_data) == [at for at in whole if at >= begin]
    wanted = [at for at in sorted(whole + torn) if at >= begin]
    assert stretch.records(begin, next_data, check=False) == wanted
