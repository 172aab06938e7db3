"""What a member tells operators about its group."""

from typing import Any

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_format.dledger_values import Role
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.node import Node


def statistics_of(settings: DLedgerSettings, node: Node | None, ledger: Ledger) -> dict[str, Any]:
    """
    The member's state; if it leads, also what is known of each follower.

    `stalled_seconds` says for how long entries of this leader wait and none was committed. By
    follower, `behind` says how many entries and bytes it lacks, at most all that there are;
    `behind_seconds` for how long it has lacked some and acknowledged none; `rooms` how much its
    disk takes.

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
        "stalled_seconds": 0.0,
        "diverged": node is not None and node.role is Role.FOLLOWER and node.is_diverged,
        "followers": {},
        "behind": {},
        "behind_seconds": {},
        "rooms": {},
    }
    if node is not None and node.role is Role.LEADER:
        standings = {peer: node.standing(peer) for peer in settings.others}
        told["stalled_seconds"] = node.stalled_ms / 1000
        for peer, standing in standings.items():
            told["followers"][peer] = standing.watermark
            told["behind"][peer] = _behind(ledger, standing.watermark)
            told["behind_seconds"][peer] = standing.behind_ms / 1000
            told["rooms"][peer] = standing.room
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
