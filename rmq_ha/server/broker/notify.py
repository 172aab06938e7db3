"""NOTIFY_CONSUMER_IDS_CHANGED: tells a group's members that they have to rebalance.

Spec: remoting.md, sections 2.4 and 7.1.
"""

from itertools import count
from typing import cast

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.server.broker.tables.clients import ConsumerManager
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager

_OPAQUE_MASK = 0x7FFFFFFF


class ConsumerIdsNotifier:
    """Notifies every connection of a group, if broker and group allow it."""

    def __init__(
        self,
        clock: IReactorTime,
        config: BrokerConfig,
        consumers: ConsumerManager,
        groups: SubscriptionGroupManager,
    ) -> None:
        self._clock = clock
        self._config = config
        self._consumers = consumers
        self._groups = groups
        self._opaque = count(1)
        self._changed: dict[str, None] = {}
        self._turn: IDelayedCall | None = None

    def notify(self, group: str) -> None:
        """
        Send the notice to all members now. Called before the heartbeat that made the change is
        answered.
        """
        self._changed.pop(group, None)
        if not self._config.notify_consumer_ids_changed_enable:
            return
        config = self._groups.find(group)
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        for channel in self._consumers.channels(group):
            cast(Channel, channel).send(
                RemotingCommand(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    ext={"consumerGroup": group},
                    opaque=next(self._opaque) & _OPAQUE_MASK,
                    flag=FLAG_ONEWAY,
                )
            )

    def channel_closed(self, channel: Channel) -> None:
        """
        Remove the memberships of a closed connection.

        The groups are notified once in each turn, so that the remaining members do not get a notice
        for each of many members that leave together.
        """
        for group in self._consumers.channel_closed(channel):
            self._changed[group] = None
        if self._changed and self._turn is None:
            self._turn = self._clock.callLater(0, self._notify_changed)

    def stop(self) -> None:
        """Drop the notices that wait for the next turn of the reactor."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _notify_changed(self) -> None:
        self._turn = None
        for group in list(self._changed):
            self.notify(group)
