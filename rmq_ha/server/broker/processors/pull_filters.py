"""Makes the filters of pulls from subscriptions.

Spec: remoting.md, section 6.2.
"""

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import InvalidSelector, RequestRejected
from rmq_ha.base.filter.selector import Selector
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.subscription import SUB_ALL, TAG, TAG_TYPES, SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.server.broker.filters import RetryFilter, SelectorFilter
from rmq_ha.server.broker.processors.pull_header import PullHeader
from rmq_ha.server.broker.tables.clients import ConsumerManager
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterData, ConsumerFilterManager
from rmq_ha.server.store.reading.tag_filter import TagFilter


class PullFilters:
    """Makes the filter of each pull, from the subscription in the request or from the group's."""

    def __init__(
        self, config: BrokerConfig, consumers: ConsumerManager, filters: ConsumerFilterManager
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._filters = filters

    def of_request(self, pull: PullHeader) -> IMessageFilter | None:
        """
        Return the filter of the subscription in the request itself.

        A subscription whose expression does not compile passes every message, as in RocketMQ:
        clients ask CHECK_CLIENT_CONFIG first.

        :returns: None if every message passes.
        :raises RequestRejected: the expression is missing, or the broker does not support its type.
        """
        topic, expression, kind = pull.topic, pull.subscription, pull.expression_type
        if kind is None or kind == TAG:
            if expression == SUB_ALL and not self._config.filter_support_retry:
                return None  # nearly all pulls
            if _holds_only_bars(expression):
                raise _unparsable()
            return self._choose(SubscriptionData.for_tags(topic, expression), None)
        if not expression:
            raise _unparsable()
        selector = None
        if kind not in TAG_TYPES:
            try:
                selector = self._filters.compile(kind, expression)
            except InvalidSelector:
                selector = None
        # Java treats a type of "" like SQL92: the subscription has no tags, so only `*` matches.
        return self._choose(SubscriptionData(topic, expression, expression_type=kind), selector)

    def of_group(self, group: SubscriptionGroupConfig, pull: PullHeader) -> IMessageFilter | None:
        """
        Return the filter of the group's subscription, from the group's last heartbeat.

        :returns: None if every message passes.
        :raises RequestRejected: the subscription is unknown, older than the pull's, or of an
            unsupported type.
        """
        name, topic, version = group.group_name, pull.topic, pull.sub_version
        info = self._consumers.group(name)
        if info is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist: no heartbeat of it has arrived yet",
            )
        if info.message_model == "BROADCASTING" and not group.consume_broadcast_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        subscription = info.subscriptions.get(topic)
        if subscription is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: no heartbeat names {topic}",
            )
        # The heartbeat with the new subscription is still on its way. The refusal makes the client
        # pull again. Filtering by the old one would skip messages for good.
        if subscription.sub_version < version:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if subscription.expression_type in TAG_TYPES:
            return self._choose(subscription, None)
        data = self._filters.get(topic, name)
        if data is None:
            raise RequestRejected(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if data.client_version < version:
            raise RequestRejected(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        return self._choose(subscription, data.selector, data)

    def _choose(
        self,
        subscription: SubscriptionData,
        selector: Selector | None,
        data: ConsumerFilterData | None = None,
    ) -> IMessageFilter | None:
        message_filter: IMessageFilter | None = None
        if subscription.expression_type in TAG_TYPES:
            tags = TagFilter(subscription)
            message_filter = None if tags.matches_all else tags
        elif not self._config.enable_property_filter:
            raise not_supported(subscription.expression_type)
        elif selector is not None and not subscription.class_filter_mode:
            message_filter = SelectorFilter(selector, data)
        if (
            self._config.filter_support_retry
            and subscription.topic.startswith(RETRY_PREFIX)
            and not subscription.class_filter_mode
        ):
            by_unit = message_filter if isinstance(message_filter, TagFilter) else None
            # RocketMQ uses the group in the topic's name, which may differ from the pull's group.
            return RetryFilter(by_unit, self._filters, subscription.topic[len(RETRY_PREFIX) :])
        return message_filter


def not_supported(kind: str | None) -> RequestRejected:
    """Return the refusal of an SQL92 subscription without `enablePropertyFilter`."""
    return RequestRejected(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {kind}",
    )


def _holds_only_bars(expression: str | None) -> bool:
    """Return whether the expression has only `||`, of which Java's split returns no tag."""
    return bool(expression) and not (expression or "").replace("||", "")


def _unparsable() -> RequestRejected:
    return RequestRejected(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
    )
