"""A message on its way into the store, and what became of it.

Spec: store.md, sections 2.1, 2.5 and 2.7.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from struct import Struct
from typing import NamedTuple

from rmq_ha.base.model.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from rmq_ha.base.model.status import GetMessageStatus, PutMessageStatus

_PORT = Struct(">i")
_MSG_ID_SIZES = (16, 28)


class Address(NamedTuple):
    """A host as RocketMQ stores it: 4 or 16 address bytes and a port."""

    ip: bytes
    port: int

    @classmethod
    def parse(cls, host: str, port: int) -> "Address":
        """From text; IPv4-mapped IPv6 becomes IPv4. Raises ValueError for a host name."""
        address = ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return cls((mapped or address).packed, port)

    @property
    def is_v6(self) -> bool:
        """The address takes 16 bytes."""
        return len(self.ip) == 16

    def __str__(self) -> str:
        """`1.2.3.4:5`, or `[::1]:5`."""
        text = str(ip_address(self.ip))
        return f"[{text}]:{self.port}" if self.is_v6 else f"{text}:{self.port}"


def offset_msg_id(store_host: Address, physical_offset: int) -> str:
    """The offsetMsgId: host, port and commit-log offset in upper-case hex."""
    return f"{_host_part(store_host)}{physical_offset & 0xFFFFFFFFFFFFFFFF:016X}"


@lru_cache(maxsize=1024)
def _host_part(host: Address) -> str:
    """Of ids: messages come from few brokers."""
    return (host.ip + _PORT.pack(host.port)).hex().upper()


def place_of(message_id: str) -> int | None:
    """The commit-log offset in an offsetMsgId, its last 16 digits; None where it is no such id."""
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        return None
    return int.from_bytes(data[-8:], "big") if len(data) in _MSG_ID_SIZES else None


@dataclass(slots=True)
class Message:
    """
    A message for `IMessageStore.put_message` (MessageExtBrokerInner).

    :ivar properties: what the store reads (TAGS, KEYS, DELAY, ...).
    :ivar properties_string: what is stored; kept apart because RocketMQ lets the two differ.
    :ivar wait_store_ok: the put waits for flush and replica (WAIT is not `false`).
    """

    topic: str
    queue_id: int
    body: bytes
    born_host: Address
    store_host: Address
    born_timestamp: int = 0
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    properties_string: str = ""
    wait_store_ok: bool = True


Draft = tuple[str, int, bytes, Address, Address, int, int, int, int, int, str, str, str | None, str]
"""
What a record is made of: topic, queue id, body, born host, store host, born timestamp, flag,
sysFlag, reconsume times, physical offset of the half message; of the properties KEYS, UNIQ_KEY and
TAGS; and the string that is stored.
"""


def draft_of(message: Message) -> Draft:
    """What is to be stored of a message."""
    properties = message.properties
    if not properties and message.properties_string:
        properties = decode_properties(message.properties_string)
    return (
        message.topic,
        message.queue_id,
        message.body,
        message.born_host,
        message.store_host,
        message.born_timestamp,
        message.flag,
        message.sys_flag,
        message.reconsume_times,
        message.prepared_transaction_offset,
        properties.get(KEYS, ""),
        properties.get(UNIQ_KEY, ""),
        properties.get(TAGS),
        message.properties_string,
    )


@dataclass(slots=True)
class MessageBatch:
    """
    Several messages that are stored side by side and share topic, queue and hosts.

    :ivar members: flag, body and stored property string of each.
    """

    topic: str
    queue_id: int
    born_host: Address
    store_host: Address
    members: list[tuple[int, bytes, str]]
    born_timestamp: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    wait_store_ok: bool = True


class AppendResult(NamedTuple):
    """Where an append put its record(s)."""

    physical_offset: int
    size: int
    store_timestamp: int
    queue_offset: int
    message_count: int
    msg_id: str

    @property
    def next_offset(self) -> int:
        """The offset that flush and replication have to reach."""
        return self.physical_offset + self.size


class PutMessageResult(NamedTuple):
    """
    What a put's Deferred fires with; `append` is None when nothing was stored.

    :ivar first_queue_id: of what was known already: the queue that the first was sent to.
    """

    status: PutMessageStatus
    append: AppendResult | None = None
    first_queue_id: int | None = None

    @property
    def stored(self) -> AppendResult | None:
        """Where it will be delivered from; None when it will not."""
        return self.append if self.status.is_stored else None


class GetMessageResult(NamedTuple):
    """
    What `get_message` found.

    :ivar messages: whole records in queue order.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[bytes]
    suggest_pulling_from_slave: bool = False


class DispatchRequest(NamedTuple):
    """
    What dispatchers learn of one record.

    :ivar tags_code: hash of the tag, or delivery time in the schedule topic.
    :ivar properties_string: as stored.
    """

    topic: str
    queue_id: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    keys: str
    uniq_key: str
    sys_flag: int
    prepared_transaction_offset: int
    properties_string: str

    @property
    def properties(self) -> dict[str, str]:
        """As parsed from the record, empty when it has none."""
        return decode_properties(self.properties_string)


Row = tuple[str, int, int, int, int, int, int, str, str, int, int, str]
"""What a `DispatchRequest` holds, without its names: making those costs more than the rest."""
