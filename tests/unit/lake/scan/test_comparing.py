"""Two logs byte by byte: how much is told, what is passed over, and when they are out of step."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.store_format.commitlog import encode_blank
from rmq_ha.lake.scan.replica.aligning import identity_of
from rmq_ha.lake.scan.replica.comparing import (
    MORE,
    MOST,
    Comparison,
    LogPart,
    ReportedDifference,
    Sides,
    align_part,
    compare,
    is_shifted,
)
from rmq_ha.lake.scan.replica.logs import ByteOwner, Extent, Log
from rmq_ha.ops.offline.log_files import LogFile
from tests.unit.lake.scan.parts_kit import log_of

Given = dict[str, Any]
SIZE = len(log_of({"body": b"00000"}))


def log_at(folder: Path, *files: bytes, stop: int | None = None) -> Log:
    """Files of these bytes, one behind the other."""
    folder.mkdir(parents=True, exist_ok=True)
    row, base = list[LogFile](), 0
    for data in files:
        path = folder / f"{base:020}"
        path.write_bytes(data)
        row.append(LogFile(str(path), base, len(data)))
        base += len(data)
    return Log(LocalFiles(), row, base if stop is None else stop)


def sides(
    folder: Path, master: Sequence[bytes], slave: Sequence[bytes], window: int = 4096
) -> Sides:
    return Sides(
        log_at(folder / "m", *master), log_at(folder / "s", *slave), "master", "slave", window
    )


def compared(
    folder: Path, master: Sequence[Given], slave: Sequence[Given], window: int = 4096
) -> Comparison:
    both = sides(folder, [log_of(*master)], [log_of(*slave)], window)
    return compare(both, 0, both.master.stop)


def records(count: int, **more: Any) -> list[Given]:
    """Each with a body of its own: alike they would be taken for one that stands elsewhere."""
    return [{"queue_offset": at, "body": b"%05d" % at, **more} for at in range(count)]


@pytest.mark.parametrize("window", [SIZE - 1, SIZE, 4096, 1 << 20])
def test_each_record_that_differs_is_told_once(tmp_path: Path, window: int) -> None:
    """However much of the log is read at once; with the record's name."""
    master = records(6)
    slave = [one | {"flag": 7} if at in (0, 3, 5) else one for at, one in enumerate(master)]
    found = compared(tmp_path, master, slave, window)
    assert found[1:] == (-1, 0, 6 * SIZE)
    assert [one.physical_offset for one in found.findings] == [0, 3 * SIZE, 5 * SIZE]
    one = found.findings[1]
    assert (one.code, one.broker, one.topic, one.queue_id, one.queue_offset) == (
        "LOG_DIFFERS",
        "slave",
        "T",
        0,
        3,
    )
    assert (one.expected, one.actual) == ("flag 0", "flag 7")
    assert one.detail.startswith("flag differs. ")
    assert one.msg_id is not None


def test_only_the_stretch_that_was_asked_for_is_compared(tmp_path: Path) -> None:
    both = sides(tmp_path, [log_of(*records(6))], [log_of(*records(6, flag=1))])
    found = compare(both, 2 * SIZE, 4 * SIZE)
    assert [one.physical_offset for one in found.findings] == [2 * SIZE, 3 * SIZE]
    assert found.end == 4 * SIZE


def test_after_a_lost_message_of_a_queue_three_of_its_others_are_told(tmp_path: Path) -> None:
    """All behind it have other queue offsets; what else is wrong with them is told all the same."""
    master = [
        one | {"queue_id": at % 2, "queue_offset": at // 2} for at, one in enumerate(records(12))
    ]
    slave = [one | {"queue_offset": one["queue_offset"] + 1} for one in master]
    slave[11] |= {"flag": 3}
    found = compared(tmp_path, master, slave)
    assert [one.physical_offset for one in found.findings] == [
        *(at * SIZE for at in range(6)),
        11 * SIZE,
    ]
    assert [one.queue_id for one in found.findings] == [0, 1] * 3 + [1]
    assert found.findings[-1].detail.startswith("flag differs, and also queueOffset. ")
    assert found.end == 12 * SIZE


def test_of_many_differences_the_first_ones_are_told_and_how_far_it_looked(tmp_path: Path) -> None:
    count = MOST + 3
    master = records(2 * count)
    slave = [one | {"flag": at % 2} for at, one in enumerate(master)]
    found = compared(tmp_path, master, slave)
    assert len(found.findings) == MOST + 1
    last = found.findings[-1].physical_offset or 0
    assert last + SIZE <= found.end <= last + 2 * SIZE


def test_a_stretch_of_which_all_was_renumbered_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind so many differences nobody looks, told or not."""
    monkeypatch.setattr("rmq_ha.lake.scan.replica.comparing._MOST_SEEN", 5)
    for count in (5, 6):
        master = records(10)
        slave = [one | {"queue_offset": at + (at < count)} for at, one in enumerate(master)]
        found = compared(tmp_path / str(count), master, slave)
        assert len(found.findings) == 3
        assert found[1:] == (-1, 0, 10 * SIZE if count == 5 else 5 * SIZE)


@pytest.mark.parametrize(("changed", "shift"), [(range(3, 66), -1), (range(3, 67), 3)])
def test_sixty_four_records_in_a_row_that_are_others_are_no_damage(
    tmp_path: Path, changed: Sequence[int], shift: int
) -> None:
    """They are lost, and the ones behind them stand in their place: told from their content."""
    master = records(70)
    slave = [one | {"flag": int(at in changed)} for at, one in enumerate(master)]
    found = compared(tmp_path, master, slave)
    assert found.shift == (shift * SIZE if shift > 0 else -1)
    assert len(found.findings) == (0 if shift > 0 else len(changed))


def test_bytes_behind_a_blank_mean_nothing_and_are_counted(tmp_path: Path) -> None:
    first = log_of(*records(2)) + encode_blank(60)
    rest = 60 - len(encode_blank(60))
    second = log_of({"queue_offset": 2}, base=len(first) + rest)
    master = [first + bytes(rest), second]
    slave = [first + b"x" * rest, second[:-1] + b"\x01"]
    both = sides(tmp_path, master, slave)
    found = compare(both, 0, both.master.stop)
    assert found.blank == 60
    assert [one.physical_offset for one in found.findings] == [len(first) + rest]
    # The blank itself has a meaning.
    for at in (2 * SIZE, 2 * SIZE + 7):
        harmed = bytearray(master[0])
        harmed[at] ^= 1
        found = compare(sides(tmp_path / str(at), master, [bytes(harmed), second]), 0, len(first))
        assert [one.code for one in found.findings] == ["LOG_DIFFERS"], at
        assert found.blank == 0


def test_who_is_damaged_is_blamed(tmp_path: Path) -> None:
    good = log_of(*records(3))
    for name, harmed in (
        ("body", good[:-7] + b"y" + good[-6:]),
        ("all", good[:SIZE] + bytes(2 * SIZE)),
    ):
        for broker, one, other in (("slave", good, harmed), ("master", harmed, good)):
            found = compare(sides(tmp_path / name / broker, [one], [other]), 0, 3 * SIZE)
            assert {each.broker for each in found.findings} == {broker}, name
            assert found.shift == -1


# Out of step


A, B, C, D, E, X = ({"body": bytes([65 + at]) * (3 + 2 * at)} for at in range(6))
Y = {"body": b"y" * 40}


@pytest.mark.parametrize(
    ("master", "slave", "is_it"),
    [
        ([A, B, C, D], [A, B, C, D], False),
        ([A, B, C, D], [B, C, D, E], True),  # it lacks one
        ([A, B, C, D], [X, A, B, C], True),  # it has one more
        ([A, B, C, D], [Y, D, E], True),  # nothing ends where it should
        ([A, B, C, D], [{"body": b"zzz"}, B, C, D], False),  # changed in its place
        # One is gone, and as much has come in its place: behind it both go on alike.
        ([A, B, C], [{"body": b"x" * 8}, C], True),
    ],
)
def test_logs_are_out_of_step_where_the_next_records_stand_elsewhere(
    tmp_path: Path, master: list[Given], slave: list[Given], is_it: bool
) -> None:
    both = sides(tmp_path, [log_of(*master)], [log_of(*slave)])
    place = Extent(ByteOwner.RECORD, 0, len(log_of(master[0])))
    assert is_shifted(both, place) is is_it
    assert not is_shifted(both, place._replace(what=ByteOwner.OTHER))


def test_an_empty_side_is_not_out_of_step(tmp_path: Path) -> None:
    both = sides(tmp_path, [log_of(A, B)], [log_of(A, B)])
    end = both.master.stop
    ended = both._replace(slave=Log(both.slave.files, both.slave.row, len(log_of(A))))
    assert not is_shifted(ended, Extent(ByteOwner.RECORD, len(log_of(A)), end - len(log_of(A))))


# Places


def test_what_a_byte_belongs_to(tmp_path: Path) -> None:
    first = log_of(A, B)
    a = len(log_of(A))
    torn = first + b"\x00\x00\x00\x01garbage!" + log_of(C, base=len(first) + 12)
    log = log_at(tmp_path / "torn", torn)
    end = len(first) + 12
    for at in (0, a - 1):
        assert log.place_of(at) == Extent(ByteOwner.RECORD, 0, a)
    for at in (a, len(first) - 1):
        assert log.place_of(at) == Extent(ByteOwner.RECORD, a, len(first) - a)
    for at in (len(first), end - 1):
        assert log.place_of(at) == Extent(ByteOwner.GAP, len(first), 12)
    assert log.place_of(end) == Extent(ByteOwner.RECORD, end, len(torn) - end)
    closed = first + encode_blank(40) + bytes(40 - len(encode_blank(40)))
    log = log_at(tmp_path / "closed", closed, log_of(C, base=len(closed)))
    for at in (len(first), len(closed) - 1):
        assert log.place_of(at) == Extent(ByteOwner.BLANK, len(first), 40)
    assert log.place_of(len(closed)).start == len(closed)
    open_ = log_at(tmp_path / "open", first + bytes(30), stop=len(first) + 20)
    assert open_.place_of(len(first) + 4) == Extent(ByteOwner.OTHER, len(first), 5)


def test_a_log_is_read_up_to_its_bound_and_no_file_s_end(tmp_path: Path) -> None:
    one, other = log_of(A), log_of(B, base=len(log_of(A)))
    log = log_at(tmp_path, one, other, stop=len(one) + 10)
    assert bytes(log.read(0, 1 << 20)) == one
    assert bytes(log.read(len(one), 1 << 20)) == other[:10]
    assert bytes(log.read(len(one) + 4, 3)) == other[4:7]
    assert (log.end_at(0), log.end_at(len(one))) == (len(one), len(one) + 10)
    for at in (-1, len(one) + len(other)):
        with pytest.raises(CannotDecide, match=f"no file holds the offset {at}"):
            log.file_at(at)
    (tmp_path / f"{0:020}").write_bytes(one[:-1])
    cut = Log(LocalFiles(), log.row, log.stop)
    with pytest.raises(CannotDecide, match="became shorter while it was read"):
        cut.read(0, len(one))
    (tmp_path / f"{0:020}").unlink()
    with pytest.raises(CannotDecide, match="vanished while it was read"):
        Log(LocalFiles(), log.row, log.stop).read(0, 8)


def test_the_newest_time_is_that_of_any_record_near_the_end(tmp_path: Path) -> None:
    """A clock can be set back; without records there is none."""
    times = [500, 900, 700]
    log = log_at(tmp_path, log_of(*({"store_timestamp": at} for at in times)))
    assert log.newest_time() == 900
    assert log_at(tmp_path / "none", bytes(100), stop=0).newest_time() == 0


@pytest.mark.parametrize("window", [SIZE, 4096])
def test_a_record_whose_very_first_byte_differs_is_told(tmp_path: Path, window: int) -> None:
    """Also where a window begins with it."""
    data = log_of(*records(3))
    harmed = data[:SIZE] + b"\x01" + data[SIZE + 1 :]
    found = compare(sides(tmp_path, [data], [harmed], window), 0, 3 * SIZE)
    assert [one.physical_offset for one in found.findings] == [SIZE]
    assert (found.shift, found.end) == (-1, 3 * SIZE)


# Parts of logs that are out of step


def split(rows: Sequence[Given]) -> list[bytes]:
    """Two files: the first ten records, and the others."""
    first = log_of(*rows[:10])
    return [first, log_of(*rows[10:], base=len(first))]


def laid(
    folder: Path,
    master: Sequence[Given],
    slave: Sequence[Given],
    *,
    begin: tuple[int, int] = (0, 0),
    end: tuple[int, int] | None = None,
    shift: int = -1,
    is_last: bool = True,
    most: int = 100,
) -> list[ReportedDifference]:
    """All numbers are of records: all have one size."""
    both = sides(folder, split(master), split(slave))
    one, other = end or (len(master), len(slave))
    part = LogPart(
        (begin[0] * SIZE, one * SIZE), (begin[1] * SIZE, other * SIZE), shift * SIZE, is_last
    )
    return align_part(both, part, most)


def words(told: Sequence[ReportedDifference]) -> list[tuple[str, int | None]]:
    """Code, and which record of the log is meant, the slave's for what the master lacks."""
    return [
        (one.code, None if one.physical_offset is None else one.physical_offset // SIZE)
        for one, _ in told
    ]


ROWS = records(40)
STRANGE = {"body": b"extra"}
IDENTITIES = [identity_of(log_of(one)) for one in (*ROWS, STRANGE)]
LOST_20, DIFFERS_2 = ("RECORD_LOST", 20), ("LOG_DIFFERS", 2)


@pytest.mark.parametrize("shift", [0, 15, 20])
def test_a_record_that_is_lost_is_named_once_from_wherever_one_begins(
    tmp_path: Path, shift: int
) -> None:
    told = laid(tmp_path, ROWS, [*ROWS[:20], *ROWS[21:]], shift=shift)
    assert words(told) == [LOST_20]
    (one, identity) = told[0]
    assert identity == IDENTITIES[20]
    assert (one.broker, one.expected, one.actual) == (
        "slave", f"at offset {20 * SIZE}", "nowhere near",
    )  # fmt: skip
    assert (one.topic, one.queue_id, one.queue_offset) == ("T", 0, 20)


def test_a_log_may_be_out_of_step_from_its_first_record_on(tmp_path: Path) -> None:
    """Nobody has said so: it is found when both are compared."""
    assert words(laid(tmp_path, ROWS, ROWS[1:])) == [("RECORD_LOST", 0)]


def test_a_changed_record_that_stands_elsewhere_is_told_by_its_content(tmp_path: Path) -> None:
    """It says another place, and rightly so."""
    slave = [one | {"flag": int(at == 30)} for at, one in enumerate(ROWS) if at != 20]
    told = laid(tmp_path, ROWS, slave, shift=15)
    assert words(told) == [LOST_20, ("LOG_DIFFERS", 30)]
    assert told[1].finding.detail.startswith("flag differs. ")


def test_what_the_slave_alone_has_is_named_by_its_place_there(tmp_path: Path) -> None:
    slave = [*ROWS[:20], STRANGE, *ROWS[20:30], ROWS[25], *ROWS[30:]]
    told = laid(tmp_path, ROWS, slave, shift=15)
    assert words(told) == [("RECORD_EXTRA", 20), ("RECORD_DUPLICATED", 25)]
    assert [identity for _, identity in told] == [IDENTITIES[-1], IDENTITIES[25]]
    assert [(one.expected, one.actual) for one, _ in told] == [
        ("no such message", f"at offset {20 * SIZE}"),
        (f"at offset {25 * SIZE}", f"at offset {31 * SIZE}"),
    ]


def test_a_record_from_before_the_part_is_known_again(tmp_path: Path) -> None:
    """The part begins at other places of both logs, so that nothing is compared byte by byte."""
    slave = [STRANGE, *ROWS[:20], ROWS[12], *ROWS[20:]]
    told = laid(tmp_path, ROWS, slave, begin=(15, 16))
    assert words(told) == [("RECORD_DUPLICATED", 12)]
    assert words(laid(tmp_path / "more", ROWS, ROWS[1:], begin=(15, 14))) == []


def test_a_part_in_step_is_compared_byte_by_byte_up_to_a_shift_and_behind_it(
    tmp_path: Path,
) -> None:
    swapped = [*ROWS[:11], ROWS[12], ROWS[11], *ROWS[13:33], ROWS[34], ROWS[33], *ROWS[35:]]
    slave = [one | {"flag": 7} if at in (2, 29) else one for at, one in enumerate(swapped)]
    told = laid(tmp_path, ROWS, slave)
    moved = [("RECORD_MOVED", at) for at in (11, 12, 33, 34)]
    # The last one in step is told of by its bytes, and again by its content: what is twice in
    # all that tasks say is told once.
    again = [("LOG_DIFFERS", 29)] * 2
    assert words(told) == [DIFFERS_2, *moved[:2], *again, *moved[2:]]
    assert all(identity == b"" for _, identity in told)


@pytest.mark.parametrize(
    ("most", "found"),
    [
        (0, [DIFFERS_2, (MORE, 20)]),
        (1, [DIFFERS_2, (MORE, 20)]),
        (2, [DIFFERS_2, LOST_20, (MORE, 25)]),
        (3, [DIFFERS_2, LOST_20, ("RECORD_LOST", 25), (MORE, 30)]),
        (5, [DIFFERS_2, LOST_20, *[("RECORD_LOST", at) for at in (25, 30, 31)]]),
    ],
)
def test_a_part_says_no_more_than_it_may_and_that_there_is_more(
    tmp_path: Path, most: int, found: list[tuple[str, int]]
) -> None:
    slave = [
        one | {"flag": int(at == 2)} for at, one in enumerate(ROWS) if at not in (20, 25, 30, 31)
    ]
    told = laid(tmp_path, ROWS, slave, most=most)
    assert words(told) == found
    assert {one.broker for one, _ in told} == {"slave"}


def test_of_a_step_with_several_changes_as_many_are_said_as_there_is_room_for(
    tmp_path: Path,
) -> None:
    told = laid(tmp_path, ROWS, [*ROWS[:20], *ROWS[23:]], shift=15, most=2)
    assert words(told)[:2] == [LOST_20, ("RECORD_LOST", 21)]
    assert [code for code, _ in words(told)[2:]] == [MORE]


def test_at_the_end_of_the_logs_the_longer_one_has_lost_nothing(tmp_path: Path) -> None:
    """In the middle what only one of the parts has is lost, or too many."""
    assert laid(tmp_path / "a", ROWS, ROWS[:36]) == []
    assert words(laid(tmp_path / "b", ROWS, ROWS[:36], is_last=False)) == [
        ("RECORD_LOST", at) for at in range(36, 40)
    ]
    assert words(laid(tmp_path / "c", ROWS[:36], ROWS, is_last=False)) == [
        ("RECORD_EXTRA", at) for at in range(36, 40)
    ]
    assert laid(tmp_path / "d", ROWS, ROWS, end=(30, 30), is_last=False) == []


def test_bytes_that_are_no_record_are_told_of_by_the_log_itself(tmp_path: Path) -> None:
    junk = b"\x00\x00\x00\x01" + b"!" * (SIZE - 4)
    first = log_of(*ROWS[:20])
    slave = first + junk + log_of(*ROWS[20:], base=len(first) + SIZE)
    both = sides(tmp_path, [log_of(*ROWS)], [slave])
    part = LogPart((0, 40 * SIZE), (0, 41 * SIZE), 15 * SIZE, True)
    assert align_part(both, part, 10) == []
