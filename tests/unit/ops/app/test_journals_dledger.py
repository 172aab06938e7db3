"""What a DLedger member tells: metrics of the catalogue, and whether it is ready."""

from dataclasses import replace
from random import Random

from prometheus_client.core import Metric

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.store_format.dledger_values import MemberRole, Room, TermVote
from rmq_ha.ops.app.journals.dledger import collect_group, group_health
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.server.dledger.codes import DLedgerRequestCode, VoteResult
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.messages import VoteResponse
from rmq_ha.server.dledger.node import Node
from rmq_ha.server.dledger.statistics import DLedgerStatistics, FollowerStatistics, statistics_of
from rmq_ha.testing.host import World

SETTINGS = DLedgerSettings("g", "n0", {"n0": "h0:1", "n1": "h1:1", "n2": "h2:1"})


def told(found: DLedgerStatistics) -> dict[tuple[str, str], float]:
    """Values by name and last label."""
    samples = Samples(CATALOGUE, {"cluster": "c", "broker": "b", "broker_id": "0"})
    collect_group(samples, replace(found, waiting=3, elections=2, refused=5))
    families: list[Metric] = list(samples.families())
    return {
        (sample.name, str([*sample.labels.values()][-1])): sample.value
        for family in families
        for sample in family.samples
    }


def leader() -> tuple[Node, Ledger]:
    """The leader of term 1 with three entries of its own, of which the others have none."""
    ledger = Ledger(World(1).add("n0").seams.disk, "/dledger-n0", 1 << 16)
    ledger.load()
    node = Node(SETTINGS, ledger, TermVote(1, None), Random(1), 0)
    node.tick(0)
    (send, *_) = [one for one in node.outbox if getattr(one, "code", 0) == DLedgerRequestCode.VOTE]
    granted = VoteResponse(group="g", term=1, vote_result=VoteResult.ACCEPT)
    node.response(send.peer, send.call_id, granted, 1)
    assert node.role is MemberRole.LEADER
    ledger.append(1, [b"x" * 100] * 3)
    node.appended(2, 2)
    return node, ledger


def test_a_leader_tells_how_far_each_follower_is_behind() -> None:
    node, ledger = leader()
    found = told(statistics_of(SETTINGS, node, ledger))
    assert found["rmqha_dledger_is_leader", "0"] == 1
    assert found["rmqha_dledger_term", "0"] == 1
    assert found["rmqha_dledger_index", "end"] == 2
    assert found["rmqha_dledger_index", "committed"] == -1
    assert found["rmqha_dledger_lag_entries", "n1"] == 3
    assert found["rmqha_dledger_lag_bytes", "n2"] == 3 * 148
    assert found["rmqha_dledger_pending_appends", "0"] == 3
    assert found["rmqha_dledger_elections_total", "0"] == 2
    assert found["rmqha_dledger_refused_total", "0"] == 5
    assert found["rmqha_dledger_diverged", "0"] == 0
    node.quorum.mark("n1", 0)
    found = told(statistics_of(SETTINGS, node, ledger))
    assert found["rmqha_dledger_lag_entries", "n1"] == 2
    assert found["rmqha_dledger_lag_bytes", "n1"] == 2 * 148
    node.quorum.mark("n1", 2)
    found = told(statistics_of(SETTINGS, node, ledger))
    assert found["rmqha_dledger_lag_bytes", "n1"] == 0
    assert found["rmqha_dledger_index", "committed"] == 2


def test_a_member_that_has_not_started_tells_that() -> None:
    _, ledger = leader()
    found = told(statistics_of(SETTINGS, None, ledger))
    assert found["rmqha_dledger_has_leader", "0"] == 0
    assert not [name for name, _ in found if "lag" in name]


def test_health_of_each_role() -> None:
    sizes = {"n1": (0, 0), "n2": (7, 700)}
    found = DLedgerStatistics(
        group="g",
        self_id="n0",
        role="LEADER",
        term=4,
        leader="n0",
        begin=0,
        end=7,
        committed=0,
        stalled_seconds=9.9,
        followers={
            name: FollowerStatistics(
                watermark=7 - entries,
                entries_behind=entries,
                bytes_behind=size,
                seconds_behind=0.0,
                room=Room.FREE,
            )
            for name, (entries, size) in sizes.items()
        },
    )
    assert group_health("SYNC_MASTER b", found, "").line() == (
        "ready: SYNC_MASTER b: n0 of group g, term 4: leads\n"
    )
    refused = group_health("SYNC_MASTER b", found, "the disk is full")
    assert not refused.is_ready
    assert refused.line().endswith("leads, but no puts: the disk is full\n")
    stalled = group_health("SYNC_MASTER b", replace(found, stalled_seconds=10.0), "")
    assert not stalled.is_ready
    assert stalled.reason.endswith(
        "leads, but has committed nothing for 10 s while messages wait: n2 lacks 7 entries"
    )
    follows = group_health("SLAVE b", replace(found, role="FOLLOWER", leader="n2"), "slave")
    assert follows.line() == "ready: SLAVE b: n0 of group g, term 4: follows n2\n"
    apart = group_health(
        "SLAVE b", replace(found, role="FOLLOWER", leader="n2", is_diverged=True), "slave"
    )
    assert not apart.is_ready
    assert "diverged: the leader n2 has other entries" in apart.line()
    alone = replace(found, role="CANDIDATE", leader=None, alone_seconds=90.0)
    for most, is_ready in ((0, True), (91, True), (90, False)):
        stands = group_health("SLAVE b", alone, "slave", most)
        assert stands.is_ready is is_ready
        assert "no leader that it knows of for 90 s" in stands.line()
