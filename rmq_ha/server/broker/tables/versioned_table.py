"""VersionedTable: what the tables of topics and of groups have in common.

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
"""One configuration; replaced when it changes, and never changed itself."""


class VersionedTable(PersistedTable, Generic[T]):
    """
    Names and their configurations, with a version that every change bumps.

    :param built_in: what is there without a file.
    :param most: how many there may be before clients' requests create no more; operators' do.
    :cvar most_key: the configuration key that says `most`.
    :ivar not_created: how often one was not.
    :ivar check_creation: raises RequestRejected while no client's request may create one.
    :ivar on_change: told of the name of each one that changed, came or went.
    :ivar data_version: by which name servers and slaves notice a change.
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
        self._table = dict(built_in)
        self._in_file = WrittenEntries[T]()

    @property
    def table(self) -> Mapping[str, T]:
        """All of them; to be read only."""
        return self._table

    def get(self, name: str) -> T | None:
        """The one with this name, if this broker has it; never creates it."""
        return self._table.get(name)

    def delete(self, name: str) -> "Deferred[bool] | None":
        """
        Forget one; what hangs on it is the caller's to remove.

        :returns: as `persist`; None where there was none.
        """
        if self._table.pop(name, None) is None:
            return None
        return self._bump(name)

    def replace_all(self, version: DataVersion, table: Mapping[str, T]) -> "Deferred[bool]":
        """
        A slave's synchronisation: be what the master is.

        :returns: as `persist`.
        """
        self._table = dict(table)
        self.data_version.assign(version)
        return self.persist()

    @abstractmethod
    def file_of(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """:param parts: what stands for each configuration, see `WrittenEntries`."""

    def to_body(self) -> bytes:
        return fastjson.encode(self.file_of(self._table))

    def page(self, first: int) -> tuple[bytes, dict[str, str]]:
        """A page of the same; body and header fields, see `rmq_ha.base.wire.pages`."""
        entries, ext = page_of(self._table, first)
        return fastjson.encode(self.file_of(entries)), ext

    def encode(self) -> bytes:
        return fastjson.pretty(self.file_of(self._in_file.of(self._table)))

    def _has_room(self, name: str) -> bool:
        """
        One more may be created because a client's request names it; else the log says why.

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
        """The version, for these that changed."""
        self.data_version.next_version(self._now_ms())
        for name in names:
            self.on_change(name)
        return self.persist()
