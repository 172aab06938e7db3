"""Pulls: statuses, corrections, batch limits, skipping. Spec: store.md, section 8."""

from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.reading.pulls import MessageReader
from rmq_ha.server.store.reading.tag_filter import TagFilter
from rmq_ha.testing.disk import SimDisk
from tests.unit.server.store.pulls import CL_FILE, COLD, ByContent, Rig, Slow, offsets


def test_a_filter_that_takes_long_gives_the_turn_back() -> None:
    rig = Rig()
    rig.put(100)
    result = rig.get(0, wanted=Slow(rig, 0.005, 9900))
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    seen = result.next_begin_offset
    assert 15 < seen < 30  # and the next pull goes on there
    other = rig.get(0, wanted=Slow(rig, 0.005, 200))
    assert offsets(other) == [200]
    assert 15 < other.next_begin_offset < 30, "as soon behind messages that were found"
    while result.status is GetMessageStatus.NO_MATCHED_MESSAGE:
        result = rig.get(result.next_begin_offset, wanted=Slow(rig, 0.005, 9900))
    assert offsets(result) == [9900]


def test_a_filter_looks_at_800_units_and_no_more() -> None:
    """Whatever it reads at a time: the next pull goes on there, in a turn of its own."""
    rig = Rig()
    rig.queues = ConsumeQueueTable(SimDisk(Random(1), lambda: 0), "/store", 20 * 4000)
    rig.put(2000)
    nobody = TagFilter(SubscriptionData("T", "x", {"x"}, {77}))
    for first in (0, 800):
        assert rig.get(first, wanted=nobody).next_begin_offset == first + 800
    assert rig.get(0, 1200, wanted=nobody).next_begin_offset == 1200


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
    assert found == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [], False, None)
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
    rig.queues.put_requests([DispatchRequest("T", 0, at, 100, 0, 1, 10, "", "", 0, 0, "")])
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


def test_all_that_a_pull_may_have_is_read_at_once_though_each_is_looked_at() -> None:
    rig = Rig()
    rig.put(40)
    assert len(rig.get(0, wanted=ByContent(*range(0, 4000, 100))).messages) == 32
    assert (rig.log.reads, rig.log.bytes_read) == (1, 3200)


def test_no_more_is_read_at_once_than_a_pull_may_have() -> None:
    """All of what it looks at must fit, not each."""
    rig = Rig(max_transfer_bytes_on_message_in_memory=450)
    rig.put(32)
    wanted = ByContent(*range(0, 3200, 100))
    assert offsets(rig.get(0, wanted=wanted)) == [0, 100, 200, 300]
    assert rig.log.bytes_read <= 450


def test_far_records_are_read_one_by_one() -> None:
    """Rather than what lies in between: of that not a byte is read."""
    rig = Rig()
    for _ in range(4):
        rig.put(1)
        rig.put(1, 2100, topic="U")
    assert offsets(rig.get(0)) == [0, 2200, 4400, 6600]
    assert (rig.log.reads, rig.log.bytes_read) == (4, 400)


def test_store_times() -> None:
    """-1 for what the log does not have, or what is no record."""
    rig = Rig()
    rig.put(1)
    reader = MessageReader(rig.config, rig.log, rig.queues, rig.damage, 1 << 40)
    assert reader.store_timestamp_at(0, 100) == 1
    rig.log.data[4:8] = bytes(4)
    assert reader.store_timestamp_at(0, 100) == -1  # no magic
    assert reader.store_timestamp_at(50, 100) == -1
    assert reader.store_timestamp_at(-1, 100) == -1
    head = bytes.fromhex("00000061daa320a7") + bytes(48) + (77).to_bytes(8) + bytes(40)
    rig.log.data[:] = head
    assert reader.store_timestamp_at(0, 97) == 77


# Of all queues

QUEUE_FILE = 40


def walked(
    rig: Rig, offset: int, most: int, wanted: IMessageFilter | None
) -> tuple[GetMessageStatus, int, list[int], bool]:
    """What a pull finds, and where the next one begins, if each unit is looked at for itself."""
    queue, config = rig.queues.queue("T", 0), rig.config
    hot_from = rig.log.max_offset - rig.memory
    status, found, size, last = GetMessageStatus.NO_MATCHED_MESSAGE, list[int](), 0, -1
    for at, record_size, tags_code in queue.units(offset, QUEUE_FILE):
        count, room = (
            config.max_transfer_count_on_message_in_memory,
            config.max_transfer_bytes_on_message_in_memory,
        )
        if at < hot_from:
            count, room = (
                config.max_transfer_count_on_message_in_disk,
                config.max_transfer_bytes_on_message_in_disk,
            )
        if found and (len(found) >= min(count, most) or size + record_size > room):
            break
        offset, last, why = offset + 1, at, GetMessageStatus.NO_MATCHED_MESSAGE
        if wanted is None or wanted.matches_unit(tags_code):
            if at < rig.log.min_offset:
                why = GetMessageStatus.MESSAGE_WAS_REMOVING
            elif wanted is None or wanted.matches_record(rig.log.record(at)):
                why = GetMessageStatus.FOUND
                found.append(at)
                size += record_size
        if why is GetMessageStatus.FOUND or not found:
            status = why
        if why is not GetMessageStatus.FOUND and rig.now > 0.1:
            break
    return status, offset, found, last < hot_from


def test_limits_change_with_the_first_message_that_is_in_memory() -> None:
    """Also where those of the memory are the smaller ones, and what is there was read along."""
    rig = Rig(
        access_message_in_memory_max_ratio=100,
        max_transfer_count_on_message_in_memory=2,
        max_transfer_count_on_message_in_disk=30,
    )
    rig.put(35)
    rig.memory = rig.log.max_offset // 35 * 10
    assert len(rig.get(20).messages) == 5
    assert len(rig.get(24).messages) == 2
    assert len(rig.get(30).messages) == 2


@settings(max_examples=150)
@given(data=st.data())
def test_reading_ahead_changes_nothing(data: st.DataObject) -> None:
    """
    A pull finds what it finds if it reads one record after the other: as many as the limits of
    memory and of disk allow, whatever is between them, is filtered or has expired, up to the first
    that a slow filter leaves out when its time is over; and it reads no more of the log than from
    the first message to the last unit that it is done with, unless a slow filter ends it early.
    """
    draw = data.draw
    counts = draw(st.tuples(*[st.integers(1, 12)] * 2))
    sizes = draw(st.tuples(*[st.sampled_from([1, 449, 450, 700, 5000, 1 << 20])] * 2))
    limits = {
        f"max_transfer_{what}_on_message_in_{where}": value
        for what, values in (("count", counts), ("bytes", sizes))
        for where, value in zip(("disk", "memory"), values, strict=True)
    }
    rig = Rig(access_message_in_memory_max_ratio=100, **limits)
    tags = st.integers(0, 2)
    pieces = st.tuples(
        st.sampled_from([1, 1, 1, 2, 25]),
        st.sampled_from([93, 100, 150, 2000]),
        tags,
        st.sampled_from("TTTU"),
    )
    drawn = draw(st.lists(pieces, max_size=25))
    for piece in drawn:
        rig.put(*piece)
    rig.put(1)
    places = [at for at, *_ in rig.queues.queue("T", 0).units(0, QUEUE_FILE)]
    rig.memory = rig.log.max_offset - draw(st.sampled_from([0, *places, 1, 5000]))
    rig.log.min_offset = draw(st.sampled_from([0, 0, 0, *places]))
    offset, most = draw(st.integers(0, len(places) - 1)), draw(st.integers(-1, 40))
    wanted: IMessageFilter | None = None
    if draw(st.booleans()):
        wanted = TagFilter(SubscriptionData("T", "x", {"x"}, draw(st.sets(tags, min_size=1))))
    elif draw(st.booleans()):
        pace = draw(st.sampled_from([0, 0, 0.03, 0.1]))
        wanted = Slow(rig, pace, *draw(st.sets(st.sampled_from(places))))
    status, next_offset, found, is_cold = walked(rig, offset, most, wanted)
    event(f"{status.name} {len(found)}")
    rig.now = 0.0
    result = rig.get(offset, most, wanted)
    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert offsets(result) == found
    assert result.messages == [rig.log.record(at) for at in found]
    assert result.suggest_pulling_from_slave is is_cold
    if not found or rig.now > 0.1:
        return
    last, size, _ = rig.queues.queue("T", 0).units(next_offset - 1, 1)[0]
    disk_allows_less = counts[0] <= counts[1] and sizes[0] <= sizes[1]
    if rig.log.min_offset == 0 and disk_allows_less:
        assert rig.log.bytes_read <= last + size - places[offset]
        if wanted is None and all(topic == "T" for *_, topic in drawn):
            assert rig.log.reads <= 2 + last // CL_FILE - places[offset] // CL_FILE


def test_a_queue_that_is_known_but_holds_nothing_has_no_message() -> None:
    """As one that nobody knows: a consumer begins at 0 there, whatever it asks for."""
    for offset in (-1, 0, 7):
        rig = Rig()
        rig.queues.queue("T", 0)
        assert rig.get(offset) == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [], False, None)


def test_a_pull_that_nothing_matches_ends_with_its_file() -> None:
    """Wherever it begins, and however many are wanted: the next one begins there."""
    rig = Rig()
    rig.put(81)
    for offset in range(80):
        for most in (1, 3, 12, 32):
            found = rig.get(offset, most, ByContent())
            assert found.next_begin_offset == offset - offset % QUEUE_FILE + QUEUE_FILE


@pytest.mark.parametrize("counts", [(1, 3), (2, 3), (3, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("room", [(99, 300), (200, 201), (300, 100), (250, 1000)], ids=str)
@pytest.mark.parametrize("size", [100, 50, 700])
def test_limits_of_memory_and_disk_to_the_message(
    counts: tuple[int, int], room: tuple[int, int], size: int
) -> None:
    """Wherever what is in memory begins, and whatever lies between the messages."""
    limits = {
        f"max_transfer_{what}_on_message_in_{where}": value
        for what, values in (("count", counts), ("bytes", room))
        for where, value in zip(("disk", "memory"), values, strict=True)
    }
    rig = Rig(access_message_in_memory_max_ratio=100, **limits)
    for number in range(7):
        rig.put(1, size if number == 3 else 100)
        if number in (2, 5):
            rig.put(1, 100, 0, "U")
    places = [at for at, *_ in rig.queues.queue("T", 0).units(0, QUEUE_FILE)]
    for hot_from in (0, *places, rig.log.max_offset):
        rig.memory = rig.log.max_offset - hot_from
        for offset in range(len(places)):
            for most in (1, 2, 9):
                status, next_offset, found, is_cold = walked(rig, offset, most, None)
                result = rig.get(offset, most)
                assert (result.status, result.next_begin_offset) == (status, next_offset)
                assert offsets(result) == found
                assert result.suggest_pulling_from_slave is is_cold


def test_when_a_record_was_stored() -> None:
    """Only of one that the log has as a whole."""
    rig = Rig()
    rig.put(3)
    reader = rig.reader
    known = [reader.store_timestamp_at(at, 100) for at in (0, 100, 200)]
    assert min(known) > 0
    assert reader.store_timestamp_at(200, 101) == -1
    rig.log.min_offset = 100
    assert reader.store_timestamp_at(99, 100) == reader.store_timestamp_at(0, 100) == -1
    assert reader.store_timestamp_at(100, 100) == known[1]
