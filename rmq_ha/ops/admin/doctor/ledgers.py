"""
Rules: whether a DLedger group has a leader and all its members, and whether their ledgers take
entries.
"""

from collections.abc import Iterator
from typing import Any

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

STALLED_S = 10.0
"""Seconds that entries may wait before doctor reports it."""


def _groups(facts: ClusterFacts) -> Iterator[tuple[str, list[BrokerFacts]]]:
    """Yield each group: the brokers of a name of which at least one says that it is a member."""
    for name, members in facts.pairs():
        if any(item.is_dledger for item in members):
            yield name, members


def _ledgers(facts: ClusterFacts) -> Iterator[tuple[BrokerFacts, dict[str, Any]]]:
    """Yield each member that runs rmq-ha, with what it says of its ledger."""
    for broker in facts.answering():
        ledger = broker.replication.get("ledger")
        if isinstance(ledger, dict):
            yield broker, ledger


def _no_leader(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in _groups(facts):
        if not any(item.broker_id == MASTER_ID for item in members):
            who = ", ".join(item.address for item in members)
            yield Observation(name, f"no name server has a leader of this group, only {who}")


def _members_missing(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in _groups(facts):
        answering = [item for item in members if item.is_dledger]
        peers = dict(
            item.strip().partition("-")[::2]
            for item in answering[0].config.get("dLegerPeers", "").split(";")
            if item.strip()
        )
        if len(answering) < len(peers):
            quorum = "" if len(answering) * 2 > len(peers) else ", which is no quorum: no puts"
            present = {item.config.get("dLegerSelfId", "") for item in answering}
            absent = [f"{peer} at {peers[peer]}" for peer in peers if peer not in present]
            named = "" if "" in present else f"; no answer comes from {', '.join(absent)}"
            yield Observation(
                name, f"{len(answering)} of its {len(peers)} members answer{quorum}{named}"
            )


def _refuses(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, ledger in _ledgers(facts):
        if ledger["refuses"]:
            yield Observation(str(broker), f"its ledger takes no entries: {ledger['refuses']}")


def _members_behind(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, ledger in _ledgers(facts):
        for member, lacks in ledger["lacks"].items():
            if lacks["seconds"] >= STALLED_S:
                yield Observation(
                    str(broker),
                    f"member {member} lacks {lacks['entries']} entries of this leader, and has "
                    f"taken none for {lacks['seconds']:.0f} s",
                )


def _ledger_stalled(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, ledger in _ledgers(facts):
        if ledger["stalled_seconds"] >= STALLED_S:
            yield Observation(
                str(broker),
                f"it leads, and has committed nothing for {ledger['stalled_seconds']:.0f} s while "
                "messages wait",
            )


RULES = (
    Rule(
        "no-leader",
        DoctorSeverity.ERROR,
        "a DLedger group has no leader: it has no quorum, or an election does not end",
        "`rmqha-admin dledger status` says which members in `dLegerPeers` answer; start the "
        "others, and open their ports",
        _no_leader,
    ),
    Rule(
        "members-missing",
        DoctorSeverity.ERROR,
        "members of a DLedger group do not answer: without a majority of the members nothing is "
        "stored",
        "start the members that the finding names; `rmqha-admin dledger status` asks each "
        "member in `dLegerPeers`",
        _members_missing,
    ),
    Rule(
        "member-refuses",
        DoctorSeverity.ERROR,
        "a DLedger member cannot store entries: if one more member fails, the group may stop",
        "a full disk: free space, then the member goes on by itself. After a failed sync or "
        "write: look at the disk (dmesg, smartctl), then restart this member",
        _refuses,
    ),
    Rule(
        "member-behind",
        DoctorSeverity.WARNING,
        "a DLedger member lacks entries and takes none: if the other members fail, nothing is "
        "stored",
        "look at that member's `/healthz`, its disk and the network to it; if it does not run, "
        "start it",
        _members_behind,
    ),
    Rule(
        "nothing-committed",
        DoctorSeverity.ERROR,
        "a DLedger leader commits nothing: most members do not store its entries, and no producer "
        "gets SEND_OK",
        "mend the members that `member-behind`, `member-refuses` and `members-missing` name",
        _ledger_stalled,
    ),
)
