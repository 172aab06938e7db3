"""BrokerOuterAPI: a broker's requests to name servers and to its master, as typed calls.

Spec: remoting.md, chapters 8 and 9.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred

from rmq_ha.base.config import properties
from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID, BrokerIdentity
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import (
    GroupTable,
    MessageQueue,
    TopicTable,
    decode_kv_table,
    decode_offset_table,
    read_as,
    read_body,
)
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pages import FIRST, next_page
from rmq_ha.base.wire.pop_bodies import RequestModeTable
from rmq_ha.base.wire.route_bodies import ALL_TOPICS, HOLDER, TAKES_OVER, TopicRoute, body_crc32
from rmq_ha.base.wire.stat_bodies import ASIDE, GRPC_DOOR, PROMOTIONS, REPLICATION_KEY
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.server.broker.tables.delay_offsets import check_delay_offsets

SLAVE_TIMEOUT_MS = 3000
_V = TypeVar("_V")


class RemotingCalls(Protocol):
    """The part of a `rmq_ha.base.remoting.client.RemotingClient` that is used here."""

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        """Send a request and wait for the answer."""


class RegisterBody(NamedTuple):
    """
    The body of a REGISTER_BROKER request, the same for every name server.

    :ivar has_all: whether it holds all topics of this broker.
    """

    data: bytes
    compressed: bool = False
    has_all: bool = False


class RegisterBrokerResult(NamedTuple):
    """
    The answer of one name server.

    :ivar ha_server_address: address of the master's HA listener; None if unknown, or for a master.
    :ivar holder: address of another broker for which an rmq-ha name server keeps this broker's id;
        empty if there is none.
    :ivar order_topics: ORDER_TOPIC_CONFIG, topic to `broker:queues;...`; None without one.
    """

    ha_server_address: str | None = None
    master_address: str | None = None
    order_topics: Mapping[str, str] | None = None
    holder: str = ""


class ToldStanding(NamedTuple):
    """
    A broker's report on itself; a field is None if the report lacks it.

    :ivar since_ms: time of its start, ms.
    :ivar stands_aside: whether it takes no messages because another broker took its place.
    :ivar promotions: its count of the pair's promotions.
    """

    broker_name: str | None = None
    role: str | None = None
    since_ms: int | None = None
    stands_aside: bool = False
    promotions: int | None = None


class BrokerOuterAPI:
    """Typed calls over one `RemotingClient`; each may fail with `RemotingError`."""

    def __init__(self, client: RemotingCalls) -> None:
        self._client = client

    async def register(
        self,
        name_server: str,
        broker: BrokerIdentity,
        body: RegisterBody,
        timeout_ms: int,
        takes_over: str = "",
    ) -> RegisterBrokerResult:
        """
        REGISTER_BROKER.

        :param takes_over: address of another broker that had this broker's id, and that does not
            lead.
        :raises RemotingError: no answer, or an answer other than success.
        """
        command = self._register_command(broker, body, takes_over)
        response = await self._client.invoke(name_server, command, timeout_ms)
        ext = response.ext or {}
        if response.code == ResponseCode.NO_PERMISSION and HOLDER in ext:
            return RegisterBrokerResult(holder=ext[HOLDER])
        _check(response, name_server, command)
        return RegisterBrokerResult(
            ext.get("haServerAddr"), ext.get("masterAddr"), _order_topics(response.body)
        )

    async def unregister(self, name_server: str, broker: BrokerIdentity, timeout_ms: int) -> None:
        """
        UNREGISTER_BROKER.

        :raises RemotingError: no answer, or an answer other than success.
        """
        command = RemotingCommand(RequestCode.UNREGISTER_BROKER, ext=broker.to_ext())
        await self._invoke(name_server, command, timeout_ms)

    async def known_version(
        self, name_server: str, broker: BrokerIdentity, version: DataVersion, timeout_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """
        QUERY_DATA_VERSION.

        :returns: whether the name server wants a registration, and the version that it has.
        :raises RemotingError: no answer, or an answer other than success.
        """
        command = RemotingCommand(
            RequestCode.QUERY_DATA_VERSION,
            ext=broker.to_ext(),
            body=fastjson.encode(version),
        )
        response = await self._invoke(name_server, command, timeout_ms)
        changed = (response.ext or {}).get("changed", "").lower() != "false"
        return changed, read_as(DataVersion, response.body) if response.body else None

    async def master_of(self, name_server: str, broker_name: str) -> str | None:
        """
        Return the address that a name server has as the master of a broker name; None if it has
        none.

        Every broker has a topic of its own name, so the answer is short even in large clusters.

        :raises RemotingError: no answer, or neither a route nor the message that there is none.
        :raises ProtocolViolation: the answer cannot be read as a route.
        """
        command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": broker_name})
        response = await self._client.invoke(name_server, command, SLAVE_TIMEOUT_MS)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise RemotingError(f"{name_server} does not tell: code {response.code}")
        brokers = TopicRoute.decode(response.body or b"{}").brokers
        named = (item for item in brokers if item.broker_name == broker_name)
        return next((item.addresses.get(MASTER_ID) for item in named), None)

    async def queues_of(self, name_server: str, topic: str) -> list[MessageQueue]:
        """
        Return the queues of a topic that can be read at all brokers; empty if there is none.

        The errors are those of `topic_route`.
        """
        route = await self.topic_route(name_server, topic)
        return [] if route is None else subscribe_queues(topic, route)

    async def topic_route(self, name_server: str, topic: str) -> TopicRoute | None:
        """
        Ask for the route of a topic (GET_ROUTEINFO_BY_TOPIC); None if no broker has the topic.

        :raises RemotingError: no answer, or neither a route nor the message that there is none.
        :raises ProtocolViolation: the answer cannot be read as a route.
        """
        command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        response = await self._client.invoke(name_server, command, SLAVE_TIMEOUT_MS)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        _check(response, name_server, command)
        return TopicRoute.decode(response.body or b"{}")

    async def door_of(self, address: str) -> str:
        """
        Return `host:port` of a broker's port for gRPC; empty if it has none, as Java's brokers.

        :raises RemotingError: no answer, or an answer other than success.
        :raises ProtocolViolation: an answer cannot be read.
        """
        info = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {REPLICATION_KEY: "true"})
        response = await self._invoke(address, info, SLAVE_TIMEOUT_MS)
        table = decode_kv_table(response.body or b"{}")
        door = read_body(table.get(REPLICATION_KEY, "{}").encode(), dict).get(GRPC_DOOR)
        return door if isinstance(door, str) else ""

    async def pair_step(
        self, address: str, ext: Mapping[str, str], timeout_ms: int
    ) -> dict[str, str]:
        """
        Ask the other broker of a pair about a hand-over (TAKE_OVER_PAIR).

        :raises RemotingError: no answer, or an answer other than success.
        """
        command = RemotingCommand(RequestCode.TAKE_OVER_PAIR, dict(ext))
        response = await self._invoke(address, command, timeout_ms)
        return dict(response.ext or {})

    async def standing_of(self, address: str) -> ToldStanding:
        """
        Return a broker's report on its role; all fields are None if it refuses to tell.

        :raises RemotingError: the broker does not answer.
        :raises ProtocolViolation: an answer cannot be read.
        """
        config = RemotingCommand(RequestCode.GET_BROKER_CONFIG)
        info = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {REPLICATION_KEY: "true"})
        told, more = [
            await self._client.invoke(address, command, SLAVE_TIMEOUT_MS)
            for command in (config, info)
        ]
        if ResponseCode.SUCCESS not in (told.code, more.code):
            return ToldStanding()
        text = (told.body or b"").decode("utf-8", "replace")
        settings = {item.key: item.value for item in properties.parse(text)}
        table = decode_kv_table(more.body or b"{}")
        since = table.get("bootTimestamp", "")
        more_told = read_body(table.get(REPLICATION_KEY, "{}").encode(), dict)
        promotions = more_told.get(PROMOTIONS)
        return ToldStanding(
            settings.get("brokerName"),
            settings.get("brokerRole"),
            int(since) if since.isdecimal() else None,
            bool(more_told.get(ASIDE)),
            promotions if isinstance(promotions, int) else None,
        )

    async def topic_configs(self, master: str) -> TopicTable:
        """
        Ask for all topics (GET_ALL_TOPIC_CONFIG).

        :param master: address of the master's client port, or of the port two below it.
        :raises RemotingError: no answer, or an answer other than success.
        :raises ProtocolViolation: the answer is not a whole topic table: every broker has topics.
        """
        bodies = await self._bodies(master, RequestCode.GET_ALL_TOPIC_CONFIG)
        pages = list(map(TopicTable.decode, bodies))
        version = _equal_versions([page.version for page in pages], master)
        return TopicTable(version, _join_tables([page.topics for page in pages], master, "topic"))

    async def consumer_offsets(self, master: str) -> dict[str, dict[int, int]]:
        """Ask for all consumer offsets (GET_ALL_CONSUMER_OFFSET); errors as in `topic_configs`."""
        bodies = await self._bodies(master, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return dict(item for body in bodies for item in decode_offset_table(body).items())

    async def delay_offsets(self, master: str) -> bytes:
        """
        Ask for the progress of the delay levels (GET_ALL_DELAY_OFFSET). Returns the answer's text
        unchanged, after a check that a broker could load it. Errors are as for `topic_configs`.
        """
        body, *_ = await self._bodies(master, RequestCode.GET_ALL_DELAY_OFFSET)
        check_delay_offsets(body)
        return body

    async def subscription_groups(self, master: str) -> GroupTable:
        """Ask for all groups (GET_ALL_SUBSCRIPTIONGROUP_CONFIG); errors as in `topic_configs`."""
        bodies = await self._bodies(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        pages = list(map(GroupTable.decode, bodies))
        version = _equal_versions([page.version for page in pages], master)
        return GroupTable(version, _join_tables([page.groups for page in pages], master, "group"))

    async def request_modes(self, master: str) -> RequestModeTable | None:
        """
        GET_ALL_MESSAGE_REQUEST_MODE: the modes of groups; None if the master has no such table.

        :raises RemotingError: no answer, or the master refuses the request.
        :raises ProtocolViolation: the answer is no table of modes.
        """
        command = RemotingCommand(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        response = await self._client.invoke(master, command, SLAVE_TIMEOUT_MS)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        _check(response, master, command)
        if not response.body:
            raise ProtocolViolation(f"{master} answered {command.code} without a body")
        return RequestModeTable.decode(response.body)

    async def max_offset(self, master: str, topic: str, queue_id: int) -> int:
        """
        GET_MAX_OFFSET: the end of a queue at the master, also of a topic that the master does not
        know.

        :raises RemotingError: no answer, or an answer other than success.
        :raises ProtocolViolation: the answer is no number.
        """
        ext = {"topic": topic, "queueId": str(queue_id)}
        command = RemotingCommand(RequestCode.GET_MAX_OFFSET, ext=ext)
        response = await self._invoke(master, command, SLAVE_TIMEOUT_MS)
        try:
            return int((response.ext or {})["offset"])
        except (KeyError, ValueError):
            raise ProtocolViolation(
                f"{master} says no end of queue {queue_id} of {topic}"
            ) from None

    def _register_command(
        self, broker: BrokerIdentity, body: RegisterBody, takes_over: str
    ) -> RemotingCommand:
        ext = broker.to_ext()
        ext["compressed"] = "true" if body.compressed else "false"
        ext[ALL_TOPICS] = "true" if body.has_all else "false"
        ext["bodyCrc32"] = str(body_crc32(body.data))
        if takes_over:
            ext[TAKES_OVER] = takes_over
        return RemotingCommand(RequestCode.REGISTER_BROKER, ext=ext, body=body.data)

    async def _bodies(self, address: str, code: RequestCode) -> list[bytes]:
        """Return a table's pages; a single page from a master that does not divide tables."""
        bodies: list[bytes] = []
        first: int | None = 0
        while first is not None:
            command = RemotingCommand(code, ext={FIRST: str(first)})
            response = await self._invoke(address, command, SLAVE_TIMEOUT_MS)
            if not response.body:
                raise ProtocolViolation(f"{address} answered {code.name} without a body")
            bodies.append(response.body)
            first = next_page(response.ext, first)
        return bodies

    async def _invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        response = await self._client.invoke(address, command, timeout_ms)
        _check(response, address, command)
        return response


def _check(response: RemotingCommand, address: str, command: RemotingCommand) -> None:
    if response.code != ResponseCode.SUCCESS:
        raise RemotingError(
            f"{address} refused request {command.code}: code {response.code}, {response.reason}"
        )


def _equal_versions(versions: Sequence[DataVersion], master: str) -> DataVersion:
    if any(version != versions[0] for version in versions):
        raise RemotingError(f"the table of {master} changed while its pages were copied")
    return versions[0]


def _join_tables(tables: Sequence[Mapping[str, _V]], master: str, what: str) -> dict[str, _V]:
    joined = {name: value for table in tables for name, value in table.items()}
    if not joined:
        raise ProtocolViolation(f"{master} answered without any {what}")
    return joined


def _order_topics(body: bytes | None) -> Mapping[str, str] | None:
    """Read the table of keys and values in a registration's answer; None if missing or damaged."""
    if not body:
        return None
    try:
        return decode_kv_table(body)
    except ProtocolViolation:
        return None
