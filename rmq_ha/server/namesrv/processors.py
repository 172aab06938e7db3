"""Answers the name server's requests about brokers and topics.

Spec: remoting.md, section 2.3 and chapter 9.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.model.broker_identity import MASTER_ID, BrokerIdentity
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import OFFSET_MOVED_EVENT, SCHEDULE_TOPIC, SELF_TEST_TOPIC
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import read_as
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import (
    ALL_TOPICS,
    CONTROLLERS,
    HOLDER,
    RIVALS,
    TAKES_OVER,
    RegisterBrokerBody,
    RegistrationLimits,
    body_crc32,
    encode_rivals,
    wants_standard_json,
)
from rmq_ha.base.wire.versions import V5_0_0
from rmq_ha.server.namesrv.answers import Answer, Handler, required, when_written
from rmq_ha.server.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from rmq_ha.server.namesrv.routes import RegisterResult, RouteInfoManager
from rmq_ha.server.namesrv.wiped_brokers import WipedBrokers

MOST_RIVALS = 20
_BUILT_IN = (SELF_TEST_TOPIC, OFFSET_MOVED_EVENT, SCHEDULE_TOPIC)
"""The topics that a whole registration of a 4.9 broker names, besides the one with its name."""


class ClosingChannel(Protocol):
    """The parts of a `rmq_ha.base.remoting.channel.Channel` that are used here."""

    @property
    def remote_text(self) -> str:
        """Return `ip:port` of the peer."""

    def on_close(self, callback: Callable[[Any], object]) -> None:
        """Have `callback` called with the channel when the connection is lost."""

    def abort(self) -> object: ...

    def __hash__(self) -> int: ...


class RouteProcessor:
    """
    Answers brokers that register, and clients that ask for the routes of topics.

    :param wiped: brokers without write permission; `routes` uses the same object.
    :param config: limits of registrations, and other settings; read at each request.
    :param controllers: addresses of the controllers that this name server knows.
    :ivar refused_registrations: number of registrations that were too large, or could not be read.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        routes: RouteInfoManager,
        kv_config: KVConfigManager,
        wiped: WipedBrokers,
        config: NamesrvConfig,
        controllers: Sequence[str] = (),
    ) -> None:
        self._config = config
        self._controllers = controllers
        self.refused_registrations = 0
        self._refusals = Refusals(clock)
        self._clock = clock
        self._routes = routes
        self._kv_config = kv_config
        self._wiped = wiped
        self._watched: set[ClosingChannel] = set()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.unit_sub_non_unit_topics,
        }

    def register_broker(self, channel: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """Answer REGISTER_BROKER (103): take over a broker's address and topics into the routes."""
        ext = request.ext or {}
        broker = _identity(request)
        # Every check comes before `register`, so a registration that is refused changes nothing.
        _check_crc32(ext.get("bodyCrc32", ""), request.body)
        try:
            body = RegisterBrokerBody.decode(
                request.body,
                compressed=ext.get("compressed", "").lower() == "true",
                version=request.version,
                limits=RegistrationLimits(
                    self._config.max_registration_bytes, self._config.max_topics_of_broker
                ),
            )
            self._check_room(broker.broker_name, body.topics)
        except ProtocolViolation as error:
            self._refuse(channel, error)
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if not self._config.namesrv_broker_takeover:
            self._check_rival(broker, channel)
        result = self._routes.register(
            broker,
            body.version,
            body.topics,
            body.filter_servers,
            channel,
            self._clock.seconds(),
            ext.get(TAKES_OVER, ""),
            has_all=self._config.delete_topic_with_broker_registration
            and _names_all_topics(request, broker.broker_name, body.topics),
        )
        if result.holder is not None:
            return self._refuse_rival(request, broker, result)
        if result.is_first:
            self.log.info(
                "{broker.broker_name} {broker.broker_id} at {broker.address} registered{note}",
                broker=broker,
                note=self._note_if_wiped(broker.broker_name),
            )
        if result.displaced is not None:
            self._warn_of_displaced(broker, result.displaced)
        self._watch(channel)
        order = self._kv_config.namespace(ORDER_TOPIC_CONFIG)
        answer = None if order is None else fastjson.encode({"table": order})
        return request.response(ext=_master_of(result), body=answer)

    def _warn_of_displaced(self, broker: BrokerIdentity, before: str) -> None:
        """Warn that a second broker took a name and id while the first one is still connected."""
        place = f"{broker.broker_name}/{broker.broker_id}"
        if broker.broker_id == MASTER_ID:
            text = (
                f"{place} moved from {before} to {broker.address}, and {before} is still "
                f"connected; clients are sent to {broker.address}. If {before} did not become a "
                "slave, there are TWO MASTERS: stop it"
            )
        else:
            text = (
                f"TWO BROKERS: {before} and {broker.address} both register as {place}; clients "
                f"are sent to {broker.address}. Stop one of the two, or give it another "
                "brokerName or brokerId"
            )
        self.log.warn("{text}", text=text)

    def _refuse_rival(
        self, request: RemotingCommand, broker: BrokerIdentity, result: RegisterResult
    ) -> RemotingCommand:
        """
        Answer a registration whose id another address holds and keeps.

        A broker that registers as the master is refused, with the reason. RocketMQ 5 answers it
        with success and no fields, so that its operator learns nothing. A slave gets the addresses
        of its master.
        """
        holder = result.holder
        place = f"{broker.broker_name}/{broker.broker_id}"
        if result.is_outdated:
            text = (
                f"{broker.address} registers as {place} with an older epoch than {holder}, which "
                f"stays {place}: clients are sent to {holder}"
            )
        else:
            text = (
                f"TWO MASTERS: {broker.address} and {holder} both register as {place}; clients are "
                f"sent to {holder}. Stop {broker.address}, or make it a slave: rmqha-admin demote"
            )
        if result.is_news:
            self.log.warn("{text}", text=text)
        if broker.broker_id != MASTER_ID:
            return request.response(ext=_master_of(result))
        return request.response(ResponseCode.NO_PERMISSION, text, {HOLDER: str(holder)})

    def _check_rival(self, broker: BrokerIdentity, channel: ClosingChannel) -> None:
        """
        Check that no other machine has this name, id or address (namesrvBrokerTakeover).

        :raises RequestRejected: another machine has one of them.
        """
        rival = self._routes.rival(broker, channel)
        if rival is not None:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"{broker.broker_name} {broker.broker_id} is a broker that registers from {rival}, "
                "and is connected still: stop that one, or wait until it was silent for 120 s "
                "(namesrvBrokerTakeover=false)",
            )

    def unregister_broker(
        self, channel: ClosingChannel, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer UNREGISTER_BROKER (104): a broker that stops leaves the routes."""
        broker = _identity(request)
        if self._routes.unregister(broker, channel):
            self.log.info(
                "{broker.broker_name} {broker.broker_id} at {broker.address} unregistered",
                broker=broker,
            )
        else:
            self.log.warn(
                "{peer} says good-bye for {broker.broker_name} {broker.broker_id} at "
                "{broker.address}, which registered over another connection: it stays; are there "
                "two brokers with one configuration?",
                peer=channel.remote_text,
                broker=broker,
            )
        return request.response()

    def query_data_version(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer QUERY_DATA_VERSION (322): whether a broker's topics changed since its last
        registration.
        """
        broker = _identity(request)
        self._routes.claim(broker, self._clock.seconds())
        asked = _data_version(request.body)
        changed, known = self._routes.query_data_version(
            broker.address, asked, self._clock.seconds()
        )
        body = None if known is None else fastjson.encode(known)
        return request.response(ext={"changed": "true" if changed else "false"}, body=body)

    def route(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ROUTEINFO_BY_TOPIC (105) with the route of a topic."""
        topic = required(request, "topic")
        topic_route = self._routes.route(topic)
        if topic_route is None:
            return request.response(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}; create it, or look "
                "whether its brokers name this server in namesrvAddr",
            )
        if self._config.order_message_enable:
            topic_route.order_conf = self._kv_config.get(ORDER_TOPIC_CONFIG, topic)
        standard_json = wants_standard_json(request.version, request.ext)
        return request.response(body=topic_route.encode(standard_json=standard_json))

    def cluster_info(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_BROKER_CLUSTER_INFO (106) with the addresses of all brokers, by cluster.

        `rmqha-admin doctor` learns here which brokers claim an id of another broker, and where the
        controllers are. It asks the controllers which broker a set waits for.
        """
        rivals = self._routes.rivals(self._clock.seconds())[:MOST_RIVALS]
        ext = {RIVALS: encode_rivals(rivals)} if rivals else {}
        if self._controllers:
            ext[CONTROLLERS] = ";".join(self._controllers)
        return request.response(ext=ext or None, body=self._routes.cluster_info().encode())

    def wipe_write_perm(self, _: ClosingChannel, request: RemotingCommand) -> Answer:
        """
        Answer WIPE_WRITE_PERM_OF_BROKER (205): close a broker to producers.

        The broker stays closed until 327 if `keepWipedWritePerm` is set.
        """
        name = required(request, "brokerName")
        count = self._routes.wipe_write_perm(name)
        self.log.info("{broker}: {count} topics are closed to producers", broker=name, count=count)
        written = self._wiped.add(name) if self._routes.has_broker(name) else succeed(True)
        ext = {"wipeTopicCount": str(count)}
        return when_written(request, written, self._kv_config.path, ext)

    def add_write_perm(self, _: ClosingChannel, request: RemotingCommand) -> Answer:
        """Answer ADD_WRITE_PERM_OF_BROKER (327): open a broker to producers again."""
        name = required(request, "brokerName")
        written = self._wiped.remove(name)
        count = self._routes.add_write_perm(name)
        self.log.info("{broker}: {count} topics are open to producers", broker=name, count=count)
        ext = {"addTopicCount": str(count)}
        return when_written(request, written, self._kv_config.path, ext)

    def topics(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206) with all topics."""
        return _topic_list(request, self._routes.topics())

    def delete_topic(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """Answer DELETE_TOPIC_IN_NAMESRV (216): forget a topic."""
        topic = required(request, "topic")
        cluster = (request.ext or {}).get("clusterName") or None
        self._routes.delete_topic(topic, cluster)
        self.log.info("topic {topic} deleted", topic=topic, cluster=cluster)
        return request.response()

    def topics_of_cluster(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_TOPICS_BY_CLUSTER (224) with the topics of a cluster."""
        return _topic_list(request, self._routes.topics_of_cluster(required(request, "cluster")))

    def system_topics(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_SYSTEM_TOPIC_LIST_FROM_NS (304) with the topics named as clusters and brokers.
        """
        return _topic_list(request, *self._routes.system_topics())

    def unit_topics(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_UNIT_TOPIC_LIST (311) with the topics of units."""
        return _topic_list(request, self._routes.unit_topics())

    def unit_sub_topics(self, _: ClosingChannel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_HAS_UNIT_SUB_TOPIC_LIST (312) with the topics that a unit subscribes."""
        return _topic_list(request, self._routes.unit_sub_topics())

    def unit_sub_non_unit_topics(
        self, _: ClosingChannel, request: RemotingCommand
    ) -> RemotingCommand:
        """
        Answer GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313) with the topics of no unit that a unit
        subscribes.
        """
        return _topic_list(request, self._routes.unit_sub_non_unit_topics())

    def _check_room(self, broker_name: str, topics: Mapping[str, TopicConfig]) -> None:
        most = self._config.max_topic_routes
        if self._routes.pairs + len(topics) <= most:
            return
        pairs = self._routes.pairs_with(broker_name, topics)
        if pairs > most:
            raise ProtocolViolation(
                f"{pairs} pairs of topic and broker; maxTopicRoutes allows {most}"
            )

    def _refuse(self, channel: ClosingChannel, error: ProtocolViolation) -> None:
        self.refused_registrations += 1
        peer = channel.remote_text
        more = self._refusals.admit(host_of(peer), str(error))
        if more is not None:
            self.log.warn(
                "a registration by {peer} is refused: {error}{more}",
                peer=peer,
                error=error,
                more=more,
            )

    def _note_if_wiped(self, broker_name: str) -> str:
        if not self._wiped.is_wiped(broker_name):
            return ""
        return (
            "; producers avoid it since wipeWritePerm was called: "
            f"mqadmin addWritePerm -b {broker_name} lets them come back"
        )

    def _watch(self, channel: ClosingChannel) -> None:
        """
        Watch the connection of a registered broker, once for each connection, so that its end is
        noticed.
        """
        if channel not in self._watched:
            self._watched.add(channel)
            channel.on_close(self._connection_lost)

    def _connection_lost(self, channel: ClosingChannel) -> None:
        self._watched.discard(channel)
        for address in self._routes.connection_lost(channel):
            self.log.warn(
                "broker {broker} is gone: its connection {peer} ended",
                broker=address,
                peer=channel.remote_text,
            )


def _master_of(result: RegisterResult) -> dict[str, str]:
    """Return the fields with which a slave's answer names its master."""
    if result.master_address is None:
        return {}
    return {"masterAddr": result.master_address, "haServerAddr": result.ha_server_address or ""}


def _identity(request: RemotingCommand) -> BrokerIdentity:
    try:
        return BrokerIdentity.from_ext(request.ext or {})
    except ValueError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None


def _check_crc32(text: str, body: bytes | None) -> None:
    """Compare the body's CRC with `text`. A text that is 0, empty or no number is not checked."""
    claimed = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
    if claimed and claimed != body_crc32(body):
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, "crc32 not match: the body was damaged on its way"
        )


def _data_version(body: bytes | None) -> DataVersion:
    try:
        return read_as(DataVersion, body) if body else DataVersion()
    except ProtocolViolation as error:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"the body is no DataVersion: {error}"
        ) from None


def _topic_list(
    request: RemotingCommand, topics: list[str], broker_address: str | None = None
) -> RemotingCommand:
    return request.response(
        body=fastjson.encode({"brokerAddr": broker_address, "topicList": topics})
    )


def _names_all_topics(request: RemotingCommand, broker_name: str, topics: Container[str]) -> bool:
    """
    Return whether a registration names all topics of its broker.

    An rmq-ha broker says so. A 4.9 broker names its built-in topics in a whole registration, and
    otherwise only the topic that changed. A 5.x broker may split a whole registration into several,
    and none of them tells.
    """
    said = (request.ext or {}).get(ALL_TOPICS)
    if said is not None:
        return said == "true"
    return request.version < V5_0_0 and all(name in topics for name in (*_BUILT_IN, broker_name))
