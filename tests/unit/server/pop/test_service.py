"""POP consumption of one store, over crashes and restarts."""

from typing import Any

import pytest

from rmq_ha.base.model.message import Address, BrokerMessage, draft_of
from rmq_ha.base.model.pop_topics import retry_topic
from rmq_ha.base.model.properties import UNIQ_KEY, encode_properties
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topics import DLQ_PREFIX, POP_TOPIC
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.server.pop.copies import LeaseSource, copy_for
from rmq_ha.server.pop.face import (
    LeaseChange,
    LeaseStatus,
    PopAnswer,
    PopQueue,
    PopStatus,
    PopWish,
    Receipt,
)
from rmq_ha.testing.cluster import small_configuration
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import World
from tests.sim_kit.pops import PopNode

HOST = Address(b"\x0a\0\0\1", 10911)
RETRY = retry_topic("G", "T")


class OneStore:
    """A store with POP consumption, and the calls of consumers."""

    def __init__(self) -> None:
        self.world = World(1)
        host = self.world.add("a")
        configuration = small_configuration(
            host.ip, BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH
        )
        self.node = PopNode(host, configuration, Findings())
        self.sent = 0
        self.boot()

    def boot(self) -> None:
        self.node.load()
        self.node.start()
        self.run(0.2)
        assert self.pops.is_leading

    @property
    def pops(self) -> Any:
        return self.node.pops

    @property
    def store(self) -> Any:
        return self.node.store

    def run(self, seconds: float) -> None:
        self.world.clock.run_for(seconds)

    def crash(self) -> None:
        self.run(0.05)
        self.node.crash(False)
        self.boot()

    def send(self, count: int = 1, topic: str = "T") -> None:
        for _ in range(count):
            properties = {UNIQ_KEY: f"m{self.sent}"}
            self.sent += 1
            text = encode_properties(properties)
            message = BrokerMessage(
                topic, 0, b"x", HOST, HOST, 7, properties=properties, properties_string=text
            )
            self.store.put_message(message)
        self.run(0.02)

    def pop(self, most: int = 32, *topics: str, invisible_ms: int = 3000, **more: Any) -> PopAnswer:
        queues = [PopQueue(topic, 0) for topic in topics or ("T", RETRY)]
        return self._wait(self.pops.pop(PopWish("G", queues, most, invisible_ms, **more)))  # type: ignore[no-any-return]

    def keys(self, answer: PopAnswer) -> list[str]:
        return [
            decode_record(data).properties[UNIQ_KEY]
            for part in answer.parts
            for data in part.records
        ]

    def ack(self, answer: PopAnswer, offset: int, topic: str = "T") -> LeaseStatus:
        receipt = Receipt("G", topic, 0, answer.pop_ms, (offset,))
        return self._wait(self.pops.ack([receipt]))  # type: ignore[no-any-return]

    def change(self, answer: PopAnswer, offset: int, invisible_ms: int) -> LeaseChange:
        receipt = Receipt("G", "T", 0, answer.pop_ms, (offset,))
        return self._wait(self.pops.change(receipt, invisible_ms))  # type: ignore[no-any-return]

    def _wait(self, later: Any) -> Any:
        results: list[Any] = []
        later.addCallback(results.append)
        self.run(0.05)
        (result,) = results
        return result

    def count(self, topic: str) -> int:
        return int(self.store.max_offset_in_queue(topic, 0))


@pytest.fixture
def one() -> OneStore:
    return OneStore()


def test_what_is_acknowledged_is_final_over_a_crash_and_the_rest_comes_again(one: OneStore) -> None:
    one.send(10)
    answer = one.pop()
    assert (answer.status, one.keys(answer)) == (PopStatus.FOUND, [f"m{n}" for n in range(10)])
    for offset in range(4):
        assert one.ack(answer, offset) is LeaseStatus.DONE
    assert one.node.offsets["G", "T", 0] == 4
    one.crash()
    assert one.pop().status is PopStatus.EMPTY
    assert one.ack(answer, 5) is LeaseStatus.DONE  # the receipt of the life before
    one.run(7.0)
    again = one.pop()
    assert one.keys(again) == ["m4", "m6", "m7", "m8", "m9"]
    assert [part.topic for part in again.parts] == [RETRY]
    assert one.ack(answer, 4) is LeaseStatus.UNKNOWN


def test_a_copy_whose_record_a_crash_took_is_not_made_twice(one: OneStore) -> None:
    one.send(2)
    answer = one.pop()
    # The copy of the first message gets into the log, and the crash comes before its record.
    data = one.store.record_at(*one.store.queues.get("T", 0).unit(0)[:2])
    source = LeaseSource(1, 0, 0, answer.pop_ms)
    copy = copy_for(decode_record(data), RETRY, source)
    one.store.put_drafts([draft_of(copy)], False, lambda *result: None)
    one.crash()
    assert next(one.pops.in_flight("G", "T")).out == 1
    one.run(7.0)
    assert sorted(one.keys(one.pop())) == ["m0", "m1"]
    assert one.count(RETRY) == 2


def test_a_message_that_comes_again_wakes_pops_of_its_topic(one: OneStore) -> None:
    woken: list[tuple[str, str, int, int]] = []
    one.pops.on_wake(lambda *what: woken.append(what))
    one.send(3)
    one.pop(invisible_ms=1000)
    one.run(1.5)
    assert woken == [("G", "T", -1, 3)]


def test_a_message_becomes_a_dead_letter_when_its_attempts_are_over(one: OneStore) -> None:
    one.send(1)
    for attempt in range(6):  # one, and five retries
        assert one.keys(one.pop(invisible_ms=300)) == ["m0"], attempt
        one.run(0.5)
    assert one.pop().status is PopStatus.EMPTY
    assert one.count(DLQ_PREFIX + "G") == 1
    assert one.pops.counters().dead == 1


def test_a_change_to_nothing_frees_a_message_at_once(one: OneStore) -> None:
    one.send(1)
    answer = one.pop(invisible_ms=60_000)
    changed = one.change(answer, 0, 0)
    assert changed.status is LeaseStatus.DONE
    one.run(0.3)
    assert one.keys(one.pop()) == ["m0"]
    assert one.change(answer, 0, 5000).status is LeaseStatus.UNKNOWN


def test_a_change_to_the_same_end_makes_one_copy(one: OneStore) -> None:
    one.send(1)
    answer = one.pop(invisible_ms=1000)
    left_ms = answer.pop_ms + 1000 - one.node.host.now_ms()
    assert one.change(answer, 0, left_ms).pop_ms + left_ms == answer.pop_ms + 1000
    one.run(2.0)
    assert one.count(RETRY) == 1


def test_an_acknowledged_message_cannot_be_changed(one: OneStore) -> None:
    one.send(1)
    answer = one.pop()
    assert one.ack(answer, 0) is LeaseStatus.DONE
    assert one.change(answer, 0, 0).status is LeaseStatus.UNKNOWN
    assert one.ack(answer, 0) is LeaseStatus.DONE
    one.run(5.0)
    assert one.pop().status is PopStatus.EMPTY


def test_a_step_of_the_clock_ends_no_lease(one: OneStore) -> None:
    one.send(1)
    one.pop(invisible_ms=5000)
    one.node.host.step_clock(3_600_000)
    one.run(4.0)
    assert one.count(RETRY) == 0
    one.node.host.step_clock(-7_200_000)
    one.run(1.5)
    assert one.count(RETRY) == 1


def test_no_more_are_out_than_the_threshold_allows_and_acknowledged_ones_do_not_count(
    one: OneStore,
) -> None:
    one.send(250)
    answers = []
    while (answer := one.pop()).status is PopStatus.FOUND:
        answers.append(answer)
    assert answer.status is PopStatus.FULL
    assert sum(len(answer.parts[0].offsets) for answer in answers) == 200
    one.ack(answers[3], answers[3].parts[0].offsets[0])
    assert len(one.pop().parts[0].offsets) == 1


def test_an_orderly_queue_waits_and_a_repeated_attempt_gets_the_same(one: OneStore) -> None:
    one.send(3)
    first = one.pop(2, "T", is_orderly=True, attempt_id="a")
    assert one.keys(first) == ["m0", "m1"]
    assert one.pop(2, "T", is_orderly=True, attempt_id="b").status is PopStatus.EMPTY
    again = one.pop(2, "T", is_orderly=True, attempt_id="a")
    assert one.keys(again) == ["m0", "m1"]
    assert one.ack(first, 0) is LeaseStatus.DONE
    one.crash()
    assert one.pop(2, "T", is_orderly=True, attempt_id="b").status is PopStatus.EMPTY
    assert one.keys(one.pop(2, "T", is_orderly=True, attempt_id="a")) == ["m1"]
    one.run(4.0)
    late = one.pop(2, "T", is_orderly=True, attempt_id="c")
    assert one.keys(late) == ["m1", "m2"]
    assert dict(late.parts[0].counts) == {1: 1}


def test_a_deleted_topic_moves_nothing_into_its_new_life(one: OneStore) -> None:
    one.send(3)
    one.pop(invisible_ms=500)
    one.pops.forget_topic("T")
    one.run(2.0)
    assert one.count(RETRY) == 0
    assert not one.pops.knows("G", "T")
    one.crash()
    assert not one.pops.knows("G", "T")


def test_a_reset_begins_anew_and_ends_the_leases(one: OneStore) -> None:
    one.send(3)
    answer = one.pop(invisible_ms=500)
    assert one._wait(one.pops.reset("G", "T", {0: 1})) is LeaseStatus.DONE
    assert one.ack(answer, 1) is LeaseStatus.UNKNOWN
    assert one.keys(one.pop()) == ["m1", "m2"]
    one.run(1.0)
    assert one.count(RETRY) == 0


def test_refused_puts_lose_nothing_that_was_applied(one: OneStore) -> None:
    one.send(2)
    answer = one.pop()
    one.store.slow_until = one.world.clock.seconds() + 0.5
    assert one.ack(answer, 0) is LeaseStatus.NOT_KEPT
    one.run(0.6)
    assert one.ack(answer, 0) is LeaseStatus.DONE
    one.crash()
    assert one.ack(answer, 0) is LeaseStatus.DONE
    assert next(one.pops.in_flight("G", "T")).out == 1


def test_a_turn_is_one_small_record(one: OneStore) -> None:
    one.send(32)
    answer = one.pop()
    before = one.count(POP_TOPIC)
    for offset in range(32):
        one.pops.ack([Receipt("G", "T", 0, answer.pop_ms, (offset,))])
    one.run(0.05)
    queue = one.store.queues.get(POP_TOPIC, 0)
    assert queue.max_offset == before + 1
    assert queue.unit(before)[1] <= 32 * 20
    one.send(1)
    answer = one.pop()
    one.ack(answer, 32)
    assert queue.unit(queue.max_offset - 1)[1] <= 200


def test_images_let_old_log_files_go(one: OneStore) -> None:
    one.send(40)
    answer = one.pop()
    one.ack(answer, 0)
    one.run(1.0)
    end = one.store.log.max_offset
    assert not one.pops.releases(end)
    one.run(1.0)
    assert one.pops.releases(end)
    assert next(one.pops.in_flight("G", "T")).out == 31
