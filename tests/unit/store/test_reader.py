"""Pulls: statuses, corrections, batch limits, skipping. Spec: store.md, section 8."""

from random import Random
from typing import Any

import pytest
from zope.interface import implementer

from rmq_ha.config.store import MessageStoreConfig
from rmq_ha.interfaces import IMessageFilter
from rmq_ha.model.message import Address, DispatchRequest, GetMessageResult
from rmq_ha.model.status import GetMessageStatus
from rmq_ha.model.subscription import SubscriptionData
from rmq_ha.store.consumequeue import ConsumeQueueTable
from rmq_ha.store.filters import TagFilter
from rmq_ha.store.format.commitlog import Record, encode_record
from rmq_ha.store.read_damage import ReadDamage
from rmq_ha.store.reader import MessageReader
from rmq_ha.testing.disk import SimDisk

CL_FILE = 10_000
COLD = 1000


class FakeLog:
    """Records of a wanted size that know their offset; counts reads."""

    file_size = CL_FILE
    delay_levels = (1000,)

    def __init__(self) -> None:
        self.data = bytearray()
        self.min_offset = 0
        self.reads = 0

    @property
    def max_offset(self) -> int:
        return len(self.data)

    def add(self, size: int, queue_offset: int = 0, topic: str = "T") -> int:
        if len(self.data) % CL_FILE + size > CL_FILE:
            self.data += bytes(CL_FILE - len(self.data) % CL_FILE)
        at = len(self.data)
        place = Address.parse("127.0.0.1", 1)
        body = b"x" * (size - 92)
        self.data += encode_record(
            Record(0, 0, 0, 0, queue_offset, at, 0, 1, place, 1, place, 0, 0, body, topic, "")
        )
        return at

    def read(self, physical_offset: int, limit: int) -> bytes:
        self.reads += 1
        if physical_offset < self.min_offset:
            return b""
        end = physical_offset - physical_offset % CL_FILE + CL_FILE
        return bytes(self.data[physical_offset : min(end, physical_offset + limit)])


class Rig:
    def __init__(self, is_slave: bool = False, **settings: object) -> None:
        self.log = FakeLog()
        self.queues = ConsumeQueueTable(SimDisk(Random(1), lambda: 0), "/store", 800)
        self.config = MessageStoreConfig(**settings)  # type: ignore[arg-type]
        self.damage = ReadDamage(self.log, False)
        self.memory = 1 << 40
        self.is_slave = is_slave

    def put(self, count: int, size: int = 100, tags_code: int = 0, topic: str = "T") -> None:
        for _ in range(count):
            offset = self.queues.queue(topic, 0).max_offset
            at = self.log.add(size, offset, topic)
            self.queues.put_requests(
                [DispatchRequest(topic, 0, at, size, tags_code, 1, offset, "", "", 0, 0, {})]
            )

    def get(
        self, offset: int, most: int = 32, wanted: IMessageFilter | None = None, topic: str = "T"
    ) -> GetMessageResult:
        reader = MessageReader(
            self.config, self.log, self.queues, self.damage, self.memory, self.is_slave
        )
        return reader.get_message("g", topic, 0, offset, most, wanted)


def test_a_filter_that_takes_long_gives_the_turn_back() -> None:
    rig = Rig()
    rig.put(100)
    now = [0.0]

    class Slow(ByContent):
        def matches_record(self, record: bytes) -> bool:
            now[0] += 0.005
            return super().matches_record(record)

    reader = MessageReader(
        rig.config, rig.log, rig.queues, rig.damage, rig.memory, False, lambda: now[0]
    )
    result = reader.get_message("g", "T", 0, 0, 32, Slow(9900))
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    seen = result.next_begin_offset
    assert 15 < seen < 30  # and the next pull goes on there
    other = reader.get_message("g", "T", 0, 0, 32, Slow(200))
    assert offsets(other) == [200]
    assert 15 < other.next_begin_offset < 30, "as soon behind messages that were found"
    while result.status is GetMessageStatus.NO_MATCHED_MESSAGE:
        result = reader.get_message("g", "T", 0, result.next_begin_offset, 32, Slow(9900))
    assert offsets(result) == [9900]


def offsets(result: GetMessageResult) -> list[int]:
    return [int.from_bytes(message[28:36], "big") for message in result.messages]


@implementer(IMessageFilter)
class ByContent:
    """Accepts records by their offset."""

    def __init__(self, *accepted: int) -> None:
        self.accepted = accepted

    def matches_unit(self, tags_code: int) -> bool:
        return True

    def matches_extension(self, tags_code: int, store_timestamp: int, bit_map: Any) -> bool:
        return True

    def matches_record(self, record: bytes) -> bool:
        return int.from_bytes(record[28:36], "big") in self.accepted

    def matches_properties(self, properties: dict[str, str]) -> bool:
        return True


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, "OFFSET_TOO_SMALL", 5),
        (4, "OFFSET_TOO_SMALL", 5),
        (15, "OFFSET_OVERFLOW_ONE", 15),
        (16, "OFFSET_OVERFLOW_BADLY", 15),
        (5, "FOUND", 15),
    ],
)
@pytest.mark.parametrize("role", ["master", "slave", "checking slave"])
def test_statuses(offset: int, status: str, next_offset: int, role: str) -> None:
    """A slave corrects nothing unless it was told to."""
    rig = Rig(role != "master", offset_check_in_slave=role == "checking slave")
    rig.put(15)
    rig.queues.correct_min_offsets(500)
    found = rig.get(offset)
    assert found.status.name == status
    corrected = role != "slave" or status == "FOUND"
    assert found.next_begin_offset == (next_offset if corrected else offset)
    assert (found.min_offset, found.max_offset) == (5, 15)


def test_an_unknown_queue_has_no_message() -> None:
    """And asking for it keeps nothing in memory."""
    rig = Rig()
    found = rig.get(7)
    assert found == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [], False)
    assert rig.queues.get("T", 0) is None
    assert Rig(is_slave=True).get(7).next_begin_offset == 7


def test_batches_end_with_the_queue_file() -> None:
    """Java: 40-unit files: 32 at 35 gives 5, at 79 gives 1."""
    rig = Rig()
    rig.put(90)
    assert len(rig.get(35).messages) == 5
    assert len(rig.get(79).messages) == 1
    assert len(rig.get(0).messages) == 32
    assert offsets(rig.get(8)) == [100 * i for i in range(8, 40)]


def test_batch_limits_in_memory() -> None:
    """Counts, bytes; the first message always, whatever its size, and also when 0 are wanted."""
    rig = Rig(max_transfer_bytes_on_message_in_memory=450)
    rig.put(40)
    assert len(rig.get(0).messages) == 4
    assert len(rig.get(0, 3).messages) == 3
    assert len(rig.get(0, 0).messages) == 1
    assert len(rig.get(0, -5).messages) == 1
    rig.put(2, 5000)
    assert len(rig.get(40).messages) == 1
    assert len(Rig().get(0, 100).messages) == 0


def test_a_hundred_wanted_gives_32() -> None:
    """`maxTransferCountOnMessageInMemory`."""
    rig = Rig()
    rig.put(40)
    assert len(rig.get(0, 100).messages) == 32


def test_cold_messages_come_in_small_batches() -> None:
    """8 of them, and the consumer is told to ask the slave."""
    rig = Rig(access_message_in_memory_max_ratio=50)
    rig.memory = 2 * COLD
    rig.put(35)
    cold = rig.get(0)
    assert len(cold.messages) == 8
    assert cold.suggest_pulling_from_slave
    hot = rig.get(25)
    assert len(hot.messages) == 10
    assert not hot.suggest_pulling_from_slave
    # the border: 3500 - 2500 is not more than 1000
    assert len(rig.get(22).messages) == 13


def test_tags_that_nobody_wants_are_passed_over() -> None:
    """No match in a whole file: the next pull begins behind it."""
    rig = Rig()
    rig.put(50, tags_code=5)
    rig.put(30, tags_code=6)
    wanted = TagFilter(SubscriptionData("T", "x", {"x"}, {6}))
    found = rig.get(0, wanted=wanted)
    assert found.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert found.next_begin_offset == 40
    found = rig.get(40, wanted=wanted)
    assert offsets(found) == [100 * i for i in range(50, 80)]
    assert found.next_begin_offset == 80


def test_filter_by_content() -> None:
    """Rejected records count as consumed."""
    rig = Rig()
    rig.put(30)
    found = rig.get(0, wanted=ByContent(500, 1700))
    assert offsets(found) == [500, 1700]
    assert found.next_begin_offset == 30
    found = rig.get(18, wanted=ByContent(500))
    assert found.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert found.next_begin_offset == 30


def test_removed_records_are_passed_over() -> None:
    """What lies below the log's start, without a look at the log; the rest is given out."""
    rig = Rig()
    rig.put(30, 1000)
    rig.log.min_offset = 20_000
    found = rig.get(0)
    assert found.status is GetMessageStatus.FOUND
    assert offsets(found) == list(range(20_000, 30_000, 1000))
    assert found.next_begin_offset == 30
    rig.log.min_offset = 30_000
    found = rig.get(5)
    assert found.status is GetMessageStatus.MESSAGE_WAS_REMOVING
    assert found.next_begin_offset == 30
    assert rig.log.reads <= 6


def test_fillers_hide_no_messages() -> None:
    """Java could skip real messages behind them."""
    rig = Rig()
    at = rig.log.add(100, 10)
    rig.queues.put_requests([DispatchRequest("T", 0, at, 100, 0, 1, 10, "", "", 0, 0, {})])
    rig.queues.queue("T", 0)._min = 0
    found = rig.get(3)
    assert offsets(found) == [at]
    assert found.next_begin_offset == 11
    rig.queues.queue("T", 0)._end = 200
    assert rig.get(3).status is GetMessageStatus.MESSAGE_WAS_REMOVING


def test_a_missing_queue_file_is_jumped_over() -> None:
    """OFFSET_FOUND_NULL, and on with the next file."""
    rig = Rig()
    rig.put(90)
    rig.queues.queue("T", 0)._starts.remove(800)
    found = rig.get(50)
    assert found.status is GetMessageStatus.OFFSET_FOUND_NULL
    assert found.next_begin_offset == 80


def test_neighbours_are_read_at_once() -> None:
    """One read for a batch of one queue, also with other queues' records in between."""
    rig = Rig()
    rig.put(32)
    rig.get(0)
    assert rig.log.reads == 1
    rig = Rig()
    for _ in range(32):
        rig.put(1)
        rig.put(1, 200, topic="U")
    found = rig.get(0)
    assert offsets(found) == [300 * i for i in range(32)]
    assert rig.log.reads == 1


def test_far_records_are_read_one_by_one() -> None:
    """Rather than a lot of bytes in between."""
    rig = Rig()
    for _ in range(4):
        rig.put(1)
        rig.put(1, 9900, topic="U")
    assert offsets(rig.get(0)) == [0, 10_000, 20_000, 30_000]
    assert rig.log.reads == 4


def test_store_times() -> None:
    """-1 for what the log does not have, or what is no record."""
    rig = Rig()
    rig.put(1)
    reader = MessageReader(rig.config, rig.log, rig.queues, rig.damage, 1 << 40, False)
    assert reader.store_timestamp_at(0, 100) == 1
    rig.log.data[4:8] = bytes(4)
    assert reader.store_timestamp_at(0, 100) == -1  # no magic
    assert reader.store_timestamp_at(50, 100) == -1
    assert reader.store_timestamp_at(-1, 100) == -1
    head = bytes.fromhex("00000061daa320a7") + bytes(48) + (77).to_bytes(8) + bytes(40)
    rig.log.data[:] = head
    assert reader.store_timestamp_at(0, 97) == 77
