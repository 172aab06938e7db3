"""The journal of a DLedger group: a ledger of which most members have a copy.

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
from rmq_ha.server.store.log.boot import LastExit

_HEAD = 128


class LedgerJournal(JournalBase):
    """A ledger on this broker's disk, with the parts that sync, clean and dispatch it."""

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
        """Load the classic files, then the ledger, which recovers itself; see `Journal`."""
        self.log.classic.log.row.load()
        self.log.ledger.load()

    def check_presence(self) -> None:
        """Accept an empty ledger, since the group fills it; see `Journal`."""

    def recover(self, left: LastExit) -> None:
        """
        Cut the queues to the end of the ledger. After a crash, also cut every record that may not
        have been written to its queue, so that it is dispatched again.

        Spec: dledger.md, section 15.2.
        """
        log, ledger, queues = self.log, self.log.ledger, self._store.queues
        last_exit_ok = left is LastExit.CLEAN
        log.classic.load(ledger.end_index >= 0, last_exit_ok, queues)
        ledger.first_pos = log.classic.end
        if ledger.end_index < 0:
            ledger.become(RecoveredLedger())  # begins after the present classic log
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
        """Return the start of the newest data file whose first record was certainly dispatched."""
        ledger = self.log.ledger
        sure_ms = self._store.sure_until_ms()
        for start in reversed(ledger.files.data.row.starts[1:]):
            head = ledger.read(start, ENTRY_HEADER_SIZE + _HEAD)[ENTRY_HEADER_SIZE:]
            if 0 < store_timestamp_of(head) <= sure_ms:
                return start
        return ledger.begin_pos

    def mend(self) -> Iterator[None]:
        """Do nothing: the dispatcher mends the queues; see `Journal`."""
        return iter(())

    def close(self) -> None:
        self.log.ledger.close()
        self.log.classic.log.row.close()


class GroupJournal(LedgerJournal):
    """
    The journal of a broker in a group that elects its leader; most members have each entry.

    :ivar service: this broker's member of the group.
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
        """Load the journal, unless its ledger is another group's; see `Journal`."""
        self._name.claim(self.service.settings.group, "dLegerGroup")
        super().load()

    def info(self) -> dict[str, Any]:
        """
        Return facts under the key `ledger`; see `Journal`.

        `refuses` is the reason why the ledger takes no entries. `stalled_seconds` says for how long
        nothing was committed while entries waited. A leader also tells which members lack entries
        (`lacks`).
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
