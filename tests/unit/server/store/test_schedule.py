"""Delayed delivery. Spec: store.md, section 10."""

import json
import tracemalloc
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    BrokerMessage,
    DispatchRequest,
    PutMessageResult,
)
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.base.seams import Times
from rmq_ha.base.store_format.commitlog import Record, decode_record, encode_record
from rmq_ha.base.store_format.consumequeue import UNIT
from rmq_ha.server.store.delay.level import DelayLevel, check_deliverable, message_of
from rmq_ha.server.store.delay.offsets import DelayOffsets
from rmq_ha.server.store.delay.schedule import DelayedLog, ScheduleMessageService
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce

HOST = Address(b"\x7f\0\0\1", 10911)
PATH = "/store/config/delayOffset.json"
STORED = PutMessageResult(PutMessageStatus.PUT_OK, AppendResult(0, 1, 2, 3, 1, ""))
BUSY = PutMessageResult(PutMessageStatus.OS_PAGECACHE_BUSY)
LEVELS = [1000, 5000, 60_000]


def a_record(properties: dict[str, str], body: bytes = b"x") -> bytes:
    return encode_record(
        Record(
            0, 0, 0, 7, 0, 0, 8, 11, HOST, 22, HOST, 3, 44, body, SCHEDULE_TOPIC,
            encode_properties(properties),
        )
    )  # fmt: skip


def delayed(level: int, number: int, topic: str = "T") -> bytes:
    properties = {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": "2", "WAIT": "true"}
    return a_record({**properties, "TAGS": "a"}, str(number).encode())


class ScheduleTests(SynchronousTestCase):
    """A master with three levels; now starts at 1000 s."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.disk = SimDisk(Random(1), self.now_ms)
        self.worker = AtOnce()
        self.jump = 0
        self.queues = ConsumeQueueTable(self.disk, "/store", 800)
        self.records: dict[int, bytes] = {}
        self.end = 0
        self.put_messages: list[tuple[float, BrokerMessage]] = []
        self.outcome = lambda message: succeed(STORED)
        self.service = self.make()

    def make(self) -> ScheduleMessageService:
        return ScheduleMessageService(
            Times(self.clock, self.now_ms),
            DelayOffsets(self.clock, self.disk, self.worker, "/store", 10_000),
            LEVELS,
            DelayedLog(
                self.queues,
                lambda offset, size: self.records.get(offset),
                lambda queue, offset, unit: None,
            ),
            self.put,
        )

    def now_ms(self) -> int:
        return 1_000_000 + self.jump + round(self.clock.seconds() * 1000)

    def put(self, messages: list[BrokerMessage], done: Any) -> None:
        now = self.clock.seconds()
        self.put_messages += [(now, message) for message in messages]
        outcomes = gatherResults([self.outcome(message) for message in messages])
        outcomes.addCallback(done)

    def add(self, level: int, number: int, due: int | None = None, data: bytes = b"") -> None:
        data = data or delayed(level, number)
        if due is None:
            due = self.now_ms() + LEVELS[level - 1]
        queue = self.queues.queue(SCHEDULE_TOPIC, level - 1)
        self.records[self.end] = data
        self.queues.put_requests(
            [
                DispatchRequest(
                    SCHEDULE_TOPIC, level - 1, self.end, len(data), due, 1, queue.max_offset, "",
                    "", 0, 0, "",
                )
            ]
        )  # fmt: skip
        self.end += len(data)
        self.service.arrived(level)

    def bodies(self) -> list[int]:
        return [int(message.body) for _, message in self.put_messages]

    def run_for(self, seconds: float, step: float = 0.05) -> None:
        self.clock.pump([step] * round(seconds / step))

    def file(self) -> dict[str, int]:
        text = self.disk.read_bytes(PATH).decode()
        return {str(level): offset for level, offset in self.parsed(text).items()}

    def parsed(self, text: str) -> dict[int, int]:
        inner = text.split("{")[2].split("}")[0]
        return {int(a): int(b) for a, b in (pair.split(":") for pair in inner.split(","))}

    # Delivery

    def test_delivered_when_due(self) -> None:
        """Not before, and hardly after."""
        self.service.start()
        self.run_for(2)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.add(1, 5)
        self.run_for(0.95)
        self.assertEqual(self.bodies(), [])
        self.run_for(0.1)
        self.assertEqual(self.bodies(), [5])
        message = self.put_messages[0][1]
        self.assertEqual((message.topic, message.queue_id), ("T", 2))
        self.assertEqual(self.service.offset_table, {1: 1})
        self.assertEqual(self.service.runtime_info(), {"scheduleMessageOffset_1": "1,1"})

    def test_first_run_a_second_after_start(self) -> None:
        """What was due long ago comes then."""
        self.add(1, 5, due=1)
        self.run_for(1)
        self.service.start()
        self.service.start()
        self.run_for(0.9)
        self.assertEqual(self.bodies(), [])
        self.run_for(0.2)
        self.assertEqual(self.bodies(), [5])

    def test_many_messages_need_one_timer(self) -> None:
        """A level is a FIFO; all that are due come in order."""
        self.service.start()
        self.run_for(2)
        for number in range(200):
            self.add(1, number)
        self.run_for(0.5)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.run_for(1)
        self.assertEqual(self.bodies(), list(range(200)))
        self.assertEqual(self.service.offset_table, {1: 200})

    def test_levels_do_not_wait_for_each_other(self) -> None:
        """Each has its own queue."""
        self.service.start()
        self.add(3, 3)
        self.add(2, 2)
        self.add(1, 1)
        self.run_for(6)
        self.assertEqual(self.bodies(), [1, 2])
        self.run_for(60, 1)
        self.assertEqual(self.bodies(), [1, 2, 3])

    def test_a_level_is_woken_while_another_one_sleeps_for_longer(self) -> None:
        self.service.start()
        self.run_for(2)
        self.add(3, 3)
        self.run_for(2)
        self.add(1, 1)
        self.run_for(1.1)
        self.assertEqual(self.bodies(), [1])

    def test_a_level_that_goes_to_sleep_takes_no_other_along(self) -> None:
        """A put that took its time ends, and what comes next there is due much later."""
        waiting: Deferred[PutMessageResult] = Deferred()
        self.outcome = lambda message: waiting if message.body == b"3" else succeed(STORED)
        self.service.start()
        self.run_for(2)
        self.add(3, 3, due=self.now_ms())
        self.add(3, 4)
        self.run_for(0.5)
        self.add(1, 1)
        self.run_for(0.5)
        waiting.callback(STORED)
        self.run_for(0.6)
        self.assertEqual(self.bodies(), [3, 1])
        self.run_for(60, 1)
        self.assertEqual(self.bodies(), [3, 1, 4])

    def test_messages_that_expire_before_they_are_due_take_no_others_along(self) -> None:
        """The level goes on with the first one that is left, within a file of the queue."""
        self.service.start()
        self.run_for(2)
        places = []
        for number in range(45):
            places.append(self.end)
            self.add(1, number)
        queue = self.queues.queue(SCHEDULE_TOPIC, 0)
        self.assertEqual(queue.delete_expired(places[42]), 1)
        self.run_for(1.1)
        self.assertEqual(self.bodies(), [42, 43, 44])

    def test_a_failed_put_is_tried_again(self) -> None:
        """After 100 ms, in order, and told of once."""
        self.service.start()
        self.outcome = lambda message: succeed(BUSY)
        self.add(1, 1)
        self.add(1, 2)
        self.run_for(1.52)
        tries = [seconds for seconds, message in self.put_messages if message.body == b"1"]
        self.assertGreaterEqual(len(tries), 4)
        self.assertGreaterEqual(min(b - a for a, b in pairwise(tries)), 0.099)
        self.assertEqual(self.bodies()[2:], [1] * (len(tries) - 1))
        self.assertEqual(self.service.offset_table, {})
        self.outcome = lambda message: succeed(STORED)
        self.run_for(0.3)
        self.assertEqual(self.bodies()[-2:], [1, 2])
        self.assertEqual(self.service.offset_table, {1: 2})

    def test_stored_is_delivered_whatever_became_of_the_replica(self) -> None:
        """A retry would deliver it twice."""
        self.service.start()
        result = PutMessageResult(PutMessageStatus.FLUSH_DISK_TIMEOUT, STORED.append)
        self.outcome = lambda message: succeed(result)
        self.add(1, 1)
        self.run_for(3)
        self.assertEqual(self.bodies(), [1])

    def test_what_was_stored_behind_a_failed_put_is_not_put_again(self) -> None:
        """The failed one is tried alone until it is stored; then the level goes on behind both."""
        illegal = PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        self.outcome = lambda message: succeed(illegal if message.body == b"2" else STORED)
        self.service.start()
        for number in (1, 2, 3):
            self.add(1, number)
        self.run_for(1.5)
        self.assertEqual(self.bodies()[:3], [1, 2, 3])
        self.assertEqual(set(self.bodies()[3:]), {2})
        self.assertEqual(self.service.offset_table, {1: 1})
        self.outcome = lambda message: succeed(STORED)
        self.add(1, 4)
        self.run_for(1.5)
        self.assertEqual([self.bodies().count(number) for number in (1, 3, 4)], [1, 1, 1])
        self.assertEqual(self.service.offset_table, {1: 4})
        self.assertEqual(self.service._levels[1].stored_ahead, set())

    def test_a_put_that_takes_its_time(self) -> None:
        """The next message waits for it; so does a stop not."""
        waiting: Deferred[PutMessageResult] = Deferred()
        self.outcome = lambda message: waiting
        self.service.start()
        self.add(1, 1)
        self.run_for(3)
        self.add(1, 2)
        self.run_for(3)
        self.assertEqual(self.bodies(), [1])
        self.outcome = lambda message: succeed(STORED)
        waiting.callback(STORED)
        self.run_for(0.1)
        self.assertEqual(self.bodies(), [1, 2])
        self.run_for(3)
        self.add(1, 3)
        self.run_for(1.1)
        self.assertEqual(self.bodies(), [1, 2, 3])

    def test_the_next_message_after_a_put_that_took_its_time(self) -> None:
        """Nothing was left to wake the level but its arrival."""
        waiting: Deferred[PutMessageResult] = Deferred()
        self.outcome = lambda message: waiting
        self.service.start()
        self.add(1, 1)
        self.run_for(3)
        waiting.callback(STORED)
        self.run_for(3)
        self.outcome = lambda message: succeed(STORED)
        self.add(1, 2)
        self.run_for(1.1)
        self.assertEqual(self.bodies(), [1, 2])

    def test_a_timer_that_finds_no_level_waiting(self) -> None:
        """Each has a put under way by then: their ends wake them."""
        self.service._on_time()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_second_start_changes_nothing(self) -> None:
        """Else each level would have two timers, and what is put just now come twice."""
        waiting: Deferred[PutMessageResult] = Deferred()
        self.outcome = lambda message: waiting
        self.service.start()
        self.add(1, 1)
        self.run_for(3)
        self.service.start()
        self.run_for(3)
        self.assertEqual(self.bodies(), [1])

    def test_a_put_that_ends_after_the_stop(self) -> None:
        """Changes nothing: the message will come again."""
        waiting: Deferred[PutMessageResult] = Deferred()
        self.outcome = lambda message: waiting
        self.service.start()
        self.add(1, 1)
        self.run_for(2)
        self.successResultOf(self.service.stop())
        waiting.callback(STORED)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.service.offset_table, {})

    def test_a_clock_set_back_delays_nothing_for_longer_than_the_level(self) -> None:
        """Due later than now + delay is due now."""
        self.service.start()
        self.add(1, 1, due=self.now_ms() + 1001)
        self.run_for(1.1)
        self.assertEqual(self.bodies(), [1])

    def test_a_clock_set_forward_is_noticed(self) -> None:
        """Within half a minute."""
        self.service.start()
        self.add(3, 1)
        self.run_for(1, 0.5)
        self.jump = 3_600_000
        self.run_for(31, 1)
        self.assertEqual(self.bodies(), [1])

    def test_what_cannot_be_delivered_is_left_out(self) -> None:
        """Lost records, fillers, records without a real topic, half messages."""
        self.service.start()
        self.add(1, 0)
        del self.records[0]
        self.add(1, 0, data=a_record({"DELAY": "1"}))
        self.add(1, 0, data=delayed(1, 0, HALF_TOPIC))
        self.add(1, 0, data=b"no record")
        self.add(1, 9)
        self.run_for(2)
        self.assertEqual(self.bodies(), [9])
        self.assertEqual(self.service.offset_table, {1: 5})

    def test_extension_addresses_mean_store_time_plus_delay(self) -> None:
        """The unit's own number cannot be resolved."""
        self.service.start()
        self.add(1, 4, due=-(2**63) + 28)
        self.run_for(1.1)
        self.assertEqual(self.bodies(), [4])

    def test_a_queue_that_begins_late(self) -> None:
        """The offset is pulled into the queue's bounds."""
        self.queues.put_requests(
            [DispatchRequest(SCHEDULE_TOPIC, 0, 0, 10, 1, 1, 50, "", "", 0, 0, "")]
        )
        self.records[0] = delayed(1, 7)
        self.service.start()
        self.run_for(1.1)
        self.assertEqual(self.bodies(), [7])
        self.assertEqual(self.service.offset_table, {1: 51})

    def test_a_missing_queue_file_is_jumped_over(self) -> None:
        """And told of."""
        for number in range(41):
            self.add(1, number, due=1)
        queue = self.queues.queue(SCHEDULE_TOPIC, 0)
        queue._starts.remove(0)
        self.service.start()
        self.run_for(2)
        self.assertEqual(self.bodies(), [40])

    def test_a_disk_that_fails_is_tried_again(self) -> None:
        """After 10 s."""
        self.add(1, 1, due=1)
        queue = self.queues.queue(SCHEDULE_TOPIC, 0)
        healthy = queue._files
        queue._files = FailingFiles()  # type: ignore[assignment]
        self.service.start()
        self.run_for(2)
        queue._files = healthy
        self.run_for(8.5)
        self.assertEqual(self.bodies(), [])
        self.run_for(1)
        self.assertEqual(self.bodies(), [1])

    # delayOffset.json

    def test_offsets_are_written_ten_seconds_after_a_change(self) -> None:
        """And not again while nothing changes."""
        self.service.start()
        self.add(1, 1)
        self.run_for(2)
        self.assertFalse(self.disk.exists(PATH))
        self.run_for(10)
        self.assertEqual(self.file(), {"1": 1})
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.add(1, 2)
        self.run_for(12)
        self.assertEqual(self.file(), {"1": 2})
        self.assertTrue(self.disk.exists(PATH + ".bak"))

    def test_levels_that_there_are_no_more(self) -> None:
        """messageDelayLevel became shorter: what waits in them comes when it was promised."""
        self.queues.queue("T", 0)
        for number, level in enumerate((5, 1, 4)):
            self.queues.queue(SCHEDULE_TOPIC, level - 1)
            self.add(level, number, due=self.now_ms() + 3000)
        self.service.start()
        self.run_for(2.8)
        assert self.bodies() == []
        self.run_for(1)
        assert sorted(self.bodies()) == [0, 1, 2]

    def test_levels_that_there_are_no_more_are_told_while_something_waits(self) -> None:
        """The operator may want them back before it is due."""
        for count in (0, 2):
            for number in range(count):
                self.add(5, number, due=self.now_ms() + 3000)
            self.queues.queue(SCHEDULE_TOPIC, 3)
            with capturedLogs() as events:
                self.service.start()
            told = [event for event in events if event["log_level"] is LogLevel.warn]
            assert [(event["delay_level"], event["count"]) for event in told] == (
                [(5, 2)] if count else []
            )
            self.successResultOf(self.service.stop())

    def test_whoever_copies_the_progress_hears_of_it(self) -> None:
        told: list[dict[int, int]] = []
        self.service.on_progress = lambda: told.append(dict(self.service.offset_table))
        self.service.start()
        self.add(1, 1)
        self.run_for(2.5)
        assert told == [{1: 1}]

    def test_who_waits_longer_puts_nobody_off(self) -> None:
        """A level whose put takes long, and one that is due meanwhile."""
        self.service.start()
        self.run_for(1.0)
        self.add(2, 20, due=self.now_ms() + 100)
        self.add(1, 10, due=self.now_ms() + 400)
        slow: Deferred[PutMessageResult] = Deferred()
        self.outcome = lambda message: slow if message.body == b"20" else succeed(STORED)
        self.run_for(0.3)
        assert self.bodies() == [20]
        slow.callback(BUSY)  # tried again later, which must not move the other's time
        self.outcome = lambda message: succeed(STORED)
        self.run_for(0.15)
        assert sorted(self.bodies()) == [10, 20, 20]

    def test_stop_writes_and_a_restart_goes_on(self) -> None:
        """No message is delivered twice after a clean stop."""
        self.service.start()
        self.add(1, 1)
        self.run_for(1.5)
        self.add(1, 2)
        self.successResultOf(self.service.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.file(), {"1": 1})
        self.service = self.make()
        self.service.load()
        self.service.start()
        self.run_for(3)
        self.assertEqual(self.bodies(), [1, 2])

    def test_stop_waits_for_the_write(self) -> None:
        """Of a service that never delivered there is none."""
        self.successResultOf(self.make().stop())
        self.service.start()
        self.add(1, 1)
        self.run_for(1.5)
        self.worker.later = True
        stopped = self.service.stop()
        self.assertNoResult(stopped)
        self.worker.work()
        self.successResultOf(stopped)

    def test_a_refused_write_is_made_up_for(self) -> None:
        """The failure is logged; the next change writes all."""
        self.service.start()
        self.add(1, 1)
        self.disk.sync_fails = True
        self.run_for(12)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.disk.sync_fails = False
        self.successResultOf(self.service.stop())
        self.assertEqual(self.file(), {"1": 1})

    def test_load_pulls_offsets_into_their_queues(self) -> None:
        """A missing queue counts as empty; levels we do not know are kept."""
        self.add(1, 1)
        self.disk.replace(PATH, b'{\n\t"offsetTable":{1:77,2:9,40:3\n\t}\n}')
        self.service.load()
        self.assertEqual(self.service.offset_table, {1: 1, 2: 0, 40: 3})

    def test_start_reads_the_file_again(self) -> None:
        """A queue that was missing at load does not reset its level."""
        self.disk.replace(PATH, b'{"offsetTable":{"1":1}}')
        self.service.load()
        self.assertEqual(self.service.offset_table, {1: 0})
        self.add(1, 1)
        self.add(1, 2)
        self.service.start()
        self.run_for(2.5)
        self.assertEqual(self.bodies(), [2])

    # A turn's work, and a million messages

    def test_levels_take_turns(self) -> None:
        """A burst of one level holds up no other: a turn delivers a batch of one level."""
        for number in range(200):
            self.add(1, number, due=1)
        self.add(2, 999, due=1)
        batches: list[int] = []
        put = self.service._put
        self.service._put = lambda messages, done: (
            batches.append(len(messages)),
            put(messages, done),
        )  # type: ignore[func-returns-value, assignment, return-value]
        self.service.start()
        self.run_for(2)
        self.assertEqual(batches, [40, 1, 40, 40, 40, 40])  # queue files of 40 units
        self.assertEqual(sorted(self.bodies()), [*range(200), 999])

    def test_a_million_waiting_messages(self) -> None:
        """One timer, and no memory for each."""
        count, start = 1_000_000, self.now_ms()
        due = start + LEVELS[2]
        units = b"".join([UNIT.pack(number * 200, 200, due) for number in range(count)])
        self.disk.open(f"/store/consumequeue/{SCHEDULE_TOPIC}/2/{0:020d}", 20 * count).pwrite(
            units, 0
        )
        del units
        self.queues = ConsumeQueueTable(self.disk, "/store", 20 * count)
        self.queues.load()
        self.queues.recover()
        self.service = self.make()
        record = delayed(3, 1)
        self.service._record_at = lambda offset, size: record
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.service.start()
        self.run_for(50, 1)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.assertLess(tracemalloc.get_traced_memory()[1], 1 << 20)
        self.assertEqual(self.bodies(), [])

    def test_levels_that_the_configuration_lost(self) -> None:
        """What waits in them comes when it was promised."""
        data = delayed(5, 8)
        self.queues.put_requests(
            [
                DispatchRequest(
                    SCHEDULE_TOPIC, 4, 0, len(data), self.now_ms() + 20_000, 1, 0, "", "", 0, 0, ""
                )
            ]
        )
        self.records[0] = data
        self.service.start()
        self.run_for(19.5, 0.5)
        self.assertEqual(self.bodies(), [])
        self.run_for(1)
        self.assertEqual(self.bodies(), [8])
        self.assertEqual(self.service.offset_table, {5: 1})


class FailingFiles:
    def read(self, path: str, size: int, position: int) -> bytes:
        raise StoreError(f"cannot read {path}: broken")


# Records and files by themselves


def test_a_wait_is_counted_from_when_it_was_asked_for_first() -> None:
    """Also just behind another message's mark: the clock that nobody sets goes on."""
    level = DelayLevel(1, 1000, 0)
    level.mark(1, 0.0)
    assert [level.longest_wait_ms(1, 2, now) for now in (0.001, 0.003, 0.501)] == [1000, 998, 500]


def test_the_delivered_message() -> None:
    """The property string stays; in memory DELAY goes and nothing waits."""
    data = delayed(1, 5)
    message = message_of(decode_record(data))
    assert message.body == b"5"
    assert (message.flag, message.sys_flag, message.reconsume_times) == (7, 8, 3)
    assert (message.born_timestamp, message.born_host, message.store_host) == (11, HOST, HOST)
    assert not message.wait_store_ok
    assert "DELAY" not in message.properties
    assert message.properties["WAIT"] == "false"
    assert "DELAY\x011" in message.properties_string
    assert "WAIT\x01true" in message.properties_string


@pytest.mark.parametrize("queue_id", ["", "x", "-1", "99999999999", "١"])
def test_strange_queue_ids_are_corrupt(queue_id: str) -> None:
    """No exception but CorruptRecord."""
    with pytest.raises(CorruptRecord):
        check_deliverable(decode_record(a_record({"REAL_TOPIC": "T", "REAL_QID": queue_id})))


def an_offsets_table(disk: SimDisk) -> DelayOffsets:
    return DelayOffsets(Clock(), disk, AtOnce(), "/store", 10_000)  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"offsetTable":5}'])
def test_a_damaged_file_is_replaced_by_its_backup(damage: bytes) -> None:
    """Which is kept as backup; without one, defaults; two damaged ones stop the start."""
    disk = SimDisk(Random(1), lambda: 0)
    disk.replace(PATH, damage)
    offsets = an_offsets_table(disk)
    offsets.load()
    assert offsets.table == {}
    disk.replace(PATH + ".bak", b'{"offsetTable":{1:2}}')
    offsets = an_offsets_table(disk)
    offsets.load()
    assert offsets.table == {1: 2}
    offsets.delivered(1, 3)
    offsets.stop()
    assert disk.read_bytes(PATH + ".bak") == b'{"offsetTable":{1:2}}'
    disk.replace(PATH, b"{")
    disk.replace(PATH + ".bak", b"{")
    with pytest.raises(StoreError, match=r"delayOffset\.json"):
        an_offsets_table(disk).load()


JAVAS = Path(__file__).parents[3] / "fixtures" / "store" / "config" / "delayOffset.json"


def test_javas_file_is_read_and_written() -> None:
    """Byte for byte, but for the order of the levels."""
    disk = SimDisk(Random(1), lambda: 0)
    disk.replace(PATH, JAVAS.read_bytes())
    offsets = an_offsets_table(disk)
    offsets.load()
    assert json.dumps(offsets.table) != "{}"
    level, offset = next(iter(offsets.table.items()))
    offsets.delivered(level, offset)
    offsets.stop()
    assert sorted(disk.read_bytes(PATH)) == sorted(JAVAS.read_bytes())
