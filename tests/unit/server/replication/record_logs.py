"""Logs of real records, for whoever reads what stands in one."""

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, encode_blank, encode_record
from tests.unit.server.replication.memory_log import MemoryLog

HOST = Address.parse("10.0.0.1", 10911)


def record(
    physical_offset: int,
    body: bytes,
    store_timestamp: int = 1,
    queue_offset: int | None = None,
    topic: str = "T",
    queue_id: int = 0,
) -> bytes:
    """One message; its number in the queue is its place, unless it is given."""
    number = physical_offset if queue_offset is None else queue_offset
    return encode_record(
        Record(
            0, 0, queue_id, 0, number, physical_offset, 0, 1, HOST, store_timestamp, HOST, 0, 0,
            body, topic, "",
        )
    )  # fmt: skip


def blank(room: int) -> bytes:
    """What fills a file."""
    return encode_blank(room).ljust(room, b"\0")


def extend(log: MemoryLog, bodies: list[bytes], stamp: int = 1) -> list[int]:
    """Put messages as a master does, blanks included; returns where they begin."""
    starts = []
    for body in bodies:
        data = record(log.max_offset, body, stamp)
        room = log.file_size - log.max_offset % log.file_size
        if len(data) + 8 > room:
            log.put(blank(room))
            data = record(log.max_offset, body, stamp)
        starts.append(log.max_offset)
        log.put(data)
    return starts


def record_log(
    bodies: list[bytes], file_size: int = 4096, start: int = 0, stamp: int = 1
) -> tuple[MemoryLog, list[int]]:
    """A log, and where its records begin."""
    log = MemoryLog(file_size, start)
    return log, extend(log, bodies, stamp)


def copy_of(log: MemoryLog, end: int | None = None) -> MemoryLog:
    """The same log, up to `end`."""
    data = bytes(log.data) if end is None else bytes(log.data[: end - log.base])
    return MemoryLog(log.file_size, log.min_offset, data)
