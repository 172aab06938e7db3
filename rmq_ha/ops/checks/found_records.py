"""Reads single records of a store, from the places that queues and index give."""

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
    Return the record at a place of the log; None: there is none.

    :param size: bytes of the record; 0: as the record says.
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
    """Return the columns of a finding that name a message."""
    if record is None:
        return {}
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "msg_id": record.properties.get(UNIQ_KEY) or record.msg_id,
    }


def is_in_hole(store: StoreFiles, place: int, size: int) -> bool:
    """Return whether bytes of the log lie in a hole, which is reported as a whole."""
    return any(place < hole.end and place + size > hole.start for hole in store.holes)
