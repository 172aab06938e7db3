"""What a log holds: records that clients filled and masters sent, and the files beside it."""

from random import Random
from zlib import crc32

from rmq_ha.base.errors import CorruptRecord, InvalidSelector
from rmq_ha.base.filter.selector import Selector
from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.model.message import place_of
from rmq_ha.base.model.properties import decode_properties, encode_properties
from rmq_ha.base.runs.log_walk import walk
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.base.store_format.commitlog import (
    decode_record,
    decode_records,
    dispatch_request_at,
    record_size_at,
    store_timestamp_of,
)
from rmq_ha.base.store_format.consumequeue import UNIT, decode_units
from rmq_ha.base.store_format.consumequeue_ext import decode_extension, encode_extension
from rmq_ha.base.store_format.dledger import (
    DLedgerCheckpoint,
    SyncedUpTo,
    decode_checkpoint,
    decode_entry,
    decode_header,
    decode_index,
    decode_term,
    encode_checkpoint,
    encode_header,
    encode_term,
)
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, TermVote
from rmq_ha.base.store_format.index import ITEM, IndexHeader, index_file_size
from rmq_ha.base.store_format.record_checks import (
    body_fits,
    head_fits,
    is_of_topic,
    message_check,
    record_fits,
)
from rmq_ha.base.store_format.record_properties import record_properties
from rmq_ha.client.lookup.lookups import PlaceId
from rmq_ha.server.broker.transactions.messages import read_mark
from rmq_ha.server.replication.places import record_size
from rmq_ha.server.store.index.file import IndexFile
from rmq_ha.server.store.log.search import whole_records
from rmq_ha.server.store.queues.ends import QueueEnd, QueueEnds
from rmq_ha.server.store.queues.search import valid_part
from rmq_ha.testing.disk import SimDisk
from tests.fuzz.of_wire import ENTRY, RECORDS
from tests.fuzz.target import target

LEVELS = [1000, 5000]


@target("record", RECORDS, (CorruptRecord,))
def read_record(data: bytes) -> None:
    """Everybody who looks at a record of the log; what one takes, the others can read."""
    record_properties(data)
    record_size(data, 0, 0, len(data))
    record_size_at(data, 0, len(data))
    store_timestamp_of(data[:80])
    dispatch_request_at(data, 0, len(data), LEVELS, check_crc=True)
    size = int.from_bytes(data[:4], "big")
    head_fits(data[:36], 0, size)
    message_check("TopicA", 1)(data, 0, len(data), 7)
    if record_fits(data, 0, len(data)):
        body_fits(data)
        is_of_topic(data, "TopicA")
    record = decode_record(data, check_crc=True)
    read_mark(record)
    decode_records(data)


@target("properties", [b"TAGS\x01a\x02KEYS\x01k l\x02DELAY\x015\x02"])
def read_properties(data: bytes) -> None:
    """What came in is what goes out again."""
    found = decode_properties(data.decode("utf-8", "replace"))
    assert decode_properties(encode_properties(found)) == found


EXPRESSIONS = [
    b"a > 5 AND b IN ('x', 'y') OR NOT (c BETWEEN 1 AND 2.5) OR d IS NULL",
    b"TRUE OR a <> 'it''s' AND -b >= 1e3",
    b"(((a = 1)))",
    b"a CONTAINS 'x' AND b NOT IN ('z') AND c IS NOT NULL",
]
HAS = [{}, {"a": "7", "b": "x", "c": "1.5"}, {"a": "x", "b": "-3", "c": "NaN", "d": "9" * 30}]


@target("filter", EXPRESSIONS, (InvalidSelector,))
def read_filter(data: bytes) -> None:
    """Compiled, and asked of some messages."""
    selector = Selector(data.decode("utf-8", "replace"))
    for properties in HAS:
        selector.matches(properties)


@target("message_id", [b"7F00000100002A9F0000000000000000", b"0" * 56])
def read_message_id(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    PlaceId.parse(text)
    place_of(text)


@target("log", [*RECORDS, bytes(40) + RECORDS[0], RECORDS[0][:60]])
def read_log(data: bytes) -> None:
    """What dispatch and recovery make of bytes that a master sent."""
    walk(data, 0, LEVELS, 10, True)
    list(whole_records(lambda size, at: data[at : at + size], 0, len(data), LEVELS))


@target("dledger.entry", [encode_header(ENTRY) + ENTRY.body], (CorruptRecord,))
def read_entry(data: bytes) -> None:
    if len(data) >= ENTRY_HEADER_SIZE:
        decode_index(data)
        decode_header(data)
    decode_entry(data)


@target("dledger.term", [encode_term(TermVote(7, "n1"))], (CorruptRecord,))
def read_term(data: bytes) -> None:
    """What is read can be written, and is the same then."""
    found = decode_term(data)
    assert decode_term(encode_term(found)).term == found.term


@target(
    "dledger.checkpoint",
    [encode_checkpoint(DLedgerCheckpoint(5, 9, SyncedUpTo(9, 1, 960)))],
    (CorruptRecord,),
)
def read_dledger_checkpoint(data: bytes) -> None:
    found = decode_checkpoint(data)
    assert decode_checkpoint(encode_checkpoint(found)) == found


@target("store.checkpoint", [CheckpointTimes(1, 2, 3, 4).encode()])
def read_checkpoint(data: bytes) -> None:
    found = CheckpointTimes.decode(data)
    assert CheckpointTimes.decode(found.encode()) == found


@target("store.queue", [UNIT.pack(0, 100, 7) * 3, bytes(40)])
def read_queue(data: bytes) -> None:
    valid_part(lambda size, at: data[at : at + size], len(data))
    decode_units(data)


@target("store.extension", [encode_extension(ExtensionUnit(7, 8, b"bits")) or b""])
def read_extension(data: bytes) -> None:
    decode_extension(data)


@target("store.index", [IndexHeader(1, 2, 3, 4, 5, 6).encode()], (CorruptRecord,))
def read_index_header(data: bytes) -> None:
    IndexHeader.decode(data)


@target(
    "store.index-half-put",
    [IndexHeader(1, 2, 3, 4, 1, 2).encode() + bytes(8) + bytes(20) + ITEM.pack(5, 4, 0, 0) * 2],
    (CorruptRecord,),
)
def undo_half_put(data: bytes) -> None:
    """As a process that died may leave it."""
    _small_index(data).undo_half_put()


@target(
    "store.index-whole",
    [
        IndexHeader(1, 2, 3, 4, 1, 3).encode()
        + (2).to_bytes(4, "big") * 2
        + bytes(20)
        + ITEM.pack(5, 4, 0, 0) * 2
    ],
    (CorruptRecord,),
)
def restore_index(data: bytes) -> None:
    """As lost power may leave it."""
    _small_index(data).restore(2)


def _small_index(data: bytes) -> IndexFile:
    """A file of two slots and three items."""
    disk = SimDisk(Random(1), lambda: 0)
    size = index_file_size(2, 3)
    disk.open("/index", size).pwrite(data[:size], 0)
    file = IndexFile(disk, "/index", 2, 3)
    file.load()
    return file


@target("store.ends", [QueueEnds(0, 999, (7, 9), {("TopicA", 0): QueueEnd(0, 5, 900)}).encode()])
def read_queue_ends(data: bytes) -> None:
    """Behind its checksum, too: who can write the file can write that."""
    QueueEnds.decode(data)
    text = data.partition(b"\n")[2]
    found = QueueEnds.decode(f"{crc32(text):08x}\n".encode() + text)
    if found is not None:
        found.encode()
