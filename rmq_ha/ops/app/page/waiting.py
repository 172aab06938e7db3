"""
Tells what waits at a broker: messages with a delay level, timer messages, and half messages that no
producer has ended.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ConfigurationError, CorruptRecord, StoreError
from rmq_ha.base.model.properties import PGROUP, REAL_TOPIC, TRANSACTION_CHECK_TIMES
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.base.seams import Times
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.base.timing.slices import Lane
from rmq_ha.client.rules.messages import MessageExt, message_of
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.server.store.timer.reports import BOUNDS_S

MOST_HALVES = 100
MOST_BY_TOPIC = 5000
"""Most timer messages that are counted by topic: the count reads each record, in 0.1 s."""
MOST_TOPICS = 50
_READ_AT_ONCE = 8


class LevelRow(Struct, frozen=True, kw_only=True):
    """
    The messages of one delay level that wait.

    :ivar delay: its delay as configured, like `10m`; empty: there is no such level any more.
    :ivar next_due_ms: when the first of them is due; None: not known.
    :ivar last_due_ms: when the last of them is due; None: not known.
    """

    level: int
    delay: str
    waiting: int
    next_due_ms: int | None
    last_due_ms: int | None


class DueCount(Struct, frozen=True):
    """How many timer messages are due within so many seconds; 0 s: now."""

    within_s: int
    waiting: int


class TimerTopic(Struct, frozen=True):
    """How many timer messages of one topic wait."""

    topic: str
    waiting: int


class TimersWaiting(Struct, frozen=True, kw_only=True):
    """
    The timer messages of a broker.

    :ivar work: what the broker does with them; see `TimerWork`.
    :ivar late_s: for how many seconds the first of them has been due.
    :ivar recalled: how many were due later, and were taken back by their producers.
    :ivar topics: counts by topic, most first; empty if more than `MOST_BY_TOPIC` wait.
    """

    work: str
    waiting: int
    next_due_ms: int | None
    late_s: float
    recalled: int
    due: list[DueCount]
    topics: list[TimerTopic]


class HalfRow(Struct, frozen=True, kw_only=True):
    """
    A half message that no producer has ended.

    :ivar group: the producer group that the broker asks.
    :ivar topic: the topic that it is meant for.
    :ivar checks: how often the broker has asked.
    """

    id: str
    place_id: str
    group: str
    topic: str
    born_ms: int
    checks: int


class HalvesWaiting(Struct, frozen=True):
    """
    The open half messages of a broker.

    :ivar number: how many are open; None: this broker does not know, and `note` says why.
    :ivar rows: some of them, those of the lowest queue ids, the oldest first.
    """

    number: int | None
    note: str
    rows: list[HalfRow]


class AllWaiting(Struct, frozen=True):
    """All that waits at a broker. `levels`: only levels in which a message waits."""

    levels: list[LevelRow]
    timers: TimersWaiting
    halves: HalvesWaiting


class WaitingRoom:
    """
    Tells what waits at one broker.

    :param broker: a `Broker`.
    :param status: counts the waiting messages of each delay level.
    """

    def __init__(self, broker: Any, status: BrokerStatus) -> None:
        self._broker = broker
        self._status = status
        self._times: Times = Times(broker.host.clock, broker.host.now_ms)
        self._lane = Lane(broker.host.clock)

    def look(self, host: str) -> "Deferred[AllWaiting]":
        """
        Return what waits now.

        :param host: address of the client.
        """
        return Deferred.fromCoroutine(self._look(host))

    async def _look(self, host: str) -> AllWaiting:
        rows: list[HalfRow] = []
        await self._lane.run(host, self._read_halves(rows))
        rows.sort(key=lambda row: row.born_ms)
        return AllWaiting(self._levels(), await self._timers(), self._halves(rows))

    # ------------------------------------------------------------ delay levels

    def _levels(self) -> list[LevelRow]:
        text = self._broker.configuration.store.message_delay_level
        try:
            delays_ms = parse_delay_levels(text)
        except ConfigurationError:
            delays_ms = []
        names = text.split(" ")
        rows = []
        for level, waiting in self._status.waiting_by_level():
            if not waiting:
                continue
            known = level <= len(delays_ms)
            end = self._broker.store.max_offset_in_queue(SCHEDULE_TOPIC, level - 1)
            rows.append(
                LevelRow(
                    level=level,
                    delay=names[level - 1] if known else "",
                    waiting=waiting,
                    next_due_ms=self._due(level, end - waiting, delays_ms) if known else None,
                    last_due_ms=self._due(level, end - 1, delays_ms) if known else None,
                )
            )
        return rows

    def _due(self, level: int, offset: int, delays_ms: list[int]) -> int | None:
        stored_ms = self._broker.store.store_timestamp_at(SCHEDULE_TOPIC, level - 1, offset)
        return stored_ms + delays_ms[level - 1] if stored_ms > 0 else None

    # ------------------------------------------------------------ timer messages

    async def _timers(self) -> TimersWaiting:
        timers = self._broker.store.timers
        report = timers.report()
        counts = await timers.due_within() if timers.is_enabled else []
        by_topic: Counter[str] = Counter()
        if timers.is_enabled and 0 < report.waiting <= MOST_BY_TOPIC:
            try:
                by_topic.update(await timers.waiting_by_topic())
            except StoreError:
                pass  # the counts by time are known from memory
        return TimersWaiting(
            work=report.work.value,
            waiting=report.waiting,
            next_due_ms=report.next_due_ms,
            late_s=report.overdue_ms(self._times.now_ms()) / 1000,
            recalled=report.recalled,
            due=[DueCount(*pair) for pair in zip(BOUNDS_S, counts, strict=False)],
            topics=[TimerTopic(*item) for item in by_topic.most_common(MOST_TOPICS)],
        )

    # ------------------------------------------------------------ half messages

    def _halves(self, rows: list[HalfRow]) -> HalvesWaiting:
        half = self._broker.transaction_checks.open_transactions()
        if half is not None:
            return HalvesWaiting(half.number, "", rows)
        note = (
            "only the master knows which half messages are open"
            if self._broker.store.is_slave
            else "a master knows it after its first check of transactions "
            "(transactionCheckInterval)"
        )
        return HalvesWaiting(None, note, [])

    def _read_halves(self, rows: list[HalfRow]) -> Iterator[None]:
        open_offsets = self._broker.transaction_checks.open_half_offsets(MOST_HALVES) or {}
        places = [(queue, offset) for queue, known in open_offsets.items() for offset in known]
        for number, (queue_id, offset) in enumerate(places[:MOST_HALVES]):
            if number % _READ_AT_ONCE == _READ_AT_ONCE - 1:
                yield
            message = self._half_at(queue_id, offset)
            if message is not None:
                checks = message.properties.get(TRANSACTION_CHECK_TIMES, "0")
                rows.append(
                    HalfRow(
                        id=message.msg_id,
                        place_id=message.offset_msg_id,
                        group=message.properties.get(PGROUP, ""),
                        topic=message.properties.get(REAL_TOPIC, ""),
                        born_ms=message.born_timestamp,
                        checks=int(checks) if checks.isdecimal() and len(checks) < 10 else 0,
                    )
                )

    def _half_at(self, queue_id: int, offset: int) -> MessageExt | None:
        """Return a half message, read so that it counts as no read of a consumer."""
        store = self._broker.store
        queue = store.queues.get(HALF_TOPIC, queue_id)
        unit = None if queue is None else queue.unit(offset)
        try:
            record = None if unit is None else store.record_at(unit[0], unit[1])
            if record is None:
                return None
            return message_of(
                decode_record(record, 0), self._broker.identity.broker_name, inflates=False
            )
        except (CorruptRecord, StoreError):
            return None
