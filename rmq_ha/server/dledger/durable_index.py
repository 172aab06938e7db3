"""The index up to which this member counts its ledger as stored."""

from rmq_ha.server.dledger.actions import Sync
from rmq_ha.server.dledger.member import Member


class DurableIndex:
    """
    Tracks the last stored entry: the last written one or, with `sync_before_ack`, the last synced
    one.

    Spec: dledger.md, section 18.2
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._synced = -1
        self._is_syncing = False
        self._is_stale = False

    @property
    def index(self) -> int:
        """Return the last entry that this member may acknowledge as stored."""
        member = self._member
        return self._synced if member.settings.sync_before_ack else member.ledger.end_index

    def want(self, index: int) -> None:
        """Ask for a sync if entry `index` does not count as stored yet and no sync is running."""
        if index > self.index and not self._is_syncing:
            self._is_syncing = True
            self._member.outbox.append(Sync())

    def synced(self, index: int) -> None:
        """
        Take the result of a sync.

        :param index: the last entry that the sync has brought to the disk.
        """
        if not self._is_stale:
            self._synced = max(self._synced, min(index, self._member.ledger.end_index))
        self._is_syncing = self._is_stale = False

    def truncated(self, index: int) -> None:
        """
        Take note that entry `index` was rewritten and all later entries were cut. A sync that is
        running says nothing about the entries that replace them.
        """
        self._synced = min(self._synced, index - 1)
        self._is_stale = self._is_syncing
