"""Where logs part, over records made by hand: what is counted, and what is taken for damage."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.message import Address
from rmq_ha.lake.scan.replica import parting as module
from rmq_ha.lake.scan.replica.comparing import Sides
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.lake.scan.replica.parting import Parting, parting, parting_finding
from tests.unit.lake.scan.parts_kit import HOST, log_of
from tests.unit.lake.scan.test_comparing import sides

Given = dict[str, Any]
OTHER, THIRD = Address.parse("10.0.0.2", 10911), Address.parse("10.0.0.3", 10911)
SIZE = len(log_of({"body": b"00000"}))
COMMON = 4
"""Records that both have before they part."""


def rows(name: bytes, count: int, host: Address, begin: int = 1000) -> list[Given]:
    return [
        {"body": b"%b%04d" % (name, at), "store_host": host, "store_timestamp": begin + at}
        for at in range(count)
    ]


BOTH = rows(b"a", COMMON, HOST)
MINE, THEIRS = rows(b"m", 5, HOST, 2000), rows(b"s", 5, OTHER, 3000)


def files_of(given: Sequence[Given], per_file: int = 100) -> list[bytes]:
    parts = [given[at : at + per_file] for at in range(0, len(given), per_file)]
    return [log_of(*part, base=at * per_file * SIZE) for at, part in enumerate(parts)]


def parted(both: Sides, low: int = 0) -> Parting | None:
    return parting(both, low, min(both.master.stop, both.slave.stop))


@pytest.mark.parametrize("per_file", [100, 4, 2])
def test_what_is_told_is_of_the_first_records_behind_the_parting(
    tmp_path: Path, per_file: int
) -> None:
    """Others behind them may be of a third master; files have nothing to do with it."""
    mine = [*MINE[:3], *({**row, "store_host": THIRD} for row in MINE[3:])]
    theirs = [*THEIRS[:3], *({**row, "store_host": THIRD} for row in THEIRS[3:])]
    both = sides(tmp_path, files_of([*BOTH, *mine], per_file), files_of([*BOTH, *theirs], per_file))
    hosts = str(HOST), str(OTHER)
    assert parted(both) == Parting(COMMON * SIZE, 2000, (5, 5), hosts, False)
    assert parted(both, COMMON * SIZE) == Parting(COMMON * SIZE, 2000, (5, 5), hosts, True)


def test_messages_are_counted_up_to_where_both_end(tmp_path: Path) -> None:
    """A record that reaches over that place is none of them, in whichever file it is."""
    long = {**THEIRS[2], "body": b"x" * (5 + SIZE // 2)}
    for per_file in (100, COMMON + 1):
        both = sides(
            tmp_path / str(per_file),
            files_of([*BOTH, *MINE], per_file),
            [log_of(*BOTH, *THEIRS[:2], long)],
        )
        told = parted(both)
        assert told is not None
        assert told.messages == (3, 3)
        turned = parted(Sides(both.slave, both.master, "s", "m", both.window))
        assert turned is not None
        assert (turned.messages, turned.stored) == ((3, 3), 3000)


def test_of_a_long_tail_only_the_beginning_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 3 * SIZE)
    both = sides(tmp_path, files_of([*BOTH, *MINE]), files_of([*BOTH, *THEIRS]))
    told = parted(both)
    assert told is not None
    assert (told.offset, told.messages) == (COMMON * SIZE, (3, 3))


def harmed(given: Sequence[Given], at: int, *, is_body: bool) -> bytes:
    """A body is another one than its CRC says, or the magic code is none."""
    data = bytearray(log_of(*given))
    data[at * SIZE + (88 if is_body else 4)] ^= 0x40
    return bytes(data)


@pytest.mark.parametrize("is_body", [False, True])
@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("side", [0, 1])
def test_a_tail_with_damage_on_either_side_is_left_to_who_looks_at_records(
    tmp_path: Path, side: int, at: int, is_body: bool
) -> None:
    tails = [[*BOTH, *MINE], [*BOTH, *THEIRS]]
    logs = [log_of(*tail) for tail in tails]
    assert parted(sides(tmp_path / "sound", logs[:1], logs[1:])) is not None
    logs[side] = harmed(tails[side], COMMON + at, is_body=is_body)
    assert parted(sides(tmp_path / "harmed", logs[:1], logs[1:])) is None


@pytest.mark.parametrize("side", [0, 1])
def test_three_messages_on_each_side_are_a_parting_and_fewer_are_none(
    tmp_path: Path, side: int
) -> None:
    long = [{**row, "body": b"x" * (5 + SIZE)} for row in THEIRS]
    for count, is_one in ((2, False), (3, True)):
        tails = [log_of(*BOTH, *rows(b"m", 2 * count, HOST)), log_of(*BOTH, *long[:count])]
        if side:
            tails.reverse()
        told = parted(sides(tmp_path / str(count), tails[:1], tails[1:]))
        assert (told is not None) is is_one


@pytest.mark.parametrize(("same", "at"), [(0, 2), (4, 2), (4, 4)])
def test_a_record_that_both_tails_have_is_no_parting(tmp_path: Path, same: int, at: int) -> None:
    """In its place or in another one: then it is what lies between that was lost or moved."""
    theirs = [*THEIRS]
    theirs[at] = {**MINE[same], "queue_offset": at}
    both = sides(tmp_path, [log_of(*BOTH, *MINE)], [log_of(*BOTH, *theirs)])
    assert parted(both) is None


@pytest.mark.parametrize("equal", [0, 1, 7, 8, 9, 30, 60, 90, 123, 124, 127])
def test_the_parting_is_searched_for_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, equal: int
) -> None:
    """A log of terabytes is not read from its start: no look is longer than two windows."""
    count, window = 130, 4
    monkeypatch.setattr(module, "_WINDOW", window * SIZE)
    looks = list[tuple[int, int]]()
    last_equal = module._last_equal

    def look(both: Sides, low: int, high: int) -> int | None:
        looks.append((low, high))
        return last_equal(both, low, high)

    monkeypatch.setattr(module, "_last_equal", look)
    alike = rows(b"a", equal, HOST)
    data = [
        log_of(*alike, *rows(name, count - equal, host))
        for name, host in ((b"m", HOST), (b"s", OTHER))
    ]
    told = parted(sides(tmp_path, data[:1], data[1:]))
    assert told is not None
    assert (told.offset, told.messages) == (equal * SIZE, (count - equal, count - equal))
    assert told.is_all is (not equal)
    assert looks[0] == ((count - window) * SIZE, count * SIZE)
    sizes = [(high - low) / SIZE for low, high in looks[1:]]
    halves, last = sizes[:-1], sizes[-1:]
    assert set(halves) <= {window}
    assert len(halves) in (5, 0), "126 to 63, 31, 15, 7 and 3"
    assert all(window < size <= 2 * window for size in last)


def test_as_many_bytes_as_a_window_are_looked_at_without_halving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW", 4 * SIZE)
    looks = list[int]()
    seen = module._records_between

    def look(log: Log, low: int, high: int) -> Any:
        looks.append(high - low)
        return seen(log, low, high)

    monkeypatch.setattr(module, "_records_between", look)
    data = [log_of(*rows(name, 8, HOST)) for name in (b"m", b"s")]
    assert parted(sides(tmp_path, data[:1], data[1:])) is not None
    assert looks == [size * SIZE for size in (4, 4, 8, 8, 8, 8)]


@pytest.mark.parametrize(
    ("is_all", "hosts", "messages", "code", "words"),
    [
        (
            True,
            ("a", "b"),
            (5, 5),
            "NOT_ITS_SLAVE",
            "not its slave: stored by b, the master's by a",
        ),
        (False, ("a", "b"), (5, 5), "DIVERGED", "to the end, 5 messages on each side."),
        (True, ("a", "a"), (5, 5), "DIVERGED", "to the end, 5 messages on each side."),
        (False, ("a", "a"), (5, 6), "DIVERGED", "to the end, 5 and 6 messages."),
    ],
)
def test_only_a_log_that_another_broker_stored_from_its_start_on_is_no_slaves(
    is_all: bool, hosts: tuple[str, str], messages: tuple[int, int], code: str, words: str
) -> None:
    said = parting_finding(Parting(70, 1_700_000_000_000, messages, hosts, is_all), "s")
    assert (said.code, said.broker, said.physical_offset) == (code, "s", 70)
    assert words in said.detail
    assert said.expected == f"{messages[0]} messages stored by {hosts[0]}"
    assert said.actual == f"{messages[1]} stored by {hosts[1]}"


def test_a_time_that_no_calendar_has_is_no_reason_to_say_nothing() -> None:
    said = parting_finding(Parting(70, 1 << 61, (5, 5), ("a", "b"), False), "s")
    assert "9999-12-31 23:59:59" in said.detail
