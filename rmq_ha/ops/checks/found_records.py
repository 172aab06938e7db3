"""Reads single records of a store, at physical offsets that queues and index name."""

from typing import Any

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.properties import UNIQ_KEY
from rmq_ha.base.store_format.commitlog import (
    MAX_RECORD_SIZE,
    RECORD_OVERHEAD,
    Record,
    decode_record,
)
from rmq_ha.ops.offline.directory import StoreFiles


def record_at(store: StoreFiles, place: int, size: int = 0) -> Record | None:
    """
    Return the record at a physical offset; None if no sound record begins there.

    :param size: bytes that the record must have; 0 for any size.
    """
    if not store.min_offset() <= place < store.max_offset():
        return None
    said = int.from_bytes(store.bytes_at(place, 4), "big")
    if not RECORD_OVERHEAD <= said <= MAX_RECORD_SIZE or size not in (0, said):
        return None
    try:
        record = decode_record(store.bytes_at(place, said))
    except CorruptRecord:
        return None
    return record if record.physical_offset == place else None


def columns_of(record: Record | None) -> dict[str, Any]:
    """Return the fields of a `Finding` that name a message; none if there is no record."""
    if record is None:
        return {}
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "msg_id": record.properties.get(UNIQ_KEY) or record.msg_id,
    }


def is_in_hole(store: StoreFiles, place: int, size: int) -> bool:
    """Return whether a part of the log is in a hole; holes have a finding of their own."""
    return any(place < hole.end and place + size > hole.start for hole in store.holes)
