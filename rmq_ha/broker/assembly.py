"""Which processors a broker has besides sends, pulls and heartbeats, and what each is given."""

from typing import TYPE_CHECKING

from rmq_ha.autoswitch.ha_service import AutoSwitchHAService
from rmq_ha.broker.processors.admin_acl import AdminAclProcessor
from rmq_ha.broker.processors.admin_cleaning import AdminCleaningProcessor
from rmq_ha.broker.processors.admin_config import AdminConfigProcessor
from rmq_ha.broker.processors.admin_groups import AdminGroupsProcessor
from rmq_ha.broker.processors.admin_offsets import AdminOffsetsProcessor
from rmq_ha.broker.processors.admin_progress import AdminProgressProcessor
from rmq_ha.broker.processors.admin_stats import AdminStatsProcessor
from rmq_ha.broker.processors.admin_topics import AdminTopicsProcessor
from rmq_ha.broker.processors.consume_tables import ConsumeTables
from rmq_ha.broker.processors.consumers import ConsumerProcessor
from rmq_ha.broker.processors.controller_mode import ControllerModeProcessor
from rmq_ha.broker.processors.end_transaction import EndTransactionProcessor
from rmq_ha.broker.processors.locks import LockProcessor
from rmq_ha.broker.processors.query import QueryProcessor
from rmq_ha.broker.processors.relays import RelayProcessor
from rmq_ha.broker.processors.reply import ReplyMessageProcessor
from rmq_ha.broker.processors.reset_offsets import ResetOffsetProcessor
from rmq_ha.broker.processors.send_answers import SendAnswers
from rmq_ha.broker.processors.send_back import SendBackProcessor
from rmq_ha.broker.processors.send_checks import SendChecks
from rmq_ha.broker.processors.send_hooks import SendHooks
from rmq_ha.broker.replication_info import replication_info
from rmq_ha.broker.role import RoleParts, RoleSwitch
from rmq_ha.broker.routes import Processor
from rmq_ha.broker.transactions.producers import ProducerAsker
from rmq_ha.broker.transactions.service import TransactionalMessageCheckService
from rmq_ha.dledger.service import DLedgerService

if TYPE_CHECKING:
    from rmq_ha.broker.controller import BrokerController


def admin_processors(broker: "BrokerController") -> list[Processor]:
    """
    Build them from the parts of a broker.

    :param broker: its tables, store, links and timers exist.
    """
    configuration, store, host = broker.configuration, broker.store, broker.host
    return [
        SendBackProcessor(
            store=store,
            front=broker.front,
            topics=broker.topics,
            groups=broker.groups,
            stats=broker.stats,
            config=configuration.broker,
            random=host.random,
        ),
        EndTransactionProcessor(
            configuration,
            store,
            broker.transaction_checks.halves,
            broker.transaction_checks.put,
            host.now_ms,
        ),
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
        *_mode_processors(broker),
    ]


def _mode_processors(broker: "BrokerController") -> list[Processor]:
    """What only a broker in controller mode is asked."""
    service = broker.replication
    if not isinstance(service, AutoSwitchHAService):
        return []
    return [
        ControllerModeProcessor(
            service.notified,
            lambda: service.epochs,
            broker.store.log,
            lambda: broker.identity,
            service.ha_status,
        )
    ]


def send_answers(broker: "BrokerController") -> SendAnswers:
    """What producers are told; where a broker is elected, also why none takes their messages."""
    group = broker.replication
    if isinstance(group, DLedgerService | AutoSwitchHAService):
        return SendAnswers(broker.configuration, broker.store, group.why_no_puts)
    return SendAnswers(broker.configuration, broker.store)


def transaction_checks(broker: "BrokerController") -> TransactionalMessageCheckService:
    """What looks after open transactions; to be started on a master only."""
    return TransactionalMessageCheckService(
        broker.host.clock,
        broker.host.now_ms,
        broker.configuration,
        broker.store,
        broker.front,
        broker.topics,
        broker.consumer_offsets,
        ProducerAsker(broker.producers),
    )


def role_switch(broker: "BrokerController") -> RoleSwitch | None:
    """What makes a broker that is elected a slave or a master; None for every other one."""
    group = broker.replication
    if not isinstance(group, DLedgerService | AutoSwitchHAService):
        return None
    parts = RoleParts(
        store=broker.store,
        topics=broker.topics,
        delay_offsets=broker.delay_offsets,
        transaction_checks=broker.transaction_checks,
        slave_synchronize=broker.slave_synchronize,
        registration=broker.registration,
    )
    made = RoleSwitch(broker.host.clock, broker.configuration, parts, group)
    group.roles = made
    return made


def _table_processors(broker: "BrokerController") -> list[Processor]:
    configuration, store = broker.configuration, broker.store
    topics, offsets = broker.topics, broker.consumer_offsets
    consume_tables = ConsumeTables(
        store=store,
        topics=topics,
        consumers=broker.consumers,
        consumer_offsets=offsets,
        broker_name=broker.identity.broker_name,
    )
    return [
        AdminAclProcessor(
            control=next(iter(broker.access_controls), None), identity=broker.identity
        ),
        AdminOffsetsProcessor(
            store=store, consumer_offsets=offsets, delay_offsets=broker.delay_offset_table
        ),
        AdminTopicsProcessor(
            store=store,
            topics=topics,
            consumers=broker.consumers,
            consumer_offsets=offsets,
            stats=broker.stats,
            configuration=configuration,
            register_topic=broker.registration.register_topic,
        ),
        AdminGroupsProcessor(
            groups=broker.groups,
            consumers=broker.consumers,
            producers=broker.producers,
            consumer_offsets=offsets,
            stats=broker.stats,
            consume_tables=consume_tables,
            configuration=configuration,
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
            topics=topics,
            stats=broker.stats,
            configuration=configuration,
            now_ms=broker.host.now_ms,
            register=broker.registration.register_all,
            save=broker.config_file.change,
            processors=broker.host.processors,
            replication=lambda: replication_info(broker),
        ),
    ]


def _client_processors(broker: "BrokerController") -> list[Processor]:
    """What reaches clients through their own connections."""
    configuration, store, host = broker.configuration, broker.store, broker.host
    topics, offsets, consumers = broker.topics, broker.consumer_offsets, broker.consumers
    name = broker.identity.broker_name
    return [
        ReplyMessageProcessor(
            config=configuration.broker,
            front=broker.front,
            producers=broker.producers,
            checks=SendChecks(configuration.broker, topics, host.random),
            answers=broker.answers,
            hooks=SendHooks(broker.hooks),
            store_host=configuration.store_host,
            now_ms=host.now_ms,
        ),
        RelayProcessor(store=store, consumers=consumers, broker_name=name),
        ResetOffsetProcessor(
            store=store,
            topics=topics,
            consumers=consumers,
            consumer_offsets=offsets,
            broker_name=name,
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
