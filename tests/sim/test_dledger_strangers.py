"""Who is not of the group, on the port of its members. Spec: dledger.md, section 18.2."""

from typing import Any

import pytest

from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode, PushType
from rmq_ha.server.dledger.messages import (
    GetEntriesRequest,
    GetEntriesResponse,
    GroupMessage,
    HeartBeatRequest,
    MetadataRequest,
    PushEntryRequest,
)
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.group import GROUP, PEER_PORT, BrokerGroup


def node_of(member: BrokerNode) -> Any:
    return member.broker.journal.service.node  # type: ignore[union-attr]


def ask(group: BrokerGroup, member: BrokerNode, code: int, message: GroupMessage) -> bytes:
    """As the client's machine, which is none of the group's."""
    frame = RemotingCommand(code, body=encode_body(message))
    answer = group.wait(group.client.invoke(f"{member.host.ip}:{PEER_PORT}", frame, 5000))
    assert answer.code == 200
    return bytes(answer.body)


def forge(group: BrokerGroup, victim: BrokerNode, liar: str, term: int) -> None:
    """Twelve packets of a12b: become the leader, append behind the committed end, commit."""
    said: dict[str, Any] = {
        "group": GROUP,
        "remote_id": victim.host.name,
        "local_id": liar,
        "leader_id": liar,
        "term": term,
    }
    for _ in range(3):
        ask(group, victim, DLedgerRequestCode.HEART_BEAT, HeartBeatRequest(**said))
        group.run(0.05)
    ledger = node_of(victim).ledger
    last = ledger.entry(ledger.end_index)
    forged = Entry(term=term, index=last.index + 1, pos=last.pos + last.size, body=last.body)
    for kind, entry in ((PushType.COMPARE, last), (PushType.APPEND, forged)):
        push = PushEntryRequest(**said, type=kind, entry=entry)
        ask(group, victim, DLedgerRequestCode.PUSH, push)
    commit = PushEntryRequest(**said, type=PushType.COMMIT, commit_index=forged.index)
    ask(group, victim, DLedgerRequestCode.PUSH, commit)


def state(group: BrokerGroup) -> list[tuple[Any, ...]]:
    return [
        (node.role, node.term, node.leader_id, node.ledger.end_index, node.ledger.committed_index)
        for node in map(node_of, group.members)
    ]


def test_twelve_packets_of_a_stranger_change_nothing() -> None:
    """They committed a message at two members, and the third stayed out for ever."""
    group = BrokerGroup(21).start()
    sent = [b"honest %d" % number for number in range(20)]
    assert [group.send(body) for body in sent] == [0] * 20
    group.run(2)
    before = state(group)
    leader = group.master()
    assert leader is not None
    followers = [member for member in group.members if member is not leader]
    liars = {followers[0]: followers[1].host.name, followers[1]: followers[0].host.name}
    for victim, liar in liars.items():
        forge(group, victim, liar, node_of(leader).term + 3)
    group.run(5)
    assert state(group) == before
    assert group.send(b"after") == 0
    group.run(2)
    assert [group.bodies(member) for member in group.members] == [[*sent, b"after"]] * 3
    refused = [member.replication.statistics().refused for member in followers]
    assert refused == [6, 6]
    assert group.findings.violations == []
    assert group.world.clock.failures == []


@pytest.mark.parametrize("code", [DLedgerRequestCode.GET, DLedgerRequestCode.APPEND])
def test_a_stranger_gets_no_entry_and_appends_none(code: int) -> None:
    group = BrokerGroup(22).start()
    assert group.send(b"precious") == 0
    leader = group.master()
    assert leader is not None
    request = GetEntriesRequest(group=GROUP, remote_id=leader.host.name, begin_index=0)
    answer = decode_body(GetEntriesResponse, ask(group, leader, code, request))
    assert (answer.code, answer.entries) == (401, ())
    ask(group, leader, DLedgerRequestCode.METADATA, MetadataRequest(group=GROUP))
    assert leader.replication.statistics().refused == 1


def named(group: BrokerGroup) -> str:
    return ";".join(
        f"{member.host.name}-{member.host.name}:{PEER_PORT}" for member in group.members
    )


def test_members_given_by_name_know_each_other_and_no_stranger() -> None:
    group = BrokerGroup(23)
    for member in group.members:
        member.configuration.store.dleger_peers = named(group)
    group.start()
    assert group.send(b"a") == 0
    before = state(group)
    leader = group.master()
    victim = next(member for member in group.members if member is not leader)
    assert leader is not None
    forge(group, victim, leader.host.name, node_of(leader).term + 3)
    group.run(3)
    assert [found[:3] for found in state(group)] == [found[:3] for found in before]


def test_a_member_that_comes_back_at_another_address_is_found_by_its_name() -> None:
    group = BrokerGroup(24)
    for member in group.members:
        member.configuration.store.dleger_peers = named(group)
    group.start()
    leader = group.master()
    moved = next(member for member in group.members if member is not leader)
    group.kill(moved)
    assert group.send(b"a") == 0
    moved.host.network.ip = moved.host.ip = "10.9.9.9"  # type: ignore[misc]
    moved.configuration.broker.broker_ip1 = "10.9.9.9"
    group.boot(moved)
    assert leader is not None
    group.kill(leader)  # so that it has to be believed: it votes, or is voted for
    group.run(1)
    group.wait_for_master()
    assert group.send(b"b") == 0


def test_a_leader_that_lost_what_is_committed_is_an_alarm() -> None:
    """Not a line twice a second, but a metric and one line a minute; it is over when it agrees."""
    group = BrokerGroup(25, change=lambda found: setattr(found.ours, "dledger_peer_hosts", "*"))
    group.start()
    assert [group.send(b"m%d" % number) for number in range(5)] == [0] * 5
    group.run(2)
    leader = group.master()
    assert leader is not None
    victim = next(member for member in group.members if member is not leader)
    node = node_of(victim)
    assert not victim.replication.statistics().is_diverged
    entry = node.ledger.entry(node.ledger.committed_index)
    other = Entry(term=entry.term, index=entry.index, pos=entry.pos, body=b"\0" * len(entry.body))
    push = PushEntryRequest(
        group=GROUP,
        remote_id=victim.host.name,
        local_id=leader.host.name,
        leader_id=leader.host.name,
        term=node.term,
        type=PushType.COMPARE,
        entry=other,
    )
    node._follower.matched = -1  # as in a term of which it has no entry yet
    ask(group, victim, DLedgerRequestCode.PUSH, push)
    assert victim.replication.statistics().is_diverged
    assert group.send(b"next") == 0
    group.run(3)
    assert not victim.replication.statistics().is_diverged
