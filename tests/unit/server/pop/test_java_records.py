"""Records of RocketMQ 5.3.3's pops: read, and joined to leases."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.server.pop.java_leases import (
    JavaHeld,
    JavaLease,
    JavaPops,
    JavaPopsRefusal,
    image_of_java,
)
from rmq_ha.server.pop.java_records import (
    JavaAck,
    JavaCheckpoint,
    JavaQueue,
    decode_java_orders,
    decode_java_record,
)
from rmq_ha.server.pop.leases import LeaseMatch, QueueLeases, restored
from tests.unit.server.pop.samples import NOW

QUEUE = JavaQueue("G", "T", 0)

# Bodies that a broker of RocketMQ 5.3.3 stored.
CHECKPOINT = (
    b'{"bm":0,"bn":"broker-p","c":"PopG1","d":[0,1,2],"it":10000,"n":3,"pt":1795883437007,"q":1,'
    b'"reviveTime":1795883447007,"ro":0,"so":0,"t":"PopT1"}'
)
ACK = b'{"ao":1,"bn":"broker-p","c":"PopG1","pt":1795883437007,"q":1,"so":0,"t":"PopT1"}'
BATCH = (
    b'{"ao":-1,"aol":[0,1],"bn":"broker-p","c":"PopG1","pt":1795883437007,"q":1,"so":0,"t":"PopT1"}'
)


def test_the_records_of_a_running_broker_are_read() -> None:
    queue = JavaQueue("PopG1", "PopT1", 1)
    pop = JavaCheckpoint(queue, 0, [0, 1, 2], [], 1795883437007, 1795883447007, False)
    assert decode_java_record("ck", CHECKPOINT) == pop
    assert decode_java_record("ack", ACK) == JavaAck(queue, 0, [1], 1795883437007)
    assert decode_java_record("bAck", BATCH) == JavaAck(queue, 0, [0, 1], 1795883437007)
    again = CHECKPOINT.replace(b'"bm":0', b'"bm":5,"rp":"2"')
    assert decode_java_record("ck", again) == pop._replace(acked=[0, 2], is_again=True)


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("", ACK),
        ("ack", b"{"),
        ("ack", b"[]"),
        ("ack", CHECKPOINT),
        ("ack", ACK.replace(b'"c":"PopG1",', b"")),
        ("ack", ACK.replace(b'"ao":1', b'"ao":-1')),
        ("ck", CHECKPOINT.replace(b"[0,1,2]", b"[0,2,1]")),
        ("ck", CHECKPOINT.replace(b'"so":0', b'"so":"0"')),
    ],
)
def test_other_records_are_refused(tag: str, body: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_java_record(tag, body)


def orders(**more: Any) -> bytes:
    values = {
        "a": "try",
        "cm": 5,
        "i": 9000,
        "l": NOW + 1,
        "o": [10, 1, 2, 4],
        "oc": {11: 2},
        "ot": {14: NOW + 500},
        "popTime": NOW,
        **more,
    }
    return json.dumps({"table": {"T@G": {0: values}}}).encode()


def test_orderly_pops_are_read() -> None:
    (order,) = decode_java_orders(orders())
    assert (order.queue, order.pop_ms, order.start, order.end) == (QUEUE, NOW, 10, 15)
    assert (order.offsets, order.dues) == ([11, 14], [NOW + 9000, NOW + 500])
    assert (order.counts, order.attempt_id) == ({11: 2}, "try")
    # Java writes keys that are numbers without quotes.
    unquoted = orders().replace(b'"11"', b"11").replace(b'"14"', b"14").replace(b'"0"', b"0")
    assert decode_java_orders(unquoted) == [order]
    assert not decode_java_orders(orders(cm=15, oc=None, ot=None, a=None))[0].offsets
    for damaged in (b"", b"{}", b'{"table":[]}', orders(o=[]), orders(o=[5, 3, 2])):
        with pytest.raises(CorruptRecord):
            decode_java_orders(damaged)


def pop(start: int, count: int, pop_ms: int, invisible_ms: int = 9000) -> JavaCheckpoint:
    offsets = list(range(start, start + count))
    return JavaCheckpoint(QUEUE, start, offsets, [], pop_ms, pop_ms + invisible_ms, False)


def leases_of(*records: Any, offset: int = -1, before: QueueLeases | None = None) -> QueueLeases:
    pops = JavaPops()
    for record in records:
        pops.add(record)
    image = image_of_java(1, QUEUE, pops.held(QUEUE), offset, before, 0, NOW)
    leases = restored(image)
    assert leases is not None
    return leases


def out_of(leases: QueueLeases) -> list[int]:
    return [offset for offset, _, _ in leases.leases()]


def test_the_offset_may_be_older_than_the_pops() -> None:
    leases = leases_of(pop(0, 4, NOW), JavaAck(QUEUE, 0, [0, 2], NOW), pop(4, 2, NOW + 1))
    assert (leases.committed, leases.next, out_of(leases)) == (1, 6, [1, 3, 4, 5])
    assert leases.lease(3) == (NOW, NOW + 9000)
    assert leases.match(2, NOW) is LeaseMatch.REPEATED
    assert leases.last_pop_ms == NOW + 1


def test_what_java_settled_before_is_consumed() -> None:
    leases = leases_of(pop(7, 2, NOW), offset=20)
    assert (leases.committed, leases.next, out_of(leases)) == (7, 20, [7, 8])
    # Nobody knows whether a message before was acknowledged or moved, so no receipt counts.
    assert leases.match(3, NOW) is LeaseMatch.UNKNOWN


def test_a_short_gap_comes_again_and_a_long_one_is_a_reset() -> None:
    leases = leases_of(pop(5, 2, NOW), offset=3)
    assert (leases.committed, leases.next, out_of(leases)) == (3, 7, [3, 4, 5, 6])
    assert leases.lease(4) == (1, NOW)
    leases = leases_of(pop(5000, 2, NOW), offset=3)
    assert (leases.committed, leases.next, out_of(leases)) == (3, 3, [])


def test_the_leases_of_this_broker_count_where_java_did_not_come() -> None:
    ours = leases_of(pop(0, 10, NOW), JavaAck(QUEUE, 0, [0, 1, 5, 8], NOW))
    assert (ours.committed, ours.next) == (2, 10)
    # A Java broker began at 2, handed out up to 6, and settled 2 and 3.
    later = NOW + 60_000
    leases = leases_of(pop(4, 2, later), JavaAck(QUEUE, 4, [4], later), offset=6, before=ours)
    assert (leases.committed, leases.next, out_of(leases)) == (5, 10, [5, 6, 7, 9])
    assert leases.lease(5) == (later, later + 9000)
    assert leases.lease(6) == (NOW, NOW + 9000)


def test_an_orderly_pop_goes_on() -> None:
    (order,) = decode_java_orders(orders())
    leases = leases_of(order, offset=11)
    assert leases.is_orderly
    assert (leases.committed, leases.next, out_of(leases)) == (11, 15, [11, 14])
    assert (leases.batch_pop_ms, leases.attempt_id, leases.counts) == (NOW, "try", {11: 2})
    done = leases_of(*decode_java_orders(orders(cm=15)), offset=10)
    assert (done.committed, done.next, done.is_orderly) == (15, 15, False)


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(JavaPopsRefusal, match="too many messages of queue 0 of T"):
        leases_of(pop(0, 1, NOW), offset=1 << 23)


class Story:
    """A group that pops one queue of a Java broker, and what has to be true at the end."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.holder: dict[int, tuple[int, int, int]] = {}  # offset to start, time, due
        self.done: set[int] = set()
        self.end = 0
        self.now = NOW

    def _store(self, tag: str, start: int, pop_ms: int, **more: Any) -> None:
        body = {"bn": "b", "c": "G", "q": 0, "t": "T", "so": start, "pt": pop_ms, **more}
        self.records.append((tag, body))

    def _checkpoint(self, start: int, steps: list[int], invisible_ms: int) -> None:
        self._store("ck", start, self.now, d=steps, n=len(steps), it=invisible_ms, bm=0)
        for step in steps:
            self.holder[start + step] = (start, self.now, self.now + invisible_ms)

    def pop(self, steps: list[int], invisible_ms: int) -> None:
        self.now += 1
        self._checkpoint(self.end, steps, invisible_ms)
        self.end += steps[-1] + 1

    def ack(self, offset: int) -> None:
        start, pop_ms, _ = self.holder[offset]
        self._store("ack", start, pop_ms, ao=offset)
        self.done.add(offset)

    def ack_all(self, offsets: list[int]) -> None:
        """Acknowledge those that are of one pop as one batch."""
        pops: dict[tuple[int, int], list[int]] = {}
        for offset in offsets:
            pops.setdefault(self.holder[offset][:2], []).append(offset)
        for (start, pop_ms), members in pops.items():
            self._store("bAck", start, pop_ms, ao=-1, aol=members)
        self.done.update(offsets)

    def change(self, offset: int, invisible_ms: int) -> None:
        old_start, old_ms, _ = self.holder[offset]
        self.now += 1
        self._checkpoint(offset, [0], invisible_ms)
        self._store("ack", old_start, old_ms, ao=offset)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_records_in_any_order_give_the_leases_of_a_plain_model(data: st.DataObject) -> None:
    story = Story()
    for _ in range(data.draw(st.integers(1, 12))):
        held = sorted(set(story.holder) - story.done)
        act = data.draw(st.sampled_from(["pop", "ack", "batch", "change"] if held else ["pop"]))
        if act == "pop":
            steps = data.draw(st.sets(st.integers(0, 9), min_size=1, max_size=5))
            story.pop(sorted({0, *steps}), data.draw(st.integers(0, 60_000)))
        elif act == "ack":
            story.ack(data.draw(st.sampled_from(held)))
        elif act == "batch":
            story.ack_all(sorted(data.draw(st.sets(st.sampled_from(held), min_size=1))))
        else:
            story.change(data.draw(st.sampled_from(held)), data.draw(st.integers(0, 60_000)))
    pops = JavaPops()
    twice = story.records + data.draw(st.lists(st.sampled_from(story.records), max_size=5))
    for tag, body in data.draw(st.permutations(twice)):
        pops.add(decode_java_record(tag, json.dumps(body).encode()))
    out = {at: holder[1:] for at, holder in story.holder.items() if at not in story.done}
    assert len(pops) == len(out)
    held_now = pops.held(QUEUE)
    assert held_now.spans == [(0, story.end)]
    offset = data.draw(st.sampled_from([-1, 0, story.end]))
    image = image_of_java(1, QUEUE, held_now, offset, None, 0, story.now)
    leases = restored(image)
    assert leases is not None
    assert {at: (pop_ms, due) for at, pop_ms, due in leases.leases()} == out
    assert (leases.committed, leases.next) == (min(out, default=story.end), story.end)


def test_the_last_handing_out_counts() -> None:
    held = JavaPops()
    held.add(pop(0, 2, NOW))
    held.add(pop(0, 1, NOW + 50))  # after a reset
    held.add(JavaAck(QUEUE, 0, [0], NOW))
    assert held.held(QUEUE) == JavaHeld(
        {0: JavaLease(NOW + 50, NOW + 9050), 1: JavaLease(NOW, NOW + 9000)}, [(0, 2)]
    )
