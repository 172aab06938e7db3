"""
Finds messages by id, key or time, and tells which groups have passed them.

The work is bounded: a limited number of messages in an answer, a slice of work in a turn of the
reactor, one search at a time for each address.
"""

import zlib
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.model.flags import COMPRESSED, COMPRESSION_MASK, COMPRESSION_ZLIB
from rmq_ha.base.model.printable import printable
from rmq_ha.base.model.properties import REAL_TOPIC
from rmq_ha.base.model.subscription import TAG_TYPES
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.timing.slices import Lane
from rmq_ha.client.lookup.lookups import KeyQuery, PlaceId
from rmq_ha.client.rules.messages import MessageExt, message_of
from rmq_ha.ops.app.page.rows import PageRows
from rmq_ha.ops.app.page.values import Consumption, FoundMessage, SearchResult

HOLDERS = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)
"""The topics in which a message waits for its time or for its producer."""
MOST_FOUND = 50
MOST_BODY = 2048
MOST_QUEUES = 1024
MOST_GROUPS = 100
MOST_PROPERTIES = 64
MOST_WAITING = 32
_RECORDS_AT_ONCE = 16
_FOREVER = (1 << 63) - 1
_PREFIX = 64 << 10
"""Bytes of a compressed body that are inflated to show its beginning."""


class Query(NamedTuple):
    """
    A search.

    :ivar by: `id`, `key` or `time`.
    :ivar from_ms: the message was stored at or after this time, and not after `to_ms`.
    """

    by: str
    topic: str
    value: str
    from_ms: int = 0
    to_ms: int = _FOREVER


class SearchRefused(Exception):
    """The search cannot be done; the text says why."""


class Searches:
    """
    Runs the searches of one broker.

    :param broker: a `Broker`.
    """

    def __init__(self, broker: Any, clock: IReactorTime, rows: PageRows) -> None:
        self._broker = broker
        self._lane = Lane(clock)
        self._rows = rows

    def run(self, host: str, query: Query) -> "Deferred[SearchResult]":
        """
        Run a search.

        :param host: address of the client.
        :raises SearchRefused: at once, if the search cannot be done.
        """
        if sum(map(len, self._lane.waiting.values())) >= MOST_WAITING:
            raise SearchRefused(f"{MOST_WAITING} searches wait already; try again in a moment")
        steps, notes = self._steps(query)
        messages: list[FoundMessage] = []
        later = self._lane.run(host, self._judge_messages(steps, messages))
        return later.addCallback(lambda _: SearchResult(notes[-1], messages))

    def _steps(self, query: Query) -> tuple[Iterator[MessageExt | None], list[str]]:
        place = PlaceId.parse(query.value) if query.by == "id" else None
        if place is not None:
            notes = [f"the record at {place.offset} of the commit log"]
            return self._find_at(place, notes), notes
        if query.by in ("id", "key") and not query.value:
            raise SearchRefused(f"give the {query.by} to look for")
        if not query.topic:
            raise SearchRefused("give a topic: only an offsetMsgId names the place of its message")
        if query.topic not in self._broker.topics.table:
            raise SearchRefused(f"there is no topic {query.topic!r} on this broker")
        if query.by == "time":
            notes = []
            return self._find_between(query, notes), notes
        key_query = KeyQuery(
            query.topic,
            query.value,
            query.by == "id",
            MOST_FOUND,
            query.from_ms,
            query.to_ms,
        )
        if self._broker.store.index is None:
            raise SearchRefused("this broker keeps no index of keys (messageIndexEnable=false)")
        what = "id" if key_query.unique else "key"
        notes = [f"messages with this {what}, the newest {MOST_FOUND} at most"]
        return self._by_key(key_query, notes), notes

    def _find_at(self, place: PlaceId, notes: list[str]) -> Iterator[MessageExt | None]:
        record = self._broker.store.record_starting_at(place.offset)
        yield None
        if record is not None:
            yield from self._message(record)
        if place.address != self._broker.identity.address:
            notes.append(
                f"{notes[-1]}; the id was given by {place.address}: a slave has the same places, "
                "another broker has others"
            )

    def _by_key(self, query: KeyQuery, notes: list[str]) -> Iterator[MessageExt | None]:
        """Yield the messages of the topic; if there is none, those that wait to get there."""
        is_found = False
        for message in self._in_topic(query):
            is_found = is_found or message is not None
            yield message
        if is_found:
            return
        for holder in HOLDERS:
            for message in self._in_topic(query._replace(topic=holder)):
                is_meant = message is not None and (
                    message.properties.get(REAL_TOPIC) == query.topic
                )
                if is_meant and not is_found:
                    is_found = True
                    notes.append(
                        f"{notes[-1]}. The topic has none: these wait, or waited, for their time "
                        "or their producer"
                    )
                yield message if is_meant else None

    def _in_topic(self, query: KeyQuery) -> Iterator[MessageExt | None]:
        answer: list[Any] = []
        store = self._broker.store
        yield from store.query_in_slices(
            query.topic, query.key, query.max_num, query.begin_ms, query.end_ms, answer.append
        )
        for record in reversed(answer[0].records):
            for message in self._message(record):
                yield message if message is not None and query.matches(message) else None

    def _find_between(self, query: Query, notes: list[str]) -> Iterator[MessageExt | None]:
        """
        Yield the messages of all queues, the oldest first, with one record of each queue in memory.
        """
        store, config = self._broker.store, self._broker.topics.table[query.topic]
        queues = max(config.read_queue_nums, config.write_queue_nums)
        left_out = max(0, queues - MOST_QUEUES)
        more = f"; {left_out} queues of the topic were not looked at" if left_out else ""
        notes.append(f"the first {MOST_FOUND} messages that were stored in this time{more}")
        heads: list[tuple[int, int, int]] = []
        for queue_id in range(min(queues, MOST_QUEUES)):
            if queue_id % _RECORDS_AT_ONCE == _RECORDS_AT_ONCE - 1:
                yield None
            offset = store.offset_by_time(query.topic, queue_id, query.from_ms)
            self._push(heads, query, queue_id, offset)
        while heads:
            _, queue_id, offset = heappop(heads)
            queue = store.queues.get(query.topic, queue_id)
            unit = None if queue is None else queue.unit(offset)
            record = None if unit is None else store.record_at(unit[0], unit[1])
            yield from self._message(record) if record is not None else ()
            self._push(heads, query, queue_id, offset + 1)

    def _push(
        self, heads: list[tuple[int, int, int]], query: Query, queue_id: int, offset: int
    ) -> None:
        store = self._broker.store
        offset = max(offset, store.min_offset_in_queue(query.topic, queue_id))
        stored_ms = store.store_timestamp_at(query.topic, queue_id, offset)
        if query.from_ms <= stored_ms <= query.to_ms:
            heappush(heads, (stored_ms, queue_id, offset))

    def _message(self, record: bytes) -> Iterator[MessageExt | None]:
        try:
            yield message_of(
                decode_record(record, 0), self._broker.identity.broker_name, inflates=False
            )
        except CorruptRecord:
            yield None

    def _judge_messages(
        self, steps: Iterator[MessageExt | None], messages: list[FoundMessage]
    ) -> Iterator[None]:
        """
        Add the messages with the groups that passed them, a limited number of steps in a turn.
        Groups are looked up once for each topic.
        """
        groups: dict[str, list[str]] = {}
        try:
            for number, message in enumerate(steps):
                if message is not None:
                    if message.topic not in groups:
                        names: list[str] = []
                        yield from self._rows.groups_with(message.topic, names)
                        groups[message.topic] = sorted(names)[:MOST_GROUPS]
                    messages.append(self._found_message(message, groups[message.topic]))
                    if len(messages) >= MOST_FOUND:
                        return
                if message is None or number % 4 == 3:
                    yield
        except StoreError as error:
            raise SearchRefused(f"the store cannot be read: {error}") from error

    def _found_message(self, message: MessageExt, groups: list[str]) -> FoundMessage:
        body, kind = beginning(message.body, message.sys_flag)
        properties = list(message.properties.items())[:MOST_PROPERTIES]
        return FoundMessage(
            id=message.msg_id,
            place_id=message.offset_msg_id,
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            tags=message.tags,
            keys=message.keys,
            size=message.store_size,
            stored_ms=message.store_timestamp,
            born_ms=message.born_timestamp,
            born_host=str(message.born_host),
            reconsumed=message.reconsume_times,
            properties={name: value[:MOST_BODY] for name, value in properties},
            body=body,
            body_kind=kind,
            body_size=len(message.body),
            consumers=[consumption_of(self._broker, message, group) for group in groups],
        )


def consumption_of(broker: Any, message: MessageExt, group: str) -> Consumption:
    """
    Return whether a group has passed a message.

    :param broker: a `Broker`.
    """
    committed = broker.consumer_offsets.query(group, message.topic, message.queue_id)
    info = broker.consumers.group(group)
    known = None if info is None else info.subscriptions.get(message.topic)
    if (
        known is not None
        and known.expression_type in TAG_TYPES
        and known.tags_set
        and message.tags not in known.tags_set
    ):
        return Consumption(group, "not wanted", committed)
    state = "passed" if committed > message.queue_offset else "waiting"
    return Consumption(group, state, committed)


def beginning(body: bytes, sys_flag: int) -> tuple[str, str]:
    """
    Return the beginning of a body for people: at most 2 KiB, however large it inflates to be.

    :returns: the text, and its kind: `text`, `hex` or `compressed`.
    """
    if sys_flag & COMPRESSED:
        if sys_flag & COMPRESSION_MASK not in (0, COMPRESSION_ZLIB):
            return body[: MOST_BODY // 4].hex(" "), "compressed"
        try:
            body = zlib.decompressobj().decompress(body[:_PREFIX], MOST_BODY + 4)
        except zlib.error:
            return body[: MOST_BODY // 4].hex(" "), "compressed"
    text = _text(body[:MOST_BODY])
    if text is None:
        return body[: MOST_BODY // 4].hex(" "), "hex"
    return printable(text), "text"


def _text(data: bytes) -> str | None:
    """Decode UTF-8 whose last character may be cut off; None: it is not text."""
    for end in range(len(data), max(-1, len(data) - 4), -1):
        try:
            text = data[:end].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None
