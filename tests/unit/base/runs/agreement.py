"""
What both makers of runs have to agree on, function by function.

Each function raises AssertionError where the native maker takes what the pure one leaves out, or
gives something else. It returns how many messages the native maker took.
"""

from collections.abc import Sequence
from random import Random
from types import ModuleType
from typing import Any

from rmq_ha.base.model.message import Address
from rmq_ha.base.runs import pure
from rmq_ha.base.runs.face import Rows, Sends
from rmq_ha.base.runs.row_list import joined
from rmq_ha.base.store_format.index import ITEM_SIZE, index_file_size
from tests.unit.base.runs.odd_records import HOSTS

BORN, STORE = Address(b"\x0a\x01\x02\x03", 54321), HOSTS[0]
TEMPLATE = (b'{"q":"', b'","id":"7F%', b'","n":"', b'","o":', b',"v":407}')
ROOM = 1 << 20
SLOTS, ITEMS = 7, 4000


def agree_on_chunk(kernel: ModuleType, data: bytes, random: Random, at: int = 0) -> int:
    """Compare what both cut from a chunk, and all that they make of it."""
    most_header = random.choice((65_536, 65_536, 300))
    native, plain = kernel.cut(data, at, most_header), pure.cut(data, at, most_header)
    if native is None:
        return 0
    assert plain is not None, "the native maker cuts what the pure one leaves out"
    count = len(native)
    assert 0 < count <= len(plain)
    same_sends(native, plain if count == len(plain) else plain.part(0, count), random)
    first = random.randrange(count)
    end = random.randint(first + 1, count)
    same_sends(native.part(first, end), plain.part(first, end), random, is_part=True)
    return count


def same_sends(native: Sends, plain: Sends, random: Random, is_part: bool = False) -> None:
    assert len(native) == len(plain)
    assert native.size == plain.size
    if not is_part:
        assert native.end - plain.end <= 0
    assert list(native.topics) == list(plain.topics)
    assert list(native.opaques()) == list(plain.opaques())
    assert native.uniq_keys() == plain.uniq_keys()
    assert native.frames() == plain.frames()
    for tail in ("\x02CLUSTER\x01c", "", "\x02é\x01\U0001f600"):
        assert native.drafts(BORN, STORE, tail) == plain.drafts(BORN, STORE, tail)
    for _ in range(3):
        queues = [random.choice((0, 1, 4, 8, 9, 1 << 31)) for _ in native.topics]
        assert native.fit(queues) == plain.fit(queues)
    assert native.fit([8] * len(native.topics)) == plain.fit([8] * len(native.topics))
    frames = plain.frames()
    bodies = max(len(body) for _, _, body in frames)
    for most in ((ROOM, 1 << 22, 1 << 22), (ROOM, bodies, 1 << 22), (ROOM, bodies - 1, 1 << 22)):
        same_layout(native, plain, most, random)
    laid_out = same_layout(native, plain, (ROOM, 1 << 22, 1 << 22), random)
    if laid_out is None:
        return
    data, rows = laid_out
    largest = max(row[3] for row in rows)
    for most in (
        (len(data), bodies, largest), (len(data), bodies, largest - 1),
        (len(data) - 1, bodies, largest),
    ):  # fmt: skip
        same_layout(native, plain, most, random)
    same_layout(native, plain, (ROOM, 1 << 22, 1 << 22), random, gap=48)
    long = "\x02a\x01" + "x" * random.choice((25_000, 32_700, 32_764))
    same_layout(native, plain, (1 << 24, 1 << 22, 1 << 22), random, tail=long)
    assert native.lay_out(0, ROOM, ROOM, ROOM, 1, {}, HOSTS[1], STORE, "", 0) is None


def same_layout(
    native: Sends,
    plain: Sends,
    most: tuple[int, int, int],
    random: Random,
    gap: int = 0,
    tail: str = "\x02CLUSTER\x01DefaultCluster",
) -> tuple[bytes, Rows] | None:
    """:param most: bytes until the end of the room, of a body, of a record."""
    room, body, record = most
    position, stamp = random.randrange(1 << 50), random.randrange(1 << 45)
    before = {
        draft[:2]: random.randrange(1 << 40)
        for draft in plain.drafts(BORN, STORE, tail)
        if random.random() < 0.7
    }
    numbers: list[dict[Any, int]] = [dict(before), dict(before)]
    found = [
        sends.lay_out(position, position + room, body, record, stamp, after, BORN, STORE, tail, gap)
        for sends, after in zip((native, plain), numbers, strict=True)
    ]
    if found[0] is None:
        assert found[1] is None, "only the native maker says that it does not fit"
        assert numbers[0] == before, "nothing fits, and numbers are taken"
        return None
    assert found[1] is not None, "only the native maker says that it fits"
    assert numbers[0] == numbers[1]
    assert found[0][0] == found[1][0]
    same_rows(found[0][1], found[1][1], random)
    return found[1]


def agree_on_stretch(
    kernel: ModuleType, data: bytes, position: int, random: Random, gap: int = 0
) -> int:
    """Compare what both read from a stretch of a log, and all that they make of it."""
    count = random.choice((1, 5, 256, 1 << 40))
    work, check_crc = random.choice((1, 50, 1 << 62)), random.random() < 0.5
    how = (data, gap, position + gap, count, work, check_crc, gap)
    native, plain = kernel.walk(*how), pure.walk(*how)
    if native is None:
        return 0
    assert plain is not None, "the native maker reads what the pure one leaves out"
    assert len(native) <= len(plain)
    same_rows(native, plain if len(native) == len(plain) else plain.part(0, len(native)), random)
    middle = random.randint(0, len(native))
    parts = [
        native.part(first, end)
        for first, end in ((0, middle), (middle, len(native)))
        if first < end
    ]
    same_rows(kernel.concat(parts), joined(parts), random)
    assert kernel.concat([*parts, plain]) is None
    return len(native)


def same_rows(native: Rows, plain: Rows, random: Random) -> None:
    assert list(native) == list(plain)
    size = len(plain)
    assert len(native) == size
    assert [native[index] for index in range(-size, size)] == 2 * list(plain)
    for name in ("start", "end", "size", "work"):
        assert getattr(native, name) == getattr(plain, name), name
    for name in ("topics", "names"):
        listed = list(getattr(native, name))
        assert sorted(listed) == sorted(getattr(plain, name)), name
    assert native.units() == plain.units()
    assert native.counts() == plain.counts()
    opaques = [random.choice((None, 0, -1, 7, 2147483647)) for _ in range(size)]
    assert native.answers(opaques, TEMPLATE) == plain.answers(opaques, TEMPLATE)
    same_index(native, plain, random)
    first = random.randrange(size)
    end = random.randint(first + 1, size)
    assert list(native.part(first, end)) == list(plain.part(first, end))


def same_index(native: Rows, plain: Rows, random: Random) -> None:
    """Insert the keys twice, so that chains and used slots are there, and not everything is new."""
    slots = random.choice((1, SLOTS))
    files = [bytearray(index_file_size(slots, ITEMS)) for _ in range(2)]
    for file in files:  # a slot that leads nowhere, as a crash leaves it
        file[40:44] = (1 << 20).to_bytes(4, "big")
    header: Any = (0, 0, 0, 0, 0, 1)
    reaches: Sequence[int] = (plain.start, plain[random.randrange(len(plain))][2], 0, plain.end)
    for reached in reaches:
        # As the caller does, who tells by the header whether all keys are in the file.
        room = random.choice((ITEMS - header[5], ITEMS - header[5], 1, 0))
        found = [
            rows.index_put(file, slots, room, header, reached)
            for rows, file in zip((native, plain), files, strict=True)
        ]
        assert found[0] == found[1]
        assert files[0] == files[1]
        header = found[0] or header
    assert header[5] <= ITEMS
    short = bytearray(files[0][: 40 + 4 * slots + ITEM_SIZE * header[5]])
    before = bytes(short)
    assert native.index_put(short, slots, ITEMS, header, 0) in (None, header)
    assert short == before, "a key is written although the file ends before it"
