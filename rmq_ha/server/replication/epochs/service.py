"""AutoSwitchHAService: the replication of a broker whose role the controllers decide.

Spec: controller.md, chapters 3, 7 and 8.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, StoreError
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.one_by_one import OneByOne
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.replication.epochs.commit_log import EpochCommitLog
from rmq_ha.server.replication.epochs.context import OwnJournal, ReplicationParts, RoleContext
from rmq_ha.server.replication.epochs.epochs import Epochs
from rmq_ha.server.replication.epochs.ha_status import master_status, slave_status
from rmq_ha.server.replication.epochs.history import EpochHistory
from rmq_ha.server.replication.epochs.master import MasterRole
from rmq_ha.server.replication.epochs.put_refusal import why_no_puts, why_not_kept
from rmq_ha.server.replication.epochs.roles.actions import (
    Adopt,
    Follow,
    Lead,
    LogProgress,
    StepDown,
)
from rmq_ha.server.replication.epochs.roles.controller_client import ControllerClient, Decision
from rmq_ha.server.replication.epochs.roles.departure import Departure
from rmq_ha.server.replication.epochs.roles.identity import IdentityFiles, KnownIds
from rmq_ha.server.replication.epochs.roles.manager import ReplicasManager
from rmq_ha.server.replication.epochs.roles.resignation import MasterResignation
from rmq_ha.server.replication.epochs.settings import manager_settings, replication_settings
from rmq_ha.server.replication.epochs.shared_end import SharedEnd
from rmq_ha.server.replication.epochs.slave import SlaveRole
from rmq_ha.server.replication.epochs.tables import Tables
from rmq_ha.server.replication.statistics import SetStatistics
from rmq_ha.server.store.journal import Masters, Role


class AutoSwitchHAService:
    """
    Replication of one broker in controller mode: it carries out the controllers' decisions.

    A change of role takes several steps, and each is on the disk before the next. A newer decision
    stops an older one that is under way, unless that has already taken effect.

    :ivar role: the broker's role, as the controllers decide it.
    :ivar master: does the work while this broker leads.
    :ivar slave: does the work while another broker leads.
    """

    log = Logger()

    def __init__(self, host: Host, configuration: BrokerConfiguration, log: EpochCommitLog) -> None:
        mode, root = configuration.controlled, configuration.store.store_path_root_dir
        self._host = host
        self._configuration = configuration
        self._log = log
        self.role = Role(configuration.store, self)
        self.settings = replication_settings(configuration)
        self._history = EpochHistory(
            host, log, mode.store_path_epoch_file or f"{root}/epochFileCheckpoint"
        )
        self._files = IdentityFiles(
            host.disk, mode.store_path_broker_identity or f"{root}/brokerIdentity"
        )
        self._context = RoleContext(
            host=host,
            configuration=configuration,
            log=log,
            settings=self.settings,
            history=self._history,
            shared=SharedEnd(log, self.settings, configuration.ours.ha_cut_confirmed_to),
        )
        self.master = MasterRole(self._context)
        self.slave = SlaveRole(self._context, self.master.listener.connector())
        # The log calls these for each run and in each turn, so no call stands in between.
        self.when_replicated = self.master.when_replicated
        self.is_replicated = self.master.is_replicated
        self.appended = self.master.appended
        self._changing = OneByOne()
        self._elections = 0
        self._resignation: MasterResignation | None = None
        log.leadership = self
        broker = configuration.broker
        self._set_name = broker.broker_cluster_name, broker.broker_name or ""

    def attach(
        self,
        client: Calls,
        journal: OwnJournal,
        tables: Tables,
        on_master: Callable[[str | None], None],
        masters: Masters,
    ) -> None:
        """Take the parts of the broker, see `ReplicationParts`; call it before `start`."""
        self._context.attached = ReplicationParts(
            client=client, journal=journal, tables=tables, on_master=on_master, masters=masters
        )
        tables.watch(self.master.table_changed)

    # ------------------------------------------------------------ beginning and end

    def start(self) -> "Deferred[None]":
        """
        Listen, and ask the controllers for this broker's role.

        :returns: fires when listening; fails with CannotListenError, or with StoreError when the
            files of controller mode cannot be used.
        """
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        configuration, context, host = self._configuration, self._context, self._host
        settings = manager_settings(configuration)
        self._files.load(settings.cluster_name, settings.broker_name)
        await self._history.load()
        if self._history.is_of_controllers:
            context.shared.begin(self._log.shared_end)
        await self._history.begin_mode(bool(self._files.identity or self._files.application))
        manager = ReplicasManager(
            settings,
            KnownIds(self._files.identity, self._files.application),
            self._progress,
            host.now_ms,
            host.random,
            self._history.crashed_in,
            lambda: not context.has_to_follow_first,
        )
        client = context.broker.client
        context.controllers = ControllerClient(host, manager, self._files, client, self)
        await self.master.listener.listen()
        self.log.info(
            "replication listens on port {port}; controllers: {controllers}",
            port=self.master.listener.port,
            controllers=", ".join(settings.controllers),
        )
        context.controllers.start()
        own = configuration.ours
        if own.ha_hand_over_when_full:
            ratio = own.disk_space_clean_forcibly_ratio / 100
            self._resignation = MasterResignation(host.clock, client, self, self._set_name, ratio)
            self._resignation.start()

    def hand_over(self) -> "Deferred[None]":
        """
        Have a slave elected if this broker leads, since it stops soon; see `Departure`.

        :returns: fires when that is done, or cannot be; never fails.
        """
        seconds = self._configuration.ours.ha_hand_over_at_stop_seconds
        if not seconds or self.controllers is None:
            return succeed(None)
        self._context.is_leaving = True
        client = self._context.broker.client
        departure = Departure(self._host.clock, client, self, self._set_name, seconds)
        return Deferred.fromCoroutine(departure.hand_over())

    def stop(self) -> "Deferred[None]":
        """
        Stop: nothing more is sent, neither to controllers nor to slaves.

        :returns: fires when nothing writes to the log any more and every connection is closed; puts
            that still waited got SERVICE_NOT_AVAILABLE.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._resignation is not None:
            await self._resignation.stop()
        self._context.decision = None
        changed: Deferred[None] | None = None
        if self.controllers is not None:
            changed = self.controllers.stop()  # the lease is over: nothing is appended any more
        await self.master.listener.stop_listening()
        self.master.end("this broker stops")
        await self._changing.run(lambda: Deferred.fromCoroutine(self.slave.leave()))
        await self.master.listener.wait_closed()
        if changed is not None:
            await changed

    # ------------------------------------------------------------ decisions

    def decided(self, decision: Decision) -> None:
        if isinstance(decision, Adopt):
            self.master.adopt(decision)
            return
        self._context.decision = decision
        self._elections += 1
        self._log.admits = False
        self.master.end("its role changes")
        if isinstance(decision, StepDown):
            self.log.warn("this broker leads no more: {why}", why=decision.why)
        if not isinstance(decision, Lead):
            self.role.follow()
        changed = self._changing.run(lambda: Deferred.fromCoroutine(self._carry_out(decision)))
        changed.addErrback(lambda failure: self.log.failure("a role change failed", failure))

    async def _carry_out(self, decision: Lead | Follow | StepDown) -> None:
        await self.slave.leave()
        if decision is not self._context.decision:
            return
        if isinstance(decision, Follow):
            self.slave.follow(decision)
        elif isinstance(decision, Lead):
            try:
                if await self.master.begin(decision):
                    self.role.lead(decision.epoch)
            except (OSError, StoreError, ProtocolViolation) as error:
                self.log.error(
                    "this broker was elected for epoch {epoch}, but cannot lead: {error}",
                    epoch=decision.epoch,
                    error=error,
                )
                if decision is self._context.decision:
                    self._context.conversation.failed()

    def _progress(self) -> LogProgress:
        log = self._log
        return LogProgress(self.epochs.last_epoch, int(log.max_offset), log.readable_end)

    # ------------------------------------------------------------ the role, as others ask for it

    @property
    def controllers(self) -> ControllerClient | None:
        """Return the conversation with the controllers; None until `start`."""
        return self._context.controllers

    @property
    def epochs(self) -> Epochs:
        """Return the epochs of the log."""
        return self._history.epochs

    def notified(self, channel: Channel, request: RemotingCommand) -> None:
        """
        Take request 1008, in which a controller tells of an election; see
        `ControllerClient.notified`.
        """
        if self.controllers is not None:
            self.controllers.notified(channel, request)

    @property
    def slave_id(self) -> int:
        """Return the brokerId of this broker while it is a slave."""
        return self._context.slave_id

    @property
    def epoch(self) -> int | None:
        return 0 if self.controllers is None else self.controllers.manager.epoch

    @property
    def may_append(self) -> bool:
        """Whether this broker may append messages to its log; see `AppendPermission`."""
        state = self.master.state
        return state is not None and state.has_enough and self._context.conversation.may_accept

    def leads(self, term: int) -> bool:
        """Whether this broker still leads that epoch."""
        return self.master.state is not None and self.epochs.last_epoch == term

    @property
    def is_sure_to_lead(self) -> bool:
        """Whether this broker leads, and its lease lasts."""
        return self.master.state is not None and self._context.conversation.may_accept

    def is_settled(self) -> bool:
        """Whether all of the log is confirmed."""
        return self.master.state is not None and self._log.readable_end >= self._log.max_offset

    def admit_puts(self, admitted: bool) -> None:
        """Decide whether clients' messages come into the log."""
        self._log.admits = admitted

    def why_not_stored(self) -> str:
        return "" if self.master.state is None else self._context.broker.journal.why_not_stored()

    @property
    def is_master(self) -> bool:
        return self.master.state is not None

    @property
    def others_in_sync(self) -> frozenset[int]:
        state = self.master.state
        members = frozenset(()) if state is None else frozenset(state.known.members)
        return members - {self.slave_id}

    def complete(self) -> frozenset[int]:
        return self.master.complete()

    @property
    def controller(self) -> str | None:
        return None if self.controllers is None else self.controllers.manager.leader

    def why_no_puts(self) -> str:
        """Return why this broker takes no messages, and what to do; empty: it takes them."""
        return why_no_puts(self._context, self.master.state, self.slave.stranger)

    def why_not_kept(self) -> str:
        """
        Return why a put in the log was not kept in time, and what to do; empty: no reason is known.
        """
        return why_not_kept(self._context, self.master.state, self.slave.stranger)

    # ------------------------------------------------------------ the log

    def flushed(self) -> None:
        """Tell the master's or the slave's side that more of the log is on the disk."""
        if self.master.state is not None:
            self.master.flushed()
        elif self.slave.link is not None:
            self.slave.link.flushed()

    def replicated_offset(self) -> int:
        """Return the highest offset that a slave holds; 0 without slaves."""
        return self.master.replicated_offset()

    def set_master_address(self, address: str | None) -> None:
        """Ignore the name server's address: the controllers name the master."""

    @property
    def is_following(self) -> bool:
        """
        Whether this broker is connected to the master of its epoch, and their handshake is over.
        """
        return self.slave.is_following

    def ha_status(self) -> dict[str, Any]:
        """Return the content of the answer to 907."""
        end, now, state = int(self._log.max_offset), self._context.now(), self.master.state
        if state is None:
            link = self.slave.link
            connection = None if link is None else link.connection
            return slave_status(
                end,
                "" if link is None else link.ha_address,
                None if connection is None else connection.replica,
                now,
                self._host.now_ms(),
            )
        connections = self.master.listener.connections
        feeds = [(connection.peer, connection.feed) for connection in connections]
        return master_status(end, state.known.members, feeds, now)

    def statistics(self) -> SetStatistics:
        state, link, log = self.master.state, self.slave.link, self._log
        return SetStatistics(
            waiting=self.master.waiting,
            refused=self.master.listener.entrance.refused,
            replicated_offset=self.replicated_offset(),
            slaves=self.master.listener.statistics(),
            master=None if link is None else link.statistics(),
            broker_id=self._context.broker_id,
            epoch=self.epochs.last_epoch,
            leads=state is not None,
            has_lease=self.controllers is not None and self.controllers.may_accept,
            elections=self._elections,
            in_sync=[] if state is None else list(state.known.members),
            is_in_sync=self.controllers is not None and self.controllers.manager.is_in_sync,
            confirm_offset=log.readable_end,
            unconfirmed=int(log.max_offset) - log.readable_end,
            stranded_ids=sorted(self.master.stranded),
        )
