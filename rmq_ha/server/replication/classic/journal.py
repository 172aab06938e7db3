"""The journal of a pair: RocketMQ's commit log, which slaves copy byte by byte.

Spec: ha.md.
"""

from typing import Any

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import StoreError
from rmq_ha.base.seams import Host
from rmq_ha.server.replication.classic.link import TailOfStore
from rmq_ha.server.replication.classic.service import HAService
from rmq_ha.server.replication.places import holds_nothing, whole_records_end
from rmq_ha.server.replication.refetch_refusal import refetch_refusal
from rmq_ha.server.store.journal import JournalStoreContext
from rmq_ha.server.store.local.journal import LocalJournal
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.layout import make_commit_log


class ClassicJournal(LocalJournal):
    """
    The journal of a broker in a pair. A put is kept by this disk and, if `brokerRole` is
    SYNC_MASTER, by a slave.

    :param log: a commit log to use instead of the one in the configured directories.
    :ivar service: sends the log to slaves, or follows the master.
    :raises ConfigurationError: the configuration wants another journal, or cannot be served.
    """

    def __init__(
        self, host: Host, configuration: BrokerConfiguration, log: CommitLog | None = None
    ) -> None:
        store = configuration.store
        self._epoch_file = configuration.controlled.store_path_epoch_file
        super().__init__(log or make_commit_log(host.disk, store), store)
        self.service = HAService(host, configuration, self.log)
        self.replicated_by(self.service)
        self.role.pair = self.service

    def attach(self, store: JournalStoreContext) -> None:
        super().attach(store)
        host, configuration, directory = store.host, store.configuration, self.log.directories[0]
        tail = TailOfStore(
            self.set_aside,
            lambda: self.tail.unreadable_at,
            self.set_all_aside,
            lambda stranded: refetch_refusal(
                host.disk, configuration, directory, stranded, is_elected=False
            ),
        )
        self.service.attach_tail(tail)

    def check_presence(self) -> None:
        """
        Refuse a store that was in controller mode; see also `Journal`.

        The bytes that a pair writes belong to no epoch. If the epochs stayed, they would vouch for
        these bytes when the broker is in controller mode again: another broker's bytes would pass
        for its own.

        :raises StoreError: the epoch file exists.
        """
        super().check_presence()
        epochs = self._epoch_file or f"{self._store.root}/epochFileCheckpoint"
        if self._store.host.disk.exists(epochs):
            raise StoreError(
                f"{epochs}: this store was in controller mode, and enableControllerMode is not set "
                "any more. Set it again; or, to go back to a pair for good, remove this file, "
                f"{epochs}.bak and {self._store.root}/brokerIdentity first (docs/upgrade.md)"
            )

    def reloadable(self) -> list[Any]:
        """Return the objects that read certificates and secrets again; see `Journal`."""
        return [self.service.listener.tls, self.service.listener.secrets]

    @property
    def has_masters_log(self) -> bool:
        """Whether this slave has its master's log; see `Journal`."""
        return self.service.is_following or holds_nothing(self.log)

    def info(self) -> dict[str, Any]:
        """
        Return a master's `slaves`, or a slave's `master` and `whole_end`; see `Journal`.

        `whole_end` is the end of the last whole record, or None while that is not known.
        """
        told = self.service.statistics()
        shown: dict[str, Any] = {"slaves": told.slaves_info()}
        if (master := told.master) is not None:
            shown["master"] = {
                "address": master.address,
                "state": master.state,
                "fault": master.fault,
                "silent_ms": master.silent_ms,
                "set_aside": master.set_aside,
            }
            shown["whole_end"] = self._whole_end()
        return shown

    def _whole_end(self) -> int | None:
        """Return the end of a slave's last whole record; None while that is not known."""
        try:
            return whole_records_end(self.log, self._store.dispatcher.position)
        except StoreError:
            return None
