"""Finds sends whose message is in the log already.

They get the answer of the first send, and are not stored again.

RocketMQ compares no ids. With `duplicateWindowMillis` this broker does. The index knows each
message by topic and unique key, and says where the first may be. The record and its queue then
prove it. So a message that is answered as stored can be read, whatever happened to log, index or
role in between. A message that the index does not know yet is under way, and a repeated send waits
until the index has it.

If access control is on, a record says which account sent it. A message of another account is then
no repetition. Otherwise an attacker who guesses the next id of a client could have the client's
message dropped.

Spec: store.md, section 4.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.model.message import (
    AppendResult,
    BrokerMessage,
    PutMessageResult,
    Row,
    offset_msg_id,
)
from rmq_ha.base.model.properties import (
    REAL_QID,
    REAL_TOPIC,
    SENT_BY,
    UNIQ_KEY,
    decode_properties,
)
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topics import HALF_TOPIC, RETRY_PREFIX
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.timing.slices import Lane
from rmq_ha.server.store.log.batch import MEMBERS_A_TURN
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.store.settle import Done, Others

_CANDIDATES = 256
"""Most records of one hash that are compared, the newest first. Older ones are not compared."""
_STEPS = 8
"""Most steps of a search, of a thousand items each. Only an attack makes longer chains."""
_SECOND_MS = 1000
_FOR_EVER = 1 << 62
_PATIENCE_S = 3.0
"""How long a client waits for an answer before it sends again, seconds."""
_OK = PutMessageStatus.PUT_OK
_NOT_NOW = PutMessageResult(PutMessageStatus.OS_PAGECACHE_BUSY)

Key = tuple[str, str]
Put = Callable[[], "Deferred[PutMessageResult]"]


class SendKey(NamedTuple):
    """
    The values by which a send is recognized.

    :ivar stored_in: topic of its record, which is the schedule topic if the message is delayed.
    :ivar topic: topic to which its client sent it.
    :ivar uniq_key: the id that its client gave it; all repetitions have the same id.
    :ivar sender: the account that sent it, as `sender_of` writes it; empty without access control.
    """

    stored_in: str
    topic: str
    uniq_key: str
    sender: str = ""

    @property
    def key(self) -> Key:
        """Topic and id by which the index has the record."""
        return self.stored_in, self.uniq_key


def duplicate_key_of(message: BrokerMessage, stored_in: str) -> SendKey | None:
    """
    Make the key by which repetitions of a message are recognized.

    None for a message without an id, for one that a consumer sends back, and for a half message.
    The last two come again on purpose, with the id that they had.

    :param stored_in: topic of its record.
    """
    uniq_key = message.properties.get(UNIQ_KEY, "")
    topic = message.topic
    if not uniq_key or topic == HALF_TOPIC or topic.startswith(RETRY_PREFIX):
        return None
    return SendKey(stored_in, topic, uniq_key, message.properties.get(SENT_BY, ""))


def sender_of(account: str) -> str:
    """
    Return how a record names the account that sent it.

    Consumers see it, so it is not the access key.

    :param account: empty if access control is off, or if it trusts the sender's address.
    """
    return sha256(f"rmq-ha sender {account}".encode()).hexdigest()[:16] if account else ""


def uniq_key_in(properties_string: str) -> str:
    """Return the id of a member of a batch; empty without an id."""
    return decode_properties(properties_string).get(UNIQ_KEY, "")


class DuplicateWindow:
    """
    Recognizes repeated sends for some time after the first one was stored.

    :param store: a store with an index.
    :param window_ms: how many ms after it was stored a message is recognized.
    :param now_ms: ms since the epoch, as in the records.
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        window_ms: int,
        clock: IReactorTime,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._window_ms = window_ms
        self._clock = clock
        self._now_ms = now_ms
        self._lane = Lane(clock)
        self._under_way: dict[Key, list[Deferred[None]]] = {}
        store.on_arrival(self._arrived)
        store.on_renumbered = self._forget_all

    # Sends one by one

    def put(
        self, message: SendKey, wait: bool, put: Put, also_in: str = ""
    ) -> "Deferred[PutMessageResult]":
        """
        Store a message with `put`, unless it is stored already.

        :param wait: whether to wait for flush and replication, as the message asks.
        :param also_in: another topic in which an earlier send may have been stored: that of timers,
            if the message's time was not over then.
        :returns: fires for a known message with the present status of the first one: kept as
            promised, or why not yet. Fails if the disk refuses to read the first one.
        """
        if not self._store.is_writable:
            return put()  # `put` returns the reason
        if self._is_under_way(message.key):
            return self._retry_later(message.key, partial(self.put, message, wait, put, also_in))
        first = self._earlier_record(message)
        if first is None and also_in:
            first = self._earlier_record(message._replace(stored_in=also_in))
        if first is None:
            return self._put_new((message.key,), put)
        queue_id = first.queue_id
        if first.topic != message.topic:
            queue_id = int(first.properties[REAL_QID])
        return self._answer_again([first], queue_id, wait)

    def put_batch(
        self, topic: str, ids: Sequence[str], sender: str, wait: bool, host: str, put: Put
    ) -> "Deferred[PutMessageResult]":
        """
        Do what `put` does for a batch, which is known if all its messages are stored side by side.

        :param ids: ids of its messages; if one has no id, the batch is stored.
        :param sender: the sender of all messages, see `SendKey`.
        :param host: the sending client, for fair turns.
        """
        if not self._store.is_writable or topic.startswith(RETRY_PREFIX) or not all(ids):
            return put()
        keys = [(topic, uniq_key) for uniq_key in ids]
        for key in keys:
            if self._is_under_way(key):
                again = partial(self.put_batch, topic, ids, sender, wait, host, put)
                return self._retry_later(key, again)
        first = self._earlier_record(SendKey(topic, topic, ids[0], sender))
        if first is None:
            return self._put_new(keys, put)
        records = [first]
        for key in keys:
            self._under_way.setdefault(key, [])

        def compared(_: object) -> "Deferred[PutMessageResult]":
            if len(records) < len(ids):
                return self._put_new(keys, put)
            self._forget(*keys)
            return self._answer_again(records, first.queue_id, wait)

        def failed(failure: Failure) -> Failure:
            self._forget(*keys)
            return failure

        looked = self._lane.run(host, self._follow(records, ids, sender))
        return looked.addCallbacks(compared, failed)

    def _follow(self, records: list[Record], ids: Sequence[str], sender: str) -> Iterator[None]:
        """
        Append to `records`, which holds the first one, the records that follow it in its queue, as
        long as they have these ids. Yields between slices of the work.
        """
        first = records[0]
        queue = self._store.queues.get(first.topic, first.queue_id)
        for number in range(1, len(ids)):
            unit = None if queue is None else queue.unit(first.queue_offset + number)
            record = None if unit is None else self._record(unit[0])
            message = SendKey(first.topic, first.topic, ids[number], sender)
            if record is None or not self._is_record_of(record, message):
                return
            records.append(record)
            if number % MEMBERS_A_TURN == 0:
                yield

    # Runs of sends

    def begins(self, topic: str, uniq_key: str, sender: str = "") -> bool:
        """
        Return whether a send is no repetition, so that it is to be stored.

        If so, the send counts as under way from now on, and its callback must come from `watched`.

        :param uniq_key: the id that its client gave it; empty: the message is not compared.
        :param sender: see `SendKey`.
        """
        if not uniq_key:
            return True
        key = topic, uniq_key
        if key in self._under_way:
            return False
        try:
            if self._earlier_record(SendKey(topic, topic, uniq_key, sender)) is not None:
                return False
        except StoreError:
            return False  # the sender gets the error when its message is put alone
        self._under_way[key] = []
        return True

    def watched(self, keys: Sequence[Key], done: Done) -> Done:
        """
        Return a callback for a run of sends that `begins` has let in. It ends the sends that were
        not stored, so that a repetition of them is stored, and then calls `done`.

        :param keys: topic and UNIQ_KEY of each send.
        """

        def settled(
            status: PutMessageStatus, rows: Sequence[Row | None], others: Others, now: float
        ) -> None:
            for key, row in zip(keys, rows, strict=True):
                if row is None:
                    self._forget(key)
            done(status, rows, others, now)

        return settled

    # Sends under way

    def _is_under_way(self, key: Key) -> bool:
        if key in self._under_way:
            self._store.dispatcher.hurry()
        return key in self._under_way

    def _put_new(self, keys: Sequence[Key], put: Put) -> "Deferred[PutMessageResult]":
        for key in keys:
            self._under_way.setdefault(key, [])

        def ended(result: object) -> object:
            if not isinstance(result, PutMessageResult) or result.append is None:
                self._forget(*keys)
            return result

        return maybeDeferred(put).addBoth(ended)

    def _retry_later(
        self, key: Key, again: "Callable[[], Deferred[PutMessageResult]]"
    ) -> "Deferred[PutMessageResult]":
        """
        Call `again` when the message under way is in the index, or was not stored.

        That may take until a quorum has the message. After `_PATIENCE_S` seconds `again` is not
        called, and the result is OS_PAGECACHE_BUSY.
        """
        outcomes = self._store.statistics.outcomes
        waiting: Deferred[None] = Deferred()
        self._under_way[key].append(waiting)
        outcomes.waiting += 1
        timer = self._clock.callLater(_PATIENCE_S, self._give_up, key, waiting)

        def ended(_: object) -> "PutMessageResult | Deferred[PutMessageResult]":
            outcomes.waiting -= 1
            if not timer.active():
                return _NOT_NOW
            timer.cancel()
            return again()

        return waiting.addCallback(ended)

    def _give_up(self, key: Key, waiting: "Deferred[None]") -> None:
        self._under_way[key].remove(waiting)
        waiting.callback(None)

    def _forget(self, *keys: Key) -> None:
        for key in keys:
            for waiting in self._under_way.pop(key, ()):
                waiting.callback(None)

    def _forget_all(self) -> None:
        """
        Forget all sends under way. Called when this broker becomes the master, and all of the log
        is dispatched, so that the index knows every message.
        """
        self._forget(*self._under_way)

    def _arrived(self, rows: Sequence[Row]) -> None:
        if self._under_way:
            for row in rows:
                self._forget((row[0], row[8]))

    # Known messages

    def _earlier_record(self, message: SendKey) -> Record | None:
        """
        Return the newest record of a message that was stored within the window and that its queue
        has; None if there is none.

        :raises StoreError: the disk refuses to be read.
        """
        index = self._store.index
        assert index is not None
        since, places = self._now_ms() - self._window_ms, list[int]()
        begin = max(0, since - _SECOND_MS)
        for step, _ in enumerate(index.find(*message.key, _CANDIDATES, begin, _FOR_EVER, places)):
            if step == _STEPS:
                break
        for place in places:
            record = self._record(place)
            if record is None or record.store_timestamp < since:
                continue
            if self._is_record_of(record, message) and self._is_queued(record):
                return record
        return None

    def _record(self, place: int) -> Record | None:
        data = self._store.record_at(place)
        try:
            return None if data is None else decode_record(data)
        except CorruptRecord:
            return None

    @staticmethod
    def _is_record_of(record: Record, message: SendKey) -> bool:
        if record.topic != message.stored_in:
            return False
        properties = decode_properties(record.properties_string)
        if properties.get(UNIQ_KEY) != message.uniq_key:
            return False
        # A record has no sender if access control was off, or if the sender's address was trusted.
        if properties.get(SENT_BY, "") not in ("", message.sender):
            return False
        if message.stored_in == message.topic:
            return True
        return (
            properties.get(REAL_TOPIC) == message.topic and properties.get(REAL_QID, "").isdecimal()
        )

    def _is_queued(self, record: Record) -> bool:
        """
        Return whether the record is in its queue, so that consumers can get it. The queue of a
        topic that was deleted since then lacks it.
        """
        queue = self._store.queues.get(record.topic, record.queue_id)
        unit = None if queue is None else queue.unit(record.queue_offset)
        return unit is not None and unit[:2] == (record.physical_offset, record.size)

    def _answer_again(
        self, records: Sequence[Record], queue_id: int, wait: bool
    ) -> "Deferred[PutMessageResult]":
        """
        Return the result for a message that is stored already: where its first record is, and how
        safely. It fires at once if the records are flushed and replicated as configured, or need
        not be; else when that is decided.

        :param records: the known message, or the members of the known batch.
        :param queue_id: the queue that the answer names.
        :param wait: whether the send asks to wait for flush and replication.
        """
        first = records[0]
        ids = [offset_msg_id(record.store_host, record.physical_offset) for record in records]
        start, end = first.physical_offset, records[-1].physical_offset + records[-1].size
        append = AppendResult(
            start, end - start, first.store_timestamp, first.queue_offset, len(ids), ",".join(ids)
        )
        journal, outcomes = self._store.journal, self._store.statistics.outcomes
        done: Deferred[PutMessageResult] = Deferred()
        outcomes.known += len(ids)
        outcomes.waiting += len(ids)

        def decided(status: PutMessageStatus, now: float) -> None:
            outcomes.waiting -= len(ids)
            done.callback(PutMessageResult(status, append, queue_id))

        status: PutMessageStatus | None = _OK
        now = self._clock.seconds()
        if (wait or journal.always_waits) and not journal.is_kept(start, end):
            status = journal.when_kept(start, end, now, decided)
        if status is not None:
            decided(status, now)
        return done
