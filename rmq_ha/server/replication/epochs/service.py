"""AutoSwitchHAService: replication of a broker whose role the controllers give.

Spec: controller.md, chapters 3, 7 and 8.
"""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, StoreError, StrandedLog
from rmq_ha.base.model.status import Decided, FlushDiskType, PutMessageStatus
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.one_by_one import OneByOne
from rmq_ha.base.timing.timer import rearm
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.replication.anew import why_not_anew
from rmq_ha.server.replication.connector import MasterConnector
from rmq_ha.server.replication.entrance import Entrance
from rmq_ha.server.replication.epochs.commit_log import EpochCommitLog
from rmq_ha.server.replication.epochs.epochs import BEFORE_CONTROLLERS, Epoch, Epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed, Report
from rmq_ha.server.replication.epochs.files import EpochFile, IdentityFiles
from rmq_ha.server.replication.epochs.ha_status import master_status, slave_status
from rmq_ha.server.replication.epochs.link import EpochLink
from rmq_ha.server.replication.epochs.protocol import EpochFeedProtocol
from rmq_ha.server.replication.epochs.puts import WaitingPuts
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica, Remember
from rmq_ha.server.replication.epochs.roles.actions import Adopt, Follow, Lead, Progress, StepDown
from rmq_ha.server.replication.epochs.roles.controller_client import ControllerClient, Decision
from rmq_ha.server.replication.epochs.roles.manager import ReplicasManager
from rmq_ha.server.replication.epochs.roles.resignation import Resignation
from rmq_ha.server.replication.epochs.settings import ManagerSettings, ReplicationSettings
from rmq_ha.server.replication.epochs.shared_end import SharedEnd
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.server.replication.epochs.tables import Entry, Tables
from rmq_ha.server.replication.lag import AppendTimes
from rmq_ha.server.replication.places import chain_to, holds_nothing
from rmq_ha.server.replication.shared_secrets import SharedSecrets
from rmq_ha.server.replication.shell import OpenConnections
from rmq_ha.server.replication.statistics import STRANDED, SetStatistics, SlaveStatistics
from rmq_ha.server.store.journal import Masters, Role

_LOOK_AGAIN_S = 1.0
"""At a set that the controllers were asked for."""


class OwnJournal(Protocol):
    """What replication needs of its journal besides the log."""

    @property
    def dispatched_to(self) -> int:
        """Physical offset up to which queues know what the log holds."""

    def set_aside(self, end: int, why: str) -> "Deferred[Any]":
        """Give up what lies behind `end`, and keep it in a folder."""

    def set_all_aside(self, why: str) -> "Deferred[Any]":
        """Give up all of the log, and keep it in a folder."""

    def why_not_stored(self) -> str:
        """Why the disk takes no messages; empty: it does."""


class _FeedFactory(Factory):
    """Takes slaves in while this broker leads."""

    noisy = False

    def __init__(self, service: "AutoSwitchHAService") -> None:
        self._service = service

    def buildProtocol(self, addr: IAddress | None) -> TwistedProtocol | None:
        """None: it is closed at once."""
        return self._service.entrance.meet(addr)


class AutoSwitchHAService:
    """
    Replication of one broker in controller mode: the listener, the link to whoever leads, who is
    in sync, and the conversation with the controllers.

    A change of role is one step after the other, each of which is on the disk before the next; a
    newer decision makes an older one that is under way stop before it has an effect.

    :ivar role: of the broker, as the controllers want it.
    :ivar controllers: None until `start`.
    :ivar tls: who may connect, and how the link connects.
    :ivar secrets: what both ends may have to know.
    :ivar entrance: a slave that connects comes through it.
    """

    log = Logger()

    def __init__(self, host: Host, configuration: BrokerConfiguration, log: EpochCommitLog) -> None:
        own, mode, store = configuration.ours, configuration.controlled, configuration.store
        self._host = host
        self._configuration = configuration
        self._log = log
        self.role = Role(configuration.store, self)
        self._on_master: Callable[[str | None], None] = lambda address: None
        self.controllers: ControllerClient | None = None
        self.settings = ReplicationSettings(
            all_ack_in_sync_state_set=mode.all_ack_in_sync_state_set,
            in_sync_replicas=mode.in_sync_replicas,
            min_in_sync_replicas=mode.min_in_sync_replicas,
            ha_max_time_slave_not_catchup=mode.ha_max_time_slave_not_catchup,
            broker_heartbeat_interval=mode.broker_heartbeat_interval,
            ha_send_heartbeat_interval=store.ha_send_heartbeat_interval,
            ha_housekeeping_interval=store.ha_housekeeping_interval,
            ha_transfer_batch_size=store.ha_transfer_batch_size,
            max_transfer_per_second=mode.most_per_second,
            sync_from_last_file=mode.sync_from_last_file,
            async_learner=mode.async_learner,
            sync_flush=store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        )
        root = store.store_path_root_dir
        self._file = EpochFile(
            host.disk, mode.store_path_epoch_file or f"{root}/epochFileCheckpoint"
        )
        self._files = IdentityFiles(
            host.disk, mode.store_path_broker_identity or f"{root}/brokerIdentity"
        )
        self._epochs = Epochs()
        self._state: SyncState | None = None
        self._decision: Lead | Follow | StepDown | None = None
        self._changing = OneByOne()
        self._feeds: list[EpochFeedProtocol] = []
        self._open = OpenConnections()
        self._link: EpochLink | None = None
        self._puts = WaitingPuts()
        self._timer: IDelayedCall | None = None
        self._port: IListeningPort | None = None
        self._client: Calls | None = None
        self._journal: OwnJournal | None = None
        self._tables: Tables | None = None
        self.tls = HaTls(configuration.plugin_options, host.disk.read_bytes, host.now_ms)
        self.secrets = SharedSecrets(own, host.disk.read_bytes)
        self.entrance = Entrance(
            host,
            configuration,
            self.tls,
            self.secrets,
            Refusals(host.clock),
            self.accept,
            lambda: self._state is not None,
        )
        self._connector = MasterConnector(host, configuration, self.tls, self.secrets)
        self._elections = 0
        self._stranded: set[int] = set()
        self._times = AppendTimes()
        self._masters: Masters | None = None
        self._resignation: Resignation | None = None
        self._stranger: str | None = None
        self._shared = SharedEnd(log, self.settings, own.ha_cut_confirmed_to)
        log.leadership = self

    def attach(
        self,
        client: Calls,
        journal: OwnJournal,
        tables: Tables,
        on_master: Callable[[str | None], None],
        masters: Masters,
    ) -> None:
        """
        What it needs of its broker; before `start`.

        :param client: asks controllers and masters; it is not stopped here.
        :param tables: go to slaves of ours, and are taken from a master of ours.
        :param on_master: is called with the master's address for clients when it is known; None:
            nobody.
        :param masters: which of the masters that controllers name is followed.
        """
        self._client, self._journal, self._tables = client, journal, tables
        self._on_master = on_master
        self._masters = masters
        tables.watch(self._table_changed)

    # ------------------------------------------------------------ beginning and end

    def start(self) -> "Deferred[None]":
        """
        Listen, and ask the controllers what this broker is.

        :returns: fires when listening; fails with CannotListenError, or with StoreError when the
            files of controller mode cannot be used.
        """
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        configuration, mode = self._configuration, self._configuration.controlled
        broker, port = configuration.broker, configuration.server.listen_port
        cluster, name = broker.broker_cluster_name, broker.broker_name or ""
        self._files.load(cluster, name)
        self._file.load()
        self._epochs = self._file.epochs.cut(int(self._log.max_offset))
        if not self._log.is_whole:
            await self._host.worker.call(self._file.note_crash)
        if self._epochs.last_epoch > BEFORE_CONTROLLERS:
            self._shared.begin(self._log.shared_end)
        await self._begin_mode()
        settings = ManagerSettings(
            cluster_name=cluster,
            broker_name=name,
            broker_address=f"{broker.broker_ip1}:{port}",
            controllers=mode.controllers,
            sync_controller_metadata_period=mode.sync_controller_metadata_period,
            sync_broker_metadata_period=mode.sync_broker_metadata_period,
            broker_heartbeat_interval=mode.broker_heartbeat_interval,
            controller_heart_beat_timeout_mills=mode.controller_heart_beat_timeout_mills,
            broker_election_priority=mode.broker_election_priority,
        )
        host = self._host
        manager = ReplicasManager(
            settings,
            self._files.identity,
            self._files.application,
            self._progress,
            host.now_ms,
            host.random,
            self._file.crashed_in,
            lambda: not self._has_to_follow_first,
        )
        assert self._client is not None
        self.controllers = ControllerClient(host, manager, self._files, self._client, self)
        endpoint = host.network.server(port + 1 if port else 0, configuration.ours.bind_address)
        listening: Deferred[IListeningPort] = maybeDeferred(endpoint.listen, _FeedFactory(self))
        self._port = await listening
        self.log.info(
            "replication listens on port {port}; controllers: {controllers}",
            port=getattr(self._port.getHost(), "port", None),
            controllers=", ".join(mode.controllers),
        )
        self.controllers.start()
        own = configuration.ours
        if own.ha_hand_over_when_full:
            ratio = own.disk_space_clean_forcibly_ratio / 100
            self._resignation = Resignation(host.clock, self._client, self, (cluster, name), ratio)
            self._resignation.start()

    async def _begin_mode(self) -> None:
        """
        The log of a classic pair is an epoch that no election made.

        On the disk before there is an id: who has an id and no epochs has lost them.
        """
        known = (self._files.identity, self._files.application, *self._file.epochs.entries)
        if any(known) or holds_nothing(self._log):
            return
        before = Epochs([Epoch(BEFORE_CONTROLLERS, 0)])
        await self._host.worker.call(self._file.write, before)
        self._epochs = before
        self.log.info(
            "the log, up to {end}, is from before controller mode", end=self._log.max_offset
        )

    @property
    def _has_to_follow_first(self) -> bool:
        """What a classic pair's slave lacks of its master's log, it must not take from others."""
        is_new = self._epochs.last_epoch <= BEFORE_CONTROLLERS
        return self._configuration.was_slave and is_new

    def stop(self) -> "Deferred[None]":
        """
        Say nothing more, neither to controllers nor to slaves.

        :returns: fires when the log is left alone and every connection is closed; puts that still
            wait got SERVICE_NOT_AVAILABLE.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._resignation is not None:
            await self._resignation.stop()
        self._decision = None
        changed: Deferred[None] | None = None
        if self.controllers is not None:
            changed = self.controllers.stop()  # the lease is over: nothing is appended any more
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)
        self._lead_no_more("this broker stops")
        await self._changing.run(lambda: Deferred.fromCoroutine(self._leave_master()))
        await self._open.wait()
        if changed is not None:
            await changed

    # ------------------------------------------------------------ decisions

    def decided(self, decision: Decision) -> None:
        """As `RoleOwner` says."""
        state = self._state
        if isinstance(decision, Adopt):
            if state is None:
                return
            state.adopt(decision.known)
            if decision.is_final:  # before anything else is proposed, which would be dropped here
                state.refused(self._now(), lacks_heartbeat=decision.lacks_heartbeat)
            self._settle()
            return
        self._decision = decision
        self._elections += 1
        self._log.admits = False
        self._lead_no_more("its role changes")
        if isinstance(decision, StepDown):
            self.log.warn("this broker leads no more: {why}", why=decision.why)
        if not isinstance(decision, Lead):
            self.role.follow()
        changed = self._changing.run(lambda: Deferred.fromCoroutine(self._carry_out(decision)))
        changed.addErrback(lambda failure: self.log.failure("a role change failed", failure))

    async def _carry_out(self, decision: Lead | Follow | StepDown) -> None:
        await self._leave_master()
        if decision is not self._decision:
            return
        if isinstance(decision, Follow):
            self._follow(decision)
        elif isinstance(decision, Lead):
            try:
                await self._lead(decision)
            except (OSError, StoreError, ProtocolViolation) as error:
                self.log.error(
                    "this broker was elected for epoch {epoch}, but cannot lead: {error}",
                    epoch=decision.epoch,
                    error=error,
                )
                if decision is self._decision:
                    self._conversation.failed()

    async def _leave_master(self) -> None:
        self._stranger = None
        link, self._link = self._link, None
        if link is not None:
            await link.stop()

    def _follow(self, decision: Follow) -> None:
        assert self._client is not None
        self.log.info(
            "follows broker {master_id} at {peer}, epoch {epoch}",
            master_id=decision.master_id,
            peer=decision.master_address,
            epoch=decision.epoch,
        )
        if not self.trusts(decision.master_address):
            self._stranger = decision.master_address
            self._on_master(None)
            return
        if self._tables is not None and not self.settings.async_learner:
            self._tables.awaited()
        self._on_master(decision.master_address)
        master, number = decision.master_address, decision.master_id
        self._link = EpochLink(self._host, self._client, self._connector, master, number, self)
        self._link.start()
        self._log.poke()

    async def _lead(self, decision: Lead) -> None:
        await self._drop_torn_record()
        epochs = self._epochs.led(decision.epoch, int(self._log.max_offset))
        await self._host.worker.call(self._file.write, epochs)
        self._epochs = epochs
        if decision is not self._decision:
            return
        assert self.broker_id is not None
        self._state = SyncState(
            self.broker_id,
            self._log,
            epochs,
            decision.known,
            self.settings,
            self._now(),
            self._log.confirm_offset,
        )
        self._times.note(int(self._log.max_offset), self._now())
        self._on_master(None)
        self._log.poke()
        self._settle()
        self.role.lead(decision.epoch)

    async def _drop_torn_record(self) -> None:
        """A slave's log may end within a record; what is torn was acknowledged by nobody."""
        assert self._journal is not None
        end = int(self._log.max_offset)
        low = max(int(self._journal.dispatched_to), int(self._log.min_offset))
        chain = chain_to(self._log, low, end)
        whole = low if chain is None else chain.end
        if whole < end:
            await self._journal.set_aside(whole, "the end of a record that never came")

    def _lead_no_more(self, why: str) -> None:
        """Whatever a put waits for, nobody will say that it is there."""
        self._state = None
        self._stranded.clear()
        self._timer = rearm(self._host.clock, self._timer, None, self._settle)
        self.entrance.close()
        for connection in self._feeds[:]:
            connection.close(why)
        self._puts.give_up(self._now())

    # ------------------------------------------------------------ the role, as others ask for it

    @property
    def _conversation(self) -> ControllerClient:
        """Whoever was given a role has one."""
        assert self.controllers is not None
        return self.controllers

    @property
    def broker_id(self) -> int | None:
        """As the controllers gave it; None: not yet."""
        identity = None if self.controllers is None else self.controllers.manager.identity
        return None if identity is None else identity.broker_id

    @property
    def epochs(self) -> Epochs:
        """Of the log."""
        return self._epochs

    def notified(self, channel: Channel, request: RemotingCommand) -> None:
        """1008, one-way: a controller tells of an election. As `ControllerClient.notified`."""
        if self.controllers is not None:
            self.controllers.notified(channel, request)

    @property
    def slave_id(self) -> int:
        """The brokerId of this broker while it is a slave."""
        return self.broker_id or 1

    @property
    def epoch(self) -> int | None:
        """As `Electorate` says."""
        return 0 if self.controllers is None else self.controllers.manager.epoch

    @property
    def may_append(self) -> bool:
        """As `Leadership` says."""
        state = self._state
        return state is not None and state.has_enough and self._conversation.may_accept

    def leads(self, term: int) -> bool:
        """It leads that epoch, still."""
        return self._state is not None and self._epochs.last_epoch == term

    @property
    def is_sure_to_lead(self) -> bool:
        """It leads, and its lease lasts."""
        return self._state is not None and self._conversation.may_accept

    def is_settled(self) -> bool:
        """All of the log is confirmed."""
        return self._state is not None and self._log.readable_end >= self._log.max_offset

    def admit_puts(self, admitted: bool) -> None:
        """Let clients' messages into the log, or not."""
        self._log.admits = admitted

    def why_not_stored(self) -> str:
        """As `FullMaster` says."""
        journal = None if self._state is None else self._journal
        return "" if journal is None else journal.why_not_stored()

    def complete(self) -> frozenset[int]:
        """As `FullMaster` says."""
        state, end = self._state, int(self._log.max_offset)
        if state is None:
            return frozenset()
        feeds = [connection.feed for connection in self._feeds]
        whole = {feed.slave.broker_id for feed in feeds if feed.slave and feed.acked >= end}
        return frozenset(whole & set(state.known.members))

    @property
    def controller(self) -> str | None:
        """As `FullMaster` says."""
        return None if self.controllers is None else self.controllers.manager.leader

    def why_no_puts(self) -> str:
        """What is missing, and what to do; empty where nothing is."""
        addresses = ", ".join(self._configuration.controlled.controllers)
        if self._state is None:
            if self._masters is not None and self._stranger is not None:
                return (
                    f"the controllers ({addresses}) name {self._stranger} as the master, which is "
                    f"not in haTrustedMasters={self._masters.text}: add it there if it is one of "
                    "yours. If it is not, a stranger was elected: remove it from the controllers "
                    "(cleanBrokerMetadata), and set their controllerAllowedBrokers"
                )
            if isinstance(decision := self._decision, Follow):
                return f"the broker at {decision.master_address} leads, and takes the messages"
            if self.controllers is not None and self.controllers.manager.is_standing_back:
                return (
                    "this broker was the master when it crashed: it waits until the controllers "
                    f"({addresses}) take it for dead, after controllerHeartBeatTimeoutMills"
                )
            if self._has_to_follow_first:
                return (
                    "brokerRole=SLAVE: its store has never followed an elected master, and may "
                    "lack messages: start the pair's master in controller mode; if that one is "
                    "lost for ever, set brokerRole=SYNC_MASTER here"
                )
            awaited = () if self.controllers is None else self.controllers.manager.awaited
            if awaited and self.broker_id not in awaited:
                ids = " or ".join(map(str, awaited))
                return (
                    f"nobody leads, and this broker may lack messages: start broker {ids} of this "
                    "set, which has all (the /healthz of the controller that leads names its "
                    f"address; controllers: {addresses})"
                )
            complaint = "" if self.controllers is None else self.controllers.complaint
            text = f"no controller ({addresses}) has said who leads; try again"
            return f"{text}. {complaint}" if complaint else text
        if not self._state.has_enough:
            return (
                f"{len(self._state.known.members)} brokers are in sync, and "
                f"minInSyncReplicas={self.settings.min_in_sync_replicas}: start the others"
            )
        if not self._conversation.may_accept:
            return (
                f"the controllers ({addresses}) do not answer, and another broker may be elected: "
                "start them, or mend the network to them"
            )
        if not self._log.admits:
            return f"this broker begins to lead epoch {self._epochs.last_epoch}; try again"
        return ""

    def why_not_kept(self) -> str:
        """As `why_no_puts`, of a put that is in the log and was not kept in time."""
        why = self.why_no_puts()
        silent = 0.0 if why or self._state is None else self._now() - self._conversation.led_until
        if silent <= 0:
            return why
        addresses = ", ".join(self._configuration.controlled.controllers)
        return (
            f"no controller ({addresses}) has answered for {silent:.1f} s, so another broker may "
            "be elected, and may lack this message: send it again"
        )

    def _progress(self) -> Progress:
        log = self._log
        return Progress(self._epochs.last_epoch, int(log.max_offset), log.readable_end)

    # ------------------------------------------------------------ as a slave

    def comes_back(self) -> None:
        """As `Follower` says."""
        self._conversation.beat()

    def make_replica(self) -> EpochReplica:
        """As `Follower` says."""
        return EpochReplica(
            self.slave_id,
            self._log,
            self._epochs,
            self._log.confirm_offset,
            self.settings,
            self._now(),
            None if self.settings.async_learner else self._tables,
            self._log.confirm_offset,
        )

    def trusts(self, address: str) -> bool:
        """As `Follower` says."""
        return self._masters is None or self._masters.trusts(address, "the controller")

    def fulfil(self, task: Cut | Remember) -> "Deferred[None]":
        """As `EpochReplicaOwner` says; first the log, as an epoch without bytes does no harm."""
        return Deferred.fromCoroutine(self._fulfil(task))

    async def _fulfil(self, task: Cut | Remember) -> None:
        assert self._journal is not None
        if isinstance(task, Cut):
            self._shared.check(task.end, "" if self._link is None else self._link.master)
            self._log.confirm_offset = min(self._log.confirm_offset, task.end)
            await self._journal.set_aside(task.end, "the master of a newer epoch has another")
            self._shared.note_cut(task.end)
        await self._host.worker.call(self._file.write, task.epochs)
        self._epochs = task.epochs

    def why_not_anew(self, stranded: StrandedLog) -> str:
        """As `Follower` says."""
        directory = self._log.directories[0]
        host, configuration = self._host, self._configuration
        return why_not_anew(host.disk, configuration, directory, stranded, is_elected=True)

    def begin_anew(self, stranded: StrandedLog) -> "Deferred[None]":
        """As `Follower` says."""
        return Deferred.fromCoroutine(self._begin_anew(stranded))

    async def _begin_anew(self, stranded: StrandedLog) -> None:
        """A start that finds no log does not ask what its epochs were."""
        assert self._journal is not None
        await self._journal.set_all_aside(str(stranded))
        self._shared.note_cut(0)
        await self._host.worker.call(self._file.write, Epochs())
        self._epochs = Epochs()

    def confirmed(self, offset: int) -> None:
        """As `Follower` says."""
        self._log.confirmed(offset)
        self._shared.note_confirmed()

    # ------------------------------------------------------------ as the master

    def accept(self) -> EpochFeedProtocol:
        """A slave may replicate; the entrance is open only while this broker leads."""
        assert self._state is not None
        feed = EpochFeed(self._log, self._state, self.settings, self._now(), self._tables)
        connection = EpochFeedProtocol(feed, self, self._host.clock)
        self._feeds.append(connection)
        self._open.came()
        return connection

    def greeted(self, connection: EpochFeedProtocol, broker_id: int) -> None:
        """As `EpochFeedOwner` says."""
        if self._state is not None:
            before = self._state.connected(broker_id, connection, self._now())
            if isinstance(before, EpochFeedProtocol):
                before.close("it connected anew")

    def reported(self, connection: EpochFeedProtocol, report: Report) -> None:
        """As `EpochFeedOwner` says."""
        if self._state is not None:
            self._state.reported(connection, report, self._now())
            self._look_at_stranded(connection, report.broker_id)
            self._settle()

    def _look_at_stranded(self, connection: EpochFeedProtocol, broker_id: int) -> None:
        """Said once: such a slave comes back every few seconds."""
        feed = connection.feed
        if not feed.is_stranded:
            self._stranded.discard(broker_id)
        elif broker_id not in self._stranded:
            self._stranded.add(broker_id)
            self.log.error(
                "slave {broker_id} at {peer} cannot follow: {why}",
                broker_id=broker_id,
                peer=connection.peer,
                why=feed.why_stranded,
            )

    def left(self, connection: EpochFeedProtocol, why: str) -> None:
        """As `EpochFeedOwner` says."""
        self._feeds.remove(connection)
        slave = connection.feed.slave
        tell = self.log.debug if connection.feed.is_stranded else self.log.info
        tell("slave {peer} left: {why}", peer=connection.peer, why=why)
        if slave is not None and self._state is not None:
            self._state.closed(slave.broker_id, connection)
            self._settle()

    def gone(self, connection: EpochFeedProtocol) -> None:
        """As `EpochFeedOwner` says."""
        self._open.went()

    def flushed(self) -> None:
        """More of the log is on the disk."""
        if self._state is not None:
            self._state.flushed()
            self._settle()
        elif self._link is not None:
            self._link.flushed()

    def _table_changed(self, entry: Entry) -> None:
        for connection in self._feeds[:]:
            connection.table_changed(entry)

    def appended(self) -> None:
        """The log grew: send what is new."""
        if self._state is not None:
            now = self._now()
            self._times.note(int(self._log.max_offset), now)
            self._state.appended(now)
            for connection in self._feeds[:]:
                connection.push()
            self._settle()

    def when_replicated(
        self, next_offset: int, start_offset: int, decided: Decided
    ) -> PutMessageStatus | None:
        """
        See `Replication.when_replicated`.

        Spec: controller.md, section 8.6.
        """
        state = self._state
        if state is None:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if state.is_kept(next_offset):
            return PutMessageStatus.PUT_OK
        seconds = self._configuration.store.slave_timeout / 1000
        self._puts.add(next_offset, self._now(), seconds, decided)
        self.appended()
        return None

    def is_replicated(self, start_offset: int, next_offset: int) -> bool:
        """As many as have to hold it, do."""
        return self._state is not None and self._state.is_kept(next_offset)

    def replicated_offset(self) -> int:
        """The highest offset that a slave holds; 0 with none."""
        return max((connection.feed.acked for connection in self._feeds), default=0)

    def set_master_address(self, address: str | None) -> None:
        """What name servers say is not asked for: the controllers name the master."""

    def _settle(self) -> None:
        """Something changed: who has to be in sync, what may be read, which puts are kept?"""
        state, now = self._state, self._now()
        if state is None:
            return  # whoever heard of its put has ended the leadership
        proposal = state.proposal(now)
        if proposal is not None:
            self._conversation.propose(proposal)
        self._log.confirmed(state.confirm_offset)
        self._shared.note_leadership(self.replicated_offset())
        self._puts.settle(state.is_kept, self._conversation.led_until, now)
        times = [
            state.deadline(now),
            None if state.wanted is None else now + _LOOK_AGAIN_S,
            self._puts.deadline,
        ]
        deadline = min((time for time in times if time is not None), default=None)
        if self._state is state:
            self._timer = rearm(self._host.clock, self._timer, deadline, self._settle)

    def _now(self) -> float:
        return self._host.clock.seconds()

    @property
    def is_following(self) -> bool:
        """It is connected to the master of its epoch, and their handshake is over."""
        connection = None if self._link is None else self._link.connection
        return connection is not None and connection.replica.is_following

    def ha_status(self) -> dict[str, Any]:
        """What 907 asks."""
        end, now = int(self._log.max_offset), self._now()
        if self._state is None:
            link = self._link
            connection = None if link is None else link.connection
            return slave_status(
                end,
                "" if link is None else link.ha_address,
                None if connection is None else connection.replica,
                now,
                self._host.now_ms(),
            )
        feeds = [(connection.peer, connection.feed) for connection in self._feeds]
        return master_status(end, self._state.known.members, feeds, now)

    def statistics(self) -> SetStatistics:
        state, link, end = self._state, self._link, int(self._log.max_offset)
        return SetStatistics(
            waiting=len(self._puts),
            refused=self.entrance.refused,
            replicated_offset=self.replicated_offset(),
            slaves=[self._slave_statistics(connection, end) for connection in self._feeds],
            master=None if link is None else link.statistics(),
            broker_id=self.broker_id,
            epoch=self._epochs.last_epoch,
            leads=state is not None,
            has_lease=self.controllers is not None and self.controllers.may_accept,
            elections=self._elections,
            in_sync=[] if state is None else list(state.known.members),
            confirm_offset=self._log.readable_end,
            unconfirmed=end - self._log.readable_end,
            stranded_ids=sorted(self._stranded),
        )

    def _slave_statistics(self, connection: EpochFeedProtocol, end: int) -> SlaveStatistics:
        feed = connection.feed
        return SlaveStatistics(
            address=connection.peer,
            stage=STRANDED if feed.is_stranded else "caught up",
            requested=feed.requested,
            acked=feed.acked,
            lag=max(0, end - feed.acked),
            lag_seconds=self._times.behind(feed.acked, self._now()),
            broker_id=None if feed.slave is None else feed.slave.broker_id,
        )
