"""What a member tells operators about its group."""

from typing import Any

from rmq_ha.config.dledger_settings import DLedgerSettings
from rmq_ha.dledger.ledger import Ledger
from rmq_ha.dledger.node import Node
from rmq_ha.dledger.values import Role
from rmq_ha.errors import StoreError


def statistics_of(settings: DLedgerSettings, node: Node | None, ledger: Ledger) -> dict[str, Any]:
    """
    The member's state; if it leads, also by how many entries and bytes each follower is behind
    as far as is known, at most all that there is.

    :param node: None: it does not take part yet.
    """
    told: dict[str, Any] = {
        "group": settings.group,
        "self": settings.self_id,
        "role": node.role.value if node else "",
        "term": node.term if node else -1,
        "leader": node.leader_id if node else None,
        "begin": ledger.begin_index,
        "end": ledger.end_index,
        "committed": ledger.committed_index,
        "diverged": node is not None and node.role is Role.FOLLOWER and node.is_diverged,
        "followers": {},
        "behind": {},
    }
    if node is not None and node.role is Role.LEADER:
        marks = {peer: node.watermark(peer) for peer in settings.others}
        told["followers"] = marks
        told["behind"] = {peer: _behind(ledger, mark) for peer, mark in marks.items()}
    return told


def _behind(ledger: Ledger, index: int) -> tuple[int, int | None]:
    """Entries and bytes after an entry; None: the disk does not say."""
    if index >= ledger.end_index:
        return 0, 0
    entries = ledger.end_index - max(index, ledger.begin_index - 1)
    try:
        entry = ledger.entry(index)
    except StoreError:
        return entries, None
    end = ledger.begin_pos if entry is None else entry.pos + entry.size
    return entries, ledger.end_pos - end
