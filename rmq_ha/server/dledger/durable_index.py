"""Up to where this member's ledger counts as stored."""

from rmq_ha.server.dledger.actions import Sync
from rmq_ha.server.dledger.member import Member


class DurableIndex:
    """
    What was written or, with `sync_before_ack`, what was synced.

    Spec: dledger.md, section 18.2
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._synced = -1
        self._is_syncing = False
        self._is_stale = False

    @property
    def index(self) -> int:
        """The last entry that may be vouched for."""
        member = self._member
        return self._synced if member.settings.sync_before_ack else member.ledger.end_index

    def want(self, index: int) -> None:
        """Somebody waits for an entry to be stored."""
        if index > self.index and not self._is_syncing:
            self._is_syncing = True
            self._member.outbox.append(Sync())

    def synced(self, index: int) -> None:
        """
        A sync has ended.

        :param index: the ledger's last entry on the disk, as the sync found it.
        """
        if not self._is_stale:
            self._synced = max(self._synced, min(index, self._member.ledger.end_index))
        self._is_syncing = self._is_stale = False

    def truncated(self, index: int) -> None:
        """Entry `index` was rewritten, what was behind it is gone: a running sync says nothing."""
        self._synced = min(self._synced, index - 1)
        self._is_stale = self._is_syncing
