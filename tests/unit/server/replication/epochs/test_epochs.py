"""Who wrote which part of the log. Spec: controller.md, sections 4.1 and 7.5."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from rmq_ha.base.errors import ConfigurationError, ProtocolViolation, StoreError
from rmq_ha.server.replication.epochs.epochs import (
    OPEN_END,
    Epoch,
    Epochs,
    decode_epochs,
    encode_epochs,
)
from rmq_ha.server.replication.epochs.history import EpochFile
from rmq_ha.server.replication.epochs.roles.identity import (
    Identity,
    IdentityFiles,
    decode_identity,
    encode_identity,
)
from rmq_ha.testing.disk import SimDisk

VECTORS = Path(__file__).parents[4] / "vectors" / "autoswitch"
FILES = json.loads((VECTORS / "files.json").read_text())
PATH = "/store/epochFileCheckpoint"
WHO = "/store/brokerIdentity"


def epochs(*entries: tuple[int, int]) -> Epochs:
    return Epochs(Epoch(*entry) for entry in entries)


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk(Random(1), lambda: 0)
    made.make_dirs("/store")
    return made


# ------------------------------------------------------------ what Java wrote


@pytest.mark.parametrize("case", FILES, ids=lambda case: f"{case['file']} {case['when']}")
def test_javas_files_are_read_and_written_again(case: dict[str, str]) -> None:
    data = bytes.fromhex(case["hex"])
    if case["file"] == "epochFileCheckpoint":
        assert encode_epochs(decode_epochs(data)) == data
    else:
        assert encode_identity(decode_identity(data)) == data


def test_what_stands_in_javas_file() -> None:
    data = b"5\n655688658\n1-0\n2-2268\n3-3395\n5-3632\n6-3860\n"
    assert decode_epochs(data) == epochs((1, 0), (2, 2268), (3, 3395), (5, 3632), (6, 3860))
    assert decode_identity(b"Peer5Cluster#broker-c#2") == Identity("Peer5Cluster", "broker-c", 2)


@pytest.mark.parametrize(
    "data",
    [
        b"1\n1725254278\n1-1\n",
        b"2\n1725254278\n1-0\n",
        b"1\n1725254279\n1-0\n",
        b"1\n17252542",
        b"1\n0\n-1-0\n",
        b"2\n0\n2-0\n1-5\n",
        b"2\n0\n1-5\n2-5\n",
        b"x\n0\n",
        b"1\n0\n1-99999999999999999999\n",
        b"1\n0\n1-9223372036854775808\n",
        b"1\n0\n1-00000000000000000001\n",
        b"\xff\xfe",
    ],
)
def test_a_damaged_epoch_file_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_epochs(data)


def test_a_checksum_of_zero_is_not_checked() -> None:
    assert decode_epochs(b"1\n0\n1-0\n") == epochs((1, 0))


def test_a_number_may_take_eight_bytes() -> None:
    assert decode_epochs(b"1\n0\n1-9223372036854775807\n") == epochs((1, OPEN_END))
    assert decode_identity(b"C#b#9223372036854775807") == Identity("C", "b", OPEN_END)


# ------------------------------------------------------------ the list


def test_hazard_3_an_empty_epoch_makes_room_for_the_next() -> None:
    """Java's list refuses 10 here, and works on under the number of another election."""
    led = epochs((1, 0), (5, 1120), (9, 2486)).appended(10, 2486)
    assert led == epochs((1, 0), (5, 1120), (10, 2486))


@pytest.mark.parametrize(
    "entries", [((0, -1),), ((-1, 0),), ((1, 5), (2, 5)), ((1, 5), (2, 4)), ((2, 5), (2, 6))]
)
def test_epochs_that_do_not_rise_from_nothing_are_none(
    entries: tuple[tuple[int, int], ...],
) -> None:
    with pytest.raises(ProtocolViolation, match="do not rise"):
        epochs(*entries)


def test_an_older_epoch_is_refused() -> None:
    for epoch in (4, 5):
        for start in (1120, 2000):
            with pytest.raises(ProtocolViolation):
                epochs((1, 0), (5, 1120)).appended(epoch, start)


def test_a_log_without_epochs_is_older_than_any() -> None:
    """The number goes to controllers, and Java's says the same."""
    assert (Epochs().last_epoch, Epochs().last_entry) == (-1, None)


def test_hazard_24_who_has_newer_epochs_does_not_lead_an_older_one() -> None:
    with pytest.raises(ProtocolViolation):
        epochs((1, 0), (5, 1120)).led(4, 2000)


def test_a_master_that_restarts_goes_on_in_its_epoch() -> None:
    """Else all that its slaves have of the epoch would have to go."""
    again = epochs((1, 0), (5, 1120)).led(5, 1500)
    assert again == epochs((1, 0), (5, 1120))
    assert again.consistent_point(2000, again, 1500) == 1500


def test_a_cut_log_keeps_the_epochs_of_what_is_left() -> None:
    known = epochs((1, 0), (5, 1120), (9, 2486))
    assert known.cut(2486) == epochs((1, 0), (5, 1120))
    assert known.cut(2487) == known
    assert known.cut(0) == Epochs()


def test_which_epoch_a_byte_is_of() -> None:
    known = epochs((2, 100), (5, 200))
    assert known.epoch_at(99) is None
    assert known.epoch_at(100) == (Epoch(2, 100), 200)
    assert known.epoch_at(199) == (Epoch(2, 100), 200)
    assert known.epoch_at(200) == (Epoch(5, 200), OPEN_END)


def test_what_was_before_controllers_is_proven_by_nothing() -> None:
    known = epochs((0, 0), (1, 500), (2, 501))
    assert [point for point in (0, 1, 500, 501, 502) if known.is_proven(point)] == [0, 501, 502]
    assert epochs((0, 100)).is_proven(100)


# ------------------------------------------------------------ where two logs part


def test_the_recorded_return_of_a_diverged_master() -> None:
    """Spec: controller.md, section 15.3."""
    assert epochs((1, 0)).consistent_point(0x6FD, epochs((1, 0), (5, 0x460)), 0x9B6) == 0x460


@pytest.mark.parametrize(
    ("ours", "end", "theirs", "their_end", "point"),
    [
        ([(1, 0)], 500, [(1, 0)], 800, 500),
        ([(1, 0)], 800, [(1, 0)], 500, 500),
        ([(1, 0), (2, 300)], 800, [(1, 0), (3, 400)], 900, 300),
        ([(1, 0), (2, 400)], 800, [(1, 0), (3, 300)], 900, 300),
        ([(1, 0), (2, 300)], 800, [(1, 0), (2, 400)], 900, 300),
        ([(2, 300)], 800, [(1, 0)], 900, None),
        ([], 800, [(1, 0)], 900, None),
        ([(1, 0)], 800, [], 0, None),
    ],
)
def test_the_consistent_point(
    ours: list[tuple[int, int]],
    end: int,
    theirs: list[tuple[int, int]],
    their_end: int,
    point: int | None,
) -> None:
    assert epochs(*ours).consistent_point(end, epochs(*theirs), their_end) == point


def test_the_consistent_point_never_lies_behind_what_is_equal() -> None:
    """Histories of three brokers from a seed: what is below the point is byte for byte the same."""
    for seed in range(300):
        random = Random(seed)
        logs = [bytearray(), bytearray(), bytearray()]
        lists = [Epochs(), Epochs(), Epochs()]
        for epoch in range(1, random.randrange(2, 12)):
            leader = random.randrange(3)
            lists[leader] = lists[leader].led(epoch, len(logs[leader]))
            logs[leader] += bytes([epoch]) * random.randrange(5)
            for slave in {0, 1, 2} - {leader}:
                if random.random() < 0.5:
                    continue
                point = lists[slave].consistent_point(
                    len(logs[slave]), lists[leader], len(logs[leader])
                )
                if point is None:
                    if lists[slave].entries:
                        continue  # hazard 14: both were first to lead, on empty disks
                    point = 0
                assert logs[slave][:point] == logs[leader][:point], seed
                wanted = random.randint(point, len(logs[leader]))
                logs[slave] = logs[leader][:wanted]
                lists[slave] = lists[leader].cut(wanted) if wanted else Epochs()


# ------------------------------------------------------------ files


def test_hazard_13_a_crash_leaves_the_old_epochs_or_the_new(disk: SimDisk) -> None:
    file = EpochFile(disk, PATH)  # type: ignore[arg-type]
    file.load()
    assert file.epochs == Epochs()
    file.write(epochs((1, 0)))
    file.write(epochs((1, 0), (2, 50)))
    after = EpochFile(disk.crash(), PATH)  # type: ignore[arg-type]
    after.load()
    assert after.epochs == epochs((1, 0), (2, 50))


def test_javas_torn_epoch_file_has_a_backup(disk: SimDisk) -> None:
    file = EpochFile(disk, PATH)  # type: ignore[arg-type]
    file.write(epochs((1, 0)))
    file.write(epochs((1, 0), (2, 50)))
    disk.replace(PATH, b"2\n14355")
    again = EpochFile(disk, PATH)  # type: ignore[arg-type]
    again.load()
    assert again.epochs == epochs((1, 0))
    again.write(epochs((1, 0), (3, 60)))
    assert decode_epochs(disk.read_bytes(PATH + ".bak")) == epochs((1, 0)), "damage is no backup"
    again.write(epochs((1, 0), (4, 70)))
    assert decode_epochs(disk.read_bytes(PATH + ".bak")) == epochs((1, 0), (3, 60))


def test_an_epoch_file_that_is_gone_has_a_backup(disk: SimDisk) -> None:
    """And each life keeps one of what it found."""
    for known in (epochs((1, 0)), epochs((1, 0), (2, 50))):
        file = EpochFile(disk, PATH)
        file.load()
        file.write(known)
    disk.remove(PATH)
    again = EpochFile(disk, PATH)
    again.load()
    assert (again.epochs, again.crashed_in) == (epochs((1, 0)), -1)


def test_hazard_13_damaged_epochs_are_not_no_epochs(disk: SimDisk) -> None:
    disk.replace(PATH, b"2\n14355")
    with pytest.raises(StoreError, match="damaged"):
        EpochFile(disk, PATH).load()  # type: ignore[arg-type]


def test_an_id_is_kept_over_a_crash_between_any_two_steps(disk: SimDisk) -> None:
    asked = Identity("C", "b", 2, "127.0.0.1:10911;1795333033992")
    files = IdentityFiles(disk, WHO)  # type: ignore[arg-type]
    files.load("C", "b")
    assert (files.identity, files.application) == (None, None)
    files.apply(asked)
    assert (files.identity, files.application) == (None, asked)
    disk = disk.crash()
    files = IdentityFiles(disk, WHO)  # type: ignore[arg-type]
    files.load("C", "b")
    assert (files.identity, files.application) == (None, asked)
    assert disk.read_bytes(WHO + "-temp") == b"C#b#2#127.0.0.1:10911;1795333033992"
    files.accept(asked._replace(check_code=None))
    assert (files.identity, files.application) == (Identity("C", "b", 2), None)
    disk = disk.crash()
    files = IdentityFiles(disk, WHO)  # type: ignore[arg-type]
    files.load("C", "b")
    assert (files.identity, files.application) == (Identity("C", "b", 2), None)
    assert disk.read_bytes(WHO) == b"C#b#2"


def test_an_application_that_was_given_up_or_granted_does_not_come_back(disk: SimDisk) -> None:
    """Nor does one that stood beside the id when a crash came."""
    asked = Identity("C", "b", 2, "h:1;1")
    files = IdentityFiles(disk, WHO)
    for end in (files.withdraw, lambda: files.accept(asked._replace(check_code=None))):
        files.apply(asked)
        end()
        assert files.application is None
        assert not disk.exists(WHO + "-temp")
    disk.replace(WHO + "-temp", encode_identity(asked))
    files.load("C", "b")
    assert (files.identity, files.application) == (Identity("C", "b", 2), None)


def test_a_file_in_which_nothing_is_was_never_written(disk: SimDisk) -> None:
    """A crash of Java's between making one and writing it."""
    disk.replace(PATH, b"")
    disk.replace(WHO, b"")
    file, files = EpochFile(disk, PATH), IdentityFiles(disk, WHO)
    file.load()
    files.load("C", "b")
    assert (file.epochs, files.identity) == (Epochs(), None)


@pytest.mark.parametrize(("name", "rest"), [(WHO, b""), (WHO + "-temp", b"#h:1;1")])
def test_the_identity_of_another_broker_is_refused(disk: SimDisk, name: str, rest: bytes) -> None:
    """Also one that it only applies for."""
    disk.replace(name, b"C#other#1" + rest)
    with pytest.raises(StoreError, match="C#other"):
        IdentityFiles(disk, WHO).load("C", "b")  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"C#b", b"C#b#0", b"C#b#x", b"C##1", b"C#b#1#c#d", b"\xff#b#1"])
def test_a_damaged_identity_is_refused(disk: SimDisk, data: bytes) -> None:
    disk.replace(WHO, data)
    with pytest.raises(StoreError, match="applies for a new id"):
        IdentityFiles(disk, WHO).load("C", "b")  # type: ignore[arg-type]


def test_javas_torn_application_is_none(disk: SimDisk) -> None:
    for torn in (b"C#b", b"C#b#2"):
        disk.replace(WHO + "-temp", torn)
        files = IdentityFiles(disk, WHO)  # type: ignore[arg-type]
        files.load("C", "b")
        assert files.application is None


def test_a_name_that_cannot_be_told_apart_is_refused() -> None:
    for name in ("b#1", "", "b\n1"):
        with pytest.raises(ConfigurationError, match="cannot be a name"):
            encode_identity(Identity("C", name, 1))


# ------------------------------------------------------------ a crash


def test_a_crash_is_remembered_as_long_as_its_epoch_is_the_newest(disk: SimDisk) -> None:
    file = EpochFile(disk, PATH)
    file.write(epochs((1, 0), (4, 100)))
    file.note_crash()
    again = EpochFile(disk, PATH)
    again.load()
    assert again.crashed_in == 4
    again.write(epochs((1, 0), (4, 100), (6, 200)))
    later = EpochFile(disk, PATH)
    later.load()
    assert later.crashed_in == 4
    later.note_crash()
    assert later.crashed_in == 6


def test_a_crash_of_which_nobody_knows_the_epoch_was_in_the_newest(disk: SimDisk) -> None:
    file = EpochFile(disk, PATH)
    file.write(epochs((1, 0), (4, 100)))
    disk.replace(PATH + ".crashed", b"torn")
    file.load()
    assert file.crashed_in == 4


def test_of_another_log_no_crash_is_known(disk: SimDisk) -> None:
    """The epochs were removed, as on the way back to a pair, and a new life began."""
    file = EpochFile(disk, PATH)
    file.write(epochs((7, 0)))
    file.note_crash()
    disk.remove(PATH)
    disk.remove(PATH + ".bak")
    began = EpochFile(disk, PATH)
    began.load()
    assert began.crashed_in == -1
    began.note_crash()
    assert began.crashed_in == -1
    assert disk.read_bytes(PATH + ".crashed") == b"7", "without an epoch there is nothing to note"
