"""Decides when a leader with a full or failing disk gives up the lead, and to which member."""

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.store_format.dledger_values import MemberRole, Room
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.messages import LeadershipTransferRequest
from rmq_ha.server.dledger.node import Node
from rmq_ha.server.dledger.transfer import order_to_best

_AGAIN_S = 5.0
_REFUSES_S = 2.0
"""
How long writes must fail before a leader hands over, in seconds. After a single failure, the next
write may succeed.
"""
PATIENCE_S = 60.0
"""
How long a leader tries to hand over before it deletes files that have not expired, in seconds.
"""


class LeaderResignation:
    """
    Makes the order with which a leader hands over because of its disk.

    A leader that cannot store anything would keep all clients from sending, although other members
    have room. A leader whose disk fills up would delete messages that other members still have.

    :param node: returns the core; None before its start.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        settings: DLedgerSettings,
        configuration: MessageStoreConfig,
        log: DLedgerCommitLog,
        node: Callable[[], Node | None],
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._configuration = configuration
        self._log = log
        self._node = node
        self._refuses_since: float | None = None
        self._short_since: float | None = None
        self._next_try = 0.0
        self._told = ""

    def order(self) -> LeadershipTransferRequest | None:
        """
        Look whether this leader has to hand over now; to be called after each event.

        :returns: the order, which this member serves as if an operator had sent it; None: no order.
        """
        node, now = self._node(), self._clock.seconds()
        is_leader = node is not None and node.role is MemberRole.LEADER
        reason = self._reason(now) if is_leader else ""
        if node is None or not reason:
            self._told = ""
            return None
        if now < self._next_try or node.transferee is not None:
            return None
        self._next_try = now + _AGAIN_S
        order = order_to_best(node, self._settings, self._able(node))
        if order is None:
            self._tell_alone(reason)
        else:
            self.log.warn(
                "this leader hands over to {member}: {reason}",
                member=order.transferee_id,
                reason=reason,
            )
        return order

    def deletes_early(self) -> bool:
        """
        Whether files that have not expired may be deleted. Consumers read at the leader, so a
        leader hands over instead while another member can lead.
        """
        node, now = self._node(), self._clock.seconds()
        if node is None or node.role is not MemberRole.LEADER or not self._able(node):
            self._short_since = None
            return True
        if not self._settings.hand_over_when_full:
            return True
        if self._short_since is None:
            self._short_since = now
        return now >= self._short_since + PATIENCE_S

    def _reason(self, now: float) -> str:
        """Return why this member should not lead; empty: it may lead."""
        ledger = self._log.ledger
        refuses = ledger.fault or ledger.refused
        if refuses is None:
            self._refuses_since = None
        elif self._refuses_since is None:
            self._refuses_since = now
        if self._log.fault is not None:
            return self._log.fault
        if not self._settings.hand_over_when_full:
            return ""
        if ledger.full is not None:
            return ledger.full
        if self._refuses_since is not None and now >= self._refuses_since + _REFUSES_S:
            return refuses or ""
        return (self._configuration.clean_file_forcibly_enable and ledger.short) or ""

    def _able(self, node: Node) -> list[str]:
        """
        Return the members that can lead in place of this one.

        They have all committed entries and more room on the disk. As long as this member takes
        entries, they also have all entries that consumers can read here. Of these members, only
        those with the most room are returned.
        """
        ledger = self._log.ledger
        own = Room.NONE if self._log.fault is not None else ledger.room
        known = {peer: node.standing(peer) for peer in self._settings.others}
        able = [
            peer
            for peer, standing in known.items()
            if standing.room > own
            and standing.watermark >= ledger.committed_index
            and (own is Room.NONE or 0 <= standing.begin_index <= ledger.begin_index)
        ]
        best = max([known[peer].room for peer in able], default=Room.NONE)
        return [peer for peer in able if known[peer].room is best]

    def _tell_alone(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            self.log.error(
                "this leader should hand over ({reason}), but no other member has room on its disk "
                "and all entries: free disk space, or mend the disk, at one of the members",
                reason=reason,
            )
