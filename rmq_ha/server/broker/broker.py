"""Broker: builds, starts and stops a broker.

::

    clients --- remoting (main, fast) --- processors --- tables (topics, groups, offsets, clients)
                                              |
                                            store --- commit log --- replication --- slaves, master
                                              |          |
                                            flush     dispatch --- queues, index, held pulls
    name servers --- registration                     schedule (delayed messages; master only)
    master ----- slave synchronisation (slave only)

Start, in order: tables, store (lock, load, recover, catch up, replication), listen, register,
timers. Stop is the reverse, each step awaited.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.plugin import getPlugins

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.interfaces import (
    IAccessControl,
    IAccessPlugin,
    IAccessValidator,
    ICommitLogDispatcher,
    IConsumeMessageHook,
    IDispatcherPlugin,
    IHookPlugin,
    IJournalPlugin,
    IMessageStore,
    IMessageStorePlugin,
    ISendMessageHook,
)
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.properties_file import PropertiesFile
from rmq_ha.base.remoting.audit import AuditLog
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import PeerLimits
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.remoting.turns import Turns
from rmq_ha.base.remoting.unfinished_frames import UnfinishedFrames
from rmq_ha.base.runs.maker import cut
from rmq_ha.base.runs.run import by_name
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.base.tls.reload import TlsReload
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.wire.bodies import decode_delay_offsets
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.assembly import (
    admin_processors,
    end_transactions,
    pair_handover,
    role_keeper,
    send_backs,
    timer_requests,
    timer_sends,
    transaction_checks,
)
from rmq_ha.server.broker.audit_acts import acts
from rmq_ha.server.broker.context import BrokerContext
from rmq_ha.server.broker.door_routes import DoorRoutes
from rmq_ha.server.broker.forwarding import Forwarding
from rmq_ha.server.broker.frame_limits import FrameLimits
from rmq_ha.server.broker.grpc_door import BrokerDoor
from rmq_ha.server.broker.hold import PullRequestHoldService
from rmq_ha.server.broker.known_clients import heartbeats_of
from rmq_ha.server.broker.masters import TrustedMasters
from rmq_ha.server.broker.notify import ConsumerIdsNotifier
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.broker.own_calls import own_tls, signed
from rmq_ha.server.broker.pop_parts import make_pops
from rmq_ha.server.broker.pop_requests import PopHolds, pop_processors
from rmq_ha.server.broker.processors.batches import BatchReader
from rmq_ha.server.broker.processors.heartbeat import HeartbeatProcessor
from rmq_ha.server.broker.processors.pull import ConsumeHooks, PullMessageProcessor
from rmq_ha.server.broker.processors.send import SendMessageProcessor, SendRules
from rmq_ha.server.broker.processors.send_checks import SendChecks
from rmq_ha.server.broker.processors.send_hooks import SendHooks, SendPlugins
from rmq_ha.server.broker.processors.unserved_requests import UnservedProperties
from rmq_ha.server.broker.registration import MasterCallbacks, Registration
from rmq_ha.server.broker.routes import Processor, add_routes
from rmq_ha.server.broker.slave import SlaveSynchronize
from rmq_ha.server.broker.slow_consumers import CHECK_S as SLOW_CONSUMERS_S
from rmq_ha.server.broker.slow_consumers import SlowConsumers
from rmq_ha.server.broker.standing import Standing
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.streamed_tables import StreamedTables
from rmq_ha.server.broker.succession import Succession
from rmq_ha.server.broker.tables.broker_tables import BrokerTables, CopiedTables
from rmq_ha.server.broker.tables.client_offsets import ClientOffsets
from rmq_ha.server.broker.tables.clients import ConsumerManager, ProducerManager
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy
from rmq_ha.server.broker.tables.door_consumers import DoorConsumers
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.promotions import Promotions
from rmq_ha.server.broker.tables.queue_locks import RebalanceLockManager
from rmq_ha.server.broker.tables.request_modes import RequestModes
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.broker.timer_recalls import TimerRecalls
from rmq_ha.server.broker.twin import Link
from rmq_ha.server.broker.vanished_topics import QueuesOfTopics
from rmq_ha.server.plugins import Find, checked, checked_journal, load_configured
from rmq_ha.server.store.journal import JournalBrokerContext
from rmq_ha.server.store.message_store import DefaultMessageStore

CLIENT_SCAN_S = 10.0
FILTERS_S = 10.0
UNREAD_GROUPS = 10
HELD_PULLS = 100_000


class Broker:
    """
    A broker of RocketMQ: all its parts, their start and their stop.

    :param find: see `load_plugins`.
    :raises PluginNotFound: the configuration names a plugin that is not installed.
    :raises ConfigurationError: a plugin's own options do not fit.
    """

    log = Logger()

    def __init__(
        self, host: Host, configuration: BrokerConfiguration, find: Find = getPlugins
    ) -> None:
        self.host = host
        self.configuration = configuration
        self._plugins = load_configured(configuration, find)
        self._context = BrokerContext(
            host, configuration, lambda offset: self.store.record_starting_at(offset)
        )
        broker = configuration.broker
        port = configuration.server.listen_port
        self._identity = BrokerIdentity(
            broker.broker_cluster_name,
            broker.broker_name or "",
            broker.broker_id,
            f"{broker.broker_ip1}:{port}",
            f"{broker.broker_ip2}:{configuration.store.ha_listen_port}",
        )
        # Each of these steps uses what the steps before it made.
        self._make_tables()
        self._make_store()
        self._make_links()
        self.transaction_checks = transaction_checks(self)
        self._make_processors()
        self.role_keeper = role_keeper(self)
        self._offset_timer = Periodic(
            host.clock,
            "consumer offsets",
            self.consumer_offsets.persist_if_dirty,
            max(broker.flush_consumer_offset_interval, 1) / 1000,
            first=0,
        )
        self._timers = [
            Periodic(host.clock, "consumer filters", self._persist_filters, FILTERS_S),
            Periodic(
                host.clock,
                "client expiry",
                lambda: next_turn(host.clock).addCallback(self._expire),
                CLIENT_SCAN_S,
            ),
            Periodic(host.clock, "slow consumers", self.slow_consumers.check, SLOW_CONSUMERS_S),
        ]
        self._undo: list[tuple[str, Callable[[], Any]]] = []

    @property
    def is_slave(self) -> bool:
        return self.journal.role.is_slave

    @property
    def identity(self) -> BrokerIdentity:
        """The broker's identity for name servers, with its present brokerId."""
        return self._identity._replace(broker_id=self.configuration.broker.broker_id)

    def drain_clients(self) -> None:
        """Have the clients of the gRPC port leave their connections, if there is such a port."""
        if self.grpc is not None:
            self.grpc.drain()

    # ------------------------------------------------------------ building

    def _make_tables(self) -> None:
        host, broker, ours = self.host, self.configuration.broker, self.configuration.ours
        folder = f"{self.configuration.store.store_path_root_dir}/config"
        # The limits are functions, because updateBrokerConfig may change them at run time.
        self.topics = TopicConfigManager(
            host.disk,
            host.worker,
            f"{folder}/topics.json",
            broker,
            host.now_ms,
            lambda: ours.max_topics,
            has_timers=ours.timer_wheel_enable,
        )
        self.groups = SubscriptionGroupManager(
            host.disk,
            host.worker,
            f"{folder}/subscriptionGroup.json",
            broker,
            host.now_ms,
            lambda: ours.max_groups,
        )
        self.consumer_offsets = ConsumerOffsetManager(
            host.disk, host.worker, f"{folder}/consumerOffset.json"
        )
        self.delay_offsets = DelayOffsetCopy(host.disk, host.worker, f"{folder}/delayOffset.json")
        self.consumer_filters = ConsumerFilterManager(
            host.disk, host.worker, f"{folder}/consumerFilter.json", broker, host.now_ms
        )
        self.promotions = Promotions(host.disk, host.worker, folder)
        self.request_modes = RequestModes(
            host.disk, host.worker, f"{folder}/messageRequestMode.json"
        )
        self.consumers = ConsumerManager(self.consumer_filters.unregister)
        self.producers = ProducerManager()
        self.door_consumers = DoorConsumers()
        self.queue_locks: RebalanceLockManager[Any] = RebalanceLockManager(
            self.configuration.ours.lock_max_live_time,
            self.configuration.ours.lock_max_live_time_without_connection,
        )
        self.config_file = PropertiesFile(host.disk, host.worker, self.configuration.config_file)
        self.stats = BrokerStats(
            host.now_ms,
            host.clock.seconds,
            broker.broker_cluster_name,
            broker.enable_detail_stat,
            lambda: self.journal.log.max_offset,
        )
        self.slow_consumers = SlowConsumers(broker, self.stats, self.groups)

    def _make_store(self) -> None:
        plugins, context = self._plugins, self._context
        (plugin,) = plugins[IJournalPlugin]
        self.journal = checked_journal(plugin, plugin.make_journal(context))
        self.store = DefaultMessageStore(
            self.host, self.configuration, self.journal, self.host.memory_bytes
        )
        self.pops = make_pops(
            self.configuration, self.store, self.topics, self.groups, self.consumer_offsets
        )
        self.client_offsets = ClientOffsets(
            self.consumer_offsets,
            self.topics,
            self.configuration.ours,
            self.store,
            self.journal.role,
        )
        if self.pops.is_enabled:
            self.client_offsets.is_popped = self.pops.knows
        self.tables = BrokerTables(
            self.topics,
            self.groups,
            self.consumers,
            self.producers,
            self.consumer_offsets,
            self.client_offsets,
            self.consumer_filters,
            self.door_consumers,
        )
        if self.configuration.broker.enable_calc_filter_bit_map:
            self.store.queues.bit_map_of = self._bit_map_of
        self.store.schedule.on_delivered = self.stats.delivered
        self.store.on_forced_deletion = self._tell_unread
        if not self.configuration.ours.keep_offsets_of_deleted_topics:
            self.store.on_new_life = self._begin_anew
        for plugin in plugins[IDispatcherPlugin]:
            dispatcher = checked(plugin, plugin.make_dispatcher(context), ICommitLogDispatcher)
            self.store.on_arrival(by_name(dispatcher.dispatch))
        # The plugin that is named last wraps all others, and sees each message first.
        self.front: Any = self.store
        for plugin in plugins[IMessageStorePlugin]:
            self.front = checked(plugin, plugin.wrap_store(context, self.front), IMessageStore)

    def _begin_anew(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Forget consumers' offsets that are too high for a new life of a deleted queue."""
        self.consumer_offsets.begin_anew(topic, queue_id, queue_offset)
        self.pops.begin_anew(topic, queue_id, queue_offset)

    def _make_links(self) -> None:
        host, configuration = self.host, self.configuration
        self._server_tls = ServerTls(
            configuration.plugin_options, host.disk.read_bytes, host.now_ms
        )
        if configuration.ours.acl_requires_tls:
            self._server_tls.must_be_possible("aclRequiresTls=true")
        client_tls = own_tls(configuration, host.disk.read_bytes, host.now_ms)
        self.tls = TlsReload(host, [self._server_tls, client_tls, *self.journal.reloadable()])
        self.client = RemotingClient(host, configuration.client, client_tls)
        own = configuration.ours
        calls = signed(self.client, host, configuration)

        def open_link() -> Link:
            client = RemotingClient(host, configuration.client, client_tls)
            return Link(client, signed(client, host, configuration))

        self.forwarding = Forwarding(
            host.clock, configuration, open_link, self.identity.address, self._heartbeats
        )
        api = self.outer_api = BrokerOuterAPI(calls)
        self.slave_synchronize = SlaveSynchronize(
            host.clock,
            api,
            CopiedTables(self.topics, self.groups, self.consumer_offsets, self.delay_offsets),
            self.identity.address,
            lambda: self.journal.has_masters_log,
            QueuesOfTopics(self.store, self.consumer_offsets, own)
            if own.slave_drops_deleted_topics
            else None,
            self.request_modes if self.pops.is_enabled else None,
        )
        self.masters = TrustedMasters(Networks(own.ha_trusted_masters, with_names=True))
        self.journal.join(
            JournalBrokerContext(
                calls=calls,
                identity=lambda: self.identity,
                tables=self._streamed_tables,
                set_master_address=self._follow,
                masters=self.masters,
            )
        )
        self.standing = Standing(self.journal, self.store.flags)
        self.succession = Succession(
            configuration,
            self.identity,
            api,
            self.standing,
            self.masters.trusts,
            self.store.statistics.boot_ms,
            self.promotions,
        )
        self.registration = Registration(
            host.clock,
            configuration.broker,
            self.identity,
            self.topics,
            api,
            self.succession,
            MasterCallbacks(
                self.masters.only_trusted(self.journal.set_master_address),
                self.masters.only_trusted(self._take_master),
            ),
        )
        self.topics.on_creation(self.registration.register_new_topic)
        # A broker that another one may have replaced creates no topic or group: the new master
        # would not have it.
        for table in (self.topics, self.groups):
            table.check_creation = self.standing.check

    def _heartbeats(self) -> Iterable[tuple[Channel, RemotingCommand]]:
        """Return heartbeats of the clients; none if clients have to sign them."""
        return () if self.validators else heartbeats_of(self.consumers, self.producers)

    def _follow(self, address: str | None) -> None:
        self.slave_synchronize.set_master_address(address)
        self.forwarding.follow(address)

    def _take_master(self, address: str | None) -> None:
        self.slave_synchronize.set_master_address(address)
        if not self.forwarding.master:  # a name server may be late
            self.forwarding.follow(address)
        self.succession.heard_of(address)

    def _streamed_tables(self) -> StreamedTables:
        return StreamedTables(
            self.slave_synchronize,
            self.topics,
            self.groups,
            self.consumer_offsets,
            self.store.schedule,
            self.delay_offsets,
            self.request_modes if self.pops.is_enabled else None,
        )

    def _make_processors(self) -> None:
        configuration, context = self.configuration, self._context
        self.validators = validators = [
            checked(plugin, plugin.make_validator(context), IAccessValidator)
            for plugin in self._plugins[IAccessPlugin]
        ]
        self.access_controls = [item for item in validators if IAccessControl.providedBy(item)]
        self.dispatcher = RequestDispatcher(validators)
        self.fast_dispatcher = RequestDispatcher(validators)
        hooks = [
            checked(plugin, plugin.make_hook(context), ISendMessageHook, IConsumeMessageHook)
            for plugin in self._plugins[IHookPlugin]
        ]
        # Requests that wait for messages: pulls and, if pops are enabled, pops.
        self.hold = PullRequestHoldService(
            self.host.clock, self.store.max_offset_in_queue, HELD_PULLS
        )
        self.store.on_arrival(self.hold.on_arrival)
        self.pop_holds = PopHolds(self.host.clock, configuration.ours)
        # Records are gathered over some turns for fewer writes, unless a held pull waits for one.
        self.store.dispatcher.is_awaited = self.hold.__len__
        if self.pops.is_enabled:
            self.store.on_arrival(self.pop_holds.on_arrival)
            self.pop_holds.follow(self.pops)
            self.store.dispatcher.is_awaited = lambda: len(self.hold) + len(self.pop_holds)
        self.notifier = ConsumerIdsNotifier(
            self.host.clock, configuration.broker, self.consumers, self.groups
        )
        self.limits = FrameLimits(configuration.ours)
        self.unserved = UnservedProperties(configuration.ours)
        self.send_checks = SendChecks(
            configuration.broker, self.topics, self.unserved, self.host.random
        )
        self.send_plugins = SendPlugins(self.front, SendHooks(hooks))
        self.heartbeats = HeartbeatProcessor(
            tables=self.tables,
            notifier=self.notifier,
            configuration=configuration,
            limits=self.limits,
            times=self.host.times,
        )
        batches = BatchReader(configuration, self.limits, self.unserved)
        self.timer_recalls = TimerRecalls(self.store.timers, self.front)
        self.timer_sends = timer_sends(self)
        self.end_transactions = end_transactions(self)
        self.timer_requests = timer_requests(self)
        self.send_backs = send_backs(self)
        self.pair_handover = pair_handover(self)
        self.sends = SendMessageProcessor(
            configuration,
            self.store,
            self.tables,
            self.stats,
            self.host.times,
            SendRules(self.send_checks, batches, self.timer_sends),
            self.send_plugins,
        )
        deliveries = ConsumeHooks(self.stats, hooks)
        self.pop_processors = pop_processors(self, self.pop_holds, deliveries)
        processors: list[Processor] = [
            self.sends,
            self.heartbeats,
            self._pulls(deliveries),
            *self.pop_processors,
            *admin_processors(self),
        ]
        # Request codes are assigned to the processors. Runs of ordinary sends bypass them.
        audit = AuditLog(self.host.clock, acts(self.topics.get, self.groups.get))
        add_routes(self.dispatcher, self.fast_dispatcher, processors, audit, self.standing)
        for dispatcher in (self.dispatcher, self.fast_dispatcher):
            dispatcher.handle_run = self.sends.run_handler(dispatcher.go_general_way)
            if dispatcher.handle_run is not None:
                dispatcher.cut = cut
        self.forwarding.watch(self.dispatcher, self.fast_dispatcher)
        # Both ports share the budget of unfinished frames and the order of turns. A client gains
        # nothing by connecting to both.
        frames = UnfinishedFrames(configuration.server, self.host.clock)
        turns = Turns(self.host.clock, configuration.server, self.host.soon)
        self.main_server, self.fast_server = (
            RemotingServer(self.host, configuration.server, item, self._server_tls, frames, turns)
            for item in (self.dispatcher, self.fast_dispatcher)
        )
        self.grpc: BrokerDoor | None = None
        if configuration.ours.grpc_server_port:
            routes = DoorRoutes(
                self.outer_api,
                lambda: self.registration.name_servers,
                self.identity.address,
                self.host.clock.seconds,
            )
            limits = PeerLimits(None, frames, turns)
            self.grpc = BrokerDoor(self, routes, self._server_tls, limits)

    def _tell_unread(self) -> None:
        """Name the groups that miss most of the messages that were deleted before they expired."""
        unread = self.consumer_offsets.unread(self.store.min_offset_in_queue)
        for name in sorted(unread, key=lambda name: -unread[name])[:UNREAD_GROUPS]:
            self.log.warn(
                "{group} has not consumed {count} of the messages that are gone",
                group=name,
                count=unread[name],
            )

    def _pulls(self, deliveries: ConsumeHooks) -> PullMessageProcessor:
        configuration = self.configuration
        return PullMessageProcessor(
            store=self.front,
            tables=self.tables,
            hold=self.hold,
            deliveries=deliveries,
            configuration=configuration,
            role=self.journal.role,
            times=self.host.times,
        )

    # ------------------------------------------------------------ running

    def start(self) -> "Deferred[None]":
        """
        Open the store and serve clients.

        :returns: fires when clients can be served. If the start fails, everything started is
            stopped, and then it fails with the cause.
        """
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> "Deferred[None]":
        """
        Hand over, unregister, answer waiting requests, let slaves fetch the log's end, and close
        the store.

        :returns: fires when all is closed; never fails.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        try:
            await self._start_all()
        except Exception:  # not for a cancelled start, which must not wait for anything more
            await self._stop()
            raise

    async def _start_all(self) -> None:
        server = self.configuration.server.listen_port
        interface = self.configuration.ours.bind_address
        for table in (
            self.topics,
            self.consumer_offsets,
            self.groups,
            self.consumer_filters,
            self.promotions,
            self.request_modes,
        ):
            table.load()
        self.role_keeper.prepare()
        self.store.load()
        self._undo.append(("configuration file", self.config_file.written))
        self._undo.append(("topics", self.topics.persist_if_dirty))
        self._undo.append(("groups", self.groups.persist_if_dirty))
        self._undo.append(("consumer offsets", self.consumer_offsets.persist_if_dirty))
        self._undo.append(("consumer filters", self._persist_filters))
        self._undo.append(("promotions", self.promotions.persist_if_dirty))
        self._undo.append(("request modes", self.request_modes.persist_if_dirty))
        self._undo.append(("store", self.store.stop))
        self._undo.append(("client", self.client.stop))
        await self.succession.look(self.registration.name_servers, is_start=True)
        await self.succession.begin()
        await self.store.start()
        self.role_keeper.store_is_open()
        await self.pops.take_over_java()
        self.store.tell_unused_topics(self.topics.table)
        for remoting, port in ((self.main_server, server), (self.fast_server, server - 2)):
            await remoting.listen(port, interface)
            self._undo.append((f"port {port}", remoting.stop))
        if self.grpc is not None:
            self._undo.append(("gRPC port", self.grpc.stop))
            if self.configuration.ours.grpc_server_port == server:
                self.grpc.share(self.main_server)
            else:
                await self.grpc.listen(interface)
        self._undo.append(("held pulls", self.hold.stop))
        self._undo.append(("held pops", self.pop_holds.stop))
        self._undo.append(("notifications", self.notifier.stop))
        self._undo.append(("registration", self.registration.stop))
        await self.registration.start()
        self._undo.append(("slave synchronisation", self.slave_synchronize.stop))
        self._undo.append(("transaction checks", self.transaction_checks.stop))
        self._undo.append(("role changes", self.role_keeper.stop))
        self.role_keeper.start()
        self._undo.append(("forwarding", self.forwarding.stop))
        self._undo.append(("hand-overs", self.pair_handover.stop))
        for control in self.access_controls:
            self._undo.append(("access control", control.stop))
            control.start()
        self._undo.append(("TLS files", self.tls.stop))
        self.tls.start()
        self._undo.append(("timer", self._stop_offset_timer))
        self.consumer_offsets.call_at_first_change(self._offset_timer.start)
        for timer in self._timers:
            self._undo.append(("timer", timer.stop))
            timer.start()
        self._undo.append(("the lead", self.journal.hand_over))

    def _stop_offset_timer(self) -> "Deferred[None]":
        self.consumer_offsets.call_at_first_change(None)
        return self._offset_timer.stop()

    async def _stop(self) -> None:
        while self._undo:
            name, undo = self._undo.pop()
            try:
                await self._finish(undo())
            except Exception:
                self.log.failure("stopping {name} failed; going on", name=name)

    @staticmethod
    async def _finish(result: Any) -> None:
        if isinstance(result, Awaitable):
            await result

    def _expire(self, _: object) -> None:
        self.heartbeats.close_expired()
        self.queue_locks.expire(self.host.steady_ms())

    def _persist_filters(self) -> "Deferred[bool]":
        self.consumer_filters.clean()
        return self.consumer_filters.persist_if_dirty()

    def _bit_map_of(self, request: DispatchRequest) -> bytes | None:
        """
        Return the bit map of the filters that match a message; None on a slave. A bit map holds
        only for filters that are older than the message. A slave cannot compare the two: its own
        clock says when a filter was registered, and the master's clock when a message was stored.
        """
        return None if self.is_slave else self.consumer_filters.bit_map(request)

    def delay_offset_table(self) -> dict[int, int]:
        """Return the next queue offset by delay level, on a slave from the copy of its master's."""
        if self.is_slave:
            return decode_delay_offsets(self.delay_offsets.text) if self.delay_offsets.text else {}
        return self.store.schedule.offset_table
