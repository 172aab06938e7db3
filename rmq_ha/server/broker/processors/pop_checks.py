"""The checks of pops and acknowledgements, in RocketMQ's order.

Spec: pop.md, sections 2 and 13.4.
"""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import InvalidSelector, RequestRejected
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.flags import PERM_READ
from rmq_ha.base.model.pop_topics import retry_topic
from rmq_ha.base.model.subscription import SUB_ALL, TAG, TAG_TYPES, SubscriptionData
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import MAX_TOPIC_LENGTH, is_of_rocketmq_5
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.server.broker.filters import SelectorFilter
from rmq_ha.server.broker.pop_hold import ALL_QUEUES
from rmq_ha.server.broker.tables.broker_tables import BrokerTables
from rmq_ha.server.broker.tables.request_modes import PULL, RequestModes
from rmq_ha.server.store.reading.tag_filter import TagFilter

MAX_POP_MESSAGES = 32
"""Most messages of one pop."""


class PopChecks:
    """Refuses pops and acknowledgements that this broker cannot serve."""

    def __init__(
        self, configuration: BrokerConfiguration, tables: BrokerTables, modes: RequestModes
    ) -> None:
        self._broker = configuration.broker
        self._ours = configuration.ours
        self._topics = tables.topics
        self._groups = tables.groups
        self._filters = tables.consumer_filters
        self._modes = modes

    def broker_is_readable(self, what: str) -> None:
        """:raises RequestRejected: brokerPermission forbids reading."""
        if not self._broker.broker_permission & PERM_READ:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.broker_ip1}] {what} is forbidden",
            )

    def count(self, max_nums: int) -> None:
        """:raises RequestRejected: a pop asks for too many messages."""
        if max_nums > MAX_POP_MESSAGES:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._broker.broker_ip1}] pop message's num is greater than "
                f"{MAX_POP_MESSAGES}",
            )
        if max_nums < 0:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"maxMsgNums is {max_nums}: it must not be negative"
            )

    def invisible_time(self, invisible_ms: int) -> None:
        """:raises RequestRejected: messages would be invisible for too long, or a negative time."""
        longest = self._ours.pop_max_invisible_time
        if not 0 <= invisible_ms <= longest:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime is {invisible_ms} ms: popMaxInvisibleTime of this broker allows "
                f"0 to {longest}",
            )

    def readable_topic(self, topic: str, queue_id: int, client: str) -> TopicConfig:
        """
        Return the configuration of a topic from which a consumer may pop.

        :param queue_id: `ALL_QUEUES`, or a queue that the topic must have.
        :param client: address of the client, for the refusal.
        :raises RequestRejected: the topic or its queue does not exist, or cannot be read; or the
            topic holds the work of brokers.
        """
        config = self._topic_config(topic)
        # The topics of `is_of_rocketmq_5` hold brokers' pending work: messages of other topics that
        # are not due yet, and records of pops. They are not for consumers, whatever `perm` says;
        # pulls are refused, too.
        if not config.perm & PERM_READ or is_of_rocketmq_5(topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden"
            )
        if queue_id != ALL_QUEUES and not 0 <= queue_id < config.read_queue_nums:
            raise _illegal_queue(ResponseCode.INVALID_PARAMETER, queue_id, config, client)
        return config

    def acked_topic(self, topic: str, queue_id: int, client: str) -> None:
        """:raises RequestRejected: the topic or its queue does not exist."""
        config = self._topic_config(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise _illegal_queue(ResponseCode.MESSAGE_ILLEGAL, queue_id, config, client)

    def group(self, group: str) -> None:
        """
        Check a group, which is created if `autoCreateSubscriptionGroup` allows that.

        :raises RequestRejected: there is no such group, or it may not consume.
        """
        config = self._groups.find(group)
        if config is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist; create it with mqadmin "
                "updateSubGroup",
            )
        if not config.consume_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
            )

    def is_pulled(self, group: str, topic: str) -> bool:
        """Whether an operator has set that a group pulls a topic."""
        mode = self._modes.get(topic, group)
        return mode is not None and mode.mode == PULL

    def mode(self, group: str, topic: str) -> None:
        """
        Check that an operator did not set that a group pulls a topic. Its members still pop for
        some seconds after such a change. If that was served, the group would have two offsets.

        :raises RequestRejected: the group pulls the topic.
        """
        if self.is_pulled(group, topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"{group} pulls {topic}: mqadmin setConsumeMode -m POP lets it pop",
            )

    def retry_name(self, group: str, topic: str) -> None:
        """
        Check that messages of this topic can be moved to a retry topic of this group.

        :raises RequestRejected: the retry topic's name would be too long to be stored.
        """
        name = retry_topic(group, topic)
        if len(name) > MAX_TOPIC_LENGTH:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"messages that are not acknowledged go to the topic {name}, whose name is longer "
                f"than {MAX_TOPIC_LENGTH} characters; take a shorter group name",
            )

    def filter_of(
        self, topic: str, kind: str | None, expression: str | None
    ) -> IMessageFilter | None:
        """
        Return the filter of a pop; None if every message passes.

        :raises RequestRejected: the expression cannot be read, or its type is unknown.
        """
        if not expression or (expression == SUB_ALL and kind in TAG_TYPES):
            return None
        if kind in TAG_TYPES:
            if not expression.replace("||", ""):
                raise _unparsable(topic)
            tags = TagFilter(SubscriptionData.for_tags(topic, expression))
            return None if tags.matches_all else tags
        try:
            return SelectorFilter(self._filters.compile(kind or TAG, expression))
        except InvalidSelector:
            raise _unparsable(topic) from None

    def _topic_config(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        return config


def _illegal_queue(
    code: ResponseCode, queue_id: int, config: TopicConfig, client: str
) -> RequestRejected:
    return RequestRejected(
        code,
        f"queueId[{queue_id}] is illegal, topic:[{config.topic_name}] "
        f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[{client}]",
    )


def _unparsable(topic: str) -> RequestRejected:
    return RequestRejected(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: the expression for {topic} cannot be read",
    )
