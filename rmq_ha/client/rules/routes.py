"""The queues of a topic's route that producers write to and consumers read from.

Spec: remoting.md, sections 9.5 and 11.1 to 11.3.
"""

from dataclasses import dataclass

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.flags import PERM_READ, PERM_WRITE
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute

_MOST_QUEUES = 0xFFFF  # of one broker; a wrong number of a name server must not fill the memory


@dataclass(frozen=True, slots=True)
class PublishInfo:
    """
    The queues that messages of a topic can be sent to.

    :ivar queues: all queues, brokers in the order of their names.
    :ivar write_queues: how many queues each broker has.
    :ivar is_ordered: a fixed order of queues is configured at the name server.
    """

    queues: tuple[MessageQueue, ...]
    write_queues: dict[str, int]
    is_ordered: bool = False


def publish_info(topic: str, route: TopicRoute) -> PublishInfo:
    """Return the queues that can be written to; queues of brokers without a master cannot."""
    if route.order_conf:
        pairs = _parse_order(route.order_conf)
        return PublishInfo(_queues_of(topic, pairs), dict(pairs), True)
    masters = {item.broker_name for item in route.brokers if MASTER_ID in item.addresses}
    pairs = [
        (item.broker_name, item.write_queue_nums)
        for item in sorted(route.queues, key=_by_name)
        if item.perm & PERM_WRITE and item.broker_name in masters
    ]
    counts = {item.broker_name: item.write_queue_nums for item in route.queues}
    return PublishInfo(_queues_of(topic, pairs), counts)


def why_not_published(topic: str, route: TopicRoute) -> str:
    """Return the reason why a route has no queue that can be written to."""
    if not any(item.perm & PERM_WRITE for item in route.queues):
        return (
            "its queues may only be read: the topic's perm says so (rmqha-admin topic update "
            f"{topic} --perm RW), or brokerPermission of its brokers (rmqha-admin broker writes)"
        )
    if not any(item.write_queue_nums for item in route.queues if item.perm & PERM_WRITE):
        return f"it has no write queues: rmqha-admin topic update {topic} --write-queues N"
    return "no broker of it takes messages at the moment: they have no master"


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the queues that can be read, sorted, including those of brokers without a master."""
    pairs = [
        (item.broker_name, item.read_queue_nums) for item in route.queues if item.perm & PERM_READ
    ]
    return sorted(set(_queues_of(topic, pairs)))


def borrowed_route(route: TopicRoute, default_queue_nums: int) -> TopicRoute:
    """
    Return a route for a topic that does not exist yet, from the route of its template topic.

    :param route: the route of the topic after which brokers create the new one.
    :param default_queue_nums: how many queues the producer wants at each broker.
    """
    queues = [
        QueueRoute(
            item.broker_name,
            min(default_queue_nums, item.read_queue_nums),
            min(default_queue_nums, item.read_queue_nums),
            item.perm,
            item.topic_sys_flag,
        )
        for item in route.queues
    ]
    return TopicRoute(queues, route.brokers, route.filter_servers, route.order_conf)


def is_changed(old: TopicRoute | None, new: TopicRoute) -> bool:
    """Whether two routes differ in more than the order of their parts and their filter servers."""
    return old is None or _comparable(old) != _comparable(new)


def addresses_of(route: TopicRoute) -> set[str]:
    """Return the addresses of all brokers, including slaves."""
    return {address for item in route.brokers for address in item.addresses.values()}


def choose_address(
    addresses: dict[int, str], broker_id: int, *, only_this: bool
) -> tuple[str, int, bool] | None:
    """
    Choose one of the brokers of one name, as Java's findBrokerAddressInSubscribe does.

    :param broker_id: the preferred broker id; 0 is the master.
    :param only_this: whether no other broker may be chosen.
    :returns: address, broker id, and whether it is a slave; None if no broker fits.
    """
    if broker_id not in addresses and broker_id != MASTER_ID and broker_id + 1 in addresses:
        broker_id += 1
    elif broker_id not in addresses and addresses and not only_this:
        broker_id = min(addresses)
    address = addresses.get(broker_id)
    if not address:
        return None
    return address, broker_id, broker_id != MASTER_ID


def _by_name(item: QueueRoute) -> str:
    return item.broker_name


def _queues_of(topic: str, pairs: list[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic, name, number)
        for name, count in pairs
        for number in range(min(count, _MOST_QUEUES))
    )


def _parse_order(text: str) -> list[tuple[str, int]]:
    """Parse `broker:queues;broker:queues`; skip pieces of another form."""
    pairs = []
    for piece in text.split(";"):
        name, _, count = piece.partition(":")
        if name and count.isascii() and count.isdecimal() and int(count) <= _MOST_QUEUES:
            pairs.append((name, int(count)))
    return pairs


def _comparable(route: TopicRoute) -> tuple[list[QueueRoute], list[BrokerRoute], str | None]:
    return (
        sorted(route.queues, key=_by_name),
        sorted(route.brokers, key=lambda item: item.broker_name),
        route.order_conf,
    )
