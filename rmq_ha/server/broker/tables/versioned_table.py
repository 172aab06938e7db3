"""VersionedTable: the common base of the tables of topics and of groups.

Spec: store.md, sections 12.2 and 12.3.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from twisted.internet.defer import Deferred

from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.pages import page_of
from rmq_ha.server.broker.tables.entries import WrittenEntries

T = TypeVar("T", bound=msgspec.Struct)
"""The type of one configuration, which is replaced at a change and never modified."""


class VersionedTable(PersistedTable, Generic[T]):
    """
    Configurations by name, with a version that every change raises.

    :param built_in: the configurations that exist without a file.
    :param most: returns the number of entries at which clients' requests create no more; operators
        still can.
    :cvar most_key: name of the configuration key of `most`.
    :ivar not_created: how many creations by clients' requests were refused because of `most`.
    :ivar check_creation: raises RequestRejected while clients' requests must not create entries.
    :ivar on_change: called with the name of each configuration that was changed, added or removed.
    :ivar on_any_change: called when anything in the table may have changed.
    :ivar data_version: shows name servers and slaves that the table has changed.
    """

    most_key: ClassVar[str]

    def __init__(
        self,
        disk: Disk,
        worker: Worker,
        path: str,
        now_ms: Callable[[], int],
        built_in: Mapping[str, T],
        most: Callable[[], int],
    ) -> None:
        super().__init__(disk, worker, path)
        self.data_version = DataVersion(now_ms(), 0)
        self._now_ms = now_ms
        self._most = most
        self.not_created = 0
        self.check_creation: Callable[[], None] = lambda: None
        self.on_change: Callable[[str], None] = lambda name: None
        self.on_any_change: Callable[[], object] = lambda: None
        self._table = dict(built_in)
        self._in_file = WrittenEntries[T]()

    @property
    def table(self) -> Mapping[str, T]:
        """All configurations; only read it."""
        return self._table

    def get(self, name: str) -> T | None:
        """Return the configuration with this name; None if this broker does not have it."""
        return self._table.get(name)

    def delete(self, name: str) -> "Deferred[bool] | None":
        """
        Forget one configuration; the caller removes what depends on it.

        :returns: see `persist`; None if there was none.
        """
        if self._table.pop(name, None) is None:
            return None
        return self._bump(name)

    def replace_all(self, version: DataVersion, table: Mapping[str, T]) -> "Deferred[bool]":
        """
        Replace the table by a master's, at a slave.

        :returns: see `persist`.
        """
        self._table = dict(table)
        self.on_any_change()
        self.data_version.assign(version)
        return self.persist()

    @abstractmethod
    def file_of(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the content of the file.

        :param parts: the value or text of each configuration, see `WrittenEntries`.
        """

    def to_body(self) -> bytes:
        return fastjson.encode(self.file_of(self._table))

    def page(self, first: int) -> tuple[bytes, dict[str, str]]:
        """Return the body and the header fields of a page, see `rmq_ha.base.wire.pages`."""
        entries, ext = page_of(self._table, first)
        return fastjson.encode(self.file_of(entries)), ext

    def encode(self) -> bytes:
        return fastjson.pretty(self.file_of(self._in_file.texts_of(self._table)))

    def _has_room(self, name: str) -> bool:
        """
        Return whether a client's request may create one more; else log the reason.

        :raises RequestRejected: see `check_creation`.
        """
        self.check_creation()
        most = self._most()
        if len(self._table) < most:
            return True
        self.not_created += 1
        self.log.warn(
            "{name} is not created for a client: {key} allows {most}; delete some, create it with "
            "mqadmin, or allow more",
            name=name,
            key=self.most_key,
            most=most,
        )
        return False

    def _put(self, name: str, config: T) -> "Deferred[bool]":
        self._table[name] = config
        return self._bump(name)

    def _bump(self, *names: str) -> "Deferred[bool]":
        """Raise the version, and report the names that changed."""
        self.on_any_change()
        self.data_version.next_version(self._now_ms())
        for name in names:
            self.on_change(name)
        return self.persist()
