"""Disables groups that read too far before the end of the log, if the configuration asks for it.

Each of their reads takes pages from the disk, which displace pages for all other consumers.

Spec: store.md, section 13.4 (disableConsumeIfConsumerReadSlowly).
"""

from twisted.logger import Logger

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager

CHECK_S = 180.0


class SlowConsumers:
    """Checks every 3 minutes how far before the log's end each group last read each queue."""

    log = Logger()

    def __init__(
        self, config: BrokerConfig, stats: BrokerStats, groups: SubscriptionGroupManager
    ) -> None:
        self._config = config
        self._stats = stats
        self._groups = groups

    def check(self) -> None:
        """
        Disable groups that last read more than `consumerFallbehindThreshold` bytes before the end
        of the log. An operator enables them again with `updateSubGroup`.
        """
        if not self._config.disable_consume_if_consumer_read_slowly:
            return
        limit = self._config.consumer_fallbehind_threshold
        behind = self._stats.fall_behind
        slow = {group: size for (_, _, group), (size, _) in behind.items() if size > limit}
        for group, size in slow.items():
            self.log.warn(
                "consumer group {group} reads {size} bytes behind the end of the log, more than "
                "consumerFallbehindThreshold={limit}: its consuming is disabled; enable it with "
                "mqadmin updateSubGroup -s true",
                group=group,
                size=size,
                limit=limit,
            )
            self._groups.disable_consume(group)
        for key in [key for key in behind if key[-1] in slow]:
            del behind[key]  # else it would disable the group again
