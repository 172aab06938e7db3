"""The statistics of a member and its group, for operators."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_format.dledger_values import MemberRole, Room
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.node import Node
from rmq_ha.server.store.journal_statistics import JournalStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerStatistics:
    """
    The facts that a leader knows of one follower.

    :ivar watermark: index of the last entry that the follower acknowledged; -1: it has none.
    :ivar entries_behind: number of entries that the follower lacks, at most all in the ledger.
    :ivar bytes_behind: size of these entries in bytes; None: the leader's disk cannot tell.
    :ivar seconds_behind: time in seconds for which the follower has lacked entries and
        acknowledged none.
    :ivar room: how much room the follower's disk has.
    """

    watermark: int
    entries_behind: int
    bytes_behind: int | None
    seconds_behind: float
    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerStatistics(JournalStatistics):
    """
    The state of a member of a DLedger group.

    :ivar group: name of the group.
    :ivar self_id: the member's name in the group.
    :ivar role: value of the member's `MemberRole`; empty: the member does not take part yet.
    :ivar term: -1: the member does not take part yet.
    :ivar leader: name of the leader; None: the member knows no leader.
    :ivar begin: index of the first entry in the ledger.
    :ivar end: index of the last entry in the ledger.
    :ivar committed: index of the last entry that is committed.
    :ivar is_diverged: this follower has committed entries that differ from the leader's.
    :ivar stalled_seconds: time in seconds for which entries of this leader have waited while none
        was committed.
    :ivar followers: by name, each follower of this leader; empty: the member does not lead.
    :ivar refuses: the reason why the ledger takes no entries; empty: it takes them.
    :ivar elections: number of elections since the start.
    :ivar alone_seconds: time in seconds without a leader; None: the member has one.
    """

    group: str
    self_id: str
    role: str
    term: int
    leader: str | None
    begin: int
    end: int
    committed: int
    is_diverged: bool = False
    stalled_seconds: float = 0.0
    followers: Mapping[str, FollowerStatistics] = field(default_factory=dict)
    refuses: str = ""
    elections: int = 0
    alone_seconds: float | None = None


def statistics_of(
    settings: DLedgerSettings, node: Node | None, ledger: Ledger
) -> DLedgerStatistics:
    """
    Collect the statistics that the node and its ledger know; the other fields keep their defaults.

    :param node: None: the member does not take part yet.
    """
    leads = node is not None and node.role is MemberRole.LEADER
    return DLedgerStatistics(
        group=settings.group,
        self_id=settings.self_id,
        role=node.role.value if node else "",
        term=node.term if node else -1,
        leader=node.leader_id if node else None,
        begin=ledger.begin_index,
        end=ledger.end_index,
        committed=ledger.committed_index,
        is_diverged=node is not None and node.role is MemberRole.FOLLOWER and node.is_diverged,
        stalled_seconds=node.stalled_ms / 1000 if node and leads else 0.0,
        followers={peer: _follower(node, ledger, peer) for peer in settings.others}
        if node and leads
        else {},
    )


def _follower(node: Node, ledger: Ledger, peer: str) -> FollowerStatistics:
    standing = node.standing(peer)
    entries, size = _lag_after(ledger, standing.watermark)
    return FollowerStatistics(
        watermark=standing.watermark,
        entries_behind=entries,
        bytes_behind=size,
        seconds_behind=standing.behind_ms / 1000,
        room=standing.room,
    )


def _lag_after(ledger: Ledger, index: int) -> tuple[int, int | None]:
    """
    Return the numbers of entries and of bytes after an entry. The bytes are None if the disk fails.
    """
    if index >= ledger.end_index:
        return 0, 0
    entries = ledger.end_index - max(index, ledger.begin_index - 1)
    try:
        entry = ledger.entry(index)
    except StoreError:
        return entries, None
    end = ledger.begin_pos if entry is None else entry.pos + entry.size
    return entries, ledger.end_pos - end
