"""SubscriptionGroupManager: what each consumer group may do on this broker.

Spec: store.md, section 12.3; remoting.md, section 7.7.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.broker.tables.persisted import PersistedTable
from rmq_ha.config.broker import BrokerConfig
from rmq_ha.model.data_version import DataVersion
from rmq_ha.model.topic_config import SubscriptionGroupConfig
from rmq_ha.model.topics import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX, group_fault
from rmq_ha.seams import Disk, Worker
from rmq_ha.wire import fastjson
from rmq_ha.wire.bodies import GroupTable, decode_group_table


class SubscriptionGroupManager(PersistedTable):
    """
    Group name to `SubscriptionGroupConfig`, in memory and in `subscriptionGroup.json`.

    :ivar data_version: by which slaves notice a change.
    """

    def __init__(
        self,
        disk: Disk,
        worker: Worker,
        path: str,
        config: BrokerConfig,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(disk, worker, path)
        self.data_version = DataVersion(now_ms(), 0)
        self._config = config
        self._now_ms = now_ms
        self._table = {name: SubscriptionGroupConfig(name) for name in BUILT_IN_GROUPS}

    @property
    def table(self) -> Mapping[str, SubscriptionGroupConfig]:
        """All groups; to be read only."""
        return self._table

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, if it is known; never creates it."""
        return self._table.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """
        The group, created where `autoCreateSubscriptionGroup` or its name allows that.

        A name that no client library would accept is not created.
        """
        known = self._table.get(group)
        if known is not None:
            return known
        may_create = self._config.auto_create_subscription_group or group.startswith(
            SYSTEM_GROUP_PREFIX
        )
        if not may_create or group_fault(group) is not None:
            return None
        created = SubscriptionGroupConfig(group)
        self._table[group] = created
        self._bump()
        self.log.info("created consumer group {group}", group=group)
        return created

    def update(self, config: SubscriptionGroupConfig) -> "Deferred[bool]":
        """
        Put a whole group configuration in place, as an operator asked.

        :returns: as `persist`.
        """
        self._table[config.group_name] = config
        return self._bump()

    def disable_consume(self, group: str) -> None:
        """The group lags too far (`disableConsumeIfConsumerReadSlowly`): it may pull no more."""
        known = self._table.get(group)
        if known is not None and known.consume_enable:
            self.update(replace(known, consume_enable=False))

    def delete(self, group: str) -> bool:
        """
        Forget a group; its offsets are the caller's to remove.

        :returns: it was there.
        """
        if self._table.pop(group, None) is None:
            return False
        self._bump()
        return True

    def replace_all(
        self, version: DataVersion, table: Mapping[str, SubscriptionGroupConfig]
    ) -> "Deferred[bool]":
        """
        A slave's synchronisation: be what the master is.

        :returns: as `persist`.
        """
        self._table = dict(table)
        self.data_version.assign(version)
        return self.persist()

    def to_json(self) -> dict[str, Any]:
        """SubscriptionGroupWrapper: in `subscriptionGroup.json` and code 201."""
        return GroupTable(self.data_version, self._table).to_json()

    def to_body(self) -> bytes:
        """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
        return fastjson.encode(self.to_json())

    def encode(self) -> bytes:
        """`subscriptionGroup.json`."""
        return fastjson.pretty(self.to_json())

    def decode(self, data: bytes) -> None:
        """
        Merge a file over the built-in groups.

        :raises ProtocolViolation: it is not such a file.
        """
        loaded = decode_group_table(data)
        self._table.update(loaded.groups)
        self.data_version.assign(loaded.version)

    def _bump(self) -> "Deferred[bool]":
        self.data_version.next_version(self._now_ms())
        return self.persist()
