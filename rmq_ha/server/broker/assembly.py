"""Builds a broker's processors, except those for sends, pulls and heartbeats, with their
parameters.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.properties_file import PropertiesFile
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.stat_bodies import ASIDE, GRPC_DOOR, PROMOTIONS
from rmq_ha.server.broker.door_routes import door_address
from rmq_ha.server.broker.forwarding import Forwarding, RelayedClients
from rmq_ha.server.broker.frame_limits import FrameLimits
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.broker.pair_handover import HandoverParts, PairHandover
from rmq_ha.server.broker.processors.admin_acl import AdminAclProcessor
from rmq_ha.server.broker.processors.admin_auth import AdminAuthProcessor
from rmq_ha.server.broker.processors.admin_cleaning import AdminCleaningProcessor
from rmq_ha.server.broker.processors.admin_config import AdminConfigProcessor, MoreRuntimeInfo
from rmq_ha.server.broker.processors.admin_groups import AdminGroupsProcessor
from rmq_ha.server.broker.processors.admin_offsets import AdminOffsetsProcessor
from rmq_ha.server.broker.processors.admin_progress import AdminProgressProcessor
from rmq_ha.server.broker.processors.admin_stats import AdminStatsProcessor
from rmq_ha.server.broker.processors.admin_topics import AdminTopicsProcessor
from rmq_ha.server.broker.processors.consume_tables import ConsumeTables
from rmq_ha.server.broker.processors.consumers import ConsumerProcessor
from rmq_ha.server.broker.processors.end_transaction import EndTransactionProcessor
from rmq_ha.server.broker.processors.locks import LockProcessor
from rmq_ha.server.broker.processors.pop_reports import PopReports
from rmq_ha.server.broker.processors.query import QueryProcessor
from rmq_ha.server.broker.processors.relays import RelayProcessor
from rmq_ha.server.broker.processors.reply import ReplyMessageProcessor
from rmq_ha.server.broker.processors.reset_offsets import ResetOffsetProcessor
from rmq_ha.server.broker.processors.send_answers import SendAnswers
from rmq_ha.server.broker.processors.send_back import SendBackProcessor
from rmq_ha.server.broker.processors.send_checks import SendChecks
from rmq_ha.server.broker.processors.send_hooks import SendPlugins
from rmq_ha.server.broker.processors.timer_sends import TimerSends
from rmq_ha.server.broker.processors.timers import TimerProcessor
from rmq_ha.server.broker.registration import Registration
from rmq_ha.server.broker.role import RoleKeeper, RoleParts, make_role_keeper
from rmq_ha.server.broker.routes import Processor
from rmq_ha.server.broker.slave import SlaveSynchronize
from rmq_ha.server.broker.standing import Standing
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.broker_tables import BrokerTables
from rmq_ha.server.broker.tables.client_offsets import ClientOffsets
from rmq_ha.server.broker.tables.clients import ConsumerManager, ProducerManager
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.promotions import Promotions
from rmq_ha.server.broker.tables.queue_locks import RebalanceLockManager
from rmq_ha.server.broker.tables.request_modes import POP, RequestModes
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.broker.timer_recalls import TimerRecalls
from rmq_ha.server.broker.transactions.producers import ProducerAsker
from rmq_ha.server.broker.transactions.service import TransactionalMessageCheckService
from rmq_ha.server.pop.face import Pops
from rmq_ha.server.store.journal import Journal
from rmq_ha.server.store.message_store import DefaultMessageStore


class DoorState(Protocol):
    """The part of a port for gRPC that tells operators its state."""

    def facts(self) -> Mapping[str, Any]: ...


class BrokerParts(Protocol):
    """
    The parts of a broker from which processors and roles are built.

    :ivar front: the store, wrapped by the plugins.
    """

    host: Host
    configuration: BrokerConfiguration
    journal: Journal
    store: DefaultMessageStore
    front: Any
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    consumers: ConsumerManager
    producers: ProducerManager
    consumer_offsets: ConsumerOffsetManager
    client_offsets: ClientOffsets
    consumer_filters: ConsumerFilterManager
    delay_offsets: DelayOffsetCopy
    queue_locks: RebalanceLockManager[Any]
    stats: BrokerStats
    limits: FrameLimits
    tables: BrokerTables
    send_checks: SendChecks
    send_plugins: SendPlugins
    timer_recalls: TimerRecalls
    timer_sends: TimerSends
    end_transactions: EndTransactionProcessor
    timer_requests: TimerProcessor
    pair_handover: PairHandover
    forwarding: Forwarding
    send_backs: SendBackProcessor
    access_controls: list[Any]
    registration: Registration
    standing: Standing
    promotions: Promotions
    request_modes: RequestModes
    outer_api: BrokerOuterAPI
    slave_synchronize: SlaveSynchronize
    transaction_checks: TransactionalMessageCheckService
    config_file: PropertiesFile

    def drain_clients(self) -> None: ...

    @property
    def pops(self) -> Pops: ...

    @property
    def grpc(self) -> DoorState | None: ...

    @property
    def identity(self) -> BrokerIdentity: ...

    def delay_offset_table(self) -> dict[int, int]:
        """Return the next queue offset by delay level."""


def timer_sends(broker: BrokerParts) -> TimerSends:
    """Build the part that decides about sends with a timer."""
    return TimerSends(
        broker.configuration.ours,
        broker.configuration.broker.broker_name or "",
        broker.store,
        broker.timer_recalls,
        broker.host.now_ms,
        broker.host.random,
    )


def send_backs(broker: BrokerParts) -> SendBackProcessor:
    """Build the part that stores messages again, for a later attempt or as dead letters."""
    return SendBackProcessor(
        store=broker.store,
        front=broker.front,
        topics=broker.topics,
        groups=broker.groups,
        stats=broker.stats,
        config=broker.configuration.broker,
        random=broker.host.random,
    )


def end_transactions(broker: BrokerParts) -> EndTransactionProcessor:
    """Build the part that settles half messages."""
    return EndTransactionProcessor(
        broker.configuration,
        broker.store,
        broker.transaction_checks.halves,
        broker.transaction_checks.put,
        broker.timer_sends.committed,
        broker.host.now_ms,
    )


def timer_requests(broker: BrokerParts) -> TimerProcessor:
    """Build the part that answers requests about timer messages."""
    return TimerProcessor(
        broker.configuration,
        broker.store,
        broker.topics,
        broker.timer_recalls,
        broker.host.now_ms,
        lambda: broker.standing.epoch,
    )


def admin_processors(broker: BrokerParts) -> list[Processor]:
    """
    Build the processors from the parts of a broker.

    :param broker: its tables, store, links and timers must exist.
    """
    configuration, store, host = broker.configuration, broker.store, broker.host
    return [
        broker.send_backs,
        broker.end_transactions,
        broker.timer_requests,
        broker.pair_handover,
        RelayedClients(broker.forwarding, broker.standing),
        QueryProcessor(store=store, config=configuration.store, clock=host.clock),
        ConsumerProcessor(
            store=store,
            consumers=broker.consumers,
            consumer_offsets=broker.consumer_offsets,
            client_offsets=broker.client_offsets,
        ),
        LockProcessor(
            queue_locks=broker.queue_locks, limits=broker.limits, steady_ms=host.steady_ms
        ),
        *_table_processors(broker),
        *_client_processors(broker),
        broker.journal,
    ]


def transaction_checks(broker: BrokerParts) -> TransactionalMessageCheckService:
    """Build the service that checks open transactions; it is started on a master only."""
    return TransactionalMessageCheckService(
        broker.host.times,
        broker.configuration,
        broker.store,
        broker.front,
        broker.topics,
        broker.consumer_offsets,
        ProducerAsker(broker.producers),
    )


def role_keeper(broker: BrokerParts) -> RoleKeeper:
    """Build the keeper of the broker's role, which makes the broker a slave or a master."""
    parts = _role_parts(broker)
    return make_role_keeper(broker.host.clock, broker.configuration, parts, broker.journal.role)


def pair_handover(broker: BrokerParts) -> PairHandover:
    """Build the part that exchanges the roles of a classic pair while both brokers run."""
    used = HandoverParts(
        role=_role_parts(broker),
        pair=broker.journal.role.pair,
        api=broker.outer_api,
        standing=broker.standing,
        promotions=broker.promotions,
        file=broker.config_file,
        boot_ms=broker.store.statistics.boot_ms,
    )
    return PairHandover(broker.host.clock, broker.configuration, used)


def _role_parts(broker: BrokerParts) -> RoleParts:
    return RoleParts(
        store=broker.store,
        topics=broker.topics,
        delay_offsets=broker.delay_offsets,
        client_offsets=broker.client_offsets,
        transaction_checks=broker.transaction_checks,
        slave_synchronize=broker.slave_synchronize,
        registration=broker.registration,
        drain_clients=broker.drain_clients,
        forwarding=broker.forwarding,
    )


def _table_processors(broker: BrokerParts) -> list[Processor]:
    configuration, store = broker.configuration, broker.store
    topics, offsets = broker.topics, broker.consumer_offsets
    consume_tables = ConsumeTables(
        store=store,
        topics=topics,
        consumers=broker.consumers,
        consumer_offsets=offsets,
        broker_name=broker.identity.broker_name,
        out_of=broker.pops.out_of if broker.pops.is_enabled else lambda *_: None,
    )
    control = next(iter(broker.access_controls), None)
    return [
        AdminAclProcessor(control=control, identity=broker.identity),
        AdminAuthProcessor(control=control),
        AdminOffsetsProcessor(
            store=store,
            config=configuration.ours,
            consumer_offsets=offsets,
            delay_offsets=broker.delay_offset_table,
        ),
        AdminTopicsProcessor(
            store=store,
            tables=broker.tables,
            stats=broker.stats,
            configuration=configuration,
            register_topic=broker.registration.register_topic,
            deleted=partial(_topic_deleted, broker),
            clock=broker.host.clock,
        ),
        AdminGroupsProcessor(
            tables=broker.tables,
            stats=broker.stats,
            consume_tables=consume_tables,
            pop_reports=PopReports(broker.pops, store, broker.host.clock, broker.host.now_ms),
            configuration=configuration,
            register_topic=broker.registration.register_topic,
            deleted=partial(_group_deleted, broker),
        ),
        AdminStatsProcessor(
            stats=broker.stats,
            groups=broker.groups,
            producers=broker.producers,
            consume_tables=consume_tables,
            address=broker.identity.address,
            clock=broker.host.clock,
        ),
        AdminCleaningProcessor(store=store, topics=lambda: topics.table, stats=broker.stats),
        AdminConfigProcessor(
            store=store,
            stats=broker.stats,
            configuration=configuration,
            now_ms=broker.host.now_ms,
            permission_changed=partial(_permission_changed, broker),
            save=broker.config_file.change,
            more=MoreRuntimeInfo(
                broker.host.processors,
                partial(
                    replication_info,
                    configuration,
                    broker.journal,
                    broker.slave_synchronize,
                    broker.standing,
                    broker.promotions,
                ),
                partial(_missing_groups, broker),
                broker.transaction_checks.open_half_offsets,
                partial(_door_facts, broker),
                partial(_popping, broker),
                partial(_oldest_half, broker),
            ),
        ),
    ]


def _oldest_half(broker: BrokerParts) -> Mapping[str, Any] | None:
    half = broker.transaction_checks.open_transactions()
    return None if half is None else half._asdict()


def _topic_deleted(broker: BrokerParts, topic: str) -> None:
    broker.request_modes.forget(topic=topic)
    if broker.pops.is_enabled:
        broker.pops.forget_topic(topic)


def _group_deleted(broker: BrokerParts, group: str) -> None:
    broker.request_modes.forget(group=group)
    if broker.pops.is_enabled:
        broker.pops.forget_group(group)


def _permission_changed(broker: BrokerParts) -> None:
    broker.topics.permission_changed()
    broker.registration.register_all()


def _missing_groups(broker: BrokerParts) -> list[str]:
    """
    Return groups that have members but do not exist at this broker, so that the members get
    nothing.
    """
    named = {*broker.consumers.groups(), *broker.tables.door_consumers.groups()}
    return sorted(named.difference(broker.groups.table))


def _door_facts(broker: BrokerParts) -> Mapping[str, Any]:
    """Return what the gRPC port tells operators; empty without such a port."""
    return {} if broker.grpc is None else broker.grpc.facts()


def _popping(broker: BrokerParts) -> list[tuple[str, str]]:
    """Return the pairs of topic and group whose mode is POP."""
    return [
        (topic, group)
        for topic, groups in sorted(broker.request_modes.table.items())
        for group, mode in sorted(groups.items())
        if mode.mode == POP
    ]


def _client_processors(broker: BrokerParts) -> list[Processor]:
    """Build the processors that reach clients through the clients' own connections."""
    configuration, store, host = broker.configuration, broker.store, broker.host
    topics, offsets, consumers = broker.topics, broker.consumer_offsets, broker.consumers
    name = broker.identity.broker_name
    return [
        ReplyMessageProcessor(
            configuration=configuration,
            plugins=broker.send_plugins,
            producers=broker.producers,
            checks=broker.send_checks,
            answers=SendAnswers(configuration, store),
            now_ms=host.now_ms,
        ),
        RelayProcessor(
            store=store,
            consumers=consumers,
            door_consumers=broker.tables.door_consumers,
            broker_name=name,
        ),
        ResetOffsetProcessor(
            store=store,
            config=configuration.ours,
            topics=topics,
            consumers=consumers,
            consumer_offsets=offsets,
            broker_name=name,
            pops=broker.pops,
        ),
        AdminProgressProcessor(
            store=store,
            topics=topics,
            consumers=consumers,
            consumer_offsets=offsets,
            broker_name=name,
            filters=broker.consumer_filters,
            now_ms=host.now_ms,
        ),
    ]


def replication_info(
    configuration: BrokerConfiguration,
    journal: Journal,
    slave_synchronize: SlaveSynchronize,
    standing: Standing,
    promotions: Promotions,
) -> dict[str, Any]:
    """
    Return a broker's report on its replication: `role`, and the facts of the journal, such as
    `slaves` of a master and `master` of a slave.

    `GRPC_DOOR` is the address of the broker's gRPC door, if it has one. `tables_seconds`, at a
    slave, is the age in seconds of its oldest copy of a master's table; None if a table was never
    copied. `ASIDE` is the broker for which this one stands aside, if it does. `PROMOTIONS` is the
    count of promotions, if the master is not elected.
    """
    info: dict[str, Any] = {"role": configuration.store.broker_role.name, **journal.info()}
    if standing.successor:
        info[ASIDE] = standing.successor
    if not standing.is_elected:
        info[PROMOTIONS] = promotions.count
    if door := door_address(configuration):
        info[GRPC_DOOR] = str(door)
    if journal.role.is_slave:
        copies = slave_synchronize.statistics().tables.values()
        ages = [copy.age_seconds for copy in copies if copy.age_seconds is not None]
        info["tables_seconds"] = round(max(ages), 1) if len(ages) == len(copies) else None
    return info
