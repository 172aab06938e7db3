"""Which processors a broker has besides sends, pulls and heartbeats, and what each is given."""

from typing import TYPE_CHECKING

from rmq_ha.broker.processors.admin_cleaning import AdminCleaningProcessor
from rmq_ha.broker.processors.admin_config import AdminConfigProcessor
from rmq_ha.broker.processors.admin_groups import AdminGroupsProcessor
from rmq_ha.broker.processors.admin_offsets import AdminOffsetsProcessor
from rmq_ha.broker.processors.admin_topics import AdminTopicsProcessor
from rmq_ha.broker.processors.consumers import ConsumerProcessor
from rmq_ha.broker.processors.end_transaction import EndTransactionProcessor
from rmq_ha.broker.processors.locks import LockProcessor
from rmq_ha.broker.processors.query import QueryProcessor
from rmq_ha.broker.processors.send_back import SendBackProcessor
from rmq_ha.broker.routes import Processor

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
            config=configuration.broker,
            random=host.random,
        ),
        EndTransactionProcessor(configuration, store, broker.front, host.now_ms),
        QueryProcessor(store=store, config=configuration.store),
        ConsumerProcessor(
            store=store, consumers=broker.consumers, consumer_offsets=broker.consumer_offsets
        ),
        LockProcessor(queue_locks=broker.queue_locks, now_ms=host.now_ms),
        *_table_processors(broker),
    ]


def _table_processors(broker: "BrokerController") -> list[Processor]:
    configuration, store = broker.configuration, broker.store
    topics, offsets = broker.topics, broker.consumer_offsets
    return [
        AdminOffsetsProcessor(
            store=store, consumer_offsets=offsets, delay_offsets=broker.delay_offset_table
        ),
        AdminTopicsProcessor(
            store=store,
            topics=topics,
            consumers=broker.consumers,
            consumer_offsets=offsets,
            configuration=configuration,
            register_topic=broker.registration.register_topic,
        ),
        AdminGroupsProcessor(
            store=store,
            topics=topics,
            groups=broker.groups,
            consumers=broker.consumers,
            producers=broker.producers,
            consumer_offsets=offsets,
            stats=broker.stats,
            configuration=configuration,
        ),
        AdminCleaningProcessor(store=store, topics=lambda: topics.table),
        AdminConfigProcessor(
            store=store,
            topics=topics,
            stats=broker.stats,
            configuration=configuration,
            now_ms=broker.host.now_ms,
            register=broker.registration.register_all,
            save=broker.config_file.change,
        ),
    ]
