"""BrokerTables: the tables of a broker, besides its messages."""

from typing import NamedTuple

from rmq_ha.server.broker.tables.client_offsets import ClientOffsets
from rmq_ha.server.broker.tables.clients import ConsumerManager, ProducerManager
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy
from rmq_ha.server.broker.tables.door_consumers import DoorConsumers
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager


class BrokerTables(NamedTuple):
    """
    The tables that requests of clients read and change.

    :ivar consumers: the members of consumer groups that are connected.
    :ivar producers: the connected producers, by group.
    :ivar door_consumers: the consumers of gRPC, by group.
    :ivar consumer_offsets: how far each group has consumed each queue.
    :ivar client_offsets: the same table, as clients may change it.
    :ivar consumer_filters: compiled SQL92 expressions of subscriptions.
    """

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    consumers: ConsumerManager
    producers: ProducerManager
    consumer_offsets: ConsumerOffsetManager
    client_offsets: ClientOffsets
    consumer_filters: ConsumerFilterManager
    door_consumers: DoorConsumers


class CopiedTables(NamedTuple):
    """The tables that a slave copies from its master."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    delay_offsets: DelayOffsetCopy
