"""Metrics, health and members of a member of a DLedger group."""

from collections.abc import Iterator
from typing import Any

from rmq_ha.base.store_format.dledger_values import MemberRole, Room
from rmq_ha.ops.app.journals.members import members_of_group
from rmq_ha.ops.app.page.values import MemberRow
from rmq_ha.ops.app.status.health import Health, follows_nobody
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.server.dledger.statistics import DLedgerStatistics

STALLED_S = 10.0
"""Seconds after which a leader that commits nothing, while messages wait, is not ready."""


class GroupView:
    def __init__(self, broker: Any) -> None:
        self._broker = broker

    def collect(self, samples: Samples) -> None:
        """Add election, ledger, and what the followers lack to a scrape."""
        collect_group(samples, self._broker.journal.statistics())

    def health(self, name: str) -> Health:
        statistics: DLedgerStatistics = self._broker.journal.statistics()
        most = self._broker.configuration.ours.slave_alone_seconds
        return group_health(name, statistics, self._broker.store.why_not_writable(), most)

    def mode(self) -> str:
        told: DLedgerStatistics = self._broker.journal.statistics()
        return f"DLedger group {told.group}, term {told.term}"

    def members(self, why_no_puts: str) -> list[MemberRow]:
        return members_of_group(self._broker.journal.statistics(), why_no_puts)


def lacking_members(statistics: DLedgerStatistics) -> Iterator[str]:
    """Yield a text for each follower that lacks entries, as its leader knows it."""
    for member, follower in statistics.followers.items():
        if follower.entries_behind:
            takes = ", and its disk takes none" if follower.room is Room.NONE else ""
            yield f"{member} lacks {follower.entries_behind} entries{takes}"


def collect_group(samples: Samples, statistics: DLedgerStatistics) -> None:
    """Add the state of a member of a DLedger group to a scrape."""
    role, leader = statistics.role or MemberRole.CANDIDATE.value, statistics.leader or ""
    samples.add(
        "rmqha_dledger_info",
        1,
        group=statistics.group,
        member=statistics.self_id,
        role=role,
        leader=leader,
    )
    samples.add("rmqha_dledger_term", max(statistics.term, 0))
    samples.add("rmqha_dledger_is_leader", statistics.role == MemberRole.LEADER.value)
    samples.add("rmqha_dledger_has_leader", bool(leader))
    indexes = {"begin": statistics.begin, "end": statistics.end, "committed": statistics.committed}
    for which, index in indexes.items():
        samples.add("rmqha_dledger_index", index, which=which)
    samples.add("rmqha_dledger_elections_total", statistics.elections)
    samples.add("rmqha_dledger_pending_appends", statistics.waiting)
    samples.add("rmqha_dledger_diverged", statistics.is_diverged)
    samples.add("rmqha_dledger_refused_total", statistics.refused)
    samples.add("rmqha_dledger_takes_entries", not statistics.refuses)
    samples.add("rmqha_dledger_stalled_seconds", statistics.stalled_seconds)
    for member, follower in statistics.followers.items():
        samples.add("rmqha_dledger_lag_seconds", follower.seconds_behind, member=member)
        samples.add("rmqha_dledger_lag_entries", follower.entries_behind, member=member)
        samples.add("rmqha_dledger_lag_bytes", follower.bytes_behind, member=member)


def group_health(
    name: str, statistics: DLedgerStatistics, why_not_writable: str, most_alone: int = 0
) -> Health:
    """
    Return the health. A leader is ready when it takes puts and commits them. Another member is
    ready when its entries do not differ from the leader's, its ledger takes entries, and it has not
    been without a leader for too long.

    :param name: name of the broker.
    :param why_not_writable: why it takes no puts; empty: it takes puts.
    :param most_alone: the setting slaveAloneSeconds.
    """
    text = f"{name}: {statistics.self_id} of group {statistics.group}, term {statistics.term}"
    refuses = statistics.refuses
    if statistics.role == MemberRole.LEADER.value:
        if why := why_not_writable or refuses:
            return Health(False, f"{text}: leads, but no puts: {why}")
        if (seconds := statistics.stalled_seconds) >= STALLED_S:
            lacking = ", ".join(lacking_members(statistics))
            return Health(
                False,
                f"{text}: leads, but has committed nothing for {seconds:.0f} s while messages "
                f"wait: {lacking}",
            )
        return Health(True, f"{text}: leads")
    if statistics.is_diverged:
        return Health(
            False,
            f"{text}: diverged: the leader {statistics.leader} has other entries where this member "
            "has committed ones; the log says where: stop the group, compare the ledgers",
        )
    if refuses:
        leader = statistics.leader
        role = f"follows {leader}" if leader else "knows no leader"
        return Health(False, f"{text}: {role}, but its ledger takes no entries: {refuses}")
    if statistics.leader:
        return Health(True, f"{text}: follows {statistics.leader}")
    why = f"{text}: serves reads, but the group has no leader that it knows of"
    return follows_nobody(why, statistics.alone_seconds, most_alone)
