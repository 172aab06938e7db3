"""ActivePart: reports a consumer that is pulled by the application to its client and to operators.

Spec: remoting.md, sections 7.1 and 7.6.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rmq_ha.base.wire.bodies import ConsumerData, MessageQueue
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.rules.consumer_settings import ConsumerConfig
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.subscriptions import Subscriptions


class ActivePart:
    """
    The `ConsumerPart` of pull and lite pull consumers, by which a client sends their heartbeats and
    passes on requests of brokers.
    """

    def __init__(
        self,
        base: ConsumerBase,
        config: ConsumerConfig,
        subscriptions: Subscriptions,
        group_changed: Callable[[], object],
        reset: Callable[[Mapping[MessageQueue, int]], object],
    ) -> None:
        """
        :param group_changed: called when a member joins or leaves the group of a running consumer.
        :param reset: called with the offsets to which an operator resets the group.
        """
        self._base = base
        self._config = config
        self._subscriptions = subscriptions
        self._group_changed = group_changed
        self._reset = reset

    async def leave(self) -> None:
        """Unregister the consumer at the brokers, and stop the client if nothing else uses it."""
        instance, group = self._base.instance, self._base.group
        if instance.consumers.get(group) is self:
            await instance.unregister_consumer(group)
        await instance.stop_if_unused()

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            self._base.group,
            "CONSUME_ACTIVELY",
            self._config.message_model.value,
            self._config.consume_from_where.value,
            self._subscriptions.all(),
            self._config.unit_mode,
        )

    def on_group_changed(self) -> None:
        if self._base.is_running:
            self._group_changed()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._reset(offsets)

    def consume_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return self._base.offset_store.clone_offset_table(topic)

    def running_info(self, want_stack: bool) -> Mapping[str, Any]:
        return {
            "mqTable": {},
            "properties": {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"},
            "statusTable": {},
            "subscriptionSet": self._subscriptions.all(),
        }

    def consume_directly(self, message: MessageExt) -> Any:
        raise MQClientError("a pull consumer has no listener to consume with")
