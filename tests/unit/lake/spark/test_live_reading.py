"""Ranges of a queue from brokers that answer as a test says: all of it, or an error."""

from collections.abc import Callable
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide, ProtocolViolation, RemotingConnectError
from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.lookup.pulls import PulledRecords
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError
from rmq_ha.client.rules.messages import PullStatus
from rmq_ha.lake.spark.source import live_reading
from rmq_ha.lake.spark.source.live import first_since
from rmq_ha.lake.spark.source.live_reading import (
    BrokerAway,
    Reading,
    ReadOptions,
    patiently,
    piece_of,
    records_of,
)
from rmq_ha.lake.spark.source.offline import _of_queue
from rmq_ha.lake.spark.source.reading import QueueId, QueueRange

QUEUE = QueueId("t", "b", 0)
HOST = Address(bytes([127, 0, 0, 1]), 10911)


def record(offset: int) -> bytes:
    """A message whose body is its offset."""
    body = b"%d" % offset
    fields = (0, 0, 0, 0, offset, 1000 + offset, 0, 1, HOST, offset * 10, HOST, 0, 0)
    return encode_record(Record(*fields, body, "t", "TAGS\x01A"))


class FakeBroker:
    """Holds the offsets from `low` to `high`, without those in `holes`."""

    def __init__(self, low: int, high: int, *, broker_id: int = 0, holes: Any = ()) -> None:
        self.choice = BrokerChoice(lambda: 0.0)
        self.low, self.high, self.broker_id, self.holes = low, high, broker_id, set(holes)
        self.pulls = 0
        self.before_pull: Callable[[], object] = lambda: None

    def pull(self, queue: MessageQueue, offset: int, count: int) -> PulledRecords:
        self.pulls += 1
        self.before_pull()
        following, body, status = offset, b"", PullStatus.NO_NEW_MSG
        if offset < self.low or offset > self.high:
            status = PullStatus.OFFSET_ILLEGAL
            following = self.low if offset < self.low else self.high
        elif offset < self.high:
            following = min(offset + count, self.high)
            there = [each for each in range(offset, following) if each not in self.holes]
            body = b"".join(map(record, there))
            status = PullStatus.FOUND if body else PullStatus.NO_MATCHED_MSG
        return PulledRecords(status, following, self.low, self.high, body, 0, "h:1", self.broker_id)


def read(broker: FakeBroker, start: int, stop: int, **how: Any) -> Any:
    """The offsets that were read, and how often was waited."""
    pauses: list[int] = []

    def pause(ms: int) -> None:
        pauses.append(ms)

    reading = Reading(QueueRange(QUEUE, start, stop), broker, ReadOptions(**how), pause)
    batches = list(reading.batches(["queueOffset"]))
    return [offset for batch in batches for offset in batch.column(0).to_pylist()], pauses


def test_a_range_is_read_whole_and_not_beyond() -> None:
    broker = FakeBroker(0, 1000)
    found, pauses = read(broker, 5, 900, pull_size=32)
    assert found == list(range(5, 900))
    assert pauses == []


def test_batches_are_about_as_large_as_asked_for() -> None:
    reading = Reading(
        QueueRange(QUEUE, 0, 100), FakeBroker(0, 100), ReadOptions(40, 32), lambda ms: None
    )
    assert [batch.num_rows for batch in reading.batches(["body"])] == [40, 24, 36]


def test_a_batch_ends_with_the_answer_that_makes_it_large_enough() -> None:
    """And the next one begins with nothing."""
    reading = Reading(
        QueueRange(QUEUE, 0, 128), FakeBroker(0, 128), ReadOptions(33, 32), lambda ms: None
    )
    assert [batch.num_rows for batch in reading.batches(["body"])] == [33, 31, 33, 31]
    assert sizes_of_batches(ReadOptions(32, 32)) == [32] * 4


@pytest.mark.parametrize(("more", "sizes"), [(0, [32] * 4), (1, [64] * 2)])
def test_a_batch_of_large_messages_ends_by_its_bytes(
    monkeypatch: pytest.MonkeyPatch, more: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(live_reading, "BATCH_BYTES", 32 * len(record(100)) + more)
    assert sizes_of_batches(ReadOptions(1000, 32)) == sizes


def sizes_of_batches(how: ReadOptions) -> list[int]:
    """Of messages that all have the same size."""
    reading = Reading(QueueRange(QUEUE, 100, 228), FakeBroker(100, 228), how, lambda ms: None)
    return [batch.num_rows for batch in reading.batches(["body"])]


def test_columns_that_only_a_filter_needs_are_not_given() -> None:
    found, _ = read(FakeBroker(0, 10), 0, 10, tags=frozenset({"B"}))
    assert found == []
    found, _ = read(FakeBroker(0, 10), 0, 10, tags=frozenset({"A"}))
    assert found == list(range(10))


def test_messages_deleted_meanwhile_are_an_error_or_passed_over() -> None:
    broker = FakeBroker(0, 100)
    broker.before_pull = lambda: setattr(broker, "low", 50 if broker.pulls > 1 else 0)
    with pytest.raises(CannotDecide, match=r"t/b/0: the messages from 32 to 49 .*deleted"):
        read(broker, 0, 100)
    found, _ = read(FakeBroker(50, 100), 0, 100, fail_on_data_loss=False)
    assert found == list(range(50, 100))
    found, _ = read(FakeBroker(50, 100), 0, 20, fail_on_data_loss=False)
    assert found == []


@pytest.mark.parametrize("holes", [{7}, {0}, {31}, set(range(32)), set(range(40, 100))])
def test_messages_that_a_broker_passes_over_in_silence_are_noticed(holes: set[int]) -> None:
    """A broker skips records whose file it is deleting; its answer looks like any other."""
    with pytest.raises(CannotDecide, match=f"from {min(holes)} to"):
        read(FakeBroker(0, 100, holes=holes), 0, 100)
    found, _ = read(FakeBroker(0, 100, holes=holes), 0, 100, fail_on_data_loss=False)
    assert found == [offset for offset in range(100) if offset not in holes]


def test_messages_that_were_chosen_by_tag_have_holes() -> None:
    found, _ = read(FakeBroker(0, 100, holes=range(100)), 0, 100, tags=frozenset({"A"}))
    assert found == []
    with pytest.raises(CannotDecide, match=r"from 0 to 4 .*deleted"):
        read(FakeBroker(5, 100), 0, 100, tags=frozenset({"A"}))
    found, _ = read(FakeBroker(0, 100, holes=range(0, 100, 3)), 0, 100, tags=frozenset({"A"}))
    assert found == [offset for offset in range(100) if offset % 3]


def test_a_master_with_a_shorter_log_is_an_error_or_the_end() -> None:
    for high in (40, 20):
        with pytest.raises(CannotDecide, match=rf"ends at {high} on the master h:1: after a fail"):
            read(FakeBroker(0, high), 30, 100)
    found, _ = read(FakeBroker(0, 40), 30, 100, fail_on_data_loss=False)
    assert found == list(range(30, 40))


def test_a_slave_that_is_behind_is_an_error_even_if_loss_is_allowed() -> None:
    broker = FakeBroker(0, 40, broker_id=1)
    with pytest.raises(CannotDecide, match="slave h:1, which is behind its master; nothing is"):
        read(broker, 30, 100, fail_on_data_loss=False, patience=(5, 6))


def test_what_only_a_slave_has_not_got_is_not_lost() -> None:
    """It may have joined later, or delete earlier, than its master."""
    for broker in (FakeBroker(50, 100, broker_id=1), FakeBroker(0, 100, broker_id=1, holes={7})):
        with pytest.raises(CannotDecide, match="slave h:1, perhaps only there"):
            read(broker, 0, 100, fail_on_data_loss=False)


def test_a_slave_that_catches_up_is_waited_for() -> None:
    broker = FakeBroker(0, 40, broker_id=1)
    broker.before_pull = lambda: setattr(broker, "high", 40 if broker.pulls < 3 else 100)
    found, pauses = read(broker, 30, 100, patience=(5, 6, 7))
    assert found == list(range(30, 100))
    assert pauses == [5]
    broker = FakeBroker(0, 40, broker_id=1)
    broker.before_pull = lambda: setattr(broker, "high", 40 if broker.pulls < 4 else 100)
    found, pauses = read(broker, 30, 100, patience=(5, 6))
    assert found == list(range(30, 100))
    assert pauses == [5, 6], "as often as asked for"


def test_nobody_answers() -> None:
    """Tried again as often as asked for; a broker that is only restarted is read on."""
    broker = FakeBroker(0, 40)

    def fail() -> None:
        if broker.pulls in (1, 2):
            raise RemotingConnectError("h:1: refused")

    broker.before_pull = fail
    found, pauses = read(broker, 0, 40, patience=(5, 6))
    assert found == list(range(40))
    assert pauses == [5, 6]
    broker.pulls = 0
    with pytest.raises(BrokerAway, match=r"t/b/0: offsets 0 to 39 cannot be read: h:1: refused"):
        read(broker, 0, 40, patience=(5,))


def test_a_refusal_is_not_tried_again() -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        raise BrokerRefused(16, "no", "h:1")

    with pytest.raises(CannotDecide, match="NO_PERMISSION"):
        patiently(call, (1, 1), lambda ms: None, "x")
    assert len(calls) == 1


@pytest.mark.parametrize("error", [MQClientError("no address is known"), ProtocolViolation("x")])
def test_what_no_retry_mends_decides_nothing(error: Exception) -> None:
    def call() -> None:
        raise error

    with pytest.raises(CannotDecide, match=f"^what: {error}$"):
        patiently(call, (1, 1), pytest.fail, "what")


def test_a_broker_that_is_busy_is_asked_again() -> None:
    pauses: list[int] = []

    def call() -> None:
        raise BrokerRefused(ResponseCode.SYSTEM_BUSY, "busy", "h:1")

    with pytest.raises(CannotDecide, match="busy"):
        patiently(call, (5, 6), pauses.append, "what")
    assert pauses == [5, 6]


# Records of a store


def kept(offsets: list[int], start: int, count: int, **queue: Any) -> list[int]:
    """Of records of queue 0 of the topic `t`, those that are taken for the queue's."""
    records = records_of([piece_of(b"".join(map(record, offsets)))])
    wanted = QueueId(queue.get("topic", "t"), "b", queue.get("number", 0))
    found: list[int] = _of_queue(records, wanted, start, count).queue_offset.tolist()
    return found


def test_only_records_that_say_so_are_of_a_queue_and_only_in_their_places() -> None:
    assert kept([5, 6, 7], 5, 3) == [5, 6, 7]
    assert kept([5, 6, 7], 5, 3, topic="u") == []
    assert kept([5, 6, 7], 5, 3, number=1) == []
    assert kept([5, 7, 6], 5, 3) == [5], "each stands where its queue says"
    assert kept([4, 5, 8, 9], 5, 4) == [], "of as many as there are units, none is where it says"
    assert kept([4, 5, 8, 9], 5, 5) == [5, 8, 9]
    assert kept([4, 5, 8, 9], 5, 3) == [5]
    assert kept([], 5, 3) == []


def test_units_of_light_queues_point_at_messages_of_others() -> None:
    assert kept([5, 9], 0, 2, topic="%LMQ%x") == [5, 9]


@pytest.mark.parametrize("answer", [[5, 5, 6], [6, 5], [5, 7, 6]])
def test_an_answer_that_repeats_a_message_is_an_error(answer: list[int]) -> None:
    """Or goes back: each row is there once."""
    broker = FakeBroker(0, 9)
    body = b"".join(map(record, answer))
    broker.pull = lambda *_: PulledRecords(  # type: ignore[method-assign]
        PullStatus.FOUND, 8, 0, 9, body, 0, "h:1", 0
    )
    with pytest.raises(CannotDecide, match=r"h:1 is damaged: offset . behind offset ."):
        read(broker, 5, 8)


def test_damaged_answers_are_errors() -> None:
    whole = record(1)
    assert piece_of(whole + whole).positions == [0, len(whole)]
    for data in (whole[:-1], whole + b"x", b"\0" * 100, whole[:4] + b"\0\0\0\0" + whole[8:]):
        with pytest.raises(ValueError, match=r"record|bytes"):
            piece_of(data)
    broker = FakeBroker(0, 10)
    pull = broker.pull
    bad = bytearray(record(0))
    bad[84:88] = b"\x7f\xff\xff\xff"  # the length of its body
    broker.pull = lambda *given: pull(*given)._replace(  # type: ignore[method-assign]
        body=bytes(bad), next_begin_offset=1
    )
    with pytest.raises(CannotDecide, match="do not add up"):
        read(broker, 0, 1)


@pytest.mark.parametrize("near", [-5, 0, 3, 4, 5, 9, 10, 99])
def test_a_time_is_found_whatever_the_broker_guesses(near: int) -> None:
    """Offsets 2 to 9 are stored at 20, 30, ... 90."""

    def find(ms: int) -> int | None:
        return first_since(ms, 2, 10, near, lambda offset: offset * 10)

    assert [find(ms) for ms in (0, 20, 41, 50, 90)] == [2, 2, 5, 5, 9]
    assert find(91) is None
    assert first_since(0, 5, 5, near, lambda offset: 0) is None


@pytest.mark.parametrize("off", [-1, 0])
def test_a_broker_that_is_nearly_right_is_asked_for_few_messages(off: int) -> None:
    """Each look is a request."""
    looked: list[int] = []

    def stored_at(offset: int) -> int:
        looked.append(offset)
        return offset * 10

    assert first_since(5_000_000, 0, 1 << 30, 500_000 + off, stored_at) == 500_000
    assert len(looked) <= 3
