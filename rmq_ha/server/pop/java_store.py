"""Finds what a Java broker left out with pop consumers in a store.

Spec: pop.md, sections 4, 5 and 13.6.
"""

from collections.abc import Iterator
from posixpath import dirname
from typing import NamedTuple

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.properties import REAL_QID, REAL_TOPIC, TAGS, TIMER_DELIVER_MS
from rmq_ha.base.model.topics import SYSTEM_GROUP_PREFIX, SYSTEM_PREFIX, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.server.pop.java_leases import JavaPops, JavaPopsRefusal
from rmq_ha.server.pop.java_records import (
    JavaCheckpoint,
    decode_java_orders,
    decode_java_record,
)
from rmq_ha.server.pop.journal import PopStore, Unit, record_of
from rmq_ha.server.pop.terms import PopTerms
from rmq_ha.server.store.queues.table import ConsumeQueue

_PREFIX = f"{SYSTEM_PREFIX}REVIVE_LOG_"
_MARK = _PREFIX.encode()
_READER_GROUP = f"{SYSTEM_GROUP_PREFIX}REVIVE_GROUP"
_ORDERS = "consumerOrderInfo.json"
_DATABASE = "kvStore"
_SETTLED_MS = 600_000
"""RocketMQ delivers the records that wait in the order of their times, but for some delay."""
_UNITS = 256
_AGAIN = "Let the Java broker open the store again, until its consumers have acknowledged all"


class JavaMark(NamedTuple):
    """
    Says which records of a Java broker are taken over; two zeros if none are.

    :ivar end: physical offset behind the last of them.
    :ivar born_ms: the greatest time of birth of these records. RocketMQ puts the copy of a record
        into the log when the record is due, and the copy has the same time of birth.
    """

    end: int = 0
    born_ms: int = 0


class JavaSearch:
    """
    One search of a store for the pops of a Java broker, behind a mark.

    :param path: path of the snapshot of the POP journal; RocketMQ's file of orderly pops is beside
        it.
    :param reads_all: whether to read the records that wait even if no topic says that a Java broker
        had the store. RocketMQ writes the name of its topic only when another topic changes.
    :ivar pops: what was found.
    :ivar mark: the mark up to which the search came.
    """

    def __init__(
        self, store: PopStore, terms: PopTerms, path: str, since: JavaMark, *, reads_all: bool
    ) -> None:
        self._store = store
        self._terms = terms
        self._folder = dirname(path)
        self._since = since
        self._reads_all = reads_all
        self._settled: set[tuple[str, bytes]] = set()
        self._least_ms: dict[tuple[str, str], int] = {}
        self.pops = JavaPops()
        self.mark = since
        self.has_found = False

    def run(self) -> Iterator[None]:
        """
        Search in slices.

        :raises JavaPopsRefusal: a record or file is damaged, or RocketMQ kept pops in its database.
        :raises StoreError: the disk refuses.
        """
        self._check_database()
        self._read_orders()
        queues = sorted(
            (key, queue) for key, queue in self._store.queues.items() if key[0].startswith(_PREFIX)
        )
        for (topic, queue_id), queue in queues:
            yield from self._read_journal(topic, queue_id, queue)
        waiting = self._store.queues.get(TIMER_TOPIC, 0)
        is_java = (
            self._reads_all
            or queues
            or any(topic.startswith(_PREFIX) for topic in self._terms.topics())
        )
        if waiting is not None and is_java:
            yield from self._read_waiting(waiting)

    def _check_database(self) -> None:
        disk = self._store.host.disk
        path = f"{self._store.root}/{_DATABASE}"
        if not disk.is_dir(path):
            return
        # RocketMQ makes the folder even if it keeps nothing there: look for tables, and for a log
        # that is not empty.
        kept = [name for name in disk.list_dir(path) if name.endswith((".sst", ".log"))]
        if any(disk.size(f"{path}/{name}") for name in kept):
            raise JavaPopsRefusal(
                f"{path} has pops that a Java broker kept in RocksDB, which this broker cannot "
                "read. Let the Java broker open the store, and send it POP_ROLLBACK (request code "
                f"200056), or let its consumers acknowledge all. Then stop it, and move {path} away"
            )

    def _read_orders(self) -> None:
        disk, path = self._store.host.disk, f"{self._folder}/{_ORDERS}"
        if not disk.exists(path):
            return
        try:
            orders = decode_java_orders(disk.read_bytes(path))
        except CorruptRecord as error:
            raise JavaPopsRefusal(
                f"{path} is damaged, so nobody knows which messages of a Java broker are out in "
                f"order: {error}. Put {path}.bak in its place. Without a good copy move the file "
                "away: then the groups get these messages again at once"
            ) from error
        for order in orders:
            if order.pop_ms > self._since.born_ms:
                self.pops.add(order)
                self._note(0, order.pop_ms)

    def _note(self, end: int, born_ms: int) -> None:
        self.has_found = True
        self.mark = JavaMark(max(self.mark.end, end), max(self.mark.born_ms, born_ms))

    # The records of one queue of the journal, and those that wait to come there

    def _read_journal(self, topic: str, queue_id: int, queue: ConsumeQueue) -> Iterator[None]:
        """
        Read a queue from its end back to the records that RocketMQ had settled long before.

        Settled checkpoints are remembered, because their first copies may be among the records that
        wait. Acknowledgements are taken all: they change nothing without their checkpoint.
        """
        begin = max(queue.min_offset, queue.offset_by_place(self._since.end))
        read_until = self._terms.offset(_READER_GROUP, topic, queue_id)
        least_ms = 0
        for offset in range(queue.max_offset - 1, begin - 1, -1):
            unit = queue.unit(offset)
            record = None if unit is None else self._record(unit)
            if unit is None or record is None:
                continue
            is_settled = offset <= read_until
            if is_settled and not least_ms:
                least_ms = max(1, record.store_timestamp - _SETTLED_MS)
                self._least_ms[topic, str(queue_id)] = least_ms
            if record.store_timestamp < least_ms:
                return
            self._take_record(unit, record, topic, is_settled=is_settled)
            if not offset % _UNITS:
                yield

    def _read_waiting(self, queue: ConsumeQueue) -> Iterator[None]:
        offset = max(queue.min_offset, queue.offset_by_place(self._since.end))
        while offset < queue.max_offset:
            units = queue.units(offset, _UNITS)
            for unit in units:
                record = self._record(unit)
                if record is not None:
                    self._take_waiting(unit, record)
                self.mark = self.mark._replace(end=max(self.mark.end, unit[0] + 1))
            offset = offset + len(units) if units else queue.next_file_offset(offset)
            yield

    def _take_waiting(self, unit: Unit, record: Record) -> None:
        properties = record.properties
        topic = properties.get(REAL_TOPIC, "")
        if not topic.startswith(_PREFIX):
            return
        least_ms = self._least_ms.get((topic, properties.get(REAL_QID, "")), 0)
        due = properties.get(TIMER_DELIVER_MS, "")
        due_ms = int(due) if due.isascii() and due.isdigit() else record.store_timestamp
        if max(due_ms, record.store_timestamp) >= least_ms:
            self._take_record(unit, record, topic, is_settled=False)

    def _take_record(self, unit: Unit, record: Record, topic: str, *, is_settled: bool) -> None:
        if self._since.end and record.born_timestamp <= self._since.born_ms:
            return
        try:
            taken = decode_java_record(record.properties.get(TAGS, ""), record.body)
        except CorruptRecord as error:
            raise self._damage(unit, str(error)) from error
        if not isinstance(taken, JavaCheckpoint):
            self.pops.add(taken)
        elif is_settled:
            self._settled.add((topic, record.body))
        elif (topic, record.body) not in self._settled:
            self.pops.add(taken)
        self._note(unit[0] + 1, record.born_timestamp)

    def _record(self, unit: Unit) -> Record | None:
        """Return a record of Java's pops; None if it is another one, or retention deleted it."""
        place, size, _ = unit
        if size == FILLER_SIZE or place < self._store.log.min_offset:
            return None
        data = self._store.record_at(place, size)
        if data is not None and _MARK not in data:
            return None
        record = record_of(data)
        if record is None:
            raise self._damage(unit, "the log lacks the record")
        return record

    def _damage(self, unit: Unit, why: str) -> JavaPopsRefusal:
        return JavaPopsRefusal(
            f"the record at {unit[0]} may say which messages of a Java broker are out, and cannot "
            f"be read: {why}. `rmqha-admin store verify` names all damage; copy the store from "
            f"another replica. {_AGAIN}, if there is none"
        )


def refusal_without_pops(count: int, path: str) -> JavaPopsRefusal:
    """
    Return the reason why a broker with `popEnable=false` does not open a store.

    :param count: number of messages that are out.
    """
    return JavaPopsRefusal(
        f"{path} has messages that pop consumers of a Java broker have not acknowledged ({count}). "
        f"They would never come again, because popEnable is false. Set popEnable=true. {_AGAIN}, "
        "if this broker shall serve no pops"
    )
