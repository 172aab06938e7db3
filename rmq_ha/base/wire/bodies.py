"""Bodies about clients, queues, topics, groups and offsets, as typed values.

Listings and statistics are in `stat_bodies`, routes and registration in `route_bodies`.

Spec: remoting.md, chapters 7 and 8, appendix B.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import msgspec
from msgspec import field

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.numbers import MOST_ITEMS, Int32
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.fastjson import BODY_VALUES, encode, parse
from rmq_ha.base.wire.members import from_members, keep_foreign
from rmq_ha.base.wire.text import to_bytes

T = TypeVar("T")


class Body(msgspec.Struct, rename="camel"):
    """
    A body whose JSON members are its attributes.

    :cvar MOST: most values of the body; see `read_body`.
    """

    MOST: ClassVar[int | None] = BODY_VALUES

    def encode(self) -> bytes:
        """Encode the body as fastjson does."""
        return encode(self)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """
        Decode the body of a request or a response.

        :raises ProtocolViolation: the data does not have this body's form.
        """
        return read_body(body, cls._from_members, cls.MOST)

    @classmethod
    def _from_members(cls, members: dict[str, Any]) -> Self:
        return from_members(cls, members)


class AnswerBody(Body):
    """A body of an answer to a request of this process; the number of its values is not limited."""

    MOST = None


class MessageQueue(msgspec.Struct, rename="camel", frozen=True, order=True):
    """One queue of a topic on the brokers of one name; in a body also the key of a map."""

    topic: str
    broker_name: str
    queue_id: Int32

    def __str__(self) -> str:
        """Return the queue as people read it: `queue 3 of orders at broker-a`."""
        return f"queue {self.queue_id} of {self.topic} at {self.broker_name}"

    def __iter__(self) -> Iterator[str | int]:
        yield self.topic
        yield self.broker_name
        yield self.queue_id

    @classmethod
    def from_key(cls, key: Any) -> "MessageQueue":
        """Read a queue from the key of a map: a JSON object, or a string that contains one."""
        members = parse(to_bytes(key)) if isinstance(key, str) else key
        return from_members(cls, dict(members))


class ConsumerData(msgspec.Struct, rename="camel"):
    """One consumer group of a client in a heartbeat."""

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: list[SubscriptionData] = field(name="subscriptionDataSet", default_factory=list)
    unit_mode: bool = False


class ProducerData(msgspec.Struct, rename="camel"):
    """One producer group of a client in a heartbeat."""

    group_name: str


class HeartbeatData(Body):
    """A client's heartbeat (request code 34, spec: B1)."""

    client_id: str = field(name="clientID", default="")
    consumers: list[ConsumerData] = field(name="consumerDataSet", default_factory=list)
    producers: list[ProducerData] = field(name="producerDataSet", default_factory=list)

    @property
    def producer_groups(self) -> list[str]:
        """The names of the producer groups in the heartbeat."""
        return [item.group_name for item in self.producers]

    @classmethod
    def _from_members(cls, members: dict[str, Any]) -> Self:
        consumers = members.get("consumerDataSet") or ()
        _check_count("groups", len(consumers) + len(members.get("producerDataSet") or ()))
        counts = [len(item.get("subscriptionDataSet") or ()) for item in consumers]
        _check_count("subscriptions", sum(counts))
        return from_members(cls, members)


class LockBatch(Body):
    """A request to lock or unlock queues for one client (codes 41 and 42, B5)."""

    consumer_group: str = ""
    client_id: str = ""
    queues: list[MessageQueue] = field(name="mqSet", default_factory=list)

    @classmethod
    def _from_members(cls, members: dict[str, Any]) -> Self:
        _check_count("queues", len(members.get("mqSet") or ()))
        return from_members(cls, members)


class LockedQueues(AnswerBody):
    """The queues that a client holds now (code 41)."""

    queues: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class CheckClient(Body):
    """A client's question whether the broker takes a subscription (code 46, B6)."""

    client_id: str = ""
    group: str = ""
    subscription: SubscriptionData | None = field(name="subscriptionData", default=None)


class TopicTable(AnswerBody):
    """TopicConfigSerializeWrapper: the body of code 21 (B7), and the file `topics.json`."""

    version: DataVersion = field(name="dataVersion", default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(name="topicConfigTable", default_factory=dict)

    @classmethod
    def _from_members(cls, members: dict[str, Any]) -> Self:
        table = from_members(cls, members)
        _keep_foreign(table.topics, members.get("topicConfigTable"))
        return table

    def __post_init__(self) -> None:
        for name, topic in self.topics.items():
            topic.topic_name = topic.topic_name or name


class GroupTable(AnswerBody):
    """
    SubscriptionGroupWrapper: the body of code 201 (B9), and the file `subscriptionGroup.json`.
    """

    version: DataVersion = field(name="dataVersion", default_factory=DataVersion)
    groups: dict[str, SubscriptionGroupConfig] = field(
        name="subscriptionGroupTable", default_factory=dict
    )

    @classmethod
    def _from_members(cls, members: dict[str, Any]) -> Self:
        table = from_members(cls, members)
        _keep_foreign(table.groups, members.get("subscriptionGroupTable"))
        return table

    def __post_init__(self) -> None:
        for name, group in self.groups.items():
            group.group_name = group.group_name or name


class OffsetTable(AnswerBody):
    """
    The body of code 43, and the file `consumerOffset.json` (B8): offsets by `topic@group` and queue
    id.
    """

    offsets: dict[str, dict[int, int]] = field(name="offsetTable", default_factory=dict)


class DelayOffsetTable(AnswerBody):
    """
    The body of code 45, and the file `delayOffset.json`: the next offset of the queue of each delay
    level.
    """

    offsets: dict[int, int] = field(name="offsetTable", default_factory=dict)


class KVTable(AnswerBody):
    """Texts by name: facts of a running broker (code 28), or settings for brokers (B19)."""

    table: dict[str, str] = field(default_factory=dict)


def decode_offset_table(body: bytes) -> dict[str, dict[int, int]]:
    """Decode an `OffsetTable`; raises as `Body.decode`."""
    return OffsetTable.decode(body).offsets


def decode_delay_offsets(body: bytes) -> dict[int, int]:
    """Read a `DelayOffsetTable`; raises as `Body.decode`."""
    return DelayOffsetTable.decode(body).offsets


def decode_kv_table(body: bytes) -> dict[str, str]:
    """Read a `KVTable`; raises as `Body.decode`."""
    return KVTable.decode(body).table


def decode_queues(body: bytes) -> list[MessageQueue]:
    """Read `LockedQueues`; raises as `Body.decode`."""
    return LockedQueues.decode(body).queues


def decode_string_list(body: bytes, member: str) -> list[str]:
    """
    Decode one list of a body: `topicList`, `groupList`, `consumerIdList` (spec: B20).

    :raises ProtocolViolation: the data does not have this form.
    """
    return read_body(body, lambda value: [str(item) for item in value.get(member) or ()], None)


def decode_queue_table(body: bytes, member: str = "offsetTable") -> dict[MessageQueue, Any]:
    """
    Decode a table by queue: topic statistics, consume statistics, reset offsets (B10 to B12).

    Its keys are objects, which JSON does not allow, so no class can declare such a table.

    :raises ProtocolViolation: the data does not have this form.
    """
    return read_body(
        body,
        lambda value: {
            MessageQueue.from_key(queue): item for queue, item in (value.get(member) or {}).items()
        },
        None,
    )


def read_as(kind: type[T], body: bytes, most: int | None = BODY_VALUES) -> T:
    """
    Read a body as one value of a declared class; see `read_body`.

    :raises ProtocolViolation: the data does not have this form.
    """
    return read_body(body, partial(from_members, kind), most)


def read_body(
    body: bytes, convert: Callable[[dict[str, Any]], T], most: int | None = BODY_VALUES
) -> T:
    """
    Parse a JSON body and convert it.

    :param most: most values that the body may have. None for this process's own files, and for
        answers to its own requests, which only the size of a frame limits.
    :raises ProtocolViolation: the body is no JSON, or `convert` does not accept its form.
    """
    value = parse(body, most)
    if not isinstance(value, dict):
        raise ProtocolViolation("the body is not a JSON object")
    try:
        return convert(value)
    except (
        msgspec.ValidationError,
        TypeError,
        ValueError,
        AttributeError,
        KeyError,
        OverflowError,
    ) as error:
        raise ProtocolViolation(f"the body does not have the expected form: {error}") from None


def _keep_foreign(configs: Mapping[str, msgspec.Struct], documents: Any) -> None:
    """Keep the members of each configuration in a table that its class does not declare."""
    for name, config in configs.items():
        keep_foreign(config, documents.get(name))


def _check_count(what: str, count: int) -> None:
    """
    Check how many items a body has, before objects are made of them.

    :raises ProtocolViolation: the items are too many.
    """
    if count > MOST_ITEMS:
        raise ProtocolViolation(
            f"{count} {what}, more than the {MOST_ITEMS} that a request may have"
        )


def text(value: Any) -> str:
    """
    Return a member as text; a number becomes text, and a missing member is empty.

    :raises TypeError: the member is a list or an object.
    """
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"a string was expected, not {type(value).__name__}")


def optional_text(value: Any) -> str | None:
    """
    Return a member as text; None if it is missing.

    :raises TypeError: the member is a list or an object.
    """
    return None if value is None else text(value)
