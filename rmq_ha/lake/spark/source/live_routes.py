"""Finds topics and their brokers, by asking name servers or one broker."""

from collections.abc import Callable
from dataclasses import replace

from rmq_ha.base.errors import ConfigurationError, RemotingError, WrongUsage
from rmq_ha.base.wire.bodies import TopicTable
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import parse
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.lookup.asking import Ask, expect, number
from rmq_ha.client.rules.errors import NoNameServer, NoRoute
from rmq_ha.lake.spark.source.options import SourceOptions
from rmq_ha.lake.spark.source.reading import QueueId

ROUTES_FOR_MS = 5_000
"""Ms after which routes are asked for again, so that a stream finds new queues and brokers."""


def connect(options: SourceOptions) -> BlockingClient:
    """
    Return a client for the brokers that the options name.

    :raises WrongUsage: the TLS options do not fit.
    """
    # A single broker is not asked for a route, but the client needs the address of a name server.
    whom = options.broker_addr or options.namesrv
    settings = replace(
        options.client, namesrv_addr=whom, poll_name_server_interval_ms=ROUTES_FOR_MS
    )
    try:
        return BlockingClient(settings)
    except ConfigurationError as error:
        raise WrongUsage(f"brokers cannot be asked: {error}") from None


def offset_of(client: BlockingClient, code: int, queue: QueueId, address: str, **more: str) -> int:
    """Ask a broker for an offset of a queue, such as its end."""
    ext = {"topic": queue.topic, "queueId": str(queue.queue_id), **more}
    asking = expect(Ask(RemotingCommand(code, ext), address))
    return number(client.run(asking), "offset", address)


def bounds_of(client: BlockingClient, queue: QueueId, address: str) -> tuple[int, int]:
    """Return the offset of the first message, and the one after the last."""
    low = offset_of(client, RequestCode.GET_MIN_OFFSET, queue, address)
    high = offset_of(client, RequestCode.GET_MAX_OFFSET, queue, address)
    return max(0, low), max(0, low, high)


class NameServerRoutes:
    """The routes that name servers know; while none answers, those that were known last."""

    def __init__(self) -> None:
        self._last: list[str] | None = None

    def topics(self, client: BlockingClient) -> list[str]:
        command = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        try:
            body = client.call("", command).body
        except (NoNameServer, RemotingError):
            if self._last is None:
                raise
            return self._last
        self._last = list(map(str, parse(body or b"{}", None).get("topicList") or []))
        return self._last

    def route(self, client: BlockingClient, topic: str) -> TopicRoute:
        return client.route(topic)


class OneBroker:
    """Routes of a broker that is asked by its address; `seconds` is the clock."""

    def __init__(self, address: str, seconds: Callable[[], float]) -> None:
        self._address = address
        self._seconds = seconds
        self._until = -1.0
        self._routes: dict[str, TopicRoute] = {}

    def topics(self, client: BlockingClient) -> list[str]:
        return list(self._known_routes(client))

    def route(self, client: BlockingClient, topic: str) -> TopicRoute:
        route = self._known_routes(client).get(topic)
        if route is None:
            raise NoRoute(topic, f"the broker {self._address} has no such topic")
        return route

    def _known_routes(self, client: BlockingClient) -> dict[str, TopicRoute]:
        """Return the routes; they are asked for again when they are `ROUTES_FOR_MS` old."""
        if self._until < self._seconds():
            try:
                self._routes = self._ask(client)
            except RemotingError:
                if not self._routes:
                    raise
            self._until = self._seconds() + ROUTES_FOR_MS / 1000
        return self._routes

    def _ask(self, client: BlockingClient) -> dict[str, TopicRoute]:
        """Ask the broker for its name and topics, and return the routes that follow from them."""
        answer = client.call(self._address, RemotingCommand(RequestCode.GET_BROKER_CONFIG))
        lines = (answer.body or b"").decode("utf-8", "replace").splitlines()
        settings = dict(line.partition("=")[::2] for line in lines)
        name, number = settings.get("brokerName", ""), settings.get("brokerId", "0")
        ids = {int(number) if number.isdecimal() else 0: self._address}
        broker = BrokerRoute(settings.get("brokerClusterName", ""), name, ids)
        answer = client.call(self._address, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
        return {
            topic: TopicRoute(
                [QueueRoute(name, config.read_queue_nums, config.write_queue_nums, config.perm)],
                [broker],
            )
            for topic, config in TopicTable.decode(answer.body or b"{}").topics.items()
        }


Routes = NameServerRoutes | OneBroker
"""
The routes of a cluster, or of one broker. Both raise `MQClientError` or `RemotingError` if no
server answers.
"""
