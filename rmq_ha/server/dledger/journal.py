"""The journal of a DLedger group: a ledger that most members have.

Spec: dledger.md, chapters 14 and 15.
"""

from collections.abc import Iterator
from typing import Any

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.seams import Host
from rmq_ha.base.store_format.commitlog import store_timestamp_of
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE
from rmq_ha.server.dledger.assembly import dledger_directory, make_dledger_log
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.flush import LedgerCleaner, LedgerFlusher
from rmq_ha.server.dledger.ledger_recovery import RecoveredLedger
from rmq_ha.server.dledger.service import DLedgerService
from rmq_ha.server.dledger.tail import LedgerTail
from rmq_ha.server.dledger.term_file import GroupFile
from rmq_ha.server.store.journal import JournalStoreContext, Role
from rmq_ha.server.store.journal_base import JournalBase
from rmq_ha.server.store.log.boot import LeftByCrash

_HEAD = 128


class LedgerJournal(JournalBase):
    """A ledger on the disk of this broker, and what keeps it in order."""

    always_waits = True
    log: DLedgerCommitLog
    flusher: LedgerFlusher

    def __init__(
        self, log: DLedgerCommitLog, config: MessageStoreConfig, role: Role | None = None
    ) -> None:
        super().__init__(log, config, role or Role(config))

    def attach(self, store: JournalStoreContext) -> None:
        self._store = store
        self.tail = LedgerTail(self.log)
        self.flusher = LedgerFlusher(self.log, store)
        self.cleaner = LedgerCleaner(self.log, store)
        super().attach(store)

    def load(self) -> None:
        """See `Journal`: the ledger recovers itself, behind the classic files."""
        self.log.classic.log.row.load()
        self.log.ledger.load()

    def check_presence(self) -> None:
        """See `Journal`: an empty ledger is filled by its group."""

    def recover(self, left: LeftByCrash) -> None:
        """
        Cut the queues to the ledger; after a crash what was not surely written is dispatched again.

        Spec: dledger.md, section 15.2.
        """
        log, ledger, queues = self.log, self.log.ledger, self._store.queues
        last_exit_ok = left is LeftByCrash.CLEAN
        log.classic.load(ledger.end_index >= 0, last_exit_ok, queues)
        ledger.first_pos = log.classic.end
        if ledger.end_index < 0:
            ledger.become(RecoveredLedger())  # behind what the classic log has now
            self._recover_empty()
            return
        log.flushed_offset = ledger.end_pos
        if not last_exit_ok:
            queues.truncate(self._first_unsure())
        if queues.max_physical_offset >= ledger.end_pos:
            queues.truncate(ledger.end_pos)
        last = ledger.entry(ledger.end_index)
        assert last is not None
        log.last_store_timestamp = store_timestamp_of(last.body)

    def _recover_empty(self) -> None:
        log, queues, classic = self.log, self._store.queues, self.log.classic
        log.flushed_offset = log.ledger.begin_pos
        log.last_store_timestamp = classic.log.last_store_timestamp
        if not classic.is_there:
            queues.remove_all()
        elif queues.max_physical_offset >= classic.end:
            queues.truncate(classic.end)

    def _first_unsure(self) -> int:
        """The start of the last data file that begins with something surely dispatched."""
        ledger = self.log.ledger
        sure_ms = self._store.sure_until_ms()
        for start in reversed(ledger.files.data.row.starts[1:]):
            head = ledger.read(start, ENTRY_HEADER_SIZE + _HEAD)[ENTRY_HEADER_SIZE:]
            if 0 < store_timestamp_of(head) <= sure_ms:
                return start
        return ledger.begin_pos

    def mend(self) -> Iterator[None]:
        """See `Journal`: the dispatcher does."""
        return iter(())

    def close(self) -> None:
        self.log.ledger.close()
        self.log.classic.log.row.close()


class GroupJournal(LedgerJournal):
    """
    Kept by most members of a group, which elects its leader.

    :ivar service: this broker's member.
    :raises ConfigurationError: the group cannot be read from the configuration.
    """

    def __init__(self, host: Host, configuration: BrokerConfiguration) -> None:
        log = make_dledger_log(host.disk, configuration)
        self.service = DLedgerService(host, configuration, log)
        self._name = GroupFile(host.disk, dledger_directory(configuration))
        super().__init__(log, configuration.store, self.service.role)
        self.replicated_by(self.service)

    def attach(self, store: JournalStoreContext) -> None:
        super().attach(store)
        self.service.attach(self.flusher)

    def load(self) -> None:
        """See `Journal`: not the ledger of another group."""
        self._name.claim(self.service.settings.group, "dLegerGroup")
        super().load()

    def info(self) -> dict[str, Any]:
        """
        See `Journal`: of its `ledger` why it `refuses` entries, and for how long nothing was
        committed; of a leader also which members lack entries (`lacks`).
        """
        told = self.service.statistics()
        lacks = {
            peer: {
                "entries": follower.entries_behind,
                "seconds": round(follower.seconds_behind, 1),
            }
            for peer, follower in told.followers.items()
            if follower.entries_behind
        }
        stalled = round(told.stalled_seconds, 1)
        return {"ledger": {"refuses": told.refuses, "stalled_seconds": stalled, "lacks": lacks}}

    @property
    def has_masters_log(self) -> bool:
        node = self.service.node
        return node is None or not node.is_diverged

    def reloadable(self) -> list[Any]:
        return [self.service.tls]

    def why_no_puts(self) -> str:
        return self.service.why_no_puts()
