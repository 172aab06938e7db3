"""Queues of a topic as gRPC's messages.

Spec: grpc.md, sections 5.1 and 5.2.
"""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Any

from rmq_ha.base.model.attributes import DELAY, FIFO, MIXED, NORMAL, TRANSACTION
from rmq_ha.base.model.flags import PERM_READ, PERM_WRITE
from rmq_ha.base.model.host_port import HostPort
from rmq_ha.server.door import DoorQueues
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import AddressScheme, MessageType, QueuePermission

_ALL_TYPES = tuple(MessageType[name] for name in (NORMAL, FIFO, DELAY, TRANSACTION))
_ORDER = (QueuePermission.READ, QueuePermission.WRITE, QueuePermission.READ_WRITE)


def endpoints_of(door: HostPort) -> Any:
    """Return the `Endpoints` of a door."""
    host, port = door
    try:
        is_v6 = ip_address(host).version == 6
        scheme = AddressScheme.IPv6 if is_v6 else AddressScheme.IPv4
    except ValueError:
        scheme = AddressScheme.DOMAIN_NAME
    address = messages.Address(host=host, port=port)
    return messages.Endpoints(scheme=scheme, addresses=[address])


def accepted_types(topic_type: str) -> tuple[MessageType, ...]:
    """Return the types of messages that a topic of a type takes."""
    if topic_type == MIXED:
        return _ALL_TYPES
    if topic_type in MessageType.__members__:
        return (MessageType[topic_type],)
    return (MessageType.MESSAGE_TYPE_UNSPECIFIED,)


def queue_messages(
    topic: Any, brokers: Iterable[DoorQueues], types: tuple[MessageType, ...]
) -> list[Any]:
    """
    Return a `MessageQueue` for each queue: of each broker those to read only, then those to write
    only, then the others, as Java's proxy has them.

    :param topic: the `Resource` that the client asked for.
    """
    message_queues: list[Any] = []
    for broker in brokers:
        broker_message = messages.Broker(
            name=broker.broker_name, id=broker.broker_id, endpoints=endpoints_of(broker.door)
        )
        queues = list(_permissions(broker))
        message_queues += [
            messages.MessageQueue(
                topic=topic,
                id=queue_id,
                permission=permission,
                broker=broker_message,
                accept_message_types=types,
            )
            for group in _ORDER
            for queue_id, permission in queues
            if permission is group
        ]
    return message_queues


def _permissions(broker: DoorQueues) -> Iterator[tuple[int, QueuePermission]]:
    reads = broker.read_queues if broker.perm & PERM_READ else 0
    writes = broker.write_queues if broker.perm & PERM_WRITE else 0
    for queue_id in range(max(reads, writes)):
        if queue_id < min(reads, writes):
            yield queue_id, QueuePermission.READ_WRITE
        else:
            yield queue_id, QueuePermission.READ if queue_id < reads else QueuePermission.WRITE
