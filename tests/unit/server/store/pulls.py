"""A reader over a log in memory that counts its reads, for the tests of pulls."""

from random import Random
from typing import Any

from zope.interface import implementer

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import Address, DispatchRequest, GetMessageResult
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.reading.damage import ReadDamage
from rmq_ha.server.store.reading.pulls import MessageReader
from rmq_ha.testing.disk import SimDisk

CL_FILE = 10_000
COLD = 1000


class FakeLog:
    """Records of a wanted size that know their offset; counts reads."""

    file_size = CL_FILE
    delay_levels = (1000,)
    cuts = 0

    def __init__(self) -> None:
        self.data = bytearray()
        self.min_offset = 0
        self.reads = self.bytes_read = 0

    @property
    def max_offset(self) -> int:
        return len(self.data)

    def add(self, size: int, queue_offset: int = 0, topic: str = "T") -> int:
        if len(self.data) % CL_FILE + size > CL_FILE:
            self.data += bytes(CL_FILE - len(self.data) % CL_FILE)
        at = len(self.data)
        place = Address.parse("127.0.0.1", 1)
        body = b"x" * (size - 92)
        self.data += encode_record(
            Record(0, 0, 0, 0, queue_offset, at, 0, 1, place, 1, place, 0, 0, body, topic, "")
        )
        return at

    def read(self, physical_offset: int, limit: int) -> bytes:
        self.reads += 1
        if physical_offset < self.min_offset:
            return b""
        end = physical_offset - physical_offset % CL_FILE + CL_FILE
        data = bytes(self.data[physical_offset : min(end, physical_offset + limit)])
        self.bytes_read += len(data)
        return data

    def record(self, physical_offset: int) -> bytes:
        """The one that is there; not counted."""
        size = int.from_bytes(self.data[physical_offset : physical_offset + 4], "big")
        return bytes(self.data[physical_offset : physical_offset + size])


class Rig:
    def __init__(self, is_slave: bool = False, **settings: object) -> None:
        self.log = FakeLog()
        self.queues = ConsumeQueueTable(SimDisk(Random(1), lambda: 0), "/store", 800)
        self.config = MessageStoreConfig(**settings)  # type: ignore[arg-type]
        self.damage = ReadDamage(self.log, False)
        self.memory = 1 << 40
        if is_slave:
            self.config.broker_role = BrokerRole.SLAVE
        self.now = 0.0

    def put(self, count: int, size: int = 100, tags_code: int = 0, topic: str = "T") -> None:
        for _ in range(count):
            offset = self.queues.queue(topic, 0).max_offset
            at = self.log.add(size, offset, topic)
            self.queues.put_requests(
                [DispatchRequest(topic, 0, at, size, tags_code, 1, offset, "", "", 0, 0, "")]
            )

    @property
    def reader(self) -> MessageReader:
        return MessageReader(
            self.config,
            self.log,
            self.queues,
            self.damage,
            self.memory,
            lambda: self.now,
        )

    def get(
        self, offset: int, most: int = 32, wanted: IMessageFilter | None = None, topic: str = "T"
    ) -> GetMessageResult:
        return self.reader.get_message("g", topic, 0, offset, most, wanted)


@implementer(IMessageFilter)
class ByContent:
    """Accepts records by their offset."""

    def __init__(self, *accepted: int) -> None:
        self.accepted = accepted

    def matches_unit(self, tags_code: int) -> bool:
        return True

    def matches_extension(self, tags_code: int, store_timestamp: int, bit_map: Any) -> bool:
        return True

    def matches_record(self, record: bytes) -> bool:
        return int.from_bytes(record[28:36], "big") in self.accepted

    def matches_properties(self, properties: dict[str, str]) -> bool:
        return True


class Slow(ByContent):
    """Takes so many seconds for each record."""

    def __init__(self, rig: Rig, pace: float, *accepted: int) -> None:
        super().__init__(*accepted)
        self.rig = rig
        self.pace = pace

    def matches_record(self, record: bytes) -> bool:
        self.rig.now += self.pace
        return super().matches_record(record)


def offsets(result: GetMessageResult) -> list[int]:
    return [int.from_bytes(message[28:36], "big") for message in result.messages]
