"""The journal of POP consumption, which a master sent, and its snapshot on the disk."""

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.server.pop.copies import source_of
from rmq_ha.server.pop.entries import NumbersEntry
from rmq_ha.server.pop.java_leases import JavaPops
from rmq_ha.server.pop.java_records import decode_java_orders, decode_java_record
from rmq_ha.server.pop.records import decode_entries, encode_entries
from rmq_ha.server.pop.snapshot import (
    SnapshotEnd,
    decode_snapshot,
    encode_image,
    encode_snapshot,
)
from rmq_ha.server.pop.state import PopState
from tests.fuzz.target import target
from tests.unit.server.pop.samples import NOW, ONE_OF_EACH
from tests.unit.server.pop.test_java_records import ACK, BATCH, CHECKPOINT, orders

IMAGES = [encode_image(3, entry) for entry in ONE_OF_EACH if type(entry).__name__ == "ImageEntry"]


@target("pop.journal", [encode_entries(ONE_OF_EACH, NOW)], (CorruptRecord,))
def read_pop_journal(data: bytes) -> None:
    """What is read can be applied, and is written as it was read."""
    entries = decode_entries(data)
    state = PopState()
    state.apply_all(entries)
    assert state.out == sum(queue.out for queue in state.queues.values())
    state.digest()
    assert decode_entries(encode_entries(entries, NOW)) == entries


@target(
    "pop.snapshot",
    [encode_snapshot(SnapshotEnd(9, 5, 3), 2, NumbersEntry(4, NOW), -1, IMAGES)],
    (CorruptRecord,),
)
def read_pop_snapshot(data: bytes) -> None:
    for _, image in decode_snapshot(data).images:
        PopState().apply(image)


@target("pop.source", [b"POP_SRC\x013-0-1742-1795883444356\x02TAGS\x01a"])
def read_pop_source(data: bytes) -> None:
    source = source_of(decode_properties(data.decode("utf-8", "replace")))
    assert source is None or min(source) >= 0


@target("pop.java", [b"ck" + CHECKPOINT, b"ack" + ACK, b"bAck" + BATCH], (CorruptRecord,))
def read_java_record(data: bytes) -> None:
    """Records of a Java broker: what is read can be joined."""
    tag, brace, body = data.partition(b"{")
    pops = JavaPops()
    pops.add(decode_java_record(tag.decode("latin-1"), brace + body))
    assert len(pops) >= 0


@target("pop.java-orders", [orders()], (CorruptRecord,))
def read_java_orders(data: bytes) -> None:
    pops = JavaPops()
    for order in decode_java_orders(data):
        pops.add(order)
    for queue in pops.queues:
        pops.held(queue)
