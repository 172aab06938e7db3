"""Subscriptions: the expressions of a consumer's topics, and the filter on the client's side.

Spec: remoting.md, sections 6.2 and 6.7.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.subscription import SQL92, SUB_ALL, TAG, SubscriptionData
from rmq_ha.client.rules.messages import MessageExt


class MessageSelector(NamedTuple):
    """
    An expression that chooses messages.

    :ivar kind: TAG or SQL92.
    """

    kind: str
    expression: str

    @classmethod
    def by_tag(cls, expression: str = SUB_ALL) -> "MessageSelector":
        """Choose messages by tags, like `TagA || TagB`; `*` chooses all."""
        return cls(TAG, expression or SUB_ALL)

    @classmethod
    def by_sql(cls, expression: str) -> "MessageSelector":
        """
        Choose messages by properties, like `price > 10 AND region = 'eu'`. Brokers need
        `enablePropertyFilter`.
        """
        return cls(SQL92, expression)


def subscription(
    topic: str, selector: str | MessageSelector | None, version: int
) -> SubscriptionData:
    """
    Return a subscription in the form that brokers get.

    :param version: a time in ms since the epoch; brokers keep the subscription of the highest.
    :raises ConfigurationError: an SQL92 expression is empty.
    """
    if not isinstance(selector, MessageSelector):
        selector = MessageSelector.by_tag(selector or SUB_ALL)
    if selector.kind == TAG:
        return SubscriptionData.for_tags(topic, selector.expression, version)
    if not selector.expression.strip():
        raise ConfigurationError(f"the {selector.kind} expression for {topic} is empty")
    return SubscriptionData(
        topic, selector.expression, sub_version=version, expression_type=selector.kind
    )


def chosen(messages: list[MessageExt], subscription_data: SubscriptionData) -> list[MessageExt]:
    """
    Return the messages whose tag is subscribed. Brokers compare only hashes of tags, so a message
    with another tag of the same hash is dropped here.
    """
    tags = subscription_data.tags_set
    if not tags or subscription_data.class_filter_mode:
        return messages
    return [message for message in messages if message.tags in tags]


class Subscriptions:
    """
    The subscriptions of one consumer, by topic. Every change raises their common version, so that
    brokers take notice.

    :ivar version: the version of the last change, in ms since the epoch; never the same twice.
    """

    def __init__(self) -> None:
        self.version = 0
        self._built: dict[str, SubscriptionData] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._built))

    def __contains__(self, topic: object) -> bool:
        return topic in self._built

    def __len__(self) -> int:
        return len(self._built)

    def get(self, topic: str) -> SubscriptionData | None:
        """Return the subscription of a topic; None if it is not subscribed."""
        return self._built.get(topic)

    def all(self) -> list[SubscriptionData]:
        """Return all subscriptions, for heartbeats."""
        return list(self._built.values())

    def add(self, topic: str, selector: str | MessageSelector | None, now_ms: int) -> None:
        """
        Subscribe, or replace a subscription.

        :raises ConfigurationError: an SQL92 expression is empty.
        """
        self.version = max(self.version + 1, now_ms)
        self._built[topic] = subscription(topic, selector, self.version)

    def remove(self, topic: str) -> None:
        """Remove a subscription; do nothing if the topic is not subscribed."""
        self._built.pop(topic, None)

    def touch(self, topics: Iterable[str], now_ms: int) -> None:
        """Give topics whose queues changed a new version, so that brokers compile filters anew."""
        self.version = max(self.version + 1, now_ms)
        for topic in topics:
            if topic in self._built:
                self._built[topic] = replace(self._built[topic], sub_version=self.version)
