"""WipedBrokers: brokers that an operator closed to producers.

RocketMQ forgets this at the broker's next registration with a changed topic. Here it lasts until
addWritePerm, also over restarts of the broker and of this name server.

Spec: remoting.md, section 9.5.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed

from rmq_ha.server.namesrv.kv_config import WIPED_WRITE_PERM, KVConfigManager


class WipedBrokers:
    """
    The names of the brokers that are closed to producers, in the key-value store.

    :param lasts: returns the setting `keepWipedWritePerm`.
    """

    def __init__(self, kv_config: KVConfigManager, lasts: Callable[[], bool]) -> None:
        self._kv_config = kv_config
        self._lasts = lasts

    def is_wiped(self, broker_name: str) -> bool:
        """Whether producers must avoid this broker, whatever it registers."""
        return self._lasts() and self._kv_config.get(WIPED_WRITE_PERM, broker_name) is not None

    def add(self, broker_name: str) -> "Deferred[bool]":
        """
        Close a broker to producers.

        :returns: fires with whether the mark is on the disk; with True if marks are not kept
            (`keepWipedWritePerm=false`).
        """
        if not self._lasts():
            return succeed(True)
        return self._kv_config.put(WIPED_WRITE_PERM, broker_name, "true")

    def remove(self, broker_name: str) -> "Deferred[bool]":
        """
        Open a broker to producers again; harmless when it is open.

        :returns: the result of `KVConfigManager.persist`.
        """
        if self._kv_config.get(WIPED_WRITE_PERM, broker_name) is None:
            return succeed(True)
        return self._kv_config.delete(WIPED_WRITE_PERM, broker_name)
