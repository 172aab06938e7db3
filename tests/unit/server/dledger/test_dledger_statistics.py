"""How far the followers are, and what a broker's configuration says to the core."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.base.store_format.dledger_values import Entry, MemberRole, Room
from rmq_ha.server.dledger.assembly import make_settings
from rmq_ha.server.dledger.codes import PushType
from rmq_ha.server.dledger.messages import PushEntryRequest
from rmq_ha.server.dledger.put_refusal import why_no_puts
from rmq_ha.server.dledger.statistics import (
    DLedgerStatistics,
    FollowerStatistics,
    _lag_after,
    statistics_of,
)
from tests.sim_kit.dledger_script import GROUP, Script


def ledger(**changes: Any) -> Any:
    """Entries 10 to 14, of 52 bytes each; the first one begins at 1000."""
    entries = {index: Entry(index, 1, 480 + 52 * index, b"body") for index in range(10, 15)}
    known = {
        "begin_index": 10,
        "end_index": 14,
        "begin_pos": 1000,
        "end_pos": 1260,
        "entry": entries.get,
    }
    return SimpleNamespace(**(known | changes))


@pytest.mark.parametrize(
    ("index", "behind"),
    [(14, (0, 0)), (15, (0, 0)), (13, (1, 52)), (10, (4, 208)), (9, (5, 260)), (-1, (5, 260))],
)
def test_how_far_a_member_is_behind(index: int, behind: tuple[int, int]) -> None:
    """Also of one that lacks what the leader has deleted."""
    assert _lag_after(ledger(), index) == behind


def test_a_disk_that_does_not_say_leaves_the_entries_known() -> None:
    def refuse(index: int) -> None:
        raise StoreError("the checksum differs")

    assert _lag_after(ledger(entry=refuse), 12) == (2, None)


def test_a_leader_tells_of_each_follower_and_nobody_else_does() -> None:
    script = Script(2, entries=(1, 1, 2, 2))
    script.ledger.begin_pos = 0  # type: ignore[attr-defined]  # as one of files has it
    nobody = statistics_of(script.settings, None, script.ledger)  # type: ignore[arg-type]
    assert (nobody.role, nobody.term, nobody.leader) == ("", -1, None)
    assert (nobody.followers, nobody.is_diverged) == ({}, False)
    script.lead()
    script.pushed([call for call in script.sent(PushEntryRequest) if call.peer == "n0"][-1])
    found = statistics_of(script.settings, script.node, script.ledger)  # type: ignore[arg-type]
    end = script.ledger.end_pos
    assert found == DLedgerStatistics(
        group=GROUP,
        self_id="n1",
        role=MemberRole.LEADER.value,
        term=2,
        leader="n1",
        begin=0,
        end=3,
        committed=-1,
        followers={
            "n0": FollowerStatistics(
                watermark=3, entries_behind=0, bytes_behind=0, seconds_behind=0.0, room=Room.FREE
            ),
            "n2": FollowerStatistics(
                watermark=-1, entries_behind=4, bytes_behind=end, seconds_behind=0.0, room=Room.FREE
            ),
        },
    )
    script.beat("n0", 3)
    script.beat("n0", script.node.term)
    found = statistics_of(script.settings, script.node, script.ledger)  # type: ignore[arg-type]
    assert (found.role, found.leader) == (MemberRole.FOLLOWER.value, "n0")
    assert (found.followers, found.is_diverged) == ({}, False)


def test_a_follower_that_keeps_what_its_leader_has_not_says_so() -> None:
    script = Script(2, voted_for="n0", entries=(1, 1)).follow("n0")
    script.ledger.commit(1)
    script.push(PushType.COMPARE, 2, Entry(1, 2, 49, b"other"))
    found = statistics_of(script.settings, script.node, script.ledger)  # type: ignore[arg-type]
    assert found.is_diverged is True


def configured() -> BrokerConfiguration:
    found = BrokerConfiguration()
    found.store.dleger_group, found.store.dleger_self_id = "g", "n0"
    found.store.dleger_peers = "n0-h:1;n1-h:2;n2-h:3"
    return found


def test_a_batch_size_turns_batches_on() -> None:
    configuration = configured()
    configuration.store.enable_batch_push = False
    configuration.ours.dledger_push_batch_size = 0
    assert not make_settings(configuration).is_enable_batch_push
    configuration.ours.dledger_push_batch_size = 4321
    found = make_settings(configuration)
    assert (found.is_enable_batch_push, found.max_batch_push_size) == (True, 4321)


@pytest.mark.parametrize("kind", list(FlushDiskType))
def test_under_sync_flush_only_what_is_synced_is_vouched_for(kind: FlushDiskType) -> None:
    configuration = configured()
    configuration.store.flush_disk_type = kind
    assert make_settings(configuration).sync_before_ack is (kind is FlushDiskType.SYNC_FLUSH)


@pytest.mark.parametrize(
    ("silent", "text"),
    [
        (3, "n0 answers, .*; 1 more must answer: start it, or mend the network to it"),
        (4, "; 2 more must answer: start them, or mend the network to them"),
        (2, "n0 and n2 answer, .*; look at the disks"),
    ],
)
def test_a_leader_without_a_quorum_says_what_to_do(silent: int, text: str) -> None:
    script = Script(2, nodes=5).lead()
    down = dict.fromkeys(["n4", "n3", "n2", "n0"][:silent], "refused")
    assert re.search(text, why_no_puts(script.settings, script.node, down, 7))
