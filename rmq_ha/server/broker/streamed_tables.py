"""StreamedTables: sends a broker's tables to its slaves in pieces, as they change.

Each piece is a JSON object with entries in the form of the table's file.
`rmq_ha.server.replication.epochs.tables` says when a piece is sent. A slave gets exactly
the topics, groups and delay levels of the master. Consumer offsets of groups that the master does
not know stay at the slave, as they do when a slave fetches tables: a master that lost its file must
not make its slaves lose theirs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.bodies import GroupTable, TopicTable
from rmq_ha.base.wire.members import from_members, to_members
from rmq_ha.base.wire.pages import next_page, page_of
from rmq_ha.base.wire.pop_bodies import RequestMode
from rmq_ha.server.broker.slave import SlaveSynchronize
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy, delay_offset_body
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.request_modes import Modes, RequestModes
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.broker.tables.versioned_table import VersionedTable
from rmq_ha.server.replication.epochs.tables import TableEntry

DELAY_LEVELS = "levels"
"""Name of the only entry in the table of delay offsets."""


class _TablePage(msgspec.Struct, rename="camel", omit_defaults=True):
    """
    Entries of one table, the content of a piece (see `Tables.take`).

    :ivar table: name of the table, as in `StreamedTables`.
    :ivar entries: by name as in the table's file; None for a removed entry.
    :ivar data_version: version of the table; None for a table without versions.
    :ivar is_whole: whether the entries belong to a transfer of the whole table; otherwise they are
        the entries that changed.
    :ivar is_last: whether no more pages of this transfer follow.
    """

    table: str
    entries: dict[str, Any]
    data_version: dict[str, Any] | None = None
    is_whole: bool = False
    is_last: bool = True


class _StreamedTable(ABC):
    """
    One table of a broker, whose entries are sent and received as values of JSON.

    `replace` puts a whole table that came in force. `amend` changes only the entries that came; an
    entry that is None was removed.

    :cvar precedes_log: see `TableEntry`.
    """

    precedes_log: ClassVar[bool] = False

    @abstractmethod
    def watch(self, changed: Callable[[str], None]) -> None:
        """Have `changed` called with the name of each changed entry."""

    @abstractmethod
    def entries(self) -> Mapping[str, Any]:
        pass

    def entry(self, name: str) -> Any:
        """Return an entry; None if there is none."""
        return self.entries().get(name)

    def size_of(self, entry: Any) -> int:
        """Return the number of parts that an entry has, by which `page_of` limits a page."""
        return 1

    def version(self) -> dict[str, int] | None:
        return None

    def replace(self, entries: Mapping[str, Any], version: Any) -> None:
        self.amend(entries, version)

    @abstractmethod
    def amend(self, entries: Mapping[str, Any], version: Any) -> None:
        pass


T = TypeVar("T", bound=msgspec.Struct)


class _Configs(_StreamedTable, Generic[T]):
    """
    The table of topics, or of groups.

    :param kind: the type of one configuration.
    :param take: replaces the table by the given version and configurations.
    """

    precedes_log = True

    def __init__(
        self,
        table: VersionedTable[T],
        kind: type[T],
        take: Callable[[DataVersion, dict[str, T]], object],
    ) -> None:
        self._table, self._kind, self._take = table, kind, take

    def watch(self, changed: Callable[[str], None]) -> None:
        self._table.on_change = changed

    def entries(self) -> Mapping[str, Any]:
        return {name: to_members(config) for name, config in self._table.table.items()}

    def entry(self, name: str) -> Any:
        config = self._table.get(name)
        return None if config is None else to_members(config)

    def version(self) -> dict[str, int] | None:
        return to_members(self._table.data_version)

    def replace(self, entries: Mapping[str, Any], version: Any) -> None:
        if not entries:
            raise ProtocolViolation("a table came without any entry")
        self._take_entries({}, entries, version)

    def amend(self, entries: Mapping[str, Any], version: Any) -> None:
        self._take_entries(self._table.table, entries, version)

    def _take_entries(
        self, known: Mapping[str, T], entries: Mapping[str, Any], version: Any
    ) -> None:
        configs = {name: config for name, config in known.items() if name not in entries}
        for name, entry in entries.items():
            if entry is not None:
                configs[name] = from_members(self._kind, entry)
        self._take(from_members(DataVersion, version or {}), configs)


class _Offsets(_StreamedTable):
    def __init__(self, offsets: ConsumerOffsetManager) -> None:
        self._offsets = offsets

    def watch(self, changed: Callable[[str], None]) -> None:
        self._offsets.on_change = changed

    def entries(self) -> Mapping[str, Any]:
        return self._offsets.table

    def size_of(self, entry: Any) -> int:
        return 1 if entry is None else len(entry)

    def amend(self, entries: Mapping[str, Any], version: Any) -> None:
        self._offsets.forget([name for name, entry in entries.items() if entry is None])
        self._offsets.merge(
            {
                name: {int(queue): int(offset) for queue, offset in entry.items()}
                for name, entry in entries.items()
                if entry is not None
            }
        )


class DelayOffsetSource(Protocol):
    """
    The parts of a `ScheduleMessageService` that a master sends to its slaves.

    :ivar on_progress: called when `offset_table` has changed.
    """

    on_progress: Callable[[], None]

    @property
    def offset_table(self) -> dict[int, int]:
        """The next queue offset by level, at a master."""


class _Delays(_StreamedTable):
    def __init__(self, delivery: DelayOffsetSource, copy: DelayOffsetCopy) -> None:
        self._delivery, self._copy = delivery, copy

    def watch(self, changed: Callable[[str], None]) -> None:
        self._delivery.on_progress = lambda: changed(DELAY_LEVELS)

    def entries(self) -> Mapping[str, Any]:
        return {DELAY_LEVELS: self._delivery.offset_table}

    def amend(self, entries: Mapping[str, Any], version: Any) -> None:
        levels = entries[DELAY_LEVELS]
        self._copy.keep(
            delay_offset_body({int(level): int(offset) for level, offset in levels.items()})
        )


class _Modes(_StreamedTable):
    def __init__(self, modes: RequestModes) -> None:
        self._modes = modes

    def watch(self, changed: Callable[[str], None]) -> None:
        self._modes.on_change = changed

    def entries(self) -> Mapping[str, Any]:
        return {topic: self._modes.entry(topic) for topic in self._modes.table}

    def entry(self, name: str) -> Any:
        return self._modes.entry(name)

    def size_of(self, entry: Any) -> int:
        return 1 if entry is None else len(entry)

    def replace(self, entries: Mapping[str, Any], version: Any) -> None:
        self._take({}, entries)

    def amend(self, entries: Mapping[str, Any], version: Any) -> None:
        self._take(self._modes.table, entries)

    def _take(self, known: Modes, entries: Mapping[str, Any]) -> None:
        taken = {topic: groups for topic, groups in known.items() if topic not in entries}
        for topic, groups in entries.items():
            if groups is not None:
                taken[topic] = {
                    name: from_members(RequestMode, item) for name, item in groups.items()
                }
        self._modes.replace_all(taken)


class StreamedTables:
    """
    The `Tables` of one broker: a master sends them to its slaves, and a slave takes them over.

    The tables are those of topics, groups, consumer offsets, delay offsets and, if there are any,
    request modes.

    :param slave: fetches the tables from masters that do not send them; it is told to stop while a
        master sends them, and it puts topics and groups in force.
    :param delivery: delivers delayed messages while this broker leads.
    :param delay_offsets: the copy of the delay offsets while another broker leads.
    :param request_modes: whether groups pull or pop; None: this table is neither sent nor taken.
    """

    def __init__(
        self,
        slave: SlaveSynchronize,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumer_offsets: ConsumerOffsetManager,
        delivery: DelayOffsetSource,
        delay_offsets: DelayOffsetCopy,
        request_modes: RequestModes | None = None,
    ) -> None:
        self._slave = slave
        self._tables: dict[str, _StreamedTable] = {
            "topics": _Configs(
                topics,
                TopicConfig,
                lambda version, table: slave.take_topics(TopicTable(version, table)),
            ),
            "groups": _Configs(
                groups,
                SubscriptionGroupConfig,
                lambda version, table: slave.take_groups(GroupTable(version, table)),
            ),
            "consumerOffsets": _Offsets(consumer_offsets),
            "delayOffsets": _Delays(delivery, delay_offsets),
        }
        if request_modes is not None:
            self._tables["requestModes"] = _Modes(request_modes)
        self._coming: dict[str, dict[str, Any]] = {}

    def watch(self, changed: Callable[[TableEntry], None]) -> None:
        for name, table in self._tables.items():
            table.watch(partial(self._tell, changed, name))

    def _tell(self, changed: Callable[[TableEntry], None], table: str, name: str) -> None:
        changed(TableEntry(table, name, self._tables[table].precedes_log))

    def all_pieces(self) -> Iterator[bytes]:
        for name, table in self._tables.items():
            yield from self._pieces(name, table, table.entries(), is_whole=True)

    def news(self, entries: Iterable[TableEntry]) -> Iterator[bytes]:
        names: dict[str, list[str]] = {}
        for entry in entries:
            names.setdefault(entry.table, []).append(entry.name)
        for name, changed in names.items():
            table = self._tables[name]
            values = {entry: table.entry(entry) for entry in sorted(changed)}
            yield from self._pieces(name, table, values, is_whole=False)

    def _pieces(
        self, name: str, table: _StreamedTable, entries: Mapping[str, Any], *, is_whole: bool
    ) -> Iterator[bytes]:
        version = table.version()
        first: int | None = 0
        while first is not None:
            page, ext = page_of(entries, first, table.size_of)
            first = next_page(ext, first)
            yield msgspec.json.encode(_TablePage(name, page, version, is_whole, first is None))

    def take(self, piece: bytes) -> None:
        """See `Tables`. An unknown table comes from a newer broker, and is ignored."""
        self._slave.is_streamed = True
        try:
            body = msgspec.json.decode(piece, type=_TablePage)
            table = self._tables.get(body.table)
            if table is not None:
                self._take(body, table)
        except (msgspec.MsgspecError, TypeError, ValueError, AttributeError, KeyError) as error:
            raise ProtocolViolation(f"a piece of tables cannot be read: {error}") from None

    def _take(self, body: _TablePage, table: _StreamedTable) -> None:
        if not body.is_whole:
            table.amend(body.entries, body.data_version)
            return
        coming = self._coming.setdefault(body.table, {})
        coming.update(body.entries)
        if body.is_last:
            table.replace(self._coming.pop(body.table), body.data_version)

    def awaited(self) -> None:
        """
        See `Tables`.

        The slave stops fetching tables itself. A master that crashed and came back may have older
        tables than the slave, and a fetch would overwrite the slave's tables with them.
        """
        self._slave.is_streamed = True

    def absent(self) -> None:
        self._slave.is_streamed = False

    def ended(self) -> None:
        """
        See `Tables`.

        Complete tables and changes that came are kept; an incomplete table is dropped.
        """
        self._coming.clear()
