"""The journal of a broker in controller mode: controllers elect the master and keep the set in
sync.

Spec: controller.md, chapters 3, 7 and 8.
"""

from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.seams import Host
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.store_format.commitlog import store_timestamp_of
from rmq_ha.server.replication.epochs.commit_log import ConfirmedTail, EpochCommitLog
from rmq_ha.server.replication.epochs.requests import ControllerModeRequests
from rmq_ha.server.replication.epochs.service import AutoSwitchHAService
from rmq_ha.server.replication.places import holds_nothing
from rmq_ha.server.store.journal import JournalBrokerContext, JournalStoreContext
from rmq_ha.server.store.local.journal import LocalJournal
from rmq_ha.server.store.log.boot import LastExit
from rmq_ha.server.store.log.layout import log_files
from rmq_ha.server.store.log.tail import LogTail

_OF_THE_DISK = (Flag.DISK_FULL, Flag.COMMIT_LOG, Flag.CONSUME_QUEUE, Flag.INDEX_FILE)


class EpochJournal(LocalJournal):
    """
    The journal of a broker in a set. A message counts as stored when as many brokers as the
    configuration demands have it. Consumers may read a message that every broker in sync has.

    :ivar service: the replication, and the conversation with the controllers.
    :raises ConfigurationError: the configuration cannot be served in this mode.
    """

    goes_on_after_kill = False
    log: EpochCommitLog

    def __init__(self, host: Host, configuration: BrokerConfiguration) -> None:
        store = configuration.store
        log = EpochCommitLog(*log_files(host.disk, store))
        self.service = AutoSwitchHAService(host, configuration, log)
        super().__init__(log, store, self.service.role)
        self.replicated_by(self.service)

    def _make_tail(self) -> LogTail:
        return ConfirmedTail(self.log)

    def attach(self, store: JournalStoreContext) -> None:
        super().attach(store)
        self.log.subscribe(self._note)

    def join(self, broker: JournalBrokerContext) -> None:
        self.service.attach(
            broker.calls, self, broker.tables(), broker.set_master_address, broker.masters
        )
        self._requests = ControllerModeRequests(self.service, self.log, broker.identity)

    def hand_over(self) -> "Deferred[None]":
        """Have a slave elected before this master stops; see `Journal`."""
        return self.service.hand_over()

    def routes(self) -> dict[int, Any]:
        """Return the handlers of codes 906, 907, 1007 and 1008; see `Journal`."""
        return self._requests.routes()

    @property
    def has_masters_log(self) -> bool:
        """Whether this slave has its master's log; see `Journal`."""
        return self.service.is_following or holds_nothing(self.log)

    def info(self) -> dict[str, Any]:
        """Return a master's slaves as `slaves`, or a slave's link as `master`; see `Journal`."""
        told = self.service.statistics()
        if told.leads:
            return {"slaves": told.slaves_info()}
        master = told.master
        if master is None:
            return {"master": {"address": None, "state": "no address", "fault": None}}
        return {
            "master": {
                "address": master.address,
                "broker_id": master.broker_id,
                "state": master.state,
                "fault": master.fault,
                "alone_seconds": master.alone_seconds,
            }
        }

    def why_not_stored(self) -> str:
        """Return why the disk takes no messages; empty: it takes them. The role does not matter."""
        flags = self._store.flags
        is_wrong = any(flags.is_up(flag) for flag in _OF_THE_DISK)
        return self.log.fault or ("; ".join(flags.reasons) if is_wrong else "")

    def reloadable(self) -> list[Any]:
        """Return the objects that read certificates and secrets again; see `Journal`."""
        listener = self.service.master.listener
        return [listener.tls, listener.secrets]

    def why_no_puts(self) -> str:
        return self.service.why_no_puts()

    def why_not_kept(self) -> str:
        return self.service.why_not_kept()

    @property
    def dispatched_to(self) -> int:
        """Return the physical offset up to which the log is dispatched to the queues."""
        return self._store.dispatcher.position

    def log_flushed(self) -> None:
        """Tell replication, too, that the log was flushed; see `LocalJournal.log_flushed`."""
        super().log_flushed()
        self.service.flushed()

    def _note(self) -> None:
        self._store.checkpoint.confirmed = self.log.readable_end

    def recover(self, left: LastExit) -> None:
        """
        Recover; see `Journal`. Records are confirmed if they were dispatched before, or if the
        checkpoint says so.

        Recovery may build queue units and index entries of later records. They are removed again,
        and the checkpoint is lowered.
        """
        log, queues, index = self.log, self._store.queues, self._store.index
        log.is_whole = left is LastExit.CLEAN
        dispatched = max(queues.max_physical_offset, 0)
        super().recover(left)
        known = max(dispatched, self._store.checkpoint.confirmed)
        log.shared_end = min(self._store.checkpoint.confirmed, int(log.max_offset))
        log.confirm_offset = confirmed = min(known, int(log.max_offset))
        if queues.max_physical_offset > confirmed:
            queues.truncate(confirmed)
            if queues.max_physical_offset > confirmed:  # the confirm offset may lie within a record
                confirmed, _ = queues.last_record() or (0, 0)
                queues.truncate(confirmed)
        if index is not None:
            index.truncate(confirmed)
        self._note()
        if log.confirm_offset < log.max_offset:
            self._vouch_for_queues()

    def _vouch_for_queues(self) -> None:
        """
        Lower the checkpoint to the end of the queues. A start after a power loss then builds all
        later units anew.
        """
        checkpoint, flusher = self._store.checkpoint, self._store.queue_flusher
        last = self._store.queues.last_record()
        record = None if last is None else self.log.record_at(*last)
        checkpoint.logics = store_timestamp_of(record) if record else 0
        flusher.index_end = min(flusher.index_end, checkpoint.index)
