"""A log with timer messages, its queues, and the service that delivers them, without a store.

The log is a list of records; its end can be cut off anywhere, and a replica may take it over. The
queues, the table, the scan and the deliveries are the real ones.
"""

from collections import Counter
from random import Random
from typing import Any

from twisted.internet.task import Clock

from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    BrokerMessage,
    PutMessageResult,
    draft_of,
)
from rmq_ha.base.model.properties import TIMER_DEQUEUE_MS, TIMER_SRC, encode_properties
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, TIMER_TOPIC
from rmq_ha.base.runs.records import lay_out
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.runs.run import Run
from rmq_ha.base.seams import Times
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.timer_times import out_for
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.timer.delivery import DeliveryTerms
from rmq_ha.server.store.timer.scan import scan
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.table import TimerLog, TimerTable
from rmq_ha.server.store.timer.timers import TimerMessageService
from rmq_ha.testing.disk import SimDisk

HOST = Address(b"\x0a\0\0\1", 10911)
NOW_MS = 1_795_883_340_000
REFUSED = PutMessageResult(PutMessageStatus.OS_PAGECACHE_BUSY)


class TimerLogOfTest:
    """
    The bytes of a log and its queues; it is its own tail.

    :ivar rows: the row and the bytes of each record.
    :ivar dispatched: physical offset up to which the queues have the records.
    """

    unreadable_at = None

    def __init__(self) -> None:
        self.rows: list[tuple[Any, bytes]] = []
        self.end = self.dispatched = 0
        self.numbers: dict[tuple[str, int], int] = {}
        self.queues = ConsumeQueueTable(SimDisk(Random(1), lambda: NOW_MS), "/store", 8000)
        self.access = TimerLog(self.queues, self.record_at, lambda place: 0)

    def record_at(self, place: int, size: int | None) -> bytes | None:
        return next((data for row, data in self.rows if row[2] == place), None)

    def append(self, message: BrokerMessage, stamp: int) -> Any:
        data, rows, is_whole, _ = lay_out(
            [draft_of(message)], self.end, 1 << 40, 1 << 20, 1 << 21, stamp, self.numbers, 0
        )
        assert is_whole
        self.rows.append((rows[0], data))
        self.end += len(data)
        return rows[0]

    def next_slice(self, position: int, waits: bool) -> Run | None:
        rows = [row for row, _ in self.rows if row[2] >= position][:3]
        end = rows[-1][2] + rows[-1][3]
        return Run(position, end, rows_of(rows))

    def cut(self, count: int) -> None:
        """Forget all records but the first ones."""
        self.rows = self.rows[:count]
        self.end = sum(len(data) for _, data in self.rows)
        self.dispatched = min(self.dispatched, self.end)
        self.queues.truncate(self.end)
        self.numbers = Counter()
        for row, _ in self.rows:
            self.numbers[row[0], row[1]] = row[6] + 1

    def copy(self) -> "TimerLogOfTest":
        """A replica that dispatched all of it."""
        made = TimerLogOfTest()
        made.rows, made.end, made.numbers = list(self.rows), self.end, dict(self.numbers)
        made.dispatch(len(made.rows))
        return made

    def dispatch(self, count: int) -> Any:
        """Give up to `count` records to the queues."""
        rows = [row for row, _ in self.rows if row[2] >= self.dispatched][:count]
        if rows:
            self.queues.put_rows(rows_of(rows))
        return rows

    def scanned(self) -> TimerTable:
        """The table that a start makes of what is dispatched."""
        made: list[TimerTable] = []
        for _ in scan(self.access, self, lambda: self.dispatched, made.append):
            pass
        return made[0]


class TimerWorld:
    """A master on such a log, with a clock that can be set."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.step_ms = 0
        self.log = TimerLogOfTest()
        self.refuses = False
        self.is_held = False
        self.sent = 0
        self.begin()

    def now_ms(self) -> int:
        return NOW_MS + self.step_ms + round(self.clock.seconds() * 1000)

    def begin(self, *, leads: bool = True) -> None:
        """Start the service, as after a crash or a change of role."""
        log = self.log
        terms = DeliveryTerms(
            lambda: log.dispatched,
            lambda: log.end,
            lambda: True,
            lambda: self.is_held,
            lambda: HOST,
            lambda: 5000,
        )
        self.timers = TimerMessageService(
            Times(self.clock, self.now_ms), log.access, log, terms, self.put, None,
            is_enabled=True,
        )  # fmt: skip
        self.timers.begin()
        if leads:
            self.timers.start()
        for _ in range(1000):
            if self.timers.is_ready:
                return
            self.clock.advance(0)
        raise AssertionError("the scan does not end")

    def end(self) -> None:
        """Lose the memory of the process."""
        for call in list(self.clock.getDelayedCalls()):
            call.cancel()

    def put(self, messages: list[BrokerMessage], done: Any) -> None:
        results = []
        for message in messages:
            if self.refuses:
                results.append(REFUSED)
                continue
            row = self.log.append(message, self.now_ms())
            append = AppendResult(row[2], row[3], row[5], row[6], 1, "")
            results.append(PutMessageResult(PutMessageStatus.PUT_OK, append))
        done(results)

    def dispatch(self, count: int = 1 << 20) -> None:
        rows = self.log.dispatch(count)
        if rows:
            self.timers.take_rows(rows_of(rows))
            self.log.dispatched = rows[-1][2] + rows[-1][3]
            self.timers.dispatched(rows[-1][5])

    def run(self, seconds: float, step: float = 0.05) -> None:
        """Let time pass; all is dispatched at once."""
        for _ in range(max(1, round(seconds / step))):
            self.clock.advance(step)
            for _ in range(20):
                if self.log.dispatched >= self.log.end:
                    break
                self.dispatch()
                self.clock.advance(0)

    # Messages

    def send(self, wait_ms: int, *, key: str = "", topic: str = "T", java: bool = False) -> Any:
        """Store T; the row of its record."""
        due = self.now_ms() + wait_ms
        out = due - 1000 if due % 1000 == 0 else due - due % 1000
        self.sent += 1
        return self.log.append(
            a_message(
                {
                    "TIMER_DELIVER_MS": str(due),
                    "UNIQ_KEY": key or f"K{self.sent}",
                    "TIMER_OUT_MS": str(out if java else out_for(due)),
                    "REAL_TOPIC": topic,
                    "REAL_QID": "0",
                }
            ),
            self.now_ms(),
        )

    def recall(self, row: Any) -> bool:
        """Recall the message of a row; whether the answer is yes."""
        source = TimerSource(row[2], row[6])
        if not self.timers.begin_recall(source):
            return False
        if self.refuses:
            self.timers.undo_recall(source)
            return False
        self.log.append(a_recall(row, source.text), self.now_ms())
        return True

    # The log

    def waiting(self) -> set[tuple[int, int]]:
        return set(self.timers._table.waiting)

    def records(self, topic: str) -> list[Any]:
        return [decode_record(data) for row, data in self.log.rows if row[0] == topic]

    def deliveries(self) -> Counter[str]:
        """How often each message was delivered, by TIMER_SRC."""
        return Counter(
            decode_record(data).properties[TIMER_SRC]
            for row, data in self.log.rows
            if row[0] not in (TIMER_TOPIC, TIMER_PROGRESS_TOPIC) and TIMER_DEQUEUE_MS in row[11]
        )


def a_message(properties: dict[str, str], topic: str = TIMER_TOPIC) -> BrokerMessage:
    return BrokerMessage(
        topic, 0, b"body", HOST, HOST, 7, properties=properties,
        properties_string=encode_properties(properties),
    )  # fmt: skip


def a_recall(row: Any, source: str = "") -> BrokerMessage:
    """R for the message of a row, as own brokers write it; without a source as Java does."""
    told = dict(piece.split("\x01") for piece in row[11].split("\x02"))
    topic, key = told["REAL_TOPIC"], told["UNIQ_KEY"]
    properties = {
        "TIMER_DEL_UNIQKEY": f"{topic}+{key}",
        "UNIQ_KEY": key,
        "TAGS": "_RECALL_TAG_",
        "TIMER_DELIVER_MS": str(int(told["TIMER_OUT_MS"]) + 1),
        "TIMER_OUT_MS": told["TIMER_OUT_MS"],
        "REAL_TOPIC": topic,
        "REAL_QID": "0",
    }
    if source:
        properties["TIMER_SRC"] = source
    return a_message(properties)
