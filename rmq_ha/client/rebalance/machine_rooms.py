"""Strategies that know the machine rooms of brokers and members.

Spec: remoting.md, section 11.3.
"""

from collections.abc import Callable, Iterable, Sequence

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rebalance.strategies import AllocateStrategy, is_member


class AllocateByMachineRoom:
    """
    Gives out only queues of brokers named `<room>@<rest>` with one of these rooms (MACHINE_ROOM).

    :param rooms: the rooms from which to consume.
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = set(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Choose the queues that the member `client_id` consumes."""
        if not is_member(client_id, queues, clients):
            return []
        near = [queue for queue in queues if self._is_in_rooms(queue.broker_name)]
        index = clients.index(client_id)
        share, more = divmod(len(near), len(clients))
        mine = near[index * share : (index + 1) * share]
        if index < more:
            mine.append(near[share * len(clients) + index])
        return mine

    def _is_in_rooms(self, broker_name: str) -> bool:
        # Java splits at each @ and drops empty pieces at the end: `room@` is one piece.
        pieces = broker_name.rstrip("@").split("@")
        return len(pieces) == 2 and pieces[0] in self.rooms


class AllocateMachineRoomNearby:
    """
    Gives queues to members in the same room, and queues of rooms without members to all members.

    :param strategy: shares the queues of one room among its members, or among all members.
    :param room_of_broker: returns the room of a queue's broker.
    :param room_of_client: returns the room of a member, from its client id.
    """

    def __init__(
        self,
        strategy: AllocateStrategy,
        room_of_broker: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self._strategy = strategy
        self._room_of_broker = room_of_broker
        self._room_of_client = room_of_client

    @property
    def name(self) -> str:
        """The strategy's name in Java."""
        return f"MACHINE_ROOM_NEARBY-{self._strategy.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Choose the queues that the member `client_id` consumes."""
        if not is_member(client_id, queues, clients):
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = self._room_of_broker(queue)
            if not room:
                raise ValueError(f"the room of broker {queue.broker_name} is not known")
            queues_by_room.setdefault(room, []).append(queue)
        clients_by_room: dict[str, list[str]] = {}
        for client in clients:
            room = self._room_of_client(client)
            if not room:
                raise ValueError(f"the room of client {client} is not known")
            clients_by_room.setdefault(room, []).append(client)
        mine: list[MessageQueue] = []
        here = self._room_of_client(client_id)
        near = queues_by_room.pop(here, None)
        if near:
            mine += self._strategy.allocate(group, client_id, near, clients_by_room[here])
        for room in sorted(queues_by_room):
            if room not in clients_by_room:
                mine += self._strategy.allocate(group, client_id, queues_by_room[room], clients)
        return mine
