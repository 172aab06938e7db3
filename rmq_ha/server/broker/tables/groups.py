"""SubscriptionGroupManager: the configuration of each consumer group on this broker.

Spec: store.md, section 12.3; remoting.md, section 7.7.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX, group_fault
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire.bodies import GroupTable
from rmq_ha.server.broker.tables.versioned_table import VersionedTable


class SubscriptionGroupManager(VersionedTable[SubscriptionGroupConfig]):
    """The `SubscriptionGroupConfig` by group name, in memory and in `subscriptionGroup.json`."""

    most_key = "maxGroups"

    def __init__(
        self,
        disk: Disk,
        worker: Worker,
        path: str,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        most: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        built_in = {name: SubscriptionGroupConfig(name) for name in BUILT_IN_GROUPS}
        super().__init__(disk, worker, path, now_ms, built_in, most)
        self._config = config

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """
        Return the group, created if `autoCreateSubscriptionGroup` or its name allows that.

        A name that no client library would accept is not created.

        :raises RequestRejected: see `check_creation`.
        """
        known = self._table.get(group)
        if known is not None:
            return known
        may_create = self._config.auto_create_subscription_group or group.startswith(
            SYSTEM_GROUP_PREFIX
        )
        if not may_create or group_fault(group) is not None or not self._has_room(group):
            return None
        created = SubscriptionGroupConfig(group)
        self._put(group, created)
        self.log.info("created consumer group {group}", group=group)
        return created

    def update(self, config: SubscriptionGroupConfig) -> "Deferred[bool]":
        """
        Store a whole group configuration, as an operator asked.

        :returns: see `persist`.
        """
        return self._put(config.group_name, config)

    def disable_consume(self, group: str) -> None:
        """Refuse the group's pulls from now on; harmless for an unknown group."""
        known = self._table.get(group)
        if known is not None and known.consume_enable:
            self._put(group, replace(known, consume_enable=False))

    def file_of(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        return {"dataVersion": self.data_version, "subscriptionGroupTable": parts}

    def decode(self, data: bytes) -> None:
        """
        Merge a file over the built-in groups.

        :raises ProtocolViolation: the text does not hold groups.
        """
        loaded = GroupTable.decode(data)
        self._table.update(loaded.groups)
        self.data_version.assign(loaded.version)
