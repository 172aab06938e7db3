"""Bodies of listings and statistics: one function builds each, ready for `fastjson.encode`.

Spec: remoting.md, sections 7.5 and 7.6, appendix B.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire.bodies import MessageQueue, optional_text, read_body, text
from rmq_ha.base.wire.fastjson import Written

REPLICATION_KEY = "rmqHaReplication"
"""
Not of RocketMQ: whoever sends GET_BROKER_RUNTIME_INFO with this header field gets, of a broker of
ours, a key of this name more in the answer: JSON about the pair. mqadmin sees no difference.
"""
ASIDE = "stands_aside_for"
"""In that JSON: the address of the broker that took the place of this one, if one did."""


class Connection(NamedTuple):
    client_id: str
    client_address: str
    language: str | None
    version: int

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        return {
            "clientAddr": self.client_address,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Connection":
        """Missing members become empty."""
        return cls(
            text(value.get("clientId")),
            text(value.get("clientAddr")),
            optional_text(value.get("language")),
            int(value.get("version", 0)),
        )


def decode_connections(body: bytes) -> list[Connection]:
    """
    The connections of a group (B3, B4).

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(
        body,
        lambda value: [Connection.from_json(item) for item in value.get("connectionSet") or ()],
        None,
    )


class TopicOffset(NamedTuple):
    """The state of one queue (B10); times in ms."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


class ConsumeOffset(NamedTuple):
    """How far a group is in one queue (B11); times in ms."""

    broker_offset: int
    consumer_offset: int
    last_timestamp: int


def topic_offsets(table: Mapping[MessageQueue, TopicOffset]) -> dict[Any, Any]:
    """Queues of a TopicStatsTable (B10)."""
    return {
        queue.to_key(): {
            "lastUpdateTimestamp": item.last_update_timestamp,
            "maxOffset": item.max_offset,
            "minOffset": item.min_offset,
        }
        for queue, item in table.items()
    }


def topic_stats(offsets: dict[Any, Any] | Written) -> dict[str, Any]:
    """
    TopicStatsTable (B10).

    :param offsets: `topic_offsets` of all queues; they may be text already.
    """
    return {"offsetTable": offsets}


def consume_stats(
    table: Mapping[MessageQueue, ConsumeOffset], consume_tps: float = 0.0
) -> dict[str, Any]:
    """ConsumeStats (B11)."""
    return {
        "consumeTps": float(consume_tps),
        "offsetTable": {
            queue.to_key(): {
                "brokerOffset": item.broker_offset,
                "consumerOffset": item.consumer_offset,
                "lastTimestamp": item.last_timestamp,
            }
            for queue, item in table.items()
        },
    }


def consumer_connection(
    connections: Iterable[Connection],
    subscriptions: Mapping[str, SubscriptionData],
    consume_type: str | None,
    message_model: str | None,
    consume_from_where: str | None,
) -> dict[str, Any]:
    """ConsumerConnection (B3)."""
    return {
        "connectionSet": [connection.to_json() for connection in connections],
        "consumeFromWhere": consume_from_where,
        "consumeType": consume_type,
        "messageModel": message_model,
        "subscriptionTable": {name: item.to_json() for name, item in subscriptions.items()},
    }


def producer_connection(connections: Iterable[Connection]) -> dict[str, Any]:
    """ProducerConnection (B4)."""
    return {"connectionSet": [connection.to_json() for connection in connections]}


class _Growth(Protocol):
    """How much a counter grew during a window of time."""

    @property
    def total(self) -> float: ...
    @property
    def per_second(self) -> float: ...
    @property
    def per_time(self) -> float: ...


def broker_stats_data(growths: Sequence[_Growth]) -> dict[str, Any]:
    """
    BrokerStatsData (B16).

    :param growths: over a minute, an hour and a day.
    """
    minute, hour, day = [
        {"avgpt": float(item.per_time), "sum": item.total, "tps": float(item.per_second)}
        for item in growths
    ]
    return {"statsDay": day, "statsHour": hour, "statsMinute": minute}


def consume_stats_list(
    broker_address: str, groups: Iterable[tuple[str, list[Written]]], behind: int
) -> dict[str, Any]:
    """
    ConsumeStatsList (B17).

    :param groups: each group's ConsumeStats by topic, as text.
    :param behind: messages that all of them have not consumed yet.
    """
    return {
        "brokerAddr": broker_address,
        "consumeStatsList": [{group: bodies} for group, bodies in groups],
        "totalDiff": behind,
    }


class ProducerClient(NamedTuple):
    """One producer in GET_ALL_PRODUCER_INFO; `last_update_ms` since the epoch."""

    client_id: str
    language: str | None
    version: int
    last_update_ms: int
    client_address: str


def producer_table(table: Mapping[str, Iterable[ProducerClient]]) -> dict[str, Any]:
    return {
        "data": {
            group: [
                {
                    "clientId": client.client_id,
                    "language": client.language,
                    "lastUpdateTimestamp": client.last_update_ms,
                    "remoteIP": f"/{client.client_address}",
                    "version": client.version,
                }
                for client in clients
            ]
            for group, clients in table.items()
        }
    }
