"""SlaveSynchronize: a slave's copies of its master's tables.

Spec: remoting.md, chapter 8; ha.md, section 10.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import ProtocolViolation, RemotingError, StoreError
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.topics import SYSTEM_TOPICS
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.wire.bodies import GroupTable, TopicTable
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.broker.tables.broker_tables import CopiedTables
from rmq_ha.server.broker.tables.request_modes import RequestModes
from rmq_ha.server.broker.tables.versioned_table import VersionedTable
from rmq_ha.server.broker.vanished_topics import QueuesOfTopics, VanishedTopics

T = TypeVar("T", bound=msgspec.Struct)

FIRST_SECONDS = 3.0
EVERY_SECONDS = 10.0
SOON_SECONDS = 0.05
FAST_PORT_DISTANCE = 2


@dataclass(slots=True)
class _CopiedTable:
    """One of the tables, with the results of its copying."""

    name: str
    copy: Callable[[str], Awaitable[bool]]
    persist: Callable[[], Awaitable[bool]]
    failures: int = 0
    last_success: float | None = None
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class TableCopy:
    """
    The results of copying one of the master's tables.

    :ivar age_seconds: time since the last copy that succeeded, in seconds; None: no copy did.
    :ivar failures: number of copies that failed since the start.
    :ivar last_error: the reason of the last failure; empty: the last copy succeeded.
    """

    age_seconds: float | None
    failures: int
    last_error: str


@dataclass(frozen=True, slots=True)
class SlaveCopies:
    """
    A slave's copies of its master's tables, as metrics and `rmqha-admin` show them.

    :ivar master: `host:port` of the broker that is asked for the tables; None: no broker is asked.
    :ivar is_streamed: whether the master sends its tables itself, on the replication connection.
    :ivar tables: the copy of each table, by the table's name.
    """

    master: str | None
    is_streamed: bool
    tables: Mapping[str, TableCopy]


class SlaveSynchronize:
    """
    Copies topics, consumer offsets, delay offsets and groups from the master, every 10 s.

    Each table is copied on its own: if one fails, the failure is logged and counted, and the other
    tables are copied. A table is replaced only by a whole and readable one. While the master sends
    its tables itself, nothing is fetched; each pass then writes the tables that came to the disk.

    :ivar is_streamed: whether the master sends its tables itself, on the replication connection.
    :param address: this broker's own address; a "master" with this address is not asked.
    :param has_masters_log: returns whether this slave's log is a part of its master's, as far as
        they were compared. Otherwise no tables are copied.
    :param queues: drops queues of topics that the master has deleted; None: these queues stay.
    :param request_modes: whether groups pull or pop; None: this table is not copied.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        api: BrokerOuterAPI,
        tables: CopiedTables,
        address: str,
        has_masters_log: Callable[[], bool],
        queues: QueuesOfTopics | None = None,
        request_modes: RequestModes | None = None,
    ) -> None:
        self._clock = clock
        self._vanished = VanishedTopics(clock.seconds)
        self._has_masters_log = has_masters_log
        self._queues = queues
        self._api = api
        topics, groups, consumer_offsets, delay_offsets = tables
        self._topics = topics
        self._groups = groups
        self._consumer_offsets = consumer_offsets
        self._delay_offsets = delay_offsets
        self._address = address
        self.is_streamed = False
        self._master: str | None = None
        self._is_started = False
        self._soon: IDelayedCall | None = None
        self._asked_for: set[str] = set()
        self._running: Deferred[None] | None = None
        self._kinds = [
            _CopiedTable("topics", self._copy_topics, topics.persist_if_dirty),
            _CopiedTable(
                "consumer_offsets", self._copy_consumer_offsets, consumer_offsets.persist_if_dirty
            ),
            _CopiedTable("delay_offsets", self._copy_delay_offsets, delay_offsets.persist_if_dirty),
            _CopiedTable("groups", self._copy_groups, groups.persist_if_dirty),
        ]
        if request_modes is not None:
            self._kinds.append(
                _CopiedTable(
                    "request_modes",
                    partial(self._copy_request_modes, request_modes),
                    request_modes.persist_if_dirty,
                )
            )
        self._periodic = Periodic(
            clock, "slave synchronisation", self._pass_in_time, EVERY_SECONDS, FIRST_SECONDS
        )

    def start(self) -> None:
        """Begin to copy in 3 s; nothing is fetched while the master is unknown."""
        self._is_started = True
        self._periodic.start()

    def stop(self) -> "Deferred[None]":
        """
        Stop copying. A copy under way is finished first, which takes 6 s at most.

        :returns: fires with None; never fails.
        """
        self._master = None
        self._is_started = False
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        stopped = self._periodic.stop()
        if self._running is None:
            return stopped
        copied: Deferred[None] = Deferred()
        self._running.chainDeferred(copied)
        return stopped.addCallback(lambda _: copied)

    def set_master_address(self, address: str | None) -> None:
        """Take the master's address from the last registration; None pauses the copying."""
        if address != self._master:
            self.log.info("synchronizing tables with master {peer}", peer=address)
            self._master = address
            self._vanished.forget()

    def synchronize(self) -> "Deferred[None]":
        """
        Copy all tables once.

        :returns: fires when it is over; never fails.
        """
        if self._running is not None:  # a pass that `on_arrival` has started
            joined: Deferred[None] = Deferred()
            self._running.chainDeferred(joined)
            return joined
        running = self._running = Deferred()
        Deferred.fromCoroutine(self._synchronize()).addBoth(self._passed, running)
        done: Deferred[None] = Deferred()
        running.chainDeferred(done)
        return done

    async def fetch_all(self, master: str) -> bool:
        """
        Fetch all tables once, also while the master sends them itself; the last copy before this
        broker takes over.

        :returns: whether each table was copied and is on the disk.
        """
        is_copied = True
        for kind in self._kinds:
            try:
                is_copied = await kind.copy(master) and is_copied
            except (RemotingError, ProtocolViolation, StoreError) as error:
                self._failed(kind, master, error)
                is_copied = False
        return is_copied

    def _passed(self, result: object, running: "Deferred[None]") -> None:
        self._running = None
        if isinstance(result, Failure):
            self.log.failure("slave synchronisation failed", result)
        running.callback(None)

    def on_arrival(self, rows: Rows) -> None:
        """
        Copy the tables soon if a message belongs to a topic that this slave does not know.

        Otherwise consumers could not read the message here until the next pass; if the master died
        before that, they never could. Between two periodic passes each topic starts at most one
        pass.
        """
        known = self._topics.table
        topics = set(rows.topics)
        self._vanished.note_messages(topics)
        news = topics - known.keys()
        news -= self._asked_for | SYSTEM_TOPICS
        if news and self._master is not None and self._soon is None and self._is_started:
            self._asked_for |= news
            self._soon = self._clock.callLater(SOON_SECONDS, self._pass_soon)

    def _pass_in_time(self) -> "Deferred[None]":
        self._asked_for.clear()
        return self.synchronize()

    def _pass_soon(self) -> None:
        self._soon = None
        if not self._periodic.is_running:
            self.synchronize()

    def statistics(self) -> SlaveCopies:
        """Return the present state of each copy."""
        now = self._clock.seconds()
        tables = {
            kind.name: TableCopy(
                None if kind.last_success is None else now - kind.last_success,
                kind.failures,
                kind.last_error,
            )
            for kind in self._kinds
        }
        return SlaveCopies(self._master, self.is_streamed, tables)

    async def _synchronize(self) -> None:
        for kind in self._kinds:
            master = self._master
            if master is None or master == self._address:
                return
            if not self.is_streamed and not self._has_masters_log():
                return
            try:
                is_written = await (kind.persist() if self.is_streamed else kind.copy(master))
            except Exception as error:  # whatever the error, copy the other tables
                if self._master != master:
                    return
                if self.is_streamed:
                    continue
                self._failed(kind, master, error)
                continue
            if not is_written:
                kind.failures += 1
                kind.last_error = "the copy could not be written to disk"
                continue
            if kind.last_error:
                self.log.info("{kind} of {peer} can be copied again", kind=kind.name, peer=master)
            kind.last_error = ""
            kind.last_success = self._clock.seconds()
        await self._drop_vanished()

    async def _drop_vanished(self) -> None:
        """
        Drop the queues of topics that the master has deleted, when it has no messages of them.
        """
        if self._queues is None:
            return
        for topic in self._vanished.due():
            try:
                is_deleted = await self._is_deleted(topic, self._queues.numbers(topic))
                if is_deleted:
                    self._queues.drop(topic)
            except (RemotingError, ProtocolViolation) as error:
                self.log.debug("{topic} may be deleted: {error}", topic=topic, error=error)
                return
            except StoreError as error:
                is_deleted = True
                self.log.error(
                    "cannot drop the queues of {topic}: {error}", topic=topic, error=error
                )
            else:
                self._tell_vanished(topic, is_deleted=is_deleted)
            self._vanished.settled(topic)

    async def _is_deleted(self, topic: str, queue_ids: Sequence[int]) -> bool:
        """
        Return whether the master has no messages in these queues of a topic.

        :raises RemotingError: the master does not tell.
        """
        for queue_id in queue_ids:
            master = self._master
            if master is None:
                raise RemotingError("no master is known any more")
            end = await self._api.max_offset(master, topic, queue_id)
            if self._master != master:
                raise RemotingError(f"{master} is not the master any more")
            if end > 0:
                return False
        return True

    def _tell_vanished(self, topic: str, *, is_deleted: bool) -> None:
        if is_deleted:
            self.log.warn(
                "the master has deleted {topic}: its queues are dropped here, too; the log keeps "
                "the messages",
                topic=topic,
            )
        else:
            self.log.warn(
                "the master has lost its settings of {topic}, and has the messages still: the "
                "queues stay here, too. Make the topic again, and they can be read",
                topic=topic,
            )

    def _failed(self, kind: _CopiedTable, master: str, error: Exception) -> None:
        """Count a failed copy, and log it once instead of every 10 s."""
        kind.failures += 1
        text = str(error)
        if text != kind.last_error:
            self.log.warn(
                "cannot copy {kind} of master {peer}: {error}; this slave keeps those it has",
                kind=kind.name,
                peer=master,
                error=text,
            )
        kind.last_error = text

    def _check(self, master: str) -> None:
        """
        Check that a master's answer may still be used.

        :raises RemotingError: that broker is not the master any more; it sends its tables itself
            now, so that the answer is older; or this slave's log is not a part of its log.
        """
        if self._master != master or self.is_streamed:
            raise RemotingError(f"{master} is not the master any more, or sends its tables itself")
        if not self._has_masters_log():
            raise RemotingError(f"this slave does not follow the log of {master} any more")

    async def _copy_topics(self, master: str) -> bool:
        try:
            snapshot = await self._api.topic_configs(fast_address(master))
        except (RemotingError, ProtocolViolation):
            # A master without that port (behind a firewall, or not Java's) answers at the main
            # port.
            snapshot = await self._api.topic_configs(master)
        self._check(master)
        return await self.take_topics(snapshot)

    def take_topics(self, snapshot: TopicTable) -> "Deferred[bool]":
        """
        Replace the topics by the master's. If they were fetched, and have this slave's version, the
        table is not replaced, but only written if an earlier write failed.

        :returns: see `persist`.
        """
        ours = self._topics
        known = [topic for topic in ours.table if not ours.is_system(topic)]
        self._vanished.copied(ours.data_version, known, snapshot)
        return self._replace("topics", ours, snapshot.version, snapshot.topics)

    async def _copy_consumer_offsets(self, master: str) -> bool:
        offsets = await self._api.consumer_offsets(master)
        self._check(master)
        self._consumer_offsets.merge(offsets)
        return await self._consumer_offsets.persist_if_dirty()

    async def _copy_delay_offsets(self, master: str) -> bool:
        offsets = await self._api.delay_offsets(master)
        self._check(master)
        return await self._delay_offsets.take(offsets)

    async def _copy_groups(self, master: str) -> bool:
        snapshot = await self._api.subscription_groups(master)
        self._check(master)
        return await self.take_groups(snapshot)

    async def _copy_request_modes(self, modes: RequestModes, master: str) -> bool:
        """
        Ask the master how groups get messages. A master of RocketMQ 4.9, or without `popEnable`,
        does not tell: then this slave's table stays as it is.
        """
        table = await self._api.request_modes(master)
        self._check(master)
        return True if table is None else await modes.replace_all(table.modes)

    def take_groups(self, snapshot: GroupTable) -> "Deferred[bool]":
        """
        Replace the groups by the master's. If they were fetched, and have this slave's version, the
        table is not replaced, but only written if an earlier write failed.

        :returns: see `persist`.
        """
        return self._replace("consumer groups", self._groups, snapshot.version, snapshot.groups)

    def _replace(
        self, what: str, ours: VersionedTable[T], version: DataVersion, table: Mapping[str, T]
    ) -> "Deferred[bool]":
        if not self.is_streamed:
            if version == ours.data_version:
                return ours.persist_if_dirty()
            self.log.info("{what} replaced by those of master {peer}", what=what, peer=self._master)
        return ours.replace_all(version, table)


def fast_address(address: str) -> str:
    """
    Return an address whose port is two below the given one: the master's second port for clients,
    where it answers GET_ALL_TOPIC_CONFIG.

    :raises ProtocolViolation: the address is not `host:port`.
    """
    try:
        return str(parse_host_port(address).with_distance(-FAST_PORT_DISTANCE))
    except ValueError as error:
        raise ProtocolViolation(str(error)) from None
