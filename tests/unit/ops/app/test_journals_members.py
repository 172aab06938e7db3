"""Who replicates what to whom, from what each kind of replication tells."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.model.flags import PERM_WRITE
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.store_format.dledger_values import Room
from rmq_ha.ops.app.journals import members as shown
from rmq_ha.ops.app.journals.classic import PairView
from rmq_ha.ops.app.page.values import Tone
from rmq_ha.server.dledger.statistics import DLedgerStatistics, FollowerStatistics
from rmq_ha.server.replication.statistics import (
    MasterStatistics,
    ReplicationStatistics,
    SetStatistics,
    SlaveStatistics,
)
from rmq_ha.server.store.journal_statistics import JournalStatistics

SLAVE = SlaveStatistics(address="10.0.0.2:4000", requested=0, stage="caught up", acked=0, lag=0)


def follower(entries: int, size: int | None) -> FollowerStatistics:
    """:param size: in bytes; None: the leader's disk cannot tell."""
    return FollowerStatistics(
        watermark=0,
        entries_behind=entries,
        bytes_behind=size,
        seconds_behind=0.0,
        room=Room.FREE,
    )


def seen(members: list[Any]) -> list[tuple[str, str, str, Tone]]:
    return [(item.name, item.role, item.state, item.tone) for item in members]


@pytest.mark.parametrize(
    ("slave", "tone"),
    [
        (SLAVE, Tone.GOOD),
        (replace(SLAVE, stage="catching up"), Tone.WARN),
        (replace(SLAVE, lag=5 << 20), Tone.WARN),
        (replace(SLAVE, stage="stranded"), Tone.ERROR),
    ],
)
def test_a_master_and_its_slave(slave: SlaveStatistics, tone: Tone) -> None:
    told = ReplicationStatistics(slaves=[slave, replace(SLAVE, requested=None)])
    members = shown.members_of_pair(told, BrokerRole.SYNC_MASTER, "10.0.0.1:1", "")
    assert seen(members) == [
        ("10.0.0.1:1", "master", "takes messages", Tone.GOOD),
        ("slave 10.0.0.2", "slave", slave.stage, tone),
    ]


def test_a_master_that_takes_nothing_says_why() -> None:
    role, nobody = BrokerRole.SYNC_MASTER, ReplicationStatistics()
    (here,) = shown.members_of_pair(nobody, role, "10.0.0.1:1", "the disk is full")
    assert (here.state, here.tone, here.note) == ("no puts", Tone.ERROR, "the disk is full")


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (MasterStatistics(state="following", address="m:1"), [Tone.GOOD, Tone.GOOD]),
        (MasterStatistics(state="connecting", address="m:1"), [Tone.WARN, Tone.WARN]),
        (
            MasterStatistics(state="diverged", address="m:1", fault="why"),
            [Tone.ERROR, Tone.WARN],
        ),
        (None, [Tone.WARN, Tone.WARN]),
    ],
)
def test_a_slave(link: MasterStatistics | None, expected: list[Tone]) -> None:
    told = ReplicationStatistics(master=link)
    members = shown.members_of_pair(told, BrokerRole.SLAVE, "10.0.0.1:1", "")
    assert [item.role for item in members] == ["slave", "master"]
    assert [item.tone for item in members] == expected


def test_a_group() -> None:
    followers = {"n1": follower(0, 0), "n2": follower(7, 2 << 20), "n3": follower(7, None)}
    told = DLedgerStatistics(
        group="g",
        self_id="n0",
        role="LEADER",
        term=1,
        leader="n0",
        begin=0,
        end=7,
        committed=7,
        followers=followers,
    )
    assert seen(shown.members_of_group(told, "")) == [
        ("n0", "leader", "takes messages", Tone.GOOD),
        ("n1", "follower", "caught up", Tone.GOOD),
        ("n2", "follower", "behind", Tone.WARN),
        ("n3", "follower", "behind", Tone.WARN),
    ]
    told = replace(told, role="FOLLOWER", leader="n1", followers={})
    assert seen(shown.members_of_group(told, "no puts here")) == [
        ("n0", "follower", "following", Tone.GOOD),
        ("n1", "leader", "answers", Tone.GOOD),
    ]
    told = replace(told, role="", leader=None)
    assert seen(shown.members_of_group(told, "")) == [("n0", "candidate", "no leader", Tone.WARN)]


def test_a_set() -> None:
    told = SetStatistics(leads=True, broker_id=1, slaves=[replace(SLAVE, broker_id=2)])
    assert seen(shown.members_of_set(told, "a:1", "")) == [
        ("broker 1 at a:1", "master", "takes messages", Tone.GOOD),
        ("broker 2 at 10.0.0.2", "slave", "caught up", Tone.GOOD),
    ]
    members = shown.members_of_set(SetStatistics(), "a:1", "")
    assert seen(members) == [("a:1", "slave", "unknown", Tone.WARN)]


def test_what_a_plugin_s_journal_refused_is_counted_though_it_tells_of_no_slaves() -> None:
    journal = SimpleNamespace(statistics=lambda: JournalStatistics(refused=7))
    broker: Any = SimpleNamespace(
        journal=journal,
        is_slave=False,
        store=SimpleNamespace(why_not_writable=lambda: ""),
        configuration=SimpleNamespace(
            store=SimpleNamespace(broker_role=BrokerRole.SYNC_MASTER),
            broker=SimpleNamespace(broker_permission=PERM_WRITE),
            ours=SimpleNamespace(slave_alone_seconds=60),
        ),
    )
    pair, counted = PairView(broker), {}
    samples: Any = SimpleNamespace(add=lambda name, value, **_: counted.update({name: value}))
    pair.collect(samples)
    assert counted["rmqha_replication_refused_total"] == 7
    assert pair.health("a").reason == "a: its journalPlugIn does not tell of slaves"
