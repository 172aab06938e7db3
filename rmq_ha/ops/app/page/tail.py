"""
Shows the messages of a topic as they come.

A browser asks again and again with the cursor of the last answer. The broker keeps nothing between
two questions, so a tail costs nothing when nobody looks. The work of one question is bounded: when
more messages have come than it looks at, the older ones are skipped and counted.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.timing.slices import Lane
from rmq_ha.client.rules.messages import MessageExt, message_of
from rmq_ha.ops.app.page.search import MOST_WAITING, SearchRefused, beginning

MOST_QUEUES = 256
MOST_LOOKED = 400
"""Most messages that one question looks at."""
MOST_SHOWN = 50
FIRST_SHOWN = 10
"""About how many messages the first question of a tail shows, that came before it."""
MOST_CURSOR = 4096
_AT_ONCE = 4
_LONGEST_OFFSET = 16


class TailQuery(NamedTuple):
    """
    A question of a tail.

    :ivar cursor: `cursor` of the last answer; empty: the tail begins.
    :ivar tag: only messages with this tag; empty: all.
    :ivar key: only messages with this key, or with this id; empty: all.
    :ivar text: only messages whose body has this text in its first 2 KiB, in upper or lower case;
        empty: all.
    """

    topic: str
    cursor: str = ""
    tag: str = ""
    key: str = ""
    text: str = ""


class TailMessage(Struct, frozen=True, kw_only=True):
    """
    A message of a tail.

    :ivar body: its beginning, as in `FoundMessage`.
    """

    id: str
    place_id: str
    queue_id: int
    queue_offset: int
    tags: str
    keys: str
    stored_ms: int
    body: str
    body_kind: str
    body_size: int


class TailPage(Struct, frozen=True, kw_only=True):
    """
    The messages of a topic that came since the last question, the oldest first.

    :ivar looked: how many messages were looked at.
    :ivar skipped: how many were not looked at, and how many match and are not shown, since too many
        have come.
    :ivar left_out: queues of the topic that the tail does not follow.
    """

    cursor: str
    looked: int
    skipped: int
    left_out: int
    messages: list[TailMessage]


class _TailPart(NamedTuple):
    """The messages of one queue to look at: the first offset, and the end."""

    queue_id: int
    start: int
    end: int


class Tails:
    """
    Answers the questions of all tails at one broker.

    :param broker: a `Broker`.
    """

    def __init__(self, broker: Any, clock: IReactorTime) -> None:
        self._broker = broker
        self._lane = Lane(clock)

    def read(self, host: str, query: TailQuery) -> "Deferred[TailPage]":
        """
        Return the messages that have come since the last question.

        :param host: address of the client.
        :raises SearchRefused: at once, if there is no such topic, or too many questions wait.
        """
        if sum(map(len, self._lane.waiting.values())) >= MOST_WAITING:
            raise SearchRefused(f"{MOST_WAITING} questions wait already; try again in a moment")
        config = self._broker.topics.table.get(query.topic)
        if config is None:
            raise SearchRefused(f"there is no topic {query.topic!r} on this broker")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        known = _offsets_in(query.cursor)
        messages: list[TailMessage] = []
        parts, skipped = self._parts(query.topic, min(queues, MOST_QUEUES), known)
        later = self._lane.run(host, self._look(query, parts, messages))

        def page(_: object) -> TailPage:
            messages.sort(key=lambda item: (item.stored_ms, item.queue_id, item.queue_offset))
            looked = sum(part.end - part.start for part in parts)
            more = max(0, len(messages) - MOST_SHOWN)
            return TailPage(
                cursor=".".join(f"{part.end:x}" for part in parts),
                looked=looked,
                skipped=skipped + more,
                left_out=max(0, queues - MOST_QUEUES),
                messages=messages[more:],
            )

        return later.addCallback(page)

    def _parts(self, topic: str, queues: int, known: list[int]) -> tuple[list[_TailPart], int]:
        """Return the parts of the queues to look at, and how many messages are skipped."""
        store = self._broker.store
        parts = []
        for queue_id in range(queues):
            begin = store.min_offset_in_queue(topic, queue_id)
            end = max(begin, store.max_offset_in_queue(topic, queue_id))
            if not known:
                start = end - -(-FIRST_SHOWN // queues)
            else:
                start = known[queue_id] if queue_id < len(known) else begin
            # A topic that was deleted and made anew begins again at 0.
            parts.append(_TailPart(queue_id, max(begin, start) if start <= end else begin, end))
        waiting = sum(part.end - part.start for part in parts)
        if waiting <= MOST_LOOKED:
            return parts, 0
        newest = [
            part._replace(start=part.end - (part.end - part.start) * MOST_LOOKED // waiting)
            for part in parts
        ]
        return newest, waiting - sum(part.end - part.start for part in newest)

    def _look(
        self, query: TailQuery, parts: list[_TailPart], messages: list[TailMessage]
    ) -> Iterator[None]:
        store, looked = self._broker.store, 0
        try:
            for part in parts:
                queue = store.queues.get(query.topic, part.queue_id)
                for offset in range(part.start, part.end):
                    looked += 1
                    if looked % _AT_ONCE == 0:
                        yield
                    unit = None if queue is None else queue.unit(offset)
                    record = None if unit is None else store.record_at(unit[0], unit[1])
                    message = None if record is None else self._wanted_message(query, record)
                    if message is not None:
                        messages.append(message)
        except StoreError as error:
            raise SearchRefused(f"the store cannot be read: {error}") from error

    def _wanted_message(self, query: TailQuery, record: bytes) -> TailMessage | None:
        """Return a message as it is shown; None: it is unreadable, or the filter leaves it out."""
        try:
            name = self._broker.identity.broker_name
            message = message_of(decode_record(record, 0), name, inflates=False)
        except CorruptRecord:
            return None
        if query.tag and message.tags != query.tag:
            return None
        if query.key and not _has_key(message, query.key):
            return None
        body, kind = beginning(message.body, message.sys_flag)
        if query.text and query.text.lower() not in body.lower():
            return None
        return TailMessage(
            id=message.msg_id,
            place_id=message.offset_msg_id,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            tags=message.tags,
            keys=message.keys,
            stored_ms=message.store_timestamp,
            body=body,
            body_kind=kind,
            body_size=len(message.body),
        )


def _has_key(message: MessageExt, key: str) -> bool:
    return key in (message.msg_id, message.offset_msg_id, *message.keys.split(" "))


def _offsets_in(cursor: str) -> list[int]:
    """
    Return the next offset of each queue, as a cursor has them.

    :raises SearchRefused: this is no cursor.
    """
    if not cursor:
        return []
    parts = cursor.split(".")
    digits = set("0123456789abcdef")
    if len(parts) > MOST_QUEUES or not all(
        0 < len(part) < _LONGEST_OFFSET and digits.issuperset(part) for part in parts
    ):
        raise SearchRefused("cursor: not one that this server gave")
    return [int(part, 16) for part in parts]
