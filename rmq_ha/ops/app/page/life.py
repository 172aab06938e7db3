"""
Tells a message's life as far as this broker knows it: how it was made, delayed and stored, to whom
it was delivered, how often it was given back, and whether it is a dead letter.

Traces of clients say who handled a message. Without them only the offsets of groups are known: a
group has passed the message or has not, and whether it was handled is not known.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.errors import ConfigurationError, CorruptRecord, StoreError
from rmq_ha.base.model.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    PGROUP,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TRAN_MSG,
    UNIQ_KEY,
)
from rmq_ha.base.model.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.base.timing.slices import Lane
from rmq_ha.client.lookup.lookups import PlaceId
from rmq_ha.client.rules.messages import MessageExt, message_of
from rmq_ha.client.send.trace_lines import TraceEvent, traces_of
from rmq_ha.ops.app.page.rows import PageRows
from rmq_ha.ops.app.page.search import HOLDERS, MOST_WAITING, SearchRefused, consumption_of
from rmq_ha.ops.app.page.values import Consumption, Tone

MOST_GROUPS = 20
MOST_COPIES = 32
_FOREVER = (1 << 63) - 1
_TONES = {"success": Tone.GOOD, "stored": Tone.GOOD}


class LifeStep(Struct, frozen=True):
    """
    A step in the life of a message.

    :ivar at_ms: when it happened or is due; None: not known.
    :ivar is_sure: whether it is known that this happened.
    """

    at_ms: int | None
    tone: Tone
    what: str
    text: str
    is_sure: bool = True


class LifeLane(Struct, frozen=True):
    """
    A part of the life of a message.

    :ivar group: the consumer group that the steps are about; empty: the message itself.
    """

    group: str
    steps: list[LifeStep]


class MessageLife(Struct, frozen=True):
    """
    The life of one message. `note`: what is not known.
    """

    place_id: str
    lanes: list[LifeLane]
    note: str


class _FoundRecords(NamedTuple):
    """The records of this broker that tell of one message."""

    held: list[MessageExt]
    copies: dict[str, list[MessageExt]]
    traces: list[TraceEvent]
    consumers: list[Consumption]


class Lives:
    """
    Tells the lives of messages of one broker.

    :param broker: a `Broker`.
    """

    def __init__(self, broker: Any, clock: IReactorTime, rows: PageRows) -> None:
        self._broker = broker
        self._rows = rows
        self._lane = Lane(clock)
        own = broker.configuration.broker.msg_trace_topic_name
        self._trace_topics = tuple(dict.fromkeys((TRACE_TOPIC, own)))

    def tell(self, host: str, place: str) -> "Deferred[MessageLife | None]":
        """
        Return the life of the message at a place; None: there is no message.

        :param host: address of the client.
        :param place: an offsetMsgId of this broker.
        :raises SearchRefused: at once, if this is no place, or too many questions wait.
        """
        where = PlaceId.parse(place)
        if where is None:
            raise SearchRefused("place: an offsetMsgId, as /api/search gives it")
        if sum(map(len, self._lane.waiting.values())) >= MOST_WAITING:
            raise SearchRefused(f"{MOST_WAITING} questions wait already; try again in a moment")
        lives: list[MessageLife] = []
        later = self._lane.run(host, self._look(where, lives))
        return later.addCallback(lambda _: lives[0] if lives else None)

    def _look(self, place: PlaceId, lives: list[MessageLife]) -> Iterator[None]:
        try:
            record = self._broker.store.record_starting_at(place.offset)
            message = None if record is None else self._message(record)
            if message is None:
                return
            records = _FoundRecords([], {}, [], [])
            names: list[str] = []
            yield from self._rows.groups_with(message.topic, names)
            records.consumers.extend(
                consumption_of(self._broker, message, name) for name in sorted(names)[:MOST_GROUPS]
            )
            if UNIQ_KEY in message.properties and self._broker.store.index is not None:
                yield from self._gather(message, records)
            lives.append(self._life(message, records, len(names)))
        except StoreError as error:
            raise SearchRefused(f"the store cannot be read: {error}") from error

    def _gather(self, message: MessageExt, records: _FoundRecords) -> Iterator[None]:
        """Add the records with the id of a message: where it waited, its copies, its traces."""
        for holder in HOLDERS:
            held: list[MessageExt] = []
            yield from self._with_id(holder, message.msg_id, held)
            records.held.extend(
                item for item in held if item.offset_msg_id != message.offset_msg_id
            )
        for consumer in records.consumers:
            copies = records.copies[consumer.group] = []
            for name in (RETRY_PREFIX + consumer.group, DLQ_PREFIX + consumer.group):
                if name in self._broker.topics.table:
                    yield from self._with_id(name, message.msg_id, copies)
        for name in self._trace_topics:
            lines: list[MessageExt] = []
            yield from self._with_id(name, message.msg_id, lines, is_key=True)
            records.traces.extend(traces_of(message.msg_id, lines))

    def _with_id(
        self, topic: str, msg_id: str, messages: list[MessageExt], *, is_key: bool = False
    ) -> Iterator[None]:
        """Add the messages of a topic with an id, the oldest first."""
        answer: list[Any] = []
        store = self._broker.store
        yield from store.query_in_slices(topic, msg_id, MOST_COPIES, 0, _FOREVER, answer.append)
        read_back = [self._message(record) for record in answer[0].records]
        known = [item for item in read_back if item is not None and item.topic == topic]
        messages += sorted(
            [item for item in known if is_key or item.msg_id == msg_id],
            key=lambda item: item.commit_log_offset,
        )
        yield

    def _message(self, record: bytes) -> MessageExt | None:
        try:
            name = self._broker.identity.broker_name
            return message_of(decode_record(record, 0), name, inflates=False)
        except CorruptRecord:
            return None

    # ------------------------------------------------------------ the steps

    def _life(self, message: MessageExt, records: _FoundRecords, groups: int) -> MessageLife:
        traced = {event.by for event in records.traces if event.what != "sent"}
        passed = {item.group: item for item in records.consumers}
        lanes = [LifeLane("", self._own_steps(message, records))]
        for group in dict.fromkeys([*passed, *sorted(traced)]):
            steps = [_traced(event) for event in records.traces if _is_of(event, group)]
            steps += self._given_back(records, group)
            steps.sort(key=lambda step: step.at_ms or 0)
            if group in passed:
                steps.append(_by_offset(passed[group], group in traced, bool(steps)))
            lanes.append(LifeLane(group, steps))
        notes = []
        if groups > MOST_GROUPS:
            notes.append(f"{groups - MOST_GROUPS} more groups of the topic are not shown")
        if UNIQ_KEY not in message.properties:
            notes.append("its producer gave it no id, so copies and traces cannot be found")
        elif self._broker.store.index is None:
            notes.append("this broker keeps no index, so copies and traces cannot be found")
        elif not records.traces:
            notes.append("no client has left a trace of it on this broker")
        return MessageLife(message.offset_msg_id, lanes, "; ".join(notes))

    def _own_steps(self, message: MessageExt, records: _FoundRecords) -> list[LifeStep]:
        properties = message.properties
        steps = [
            LifeStep(
                message.born_timestamp, Tone.GOOD, "made", f"by a producer at {message.born_host}"
            )
        ]
        if copied := properties.get("RMQHA_COPY_OF"):
            origin = properties.get("RMQHA_COPIED_FROM", "")
            steps.append(
                LifeStep(None, Tone.IDLE, "copied", f"from {origin}, message {copied}".strip())
            )
        if first := properties.get(ORIGIN_MESSAGE_ID):
            steps.append(LifeStep(None, Tone.WARN, "a retry", f"of the message {first}"))
        if message.reconsume_times:
            text = f"{message.reconsume_times} times by its group"
            steps.append(LifeStep(None, Tone.WARN, "given back", text))
        steps += [_traced(event) for event in records.traces if event.what == "sent"]
        for held in records.held:
            if held.properties.get(REAL_TOPIC) == message.topic:
                steps += self._waiting_steps(held)
        if message.topic in HOLDERS:
            return [*steps, *self._waiting_steps(message)]
        if properties.get(TRAN_MSG) == "true":
            text = f"by its producer of {properties.get(PGROUP) or '(no group)'}"
            steps.append(LifeStep(None, Tone.GOOD, "committed", text))
        is_dead = message.topic.startswith(DLQ_PREFIX)
        place = f"in queue {message.queue_id} at {message.queue_offset}"
        steps.append(
            LifeStep(
                message.store_timestamp,
                Tone.ERROR if is_dead else Tone.GOOD,
                "dead letter" if is_dead else "stored",
                place,
            )
        )
        return steps

    def _waiting_steps(self, held: MessageExt) -> list[LifeStep]:
        """Return the steps of a record that waits, or waited, for its time or its producer."""
        at_ms, properties = held.store_timestamp, held.properties
        if held.topic == HALF_TOPIC:
            text = f"until its producer of {properties.get(PGROUP) or '(no group)'} ends it"
            return [LifeStep(at_ms, Tone.WARN, "half message", text)]
        due_ms = self._due(held)
        what = "as a timer message"
        if held.topic == SCHEDULE_TOPIC:
            what = f"by level {properties.get(DELAY) or held.queue_id + 1}"
        steps = [LifeStep(at_ms, Tone.IDLE, "delayed", what)]
        if due_ms is not None:
            is_over = due_ms <= self._broker.host.now_ms()
            steps.append(LifeStep(due_ms, Tone.IDLE, "due" if is_over else "waits until", ""))
        return steps

    def _due(self, held: MessageExt) -> int | None:
        if held.topic == TIMER_TOPIC:
            text = held.properties.get(TIMER_OUT_MS, "")
            return int(text) if text.isdecimal() and len(text) < 16 else None
        try:
            delays = parse_delay_levels(self._broker.configuration.store.message_delay_level)
        except ConfigurationError:
            return None
        known = held.queue_id < len(delays)
        return held.store_timestamp + delays[held.queue_id] if known else None

    def _given_back(self, records: _FoundRecords, group: str) -> Iterable[LifeStep]:
        retry = RETRY_PREFIX + group
        for held in records.held:
            if held.properties.get(REAL_TOPIC) == retry:
                due_ms = self._due(held)
                yield LifeStep(held.store_timestamp, Tone.WARN, "given back", "")
                if due_ms is not None and due_ms > self._broker.host.now_ms():
                    yield LifeStep(due_ms, Tone.IDLE, "comes again", "")
        for copy in records.copies.get(group, ()):
            place = f"in queue {copy.queue_id} at {copy.queue_offset}"
            if copy.topic == retry:
                text = f"attempt {copy.reconsume_times + 1}, {place} of {copy.topic}"
                yield LifeStep(copy.store_timestamp, Tone.WARN, "retried", text)
            else:
                text = f"after {copy.reconsume_times} retries, {place} of {copy.topic}"
                yield LifeStep(copy.store_timestamp, Tone.ERROR, "dead letter", text)


def _is_of(event: TraceEvent, group: str) -> bool:
    return event.what != "sent" and event.by == group


def _traced(event: TraceEvent) -> LifeStep:
    tone = Tone.IDLE if event.what == "consuming" else _TONES.get(event.status, Tone.WARN)
    took = "" if event.took_ms is None else f", took {event.took_ms} ms"
    what = {"sent": "sent", "consuming": "delivered", "consumed": "handled"}[event.what]
    by = f"{event.by} " if event.what == "sent" else ""
    return LifeStep(event.at_ms or None, tone, what, f"{by}at {event.client}: {event.status}{took}")


def _by_offset(item: Consumption, is_traced: bool, is_known: bool) -> LifeStep:
    """
    Return what the group's offset says.

    :param is_traced: a client of the group has left traces of the message.
    :param is_known: a record of this broker tells of the message and the group.
    """
    if item.state == "waiting":
        return LifeStep(
            None, Tone.WARN, "waiting", f"the group has committed {item.committed}", is_sure=False
        )
    if item.state == "not wanted":
        return LifeStep(None, Tone.IDLE, "filtered out", "the group subscribes to other tags")
    if is_traced:
        return LifeStep(None, Tone.GOOD, "passed", f"the group has committed {item.committed}")
    if is_known:
        text = f"the group has committed {item.committed}, and gave the message back"
        return LifeStep(None, Tone.IDLE, "passed", text)
    text = (
        f"the group has committed {item.committed}; whether it was handled is not known without "
        "traces"
    )
    return LifeStep(None, Tone.IDLE, "passed", text, is_sure=False)
