"""The consumers that came through the gRPC door, by group.

They stand apart from the members that remoting's clients see: those share the queues of a topic
among all members of their group, and a client of gRPC takes no share.

Spec: grpc.md, section 5.
"""

from collections.abc import Iterable

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.server.broker.tables.clients import ClientChannel, ClientChannelInfo

CONSUME_TYPE, MODEL = "CONSUME_PASSIVELY", "CLUSTERING"
"""How RocketMQ's tools name the way in which push consumers of gRPC consume."""


class DoorConsumers:
    """Every group with a live consumer of gRPC."""

    def __init__(self) -> None:
        self._members: dict[str, dict[ClientChannel, ClientChannelInfo]] = {}
        self._subscriptions: dict[ClientChannel, list[SubscriptionData]] = {}
        self._groups: dict[ClientChannel, str] = {}

    def register(
        self, group: str, client: ClientChannelInfo, subscriptions: Iterable[SubscriptionData]
    ) -> None:
        """Register a consumer, or note that it is alive; a consumer has one group."""
        if self._groups.get(client.channel, group) != group:
            self.forget(client.channel)
        self._groups[client.channel] = group
        self._members.setdefault(group, {})[client.channel] = client
        self._subscriptions[client.channel] = list(subscriptions)

    def forget(self, channel: ClientChannel) -> None:
        """Remove a consumer; harmless if it is not registered."""
        group = self._groups.pop(channel, None)
        self._subscriptions.pop(channel, None)
        if group is not None:
            del self._members[group][channel]
            if not self._members[group]:
                del self._members[group]

    def groups(self) -> list[str]:
        """Return the names of the groups with a live consumer."""
        return list(self._members)

    def members(self, group: str) -> list[ClientChannelInfo]:
        """Return the live consumers of a group."""
        return list(self._members.get(group, {}).values())

    def subscriptions(self, group: str) -> dict[str, SubscriptionData]:
        """Return what the live consumers of a group subscribe, by topic; the latest one counts."""
        return {
            item.topic: item
            for channel in self._members.get(group, ())
            for item in self._subscriptions[channel]
        }
