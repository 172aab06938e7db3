"""Remembers the part of a log that no slave gives up without its operator's consent.

Spec: controller.md, sections 7.5 and 8.5; hazard 21 of chapter 14.
"""

from rmq_ha.base.errors import StoreError
from rmq_ha.server.replication.epochs.commit_log import EpochCommitLog
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.places import chain_to

NEVER = -1


class SharedEnd:
    """
    The offset up to which the log is confirmed and held by another broker too.

    An elected master of the set has all of that part. A master that lacks a message of it was
    elected from outside the set, has lost its disk, or is a stranger. A slave of RocketMQ cuts its
    log then; this slave asks its operator. Two kinds of messages are not in that part: those that a
    broker confirmed alone (RocketMQ's default: allAckInSyncStateSet off and inSyncReplicas=1), and
    those that a crash may have taken from this broker's disk.

    :param given_up: value of `haCutConfirmedTo`.
    :ivar offset: messages below it are confirmed, and another broker has them.
    """

    def __init__(self, log: EpochCommitLog, settings: ReplicationSettings, given_up: int) -> None:
        self.offset = 0
        self._log = log
        self._settings = settings
        self._given_up = given_up

    def begin(self, confirmed: int) -> None:
        """
        Set the offset at the start of the broker.

        :param confirmed: the confirm offset in the checkpoint of the last run.
        """
        if self._waits_for_others and (self._log.is_whole or self._settings.sync_flush):
            self.offset = min(confirmed, int(self._log.max_offset))

    def note_confirmed(self) -> None:
        """
        Raise the offset to the confirm offset that the followed master told, since the master has
        this log, too.
        """
        self.offset = max(self.offset, self._log.readable_end)

    def note_leadership(self, replicated: int) -> None:
        """
        As the master, raise `offset` to the end of the log that is confirmed. A master that does
        not wait for its slaves raises it only as far as a slave has reported.

        :param replicated: the highest offset that a slave has reported.
        """
        end = self._log.readable_end
        self.offset = max(self.offset, end if self._waits_for_others else min(end, replicated))

    def note_cut(self, end: int) -> None:
        """Lower the offset, since the log ends at `end` now."""
        self.offset = min(self.offset, end)

    def check(self, end: int, master: str) -> None:
        """
        Check that the log may be cut at `end`.

        :param master: address of the broker whose log ends there.
        :raises StoreError: a whole message after `end` is confirmed, and another broker has it.
        """
        is_given_up = self._given_up != NEVER and self._given_up <= end
        if self.offset <= end or is_given_up or chain_to(self._log, end, self.offset) is None:
            return
        raise StoreError(
            f"the elected master at {master} lacks messages that were confirmed: its log equals "
            f"this broker's up to {end}, and this broker's is confirmed up to {self.offset}. "
            "Nothing is cut here. Look whether that master is one of yours. If it is not, correct "
            "haTrustedMasters and the controllers' controllerAllowedBrokers. If it is, and those "
            f"messages may go, set haCutConfirmedTo={end} in this broker's properties file and "
            "restart it: they are moved into the folder setaside"
        )

    @property
    def _waits_for_others(self) -> bool:
        settings = self._settings
        return settings.all_ack_in_sync_state_set or settings.in_sync_replicas > 1
