"""Limits on the number of items in one request, as all items are handled in one turn of the
reactor.
"""

from collections.abc import Callable

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.wire.codes import ResponseCode

MESSAGES = "maxMessagesPerBatch"
GROUPS = "maxGroupsPerHeartbeat"
SUBSCRIPTIONS = "maxSubscriptionsPerHeartbeat"
FILTERS = "maxFilterCharactersPerHeartbeat"
QUEUES = "maxQueuesPerLock"
_MOST: dict[str, Callable[[RmqHaConfig], int]] = {
    MESSAGES: lambda config: config.max_messages_per_batch,
    GROUPS: lambda config: config.max_groups_per_heartbeat,
    SUBSCRIPTIONS: lambda config: config.max_subscriptions_per_heartbeat,
    FILTERS: lambda config: config.max_filter_characters_per_heartbeat,
    QUEUES: lambda config: config.max_queues_per_lock,
}


class FrameLimits:
    """
    Refuses requests with too many items.

    :ivar refused: number of refused requests, by the key of their limit.
    """

    def __init__(self, config: RmqHaConfig) -> None:
        self._config = config
        self.refused = dict.fromkeys(_MOST, 0)

    def limit(self, key: str) -> int:
        return _MOST[key](self._config)

    def check(self, key: str, count: int, code: int = ResponseCode.SYSTEM_ERROR) -> None:
        """
        Check the number of items in a request, before it is handled.

        :param key: the configuration key of the limit.
        :param count: how many items the request has.
        :param code: the response code of a refusal.
        :raises RequestRejected: the request has too many items.
        """
        most = self.limit(key)
        if count > most:
            self.refused[key] += 1
            raise RequestRejected(code, f"too much for one request: {key} allows {most}")
