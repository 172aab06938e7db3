"""KVConfigManager: the name server's own small key-value store.

Spec: remoting.md, section 9.6; store.md, section 12.7.
"""

from collections.abc import Mapping

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire import fastjson

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
WIPED_WRITE_PERM = "WIPED_WRITE_PERM"
"""Namespace of the broker names that producers avoid until addWritePerm; only rmq-ha has it."""


class KVConfigManager(PersistedTable):
    """
    The values by namespace and key, in memory and in `kvConfig.json`, which is written at every
    change.
    """

    def __init__(self, disk: Disk, worker: Worker, path: str) -> None:
        super().__init__(disk, worker, path)
        self._namespaces: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str) -> "Deferred[bool]":
        """
        Store a value.

        :returns: the result of `persist`.
        """
        self._namespaces.setdefault(namespace, {})[key] = value
        return self.persist()

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value; None if the key has none."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> "Deferred[bool]":
        """
        Forget a value. The namespace stays, even when it is empty now.

        :returns: the result of `persist`.
        """
        self._namespaces.get(namespace, {}).pop(key, None)
        return self.persist()

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return keys and values of a namespace; None if nothing was ever put into it."""
        return self._namespaces.get(namespace)

    def encode(self) -> bytes:
        """Return the content of `kvConfig.json`, without white space."""
        return fastjson.encode({"configTable": self._namespaces})

    def decode(self, data: bytes) -> None:
        """
        Take over a file's values.

        :raises ProtocolViolation: it is not such a file.
        """
        value = fastjson.parse(data, None)
        table = value.get("configTable") if isinstance(value, dict) else None
        if not isinstance(table, dict):
            raise ProtocolViolation("it holds no configTable object")
        self._namespaces = {
            str(namespace): {str(key): str(item) for key, item in entries.items()}
            for namespace, entries in table.items()
            if isinstance(entries, dict)
        }
