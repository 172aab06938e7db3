"""currterm and checkpoint: upstream's text, and what is left of them after its crashes and ours."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import CorruptRecord, LedgerFull, StoreError
from rmq_ha.base.store_format.dledger import (
    DLedgerCheckpoint,
    SyncedUpTo,
    decode_checkpoint,
    decode_term,
    encode_checkpoint,
    encode_term,
)
from rmq_ha.base.store_format.dledger_values import TermVote
from rmq_ha.server.dledger.term_file import CheckpointFile, GroupFile, TermFile
from rmq_ha.testing.disk import SimDisk

DIR = "/m/dledger-n0"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1), lambda: 0)


def put(disk: SimDisk, name: str, data: bytes) -> None:
    """A file as somebody else left it."""
    disk.replace(f"{DIR}/{name}", data)


def test_the_recorded_files_are_read() -> None:
    assert decode_term(b"voteLeader=n0\ncurrTerm=2\n") == TermVote(2, "n0")
    assert decode_term(b"currTerm=3\r\nvoteLeader=\r\n") == TermVote(3, None)
    assert decode_checkpoint(b"committedIndex=5\nendIndex=5\n") == DLedgerCheckpoint(5, 5)
    assert decode_checkpoint(b"committedIndex=5\n") == DLedgerCheckpoint(5, -1)


def test_what_is_saved_is_loaded_and_the_old_content_is_the_backup(disk: SimDisk) -> None:
    file = TermFile(disk, DIR)
    assert file.load() == TermVote()
    file.save(TermVote(2, "n0"))
    file.save(TermVote(3, None))
    assert file.load() == TermVote(3)
    assert disk.read_bytes(f"{DIR}/currterm.bak") == b"voteLeader=n0\ncurrTerm=2\n"


def test_a_saved_vote_survives_a_power_cut(disk: SimDisk) -> None:
    TermFile(disk, DIR).save(TermVote(7, "n2"))
    assert TermFile(disk.crash(), DIR).load() == TermVote(7, "n2")


def test_javas_crash_between_delete_and_rename_forgets_nothing(disk: SimDisk) -> None:
    put(disk, "currterm.bak", b"voteLeader=n1\ncurrTerm=4\n")
    put(disk, "currterm.tmp", b"voteLeader=n2\ncurrTerm=5\n")
    assert TermFile(disk, DIR).load() == TermVote(5, "n2")


@pytest.mark.parametrize("names", [("bak", "tmp"), ("tmp", "bak")])
def test_of_two_with_one_term_the_vote_counts(disk: SimDisk, names: tuple[str, str]) -> None:
    """Whichever holds it: the other one is from before the vote."""
    put(disk, f"currterm.{names[0]}", b"voteLeader=n2\ncurrTerm=5\n")
    put(disk, f"currterm.{names[1]}", b"currTerm=5\n")
    assert TermFile(disk, DIR).load() == TermVote(5, "n2")


def test_a_torn_new_content_leaves_the_backup(disk: SimDisk) -> None:
    put(disk, "currterm.bak", b"voteLeader=n1\ncurrTerm=14\n")
    put(disk, "currterm.tmp", b"voteLeader=n2\ncurrTerm=1")
    assert TermFile(disk, DIR).load() == TermVote(14, "n1")
    put(disk, "currterm.tmp", b"voteLea")
    assert TermFile(disk, DIR).load() == TermVote(14, "n1")


def test_a_first_save_that_was_interrupted_never_counted(disk: SimDisk) -> None:
    put(disk, "currterm.tmp", b"voteLea")
    assert TermFile(disk, DIR).load() == TermVote()


@pytest.mark.parametrize("data", [b"", b"voteLeader=n0", b"currTerm=x", b"currTerm=-5", b"\xff"])
def test_a_member_that_may_have_voted_does_not_start_without_memory(
    disk: SimDisk, data: bytes
) -> None:
    put(disk, "currterm", data)
    with pytest.raises(StoreError, match="vote twice"):
        TermFile(disk, DIR).load()


def test_a_full_disk_keeps_the_old_content(disk: SimDisk) -> None:
    file = TermFile(disk, DIR)
    file.save(TermVote(2, "n0"))
    disk.is_full = True
    with pytest.raises(LedgerFull):
        file.save(TermVote(3, "n1"))
    disk.is_full, disk.sync_fails = False, True
    with pytest.raises(StoreError):
        file.save(TermVote(3, "n1"))
    assert file.load() == TermVote(2, "n0")


def test_a_missing_checkpoint_is_nothing_to_worry_about(disk: SimDisk) -> None:
    assert CheckpointFile(disk, DIR).load() == DLedgerCheckpoint()


def test_a_checkpoint_backup_does_not_vouch_for_what_is_synced(disk: SimDisk) -> None:
    file = CheckpointFile(disk, DIR)
    file.save(DLedgerCheckpoint(3, 5, SyncedUpTo(5, 1, 800)))
    file.save(DLedgerCheckpoint(4, 5, SyncedUpTo(5, 1, 800)))
    assert file.load() == DLedgerCheckpoint(4, 5, SyncedUpTo(5, 1, 800))
    put(disk, "checkpoint", b"torn")
    assert file.load() == DLedgerCheckpoint(3, 5)


TERMS = st.builds(
    TermVote,
    st.integers(0, (1 << 63) - 1),
    st.none() | st.from_regex("[a-z][0-9]{1,3}", fullmatch=True),
)
NUMBERS = st.integers(-1, (1 << 63) - 1)


@given(
    TERMS,
    st.builds(DLedgerCheckpoint, NUMBERS, NUMBERS, st.none() | st.builds(SyncedUpTo, NUMBERS)),
)
def test_both_texts_come_back(state: TermVote, checkpoint: DLedgerCheckpoint) -> None:
    assert decode_term(encode_term(state)) == state
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


@given(
    st.binary()
    | st.text(alphabet="committedIndex=rmqHaSyncedcurrTerm\n0123456789,-").map(str.encode)
)
def test_any_bytes_are_a_content_or_corrupt(data: bytes) -> None:
    for decode in (decode_term, decode_checkpoint):
        try:
            decode(data)
        except CorruptRecord:
            pass


def test_each_checkpoint_that_cannot_be_read_is_told_of(disk: SimDisk) -> None:
    put(disk, "checkpoint", b"committedIndex=x\n")
    put(disk, "checkpoint.bak", b"committedIndex=y\n")
    with capturedLogs() as events:
        assert CheckpointFile(disk, DIR).load() == DLedgerCheckpoint()
    told = [formatEvent(event) for event in events]
    assert ["checkpoint:" in line for line in told] == [True, False]
    assert ["checkpoint.bak:" in line for line in told] == [False, True]


def test_a_ledger_is_of_the_group_that_came_first(disk: SimDisk) -> None:
    """Who cannot read whose it is takes no part: it may be another group's."""
    file = GroupFile(disk, DIR)
    for _ in range(2):
        file.claim("first", "dLegerGroup")
    with pytest.raises(StoreError, match="of DLedger group 'first', and dLegerGroup=other here"):
        file.claim("other", "dLegerGroup")

    def refuse(path: str) -> bytes:
        raise OSError(5, "Input/output error")

    disk.read_bytes = refuse  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="cannot read whose ledger this is"):
        file.claim("first", "dLegerGroup")
