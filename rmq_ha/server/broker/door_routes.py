"""The queues of a topic on other brokers, and the gRPC doors of these brokers.

A broker's gRPC door is its port for clients of RocketMQ 5 (`grpc_door`). Name servers know only the
addresses for remoting, RocketMQ's own protocol. So a broker asks each other broker where its door
is, and remembers the answers for some time. Java's brokers have no door. The queues of a broker
without a door are left out, as no client of RocketMQ 5 could reach them.

Spec: grpc.md, sections 5.1 and 13.
"""

from collections.abc import Callable

from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.host_port import HostPort, parse_host_port
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.door import DoorQueues

ROUTE_S = 5.0
"""How long the routes that a name server answered are used, in seconds."""
DOOR_S = 30.0
_MOST = 10_000


def door_address(configuration: BrokerConfiguration) -> HostPort | None:
    """
    Return the address of this broker's gRPC door, as clients' routes show it; None if the broker
    has no such port.
    """
    port = configuration.ours.grpc_server_port
    if not port:
        return None
    advertised = configuration.ours.grpc_advertised
    if advertised:
        return parse_host_port(advertised)
    return HostPort(configuration.broker.broker_ip1 or "127.0.0.1", port)


class DoorRoutes:
    """
    Finds the queues of a topic on the masters among other brokers, with the addresses of their
    gRPC doors.

    :param name_servers: returns the addresses of the name servers.
    :param own_address: this broker's address for remoting.
    :param seconds: returns the time of a steady clock, in seconds.
    """

    log = Logger()

    def __init__(
        self,
        api: BrokerOuterAPI,
        name_servers: Callable[[], list[str]],
        own_address: str,
        seconds: Callable[[], float],
    ) -> None:
        self._api = api
        self._name_servers = name_servers
        self._own_address = own_address
        self._seconds = seconds
        self._routes: dict[str, tuple[float, list[DoorQueues]]] = {}
        self._doors: dict[str, tuple[float, HostPort | None]] = {}

    async def find(self, topic: str) -> list[DoorQueues]:
        """Return the topic's queues on other masters; empty if no name server answers."""
        now = self._seconds()
        known = self._routes.get(topic)
        if known is not None and now - known[0] < ROUTE_S:
            return known[1]
        route = await self._route(topic)
        queues_there = [] if route is None else await self._queues(route)
        if len(self._routes) >= _MOST:
            self._routes.clear()
        self._routes[topic] = (now, queues_there)
        return queues_there

    async def _route(self, topic: str) -> TopicRoute | None:
        for name_server in self._name_servers():
            try:
                return await self._api.topic_route(name_server, topic)
            except (RemotingError, ProtocolViolation) as error:
                self.log.debug(
                    "no route of {topic} from {peer}: {why}",
                    topic=topic,
                    peer=name_server,
                    why=error,
                )
        return None

    async def _queues(self, route: TopicRoute) -> list[DoorQueues]:
        masters = {item.broker_name: item.addresses.get(MASTER_ID) for item in route.brokers}
        queues_there = []
        for queues in route.queues:
            address = masters.get(queues.broker_name)
            if not address or address == self._own_address:
                continue
            door = await self._door(address)
            if door is not None:
                queues_there.append(
                    DoorQueues(
                        queues.broker_name,
                        MASTER_ID,
                        door,
                        queues.read_queue_nums,
                        queues.write_queue_nums,
                        queues.perm,
                    )
                )
        return queues_there

    async def _door(self, address: str) -> HostPort | None:
        now = self._seconds()
        known = self._doors.get(address)
        if known is not None and now - known[0] < DOOR_S:
            return known[1]
        door = None
        try:
            text = await self._api.door_of(address)
            door = parse_host_port(text) if text else None
        except (RemotingError, ProtocolViolation, ValueError) as error:
            self.log.info(
                "{peer} does not tell its port for gRPC, so clients of RocketMQ 5 get no route "
                "to it: {why}",
                peer=address,
                why=error,
            )
        if len(self._doors) >= _MOST:
            self._doors.clear()
        self._doors[address] = (now, door)
        return door
