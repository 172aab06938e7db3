"""Stores of a group's offsets: at the brokers or, when broadcasting, in a file of this machine.

Both keep the offsets in memory and persist them every few seconds and at the end. After a process
was killed, messages consumed since the last persisting are consumed again.

Spec: remoting.md, sections 7.4, 11.2, 11.3 and 11.5.
"""

from collections.abc import Collection
from enum import Enum
from typing import Protocol

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation, RmqHaError
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire.bodies import MessageQueue, decode_queue_table
from rmq_ha.base.wire.fastjson import pretty
from rmq_ha.client.connection.queue_calls import QueueCalls
from rmq_ha.client.rules.errors import MQClientError

_QUEUES_A_TURN = 500


class ReadOffsetType(Enum):
    """Where to look for an offset."""

    READ_FROM_MEMORY = "READ_FROM_MEMORY"
    READ_FROM_STORE = "READ_FROM_STORE"
    MEMORY_FIRST_THEN_STORE = "MEMORY_FIRST_THEN_STORE"


class OffsetStore(Protocol):
    """Keeps the offset that a group has come to in each of its queues."""

    async def load(self) -> None:
        """Load stored offsets; called before any other method."""

    def update_offset(self, queue: MessageQueue, offset: int, increase_only: bool) -> None:
        """
        Remember an offset in memory.

        :param increase_only: keep the known offset if it is higher.
        """

    def memory(self, queue: MessageQueue) -> int | None:
        """Return the offset in this process's memory; None if it has none of the queue."""

    async def read_offset(
        self, queue: MessageQueue, kind: ReadOffsetType = ReadOffsetType.MEMORY_FIRST_THEN_STORE
    ) -> int | None:
        """
        Return the offset that the group has come to in a queue.

        :returns: None if the group has no offset of this queue.
        :raises RmqHaError: the store could not be read.
        """

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Persist the offsets of these queues and forget the offsets of all others; never fails."""

    async def persist(self, queue: MessageQueue) -> None:
        """
        Persist the offset of one queue that this member gives up; never fails.

        A broker has confirmed the offset when this returns, or it is logged that no broker did.
        """

    def remove_offset(self, queue: MessageQueue) -> None:
        """Forget the offset of a queue that another member gets now."""

    def clone_offset_table(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets in memory of a topic's queues; of all topics if `topic` is empty."""


class _Memory:
    """The offsets in this process's memory."""

    def __init__(self) -> None:
        self._table: dict[MessageQueue, int] = {}

    def update_offset(self, queue: MessageQueue, offset: int, increase_only: bool) -> None:
        if increase_only:
            offset = max(offset, self._table.get(queue, offset))
        self._table[queue] = offset

    def memory(self, queue: MessageQueue) -> int | None:
        return self._table.get(queue)

    def remove_offset(self, queue: MessageQueue) -> None:
        self._table.pop(queue, None)

    def clone_offset_table(self, topic: str) -> dict[MessageQueue, int]:
        return {
            queue: offset for queue, offset in self._table.items() if topic in ("", queue.topic)
        }


class RemoteBrokerOffsetStore(_Memory):
    """
    An offset store at the brokers: at the master, or at a slave while no master is known.

    Every persisting sends all offsets, changed or not. So a master that comes back with older
    offsets gets the newer ones within one interval.

    :param group: the consumer group, with its namespace.
    """

    log = Logger()

    def __init__(self, calls: QueueCalls, group: str) -> None:
        super().__init__()
        self._calls = calls
        self._group = group

    async def load(self) -> None:
        """Do nothing: the offset of a queue is read when the queue is assigned."""

    async def read_offset(
        self, queue: MessageQueue, kind: ReadOffsetType = ReadOffsetType.MEMORY_FIRST_THEN_STORE
    ) -> int | None:
        if kind is not ReadOffsetType.READ_FROM_STORE:
            known = self._table.get(queue)
            if known is not None or kind is ReadOffsetType.READ_FROM_MEMORY:
                return known
        offset = await self._calls.committed(self._group, queue)
        if offset is not None:
            self.update_offset(queue, offset, False)
        return offset

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        for queue in self._table.keys() - set(queues):
            del self._table[queue]
        known = list(self._table)
        for start in range(0, len(known), _QUEUES_A_TURN):
            if start:
                await self._calls.next_turn()
            some = known[start : start + _QUEUES_A_TURN]
            await DeferredList([Deferred.fromCoroutine(self._tell(queue)) for queue in some])

    async def persist_surely(self, queues: Collection[MessageQueue]) -> None:
        """
        Persist the offsets of these queues, and wait until the brokers have confirmed them.

        :raises RmqHaError: a broker did not take an offset.
        """
        for queue in queues:
            offset = self._table.get(queue)
            if offset is not None:
                await self._calls.commit(self._group, queue, offset, wait=True)

    async def persist(self, queue: MessageQueue) -> None:
        # The next member reads this offset as soon as it has the queue; after a reset that is this
        # member. A Java broker may handle that read before an offset that was sent one-way.
        await self._tell(queue, wait=True)

    async def _tell(self, queue: MessageQueue, *, wait: bool = False) -> None:
        offset = self._table.get(queue)
        if offset is None:
            return
        try:
            await self._calls.commit(self._group, queue, offset, wait=wait)
        except RmqHaError as error:
            self.log.warn(
                "the offset {offset} of {queue} is not persisted: {reason}",
                offset=offset,
                queue=queue,
                reason=error,
            )


class LocalFileOffsetStore(_Memory):
    """
    An offset store in a file of the Java client's form; the file before it is kept as `.bak`.

    :param path: `<dir>/<client id>/<group>/offsets.json`.
    """

    log = Logger()

    def __init__(self, disk: Disk, worker: Worker, path: str) -> None:
        super().__init__()
        self.path = path
        self._disk = disk
        self._worker = worker
        self._writing: Deferred[None] | None = None
        self._written: dict[MessageQueue, int] = {}

    async def load(self) -> None:
        """
        Read the file, or its backup if the file is missing, empty or damaged. Begin without offsets
        if neither exists.

        :raises MQClientError: a file is damaged or cannot be read, and the other does not help.
        """
        self._table.update(await self._read())

    async def read_offset(
        self, queue: MessageQueue, kind: ReadOffsetType = ReadOffsetType.MEMORY_FIRST_THEN_STORE
    ) -> int | None:
        """Return the offset in memory, which holds all: no other process writes the file."""
        return self._table.get(queue)

    def remove_offset(self, queue: MessageQueue) -> None:
        """Do nothing: the offsets must outlast a broker that is away for a while."""

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Write all offsets, also those of queues that are away now; never fails."""
        while self._writing is not None:
            again: Deferred[None] = Deferred()
            self._writing.chainDeferred(again)
            await again
        if self._written == self._table:
            return
        table = dict(self._table)
        done = self._writing = Deferred()
        try:
            await self._worker.call(self._replace, encode_offsets(table))
            self._written = table
        except OSError as error:
            self.log.error("{path} is not written: {reason}", path=self.path, reason=error)
        finally:
            self._writing = None
            done.callback(None)

    async def persist(self, queue: MessageQueue) -> None:
        """Do nothing, as Java's store does: the next `persist_all` writes the offset."""

    def _replace(self, data: bytes) -> None:
        self._disk.replace(self.path, data, backup=True)

    async def _read(self) -> dict[MessageQueue, int]:
        fault = None
        for path in (self.path, self.path + ".bak"):
            try:
                data = await self._worker.call(self._disk.read_bytes, path)
                if data.strip():
                    return decode_offsets(data)
            except FileNotFoundError:
                pass
            except (ProtocolViolation, OSError) as error:
                fault = fault or f"{path}: {error}"
                self.log.warn("offsets in {path} are not readable: {why}", path=path, why=error)
        if fault is not None:
            raise MQClientError(
                f"{fault}; its .bak does not help: repair it, or remove both to begin anew"
            )
        return {}


def encode_offsets(table: dict[MessageQueue, int]) -> bytes:
    """Encode offsets as content of the file (Java's OffsetSerializeWrapper)."""
    return pretty({"offsetTable": table})


def decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    """
    Decode offsets from the file's content.

    :raises ProtocolViolation: the content is not in the form of such a file.
    """
    table = decode_queue_table(data)
    try:
        return {queue: int(offset) for queue, offset in table.items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolViolation(f"an offset is no number: {error}") from None
