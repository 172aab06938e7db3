"""What a consumer wants of its topics: expressions, and the filter on the client's side.

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
        """`TagA || TagB`; `*` for all."""
        return cls(TAG, expression or SUB_ALL)

    @classmethod
    def by_sql(cls, expression: str) -> "MessageSelector":
        """`price > 10 AND region = 'eu'`; brokers need `enablePropertyFilter`."""
        return cls(SQL92, expression)


def subscription(
    topic: str, selector: str | MessageSelector | None, version: int
) -> SubscriptionData:
    """
    As brokers are told of it.

    :param version: brokers keep the highest; ms since the epoch.
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
    """Brokers compare hashes of tags only: what has the hash but another tag goes here."""
    tags = subscription_data.tags_set
    if not tags or subscription_data.class_filter_mode:
        return messages
    return [message for message in messages if message.tags in tags]


class Subscriptions:
    """
    Topic to expression; all versions change together, as brokers have to learn of every change.

    :ivar version: of all of them, ms; never the same twice.
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
        """One topic's; None when it is not subscribed."""
        return self._built.get(topic)

    def all(self) -> list[SubscriptionData]:
        """For heartbeats."""
        return list(self._built.values())

    def add(self, topic: str, selector: str | MessageSelector | None, now_ms: int) -> None:
        """
        Subscribe, or replace a subscription.

        :raises ConfigurationError: an SQL92 expression is empty.
        """
        self.version = max(self.version + 1, now_ms)
        self._built[topic] = subscription(topic, selector, self.version)

    def remove(self, topic: str) -> None:
        """Unsubscribe; harmless when it is not."""
        self._built.pop(topic, None)

    def touch(self, topics: Iterable[str], now_ms: int) -> None:
        """New versions: the queues changed, brokers shall compile filters anew."""
        self.version = max(self.version + 1, now_ms)
        for topic in topics:
            if topic in self._built:
                self._built[topic] = replace(self._built[topic], sub_version=self.version)
