"""Messages on their way into the store and out of it, and the results of puts and reads.

Spec: store.md, sections 2.1, 2.5 and 2.7.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from struct import Struct
from typing import Any, NamedTuple

from rmq_ha.base.model.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from rmq_ha.base.model.status import GetMessageStatus, PutMessageStatus

_PORT = Struct(">i")
_MSG_ID_SIZES = (16, 28)


class Address(NamedTuple):
    """A host as RocketMQ stores it: an address of 4 or 16 bytes, and a port."""

    ip: bytes
    port: int

    @classmethod
    def parse(cls, host: str, port: int) -> "Address":
        """
        Read an address. An IPv4-mapped IPv6 address becomes IPv4.

        :raises ValueError: the host is a name.
        """
        address = ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return cls((mapped or address).packed, port)

    @property
    def is_v6(self) -> bool:
        """Whether the address takes 16 bytes."""
        return len(self.ip) == 16

    def __str__(self) -> str:
        """`1.2.3.4:5`, or `[::1]:5`."""
        text = str(ip_address(self.ip))
        return f"[{text}]:{self.port}" if self.is_v6 else f"{text}:{self.port}"


def offset_msg_id(store_host: Address, physical_offset: int) -> str:
    """Return the offsetMsgId: host, port and commit-log offset in upper-case hex."""
    return f"{_host_part(store_host)}{physical_offset & 0xFFFFFFFFFFFFFFFF:016X}"


@lru_cache(maxsize=1024)
def _host_part(host: Address) -> str:
    """
    Return the part of an id that names the broker. It is remembered, since messages come from few
    brokers.
    """
    return (host.ip + _PORT.pack(host.port)).hex().upper()


def place_of(message_id: str) -> int | None:
    """
    Return the commit-log offset in an offsetMsgId, its last 16 digits; None if the text is no such
    id.
    """
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        return None
    return int.from_bytes(data[-8:], "big") if len(data) in _MSG_ID_SIZES else None


@dataclass(slots=True)
class BrokerMessage:
    """
    A message for `IMessageStore.put_message` (MessageExtBrokerInner).

    :ivar properties: the properties that the store reads (TAGS, KEYS, DELAY, ...).
    :ivar properties_string: the properties that are stored. RocketMQ lets the two differ.
    :ivar wait_store_ok: whether the put waits for flush and replica; False if WAIT is `false`.
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
The content of a record: topic, queue id, body, born host, store host, born timestamp, flag,
sysFlag, reconsume times, physical offset of the half message; of the properties KEYS, UNIQ_KEY and
TAGS; and the property string that is stored.
"""


def draft_of(message: BrokerMessage) -> Draft:
    """Return the content of the record that stores a message."""
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
    Messages that are stored side by side and share topic, queue and hosts.

    :ivar members: flag, body and stored property string of each message.
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
    """The place of the record or records of one append."""

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
    The result with which the Deferred of a put fires.

    :ivar append: the place of the records; None when nothing was stored.
    :ivar first_queue_id: for a message that an earlier send has stored: the queue of that send.
    """

    status: PutMessageStatus
    append: AppendResult | None = None
    first_queue_id: int | None = None

    @property
    def stored(self) -> AppendResult | None:
        """The place from which the message will be delivered; None if it will not be delivered."""
        return self.append if self.status.is_stored else None


class GetMessageResult(NamedTuple):
    """
    The result of `get_message`.

    :ivar messages: whole records in queue order.
    :ivar later: a Deferred that fires when the same read can find more, because messages come from
        an object store; None: the result is final.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[bytes]
    suggest_pulling_from_slave: bool = False
    later: Any = None


class DispatchRequest(NamedTuple):
    """
    The facts about one record that dispatchers get.

    :ivar tags_code: hash of the tag; in the schedule topic the time of delivery.
    :ivar properties_string: the property string as it is stored.
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
        """The properties in the record."""
        return decode_properties(self.properties_string)


Row = tuple[str, int, int, int, int, int, int, str, str, int, int, str]
"""
The values of a `DispatchRequest` as a plain tuple. Making an object with names would cost more than
all other work on the record.
"""
