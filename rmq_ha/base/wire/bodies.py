"""Bodies about clients, queues, topics, groups and offsets, as typed values.

Listings and statistics are in `stat_bodies`, routes and registration in `route_bodies`.

Spec: remoting.md, chapters 7 and 8, appendix B.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.numbers import java_int
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.fastjson import BODY_VALUES, ObjectKey, encode, parse
from rmq_ha.base.wire.text import to_bytes

T = TypeVar("T")
MOST_ITEMS = 5000
"""Groups, subscriptions or queues of one request, whatever the configuration says."""


class MessageQueue(NamedTuple):
    """One queue of a topic on the brokers of one name."""

    topic: str
    broker_name: str
    queue_id: int

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    def to_key(self) -> ObjectKey:
        """As the key of a map."""
        return ObjectKey(self.to_json().items())

    @classmethod
    def from_json(cls, value: Any) -> "MessageQueue":
        """From a member, or from the key of a map (an object, or a string with one in it)."""
        return cls.from_members(dict(parse(to_bytes(value)) if isinstance(value, str) else value))

    @classmethod
    def from_members(cls, members: dict[str, Any]) -> "MessageQueue":
        return cls(
            text(members.get("topic")),
            text(members.get("brokerName")),
            java_int(members.get("queueId", 0)),
        )


@dataclass(slots=True)
class ConsumerData:
    """What one consumer group of a client says of itself in a heartbeat."""

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        return {
            "consumeFromWhere": self.consume_from_where,
            "consumeType": self.consume_type,
            "groupName": self.group_name,
            "messageModel": self.message_model,
            "subscriptionDataSet": [item.to_json() for item in self.subscriptions],
            "unitMode": self.unit_mode,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ConsumerData":
        """Missing members become None or empty."""
        return cls(
            group_name=text(value.get("groupName")),
            consume_type=optional_text(value.get("consumeType")),
            message_model=optional_text(value.get("messageModel")),
            consume_from_where=optional_text(value.get("consumeFromWhere")),
            subscriptions=[
                SubscriptionData.from_json(item) for item in value.get("subscriptionDataSet") or ()
            ],
            unit_mode=bool(value.get("unitMode", False)),
        )


@dataclass(slots=True)
class HeartbeatData:
    """What a client says of itself (code 34, B1)."""

    client_id: str = ""
    consumers: list[ConsumerData] = field(default_factory=list)
    producer_groups: list[str] = field(default_factory=list)

    def encode(self) -> bytes:
        return encode(
            {
                "clientID": self.client_id,
                "consumerDataSet": [item.to_json() for item in self.consumers],
                "producerDataSet": [{"groupName": name} for name in self.producer_groups],
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> "HeartbeatData":
        """
        From a request's body.

        :raises ProtocolViolation: it is not such a body.
        """
        return read_body(body, cls._from_json)

    @classmethod
    def _from_json(cls, value: dict[str, Any]) -> "HeartbeatData":
        consumers = value.get("consumerDataSet") or ()
        producers = value.get("producerDataSet") or ()
        _check_count("groups", len(consumers) + len(producers))
        counts = [len(item.get("subscriptionDataSet") or ()) for item in consumers]
        _check_count("subscriptions", sum(counts))
        return cls(
            client_id=text(value.get("clientID")),
            consumers=[ConsumerData.from_json(item) for item in consumers],
            producer_groups=[text(item.get("groupName")) for item in producers],
        )


@dataclass(slots=True)
class LockBatch:
    """A request to lock or unlock queues for one client (codes 41 and 42, B5)."""

    consumer_group: str = ""
    client_id: str = ""
    queues: list[MessageQueue] = field(default_factory=list)

    def encode(self) -> bytes:
        return encode(
            {
                "clientId": self.client_id,
                "consumerGroup": self.consumer_group,
                "mqSet": [queue.to_json() for queue in self.queues],
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> "LockBatch":
        """
        From a request's body.

        :raises ProtocolViolation: it is not such a body.
        """
        return read_body(body, cls._from_json)

    @classmethod
    def _from_json(cls, value: dict[str, Any]) -> "LockBatch":
        queues = value.get("mqSet") or ()
        _check_count("queues", len(queues))
        return cls(
            text(value.get("consumerGroup")),
            text(value.get("clientId")),
            [MessageQueue.from_members(item) for item in queues],
        )


@dataclass(slots=True)
class CheckClient:
    """A client's question whether the broker takes a subscription (code 46, B6)."""

    client_id: str = ""
    group: str = ""
    subscription: SubscriptionData | None = None

    def encode(self) -> bytes:
        subscription = self.subscription
        return encode(
            {
                "clientId": self.client_id,
                "group": self.group,
                "subscriptionData": None if subscription is None else subscription.to_json(),
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> "CheckClient":
        """
        From a request's body.

        :raises ProtocolViolation: it is not such a body.
        """
        return read_body(body, cls._from_json)

    @classmethod
    def _from_json(cls, value: dict[str, Any]) -> "CheckClient":
        subscription = value.get("subscriptionData")
        return cls(
            text(value.get("clientId")),
            text(value.get("group")),
            None if subscription is None else SubscriptionData.from_json(subscription),
        )


class TopicTable(NamedTuple):
    """TopicConfigSerializeWrapper (code 21, B7)."""

    version: DataVersion
    topics: dict[str, TopicConfig]

    def to_json(self) -> dict[str, Any]:
        """For a body or for `topics.json`."""
        return {
            "dataVersion": self.version.to_json(),
            "topicConfigTable": {name: topic.to_json() for name, topic in self.topics.items()},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TopicTable":
        """A missing version is (0, 0)."""
        return cls(
            DataVersion.from_json(value.get("dataVersion")),
            {
                name: TopicConfig.from_json({"topicName": name, **topic})
                for name, topic in (value.get("topicConfigTable") or {}).items()
            },
        )


class GroupTable(NamedTuple):
    """SubscriptionGroupWrapper (code 201, B9)."""

    version: DataVersion
    groups: dict[str, SubscriptionGroupConfig]

    def to_json(self) -> dict[str, Any]:
        """For a body or for `subscriptionGroup.json`."""
        return {
            "dataVersion": self.version.to_json(),
            "subscriptionGroupTable": {
                name: group.to_json() for name, group in self.groups.items()
            },
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "GroupTable":
        """A missing version is (0, 0)."""
        return cls(
            DataVersion.from_json(value.get("dataVersion")),
            {
                name: SubscriptionGroupConfig.from_json({"groupName": name, **group})
                for name, group in (value.get("subscriptionGroupTable") or {}).items()
            },
        )


def decode_topic_table(body: bytes, most: int | None = None) -> TopicTable:
    """
    Code 21's body, or `topics.json`.

    :param most: as `read_body` has it.
    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(body, TopicTable.from_json, most)


def decode_group_table(body: bytes) -> GroupTable:
    """
    Code 201's body, or `subscriptionGroup.json`.

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(body, GroupTable.from_json, None)


def decode_offset_table(body: bytes) -> dict[str, dict[int, int]]:
    """
    Code 43's body, or `consumerOffset.json` (B8): `topic@group` to queue id to offset.

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(
        body,
        lambda value: {
            name: {int(queue): int(offset) for queue, offset in queues.items()}
            for name, queues in (value.get("offsetTable") or {}).items()
        },
        None,
    )


def decode_delay_offsets(body: bytes) -> dict[int, int]:
    """
    Code 45's body, or `delayOffset.json`: delay level to the next offset of its queue.

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(
        body,
        lambda value: {
            int(level): int(offset) for level, offset in (value.get("offsetTable") or {}).items()
        },
        None,
    )


def decode_kv_table(body: bytes) -> dict[str, str]:
    """
    A KVTable (B19).

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(
        body,
        lambda value: {str(name): str(item) for name, item in (value.get("table") or {}).items()},
        None,
    )


def decode_string_list(body: bytes, member: str) -> list[str]:
    """
    One list of a body: `topicList`, `groupList`, `consumerIdList` (B20).

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(body, lambda value: [str(item) for item in value.get(member) or ()], None)


def decode_queues(body: bytes, member: str = "lockOKMQSet") -> list[MessageQueue]:
    """
    One list of queues of a body: a lock's `lockOKMQSet`.

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(
        body,
        lambda value: [MessageQueue.from_json(item) for item in value.get(member) or ()],
        None,
    )


def decode_queue_table(body: bytes, member: str = "offsetTable") -> dict[MessageQueue, Any]:
    """
    A table by queue: topic statistics, consume statistics, reset offsets (B10 to B12).

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(
        body,
        lambda value: {
            MessageQueue.from_json(queue): item for queue, item in (value.get(member) or {}).items()
        },
        None,
    )


def read_body(
    body: bytes, convert: Callable[[dict[str, Any]], T], most: int | None = BODY_VALUES
) -> T:
    """
    Parse and convert.

    :param most: values that it may have; None for our own files, and for answers of those whom we
        asked: their tables are as large as they have to be, and a frame ends them.
    :raises ProtocolViolation: it is not JSON, or `convert` finds another form than it expects.
    """
    value = parse(body, most)
    if not isinstance(value, dict):
        raise ProtocolViolation("the body is not a JSON object")
    try:
        return convert(value)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
        raise ProtocolViolation(f"the body does not have the expected form: {error}") from None


def _check_count(what: str, count: int) -> None:
    """
    Before an object is made of each.

    :raises ProtocolViolation: they are too many.
    """
    if count > MOST_ITEMS:
        raise ProtocolViolation(
            f"{count} {what}, more than the {MOST_ITEMS} that a request may have"
        )


def text(value: Any) -> str:
    """
    A member that is a string; a number is taken for one, a missing one is empty.

    :raises TypeError: it is a list or an object.
    """
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"a string was expected, not {type(value).__name__}")


def optional_text(value: Any) -> str | None:
    """
    As `text`, but a missing one stays None.

    :raises TypeError: it is a list or an object.
    """
    return None if value is None else text(value)
