"""StreamedTables: a broker's tables as pieces that its slaves take as they change.

The pieces are JSON objects, as the tables' files are; `rmq_ha.server.replication.epochs.tables`
says when each of them is sent. Of topics, groups and delay levels a slave has what the master has.
Of consumer offsets it keeps those of groups that the master does not know, as a copy does: a master
that lost its file must not take them along.
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
from rmq_ha.server.broker.slave import SlaveSynchronize
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy, delay_offset_body
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.broker.tables.versioned_table import VersionedTable
from rmq_ha.server.replication.epochs.tables import Entry

DELAY_LEVELS = "levels"
"""The one entry of the table of delay offsets."""


class _Body(msgspec.Struct, rename="camel", omit_defaults=True):
    """
    Entries of one table: what a `Piece` holds.

    :ivar entries: by name as in the table's file; None for one that is gone.
    :ivar is_whole: with the bodies before it, up to one that `is_last`, it is all of the table.
    """

    table: str
    entries: dict[str, Any]
    data_version: dict[str, Any] | None = None
    is_whole: bool = False
    is_last: bool = True


class _Table(ABC):
    """
    One table, at both ends; its entries as JSON has them.

    :cvar precedes_log: as `Entry` has it.
    """

    precedes_log: ClassVar[bool] = False

    @abstractmethod
    def watch(self, changed: Callable[[str], None]) -> None:
        """Have this called with the name of each entry that changed."""

    @abstractmethod
    def entries(self) -> Mapping[str, Any]:
        pass

    def entry(self, name: str) -> Any:
        """One of it; None where there is none."""
        return self.entries().get(name)

    def size_of(self, entry: Any) -> int:
        """How much of a page it takes."""
        return 1

    def version(self) -> dict[str, int] | None:
        return None

    def be(self, entries: Mapping[str, Any], version: Any) -> None:
        self.amend(entries, version)

    @abstractmethod
    def amend(self, entries: Mapping[str, Any], version: Any) -> None:
        pass


T = TypeVar("T", bound=msgspec.Struct)


class _Configs(_Table, Generic[T]):
    """
    Topics, or groups.

    :param take: has them in the place of those that there are.
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

    def be(self, entries: Mapping[str, Any], version: Any) -> None:
        if not entries:
            raise ProtocolViolation("a table came without any entry")
        self._have({}, entries, version)

    def amend(self, entries: Mapping[str, Any], version: Any) -> None:
        self._have(self._table.table, entries, version)

    def _have(self, known: Mapping[str, T], entries: Mapping[str, Any], version: Any) -> None:
        configs = {name: config for name, config in known.items() if name not in entries}
        for name, entry in entries.items():
            if entry is not None:
                configs[name] = from_members(self._kind, entry)
        self._take(from_members(DataVersion, version or {}), configs)


class _Offsets(_Table):
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


class Delivery(Protocol):
    """
    What of a `ScheduleMessageService` is sent.

    :ivar on_progress: called when `offset_table` has changed.
    """

    on_progress: Callable[[], None]

    @property
    def offset_table(self) -> dict[int, int]:
        """The next queue offset by level, of a master."""


class _Delays(_Table):
    def __init__(self, delivery: Delivery, copy: DelayOffsetCopy) -> None:
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


class StreamedTables:
    """
    Topics, groups, consumer offsets and delay offsets of one broker.

    :param delivery: of delayed messages, while this broker leads.
    :param delay_offsets: how far it is, while another one does.
    """

    def __init__(
        self,
        slave: SlaveSynchronize,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumer_offsets: ConsumerOffsetManager,
        delivery: Delivery,
        delay_offsets: DelayOffsetCopy,
    ) -> None:
        self._slave = slave
        self._tables: dict[str, _Table] = {
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
        self._coming: dict[str, dict[str, Any]] = {}

    def watch(self, changed: Callable[[Entry], None]) -> None:
        for name, table in self._tables.items():
            table.watch(partial(self._tell, changed, name))

    def _tell(self, changed: Callable[[Entry], None], table: str, name: str) -> None:
        changed(Entry(table, name, self._tables[table].precedes_log))

    def whole(self) -> Iterator[bytes]:
        for name, table in self._tables.items():
            yield from self._pieces(name, table, table.entries(), is_whole=True)

    def news(self, entries: Iterable[Entry]) -> Iterator[bytes]:
        names: dict[str, list[str]] = {}
        for entry in entries:
            names.setdefault(entry.table, []).append(entry.name)
        for name, changed in names.items():
            table = self._tables[name]
            values = {entry: table.entry(entry) for entry in sorted(changed)}
            yield from self._pieces(name, table, values, is_whole=False)

    def _pieces(
        self, name: str, table: _Table, entries: Mapping[str, Any], *, is_whole: bool
    ) -> Iterator[bytes]:
        version = table.version()
        first: int | None = 0
        while first is not None:
            page, ext = page_of(entries, first, table.size_of)
            first = next_page(ext, first)
            yield msgspec.json.encode(_Body(name, page, version, is_whole, first is None))

    def take(self, piece: bytes) -> None:
        """As `Tables` says; a table that we do not know is a newer broker's, and left out."""
        self._slave.is_streamed = True
        try:
            body = msgspec.json.decode(piece, type=_Body)
            table = self._tables.get(body.table)
            if table is not None:
                self._take(body, table)
        except (msgspec.MsgspecError, TypeError, ValueError, AttributeError, KeyError) as error:
            raise ProtocolViolation(f"a piece of tables cannot be read: {error}") from None

    def _take(self, body: _Body, table: _Table) -> None:
        if not body.is_whole:
            table.amend(body.entries, body.data_version)
            return
        coming = self._coming.setdefault(body.table, {})
        coming.update(body.entries)
        if body.is_last:
            table.be(self._coming.pop(body.table), body.data_version)

    def awaited(self) -> None:
        """
        As `Tables` says.

        Who crashed and is back has older ones, and answers to whoever asks.
        """
        self._slave.is_streamed = True

    def absent(self) -> None:
        self._slave.is_streamed = False

    def ended(self) -> None:
        """As `Tables` says: what came counts, half a table does not."""
        self._coming.clear()
