"""A client whose brokers answer as they are told: no network, no other process."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from rmq_ha.base.errors import RemotingConnectError
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.process import Process
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.testing.host import World

MASTER, SLAVE, OTHER = "m:10", "s:10", "o:10"
QUEUE = MessageQueue("T", "a", 0)
ROUTE = TopicRoute(
    [QueueRoute("a", 2, 2, 6), QueueRoute("b", 2, 2, 6)],
    [BrokerRoute("C", "a", {0: MASTER, 1: SLAVE}), BrokerRoute("C", "b", {0: OTHER})],
)
HERE = Address(b"\x7f\0\0\1", 10911)
Answer = RemotingCommand | Exception | Deferred[RemotingCommand]


def message(offset: int, body: bytes = b"x", **properties: str) -> MessageExt:
    """Of `QUEUE`."""
    return MessageExt(
        "T", body, properties, "a", 0, offset, f"id{offset}", "OFF", 0, 0, HERE, 0, HERE, 0
    )


class Scripted:
    """
    A client on a fake clock; whoever it asks is played by `answers`.

    :ivar answers: by request code; what is not there is success. A function gets address and
        request.
    :ivar down: addresses that refuse connections.
    :ivar asked: address and request of each call, those that nobody answers too.
    """

    def __init__(self, **settings: Any) -> None:
        self.world = World(1)
        self.clock = self.world.clock
        host = self.world.add("client")
        known = {"namesrv_addr": "ns:1", "process": Process(4711, "10.0.0.9", home="/home")}
        self.instance = ClientInstance(host.seams, ClientConfig(**(known | settings)))
        self.instance._calls = self  # type: ignore[assignment]
        self.answers: dict[int, Answer | Callable[[str, RemotingCommand], Answer]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: RemotingCommand(0, {}, ROUTE.encode())
        }
        self.down: set[str] = set()
        self.asked: list[tuple[str, RemotingCommand]] = []
        self.timeouts: list[float] = []

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> Any:
        """As `Calls`."""
        self.asked.append((address, command))
        self.timeouts.append(timeout_ms)
        if address in self.down:
            return fail(RemotingConnectError(f"{address}: refused"))
        answer = self.answers.get(command.code, RemotingCommand(0, {}))
        if callable(answer):
            answer = answer(address, command)
        if isinstance(answer, Exception):
            return fail(answer)
        return answer if isinstance(answer, Deferred) else succeed(answer)

    def oneway(self, address: str, command: RemotingCommand) -> Any:
        """As `Calls`."""
        self.asked.append((address, command))
        if address in self.down:
            return fail(RemotingConnectError(f"{address}: refused"))
        return succeed(None)

    def of(self, code: int) -> list[tuple[str, dict[str, str]]]:
        """Address and header of all requests of a kind."""
        return [
            (address, dict(command.ext or {}))
            for address, command in self.asked
            if command.code == code
        ]

    def know(self, topic: str = "T") -> None:
        """The route is fetched, and nothing was asked yet."""
        self.wait(self.instance.route(topic))
        self.asked.clear()
        self.timeouts.clear()

    def wait(self, later: Any) -> Any:
        """The outcome, which has to be there without any waiting."""
        started = later if isinstance(later, Deferred) else Deferred.fromCoroutine(later)
        results: list[Any] = []
        started.addBoth(results.append)
        assert results, "not yet"
        if isinstance(results[0], Failure):
            results[0].raiseException()
        return results[0]


def refused(code: int) -> RemotingCommand:
    """An answer that is none."""
    return RemotingCommand(code, {}, remark="no")
