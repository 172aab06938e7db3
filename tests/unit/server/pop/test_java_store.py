"""A store with pops of a Java broker is opened by a broker of rmq-ha."""

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.properties import (
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DELIVER_MS,
    encode_properties,
)
from rmq_ha.base.model.topics import POP_TOPIC, TIMER_TOPIC
from rmq_ha.server.pop.face import LeaseStatus, PopStatus, Receipt
from rmq_ha.server.pop.java_leases import JavaPopsRefusal
from rmq_ha.server.pop.service import PopService
from rmq_ha.testing.cluster import ROOT
from tests.unit.server.pop.test_service import HOST, RETRY, OneStore

REVIVE = "rmq_sys_REVIVE_LOG_C"
READER = "CID_RMQ_SYS_REVIVE_GROUP"


class JavaStore(OneStore):
    """A store into which this test writes as a Java broker does."""

    def __init__(self) -> None:
        super().__init__()
        self.node.topics.append(REVIVE)

    @property
    def now(self) -> int:
        return self.node.host.now_ms()

    def put(self, topic: str, queue_id: int, tag: str, body: Any, **properties: str) -> None:
        """Put a record of Java's pops."""
        properties = {TAGS: tag, **properties}
        data = body if isinstance(body, bytes) else json.dumps(body, sort_keys=True).encode()
        message = BrokerMessage(
            topic,
            queue_id,
            data,
            HOST,
            HOST,
            self.now,
            properties=properties,
            properties_string=encode_properties(properties),
        )
        self.store.put_message(message)
        self.run(0.02)

    def wait(self, tag: str, body: Any, queue_id: int = 0, wait_ms: int = 9000) -> None:
        """Put a record where it waits until it is due."""
        due = {TIMER_DELIVER_MS: str(self.now + wait_ms), REAL_TOPIC: REVIVE}
        self.put(TIMER_TOPIC, 0, tag, body, **due, **{REAL_QID: str(queue_id)})

    def checkpoint(self, start: int, count: int, invisible_ms: int = 10_000) -> dict[str, Any]:
        body = {"t": "T", "c": "G", "q": 0, "so": start, "pt": self.now, "it": invisible_ms}
        return {**body, "bm": 0, "n": count, "d": list(range(count)), "bn": "b"}

    def acked(self, pop: dict[str, Any], offset: int) -> dict[str, Any]:
        return {**{name: pop[name] for name in ("t", "c", "q", "so", "pt", "bn")}, "ao": offset}

    def receipt(self, pop: dict[str, Any], offset: int) -> Receipt:
        return Receipt("G", "T", 0, pop["pt"], [offset])

    def acks(self, receipt: Receipt) -> LeaseStatus:
        return self._wait(self.pops.ack([receipt]))  # type: ignore[no-any-return]

    def out(self) -> list[int]:
        return [lease.queue_offset for lease in self.pops.leases("G", "T", 0, 0, 99)]

    def opened(self) -> list[Any]:
        """Open the store as a broker does; return the failure, or nothing."""
        self.node.crash(False)
        self.node.load()
        self.node.start()
        self.run(0.01)
        failures: list[Any] = []
        Deferred.fromCoroutine(self.pops.take_over_java()).addErrback(
            lambda failure: failures.append(failure.value)
        )
        self.run(0.5)
        return failures


@pytest.fixture
def one() -> JavaStore:
    return JavaStore()


def test_what_is_out_is_taken_over_once_and_acknowledged_messages_stay_so(one: JavaStore) -> None:
    one.send(8)
    pop = one.checkpoint(0, 6)
    one.wait("ck", pop, 3)
    one.wait("ack", one.acked(pop, 1), 3)
    one.wait("bAck", {**one.acked(pop, -1), "aol": [3, 4]}, 3)
    one.crash()
    assert one.out() == [0, 2, 5]
    assert one.node.offsets["G", "T", 0] == 0
    assert one.keys(one.pop()) == ["m6", "m7"]
    assert one.acks(one.receipt(pop, 0)) is LeaseStatus.DONE
    assert one.acks(one.receipt(pop, 1)) is LeaseStatus.DONE
    end = one.count(POP_TOPIC)
    one.crash()
    assert one.out() == [2, 5, 6, 7]
    assert one.count(POP_TOPIC) == end
    one.run(14.0)
    assert one.keys(one.pop(32, RETRY)) == ["m6", "m7", "m2", "m5"]


def test_a_java_broker_is_known_before_it_wrote_the_name_of_its_topic(one: JavaStore) -> None:
    one.node.topics.clear()
    one.send(2)
    one.wait("ck", one.checkpoint(0, 2))
    one.crash()
    assert one.out() == [0, 1]


def test_a_checkpoint_that_java_settled_is_left_out(one: JavaStore) -> None:
    one.send(4)
    settled, out = one.checkpoint(0, 2, 1000), one.checkpoint(2, 2)
    for pop in (settled, out):
        one.wait("ck", pop)
    one.put(REVIVE, 0, "ck", settled)
    one.node.offsets[READER, REVIVE, 0] = 0
    one.node.offsets["G", "T", 0] = 2
    one.crash()
    assert one.out() == [2, 3]
    # A receipt of what Java moved or took does not count.
    assert one.acks(one.receipt(settled, 0)) is LeaseStatus.UNKNOWN


def test_a_checkpoint_that_came_to_the_journal_and_is_not_settled_counts_once(
    one: JavaStore,
) -> None:
    one.send(4)
    pops = [one.checkpoint(at, 1) for at in range(4)]
    for pop in pops:
        one.wait("ck", pop)
        one.put(REVIVE, 0, "ck", pop)
    one.wait("ack", one.acked(pops[2], 2))
    one.node.offsets[READER, REVIVE, 0] = 0
    one.node.offsets["G", "T", 0] = 1
    one.crash()
    assert one.out() == [1, 3]


def test_a_crash_in_the_middle_begins_the_take_over_again(one: JavaStore) -> None:
    one.send(4)
    pop = one.checkpoint(0, 3)
    one.wait("ck", pop)
    one.wait("ack", one.acked(pop, 0))
    # The log takes the image of the queue, and the crash comes before the mark.
    one.node.crash(False)
    one.node.load()
    one.node.start()
    flush = one.pops._writer.flush

    def cut() -> None:
        writer = one.pops._writer
        writer._entries = writer._entries[:1]
        flush()
        one.pops.stop()

    one.pops._writer.flush = cut
    one.run(0.3)
    assert one.count(POP_TOPIC) == 1
    one.crash()
    assert one.out() == [1, 2]
    assert one.keys(one.pop()) == ["m3"]
    one.crash()
    assert one.out() == [1, 2, 3]


def test_a_java_broker_that_had_the_store_in_between_is_taken_over_again(one: JavaStore) -> None:
    one.send(8)
    first = one.checkpoint(0, 4)
    one.wait("ck", first)
    one.crash()
    assert one.out() == [0, 1, 2, 3]
    assert one.ack(one.pop(2), 4) is LeaseStatus.DONE
    # Java goes on at the group's offset, and delivers the first checkpoint, which is not new.
    one.node.offsets["G", "T", 0] = 2
    one.run(1.0)
    second = one.checkpoint(0, 2)
    one.put(REVIVE, 0, "ck", first)
    one.wait("ck", second)
    one.wait("ack", one.acked(second, 0))
    one.node.offsets["G", "T", 0] = 2
    one.crash()
    assert one.out() == [1, 2, 3, 5]
    assert one.acks(one.receipt(second, 1)) is LeaseStatus.DONE


def test_an_orderly_pop_is_taken_over(one: JavaStore) -> None:
    one.send(5)
    order = {"popTime": one.now, "i": 4000, "o": [0, 1, 2], "cm": 1, "ot": {}, "oc": {"1": 3}}
    data = json.dumps({"table": {"T@G": {"0": {**order, "a": "try"}}}}).encode()
    one.node.host.disk.replace(f"{ROOT}/consumerOrderInfo.json", data)
    one.node.offsets["G", "T", 0] = 1
    one.crash()
    assert one.pop(8, "T", is_orderly=True).status is PopStatus.EMPTY
    again = one.pop(8, "T", is_orderly=True, attempt_id="try")
    assert one.keys(again) == ["m1", "m2"]
    assert again.parts[0].counts == {1: 3}
    one.run(9.0)
    later = one.pop(8, "T", is_orderly=True)
    assert one.keys(later) == ["m1", "m2", "m3", "m4"]
    end = one.count(POP_TOPIC)
    one.crash()
    assert one.count(POP_TOPIC) == end


@pytest.mark.parametrize("topic", [TIMER_TOPIC, REVIVE])
def test_a_damaged_record_keeps_the_store_closed(one: JavaStore, topic: str) -> None:
    one.send(2)
    one.wait("ck", one.checkpoint(0, 1))
    if topic == REVIVE:
        one.put(REVIVE, 0, "ck", b"{")
    else:
        one.wait("ack", b"{}")
    (failure,) = one.opened()
    assert isinstance(failure, JavaPopsRefusal)
    assert "may say which messages of a Java broker are out" in str(failure)
    assert not one.pops.is_leading
    assert not one.count(POP_TOPIC)


def test_damaged_orderly_pops_keep_the_store_closed(one: JavaStore) -> None:
    one.node.host.disk.replace(f"{ROOT}/consumerOrderInfo.json", b'{"table":')
    (failure,) = one.opened()
    assert "consumerOrderInfo.json.bak in its place" in str(failure)


def test_pops_in_a_database_keep_the_store_closed(one: JavaStore) -> None:
    path = f"{one.store.root}/kvStore"
    one.node.host.disk.make_dirs(path)
    one.node.host.disk.replace(f"{path}/000004.log", b"")
    assert one.opened() == []
    one.node.host.disk.replace(f"{path}/000007.sst", b"x")
    (failure,) = one.opened()
    assert "POP_ROLLBACK" in str(failure)


def test_a_broker_without_pops_refuses_only_what_would_be_lost(one: JavaStore) -> None:
    def refusals() -> list[Any]:
        pops = PopService(one.store, one.pops._terms, f"{ROOT}/popState", is_enabled=False)
        failures: list[Any] = []
        Deferred.fromCoroutine(pops.take_over_java()).addErrback(
            lambda failure: failures.append(str(failure.value))
        )
        one.run(0.3)
        return failures

    one.send(3)
    assert refusals() == []
    pop = one.checkpoint(0, 2)
    one.wait("ck", pop)
    one.wait("ack", one.acked(pop, 0))
    (why,) = refusals()
    assert "have not acknowledged (1). They would never come again" in why
    assert "Set popEnable=true" in why
    one.crash()  # a broker that serves pops takes it over
    assert one.out() == [1]
    assert refusals() == []
