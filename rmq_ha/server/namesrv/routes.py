"""RouteInfoManager: the registered brokers, and their queues.

Pure: the time (seconds of any steady clock) and the connections come in as arguments. Connections
to close, and answers, are returned.

Spec: remoting.md, chapter 9.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from rmq_ha.base.model.broker_identity import MASTER_ID, BrokerIdentity
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.flags import PERM_READ, PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUB
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.route_bodies import BrokerRoute, ClusterInfo, QueueRoute, Rival, TopicRoute
from rmq_ha.server.namesrv.claims import Claims

BROKER_EXPIRED_SECONDS = 120.0


class BrokerChannel(Protocol):
    """
    The parts of a `rmq_ha.base.remoting.channel.Channel` that are used here; told apart by
    identity.
    """

    @property
    def remote_text(self) -> str:
        """Return `ip:port` of the peer."""

    def abort(self) -> object: ...


@dataclass(slots=True)
class BrokerLive:
    """The last registration of one address."""

    last_update: float
    data_version: DataVersion
    channel: BrokerChannel
    ha_server_address: str


class RegisterResult(NamedTuple):
    """
    The result of a registration. Only a slave gets the two addresses of its master.

    :ivar is_first: whether this id had no address before.
    :ivar displaced: another address that had this id, and whose connection is still open; otherwise
        None.
    :ivar holder: another address that has this id and keeps it, so nothing was changed; otherwise
        None.
    :ivar is_outdated: whether `holder` keeps the id because this registration's epoch is lower.
    :ivar is_news: whether this address has not claimed the id of `holder` shortly before, see
        `Claims.note_claim`.
    """

    is_first: bool
    ha_server_address: str | None = None
    master_address: str | None = None
    displaced: str | None = None
    holder: str | None = None
    is_outdated: bool = False
    is_news: bool = False


class ExpiredBroker(NamedTuple):
    """An address that stopped registering; its connection has to be closed."""

    address: str
    channel: BrokerChannel


class RouteInfoManager:
    """
    The name server's tables; all of them are in memory only.

    Registrations of masters add and update topics; those that name all topics also remove some.

    :param is_wiped: returns whether producers must avoid a broker name, whatever it registers.
    :param last_wins: returns whether an id belongs to the address that registered last, as in 4.9.
    :ivar pairs: number of pairs of topic and broker name.
    :ivar claims: the addresses that lost an id and still claim it.
    """

    def __init__(
        self,
        is_wiped: Callable[[str], bool] = lambda broker_name: False,
        last_wins: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_wiped = is_wiped
        self._last_wins = last_wins
        self.claims = Claims()
        self._topics: dict[str, dict[str, QueueRoute]] = {}
        self.pairs = 0
        self._brokers: dict[str, BrokerRoute] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[str, BrokerLive] = {}
        self._filter_servers: dict[str, list[str]] = {}

    def rival(self, broker: BrokerIdentity, channel: BrokerChannel) -> str | None:
        """
        Return the connection (`ip:port`) of another machine that still holds this broker's address,
        or its name and id; None: there is none.
        """
        data = self._brokers.get(broker.broker_name)
        taken = None if data is None else data.addresses.get(broker.broker_id)
        host = host_of(channel.remote_text)
        for address in (broker.address, taken):
            live = None if address is None else self._live.get(address)
            if live is not None and host_of(live.channel.remote_text) != host:
                return live.channel.remote_text
        return None

    def register(
        self,
        broker: BrokerIdentity,
        data_version: DataVersion,
        topics: Mapping[str, TopicConfig],
        filter_servers: list[str] | None,
        channel: BrokerChannel,
        now: float,
        takes_over: str = "",
        *,
        has_all: bool = False,
    ) -> RegisterResult:
        """
        Register a broker (REGISTER_BROKER).

        Of two living addresses that want one id, the one with the higher epoch (`stateVersion`)
        gets it, as in 5.x. Of equal epochs the newcomer gets it. But an address that lost the
        master's id that way does not get it back while the other address is alive, unless it names
        that address in `takes_over`.

        :param topics: all of the broker's topics, or some of them.
        :param takes_over: an address whose broker, as the registering broker found out, is dead or
            no longer the master.
        :param has_all: whether `topics` are all; then other topics are removed from this broker.
        """
        holder = self._living_holder(broker)
        if holder is not None and not self._last_wins():
            theirs, ours = self._live[holder].data_version.state_version, data_version.state_version
            if theirs > ours or (
                theirs == ours
                and broker.broker_id == MASTER_ID
                and takes_over != holder
                and self.claims.has_lost(broker.broker_name, MASTER_ID, broker.address)
            ):
                return self._refuse(broker, holder, now, is_outdated=theirs > ours)
        if holder is not None:
            self._displaced(broker, holder, data_version, now)
        self.claims.note_holder(broker.broker_name, broker.broker_id, broker.address)
        self._clusters.setdefault(broker.cluster, {})[broker.broker_name] = None
        data = self._brokers.get(broker.broker_name)
        if data is None:
            data = BrokerRoute(broker.cluster, broker.broker_name)
            self._brokers[broker.broker_name] = data
        # A slave that became the master registers its address with another id. Without this the
        # route would name one broker twice. RocketMQ does the same.
        for broker_id, address in list(data.addresses.items()):
            if address == broker.address and broker_id != broker.broker_id:
                del data.addresses[broker_id]
        is_first = broker.broker_id not in data.addresses
        data.addresses[broker.broker_id] = broker.address
        known = self._live.get(broker.address)
        is_new = is_first or known is None or known.data_version != data_version
        if broker.broker_id == MASTER_ID and is_new:
            self._put_topics(broker.broker_name, topics)
            if has_all:
                self._drop_topics_but(topics, broker.broker_name)
        self._live[broker.address] = BrokerLive(
            now, replace(data_version), channel, broker.ha_address
        )
        self._put_filter_servers(broker.address, filter_servers)
        return RegisterResult(is_first, *self._master_of(broker), displaced=holder)

    def _is_registered(self, broker_name: str, broker_id: int, address: str) -> bool:
        data = self._brokers.get(broker_name)
        return data is not None and data.addresses.get(broker_id) == address

    def _living_holder(self, broker: BrokerIdentity) -> str | None:
        """Return another address that has this id, and is still registered; None: there is none."""
        data = self._brokers.get(broker.broker_name)
        holder = None if data is None else data.addresses.get(broker.broker_id)
        return holder if holder != broker.address and holder in self._live else None

    def _master_of(self, broker: BrokerIdentity) -> tuple[str | None, str | None]:
        """
        For a slave return its master's replication address, and the master's own address; return
        None for both if this broker is a master, or its master is not registered.
        """
        data = self._brokers.get(broker.broker_name)
        if data is None or broker.broker_id == MASTER_ID:
            return None, None
        master = data.addresses.get(MASTER_ID)
        live = None if master is None else self._live.get(master)
        return (None, None) if live is None else (live.ha_server_address, master)

    def _refuse(
        self, broker: BrokerIdentity, holder: str, now: float, *, is_outdated: bool
    ) -> RegisterResult:
        """Refuse a registration. Nothing is changed, but a slave still learns its master."""
        self.claims.refused += 1
        is_news = self.claims.note_claim(broker.broker_name, broker.broker_id, broker.address, now)
        return RegisterResult(
            False, *self._master_of(broker), None, holder, is_outdated, is_news=is_news
        )

    def _displaced(
        self, broker: BrokerIdentity, holder: str, data_version: DataVersion, now: float
    ) -> None:
        """
        Count a takeover, unless an election caused it. Each change of an id between two addresses
        counts.
        """
        if data_version.state_version <= self._live[holder].data_version.state_version:
            self.claims.takeovers += 1
            if self.claims.has_lost(broker.broker_name, broker.broker_id, broker.address):
                self.claims.note_claim(broker.broker_name, broker.broker_id, holder, now)

    def unregister(self, broker: BrokerIdentity, channel: BrokerChannel) -> bool:
        """
        Unregister a broker (UNREGISTER_BROKER).

        An id that another address took over in the meantime stays: after a role switch the old
        master's late good-bye must not remove the new one (Java removes it). An address that
        registered over another connection stays, too, since the sender is not that broker.

        :returns: false when nothing was changed because the address has another connection.
        """
        live = self._live.get(broker.address)
        if live is not None and live.channel is not channel:
            return False
        self._live.pop(broker.address, None)
        self._filter_servers.pop(broker.address, None)
        data = self._brokers.get(broker.broker_name)
        if data is not None and data.addresses.get(broker.broker_id) == broker.address:
            del data.addresses[broker.broker_id]
            self._drop_if_empty(data)
        return True

    def connection_lost(self, channel: BrokerChannel) -> list[str]:
        """
        Remove the brokers that registered last over a lost connection.

        :returns: their addresses.
        """
        lost = [address for address, live in self._live.items() if live.channel is channel]
        for address in lost:
            self._remove_address(address)
        return lost

    def registrations(self) -> dict[str, float]:
        """
        Return when each live address last registered, or said that nothing changed, in seconds.
        """
        return {address: live.last_update for address, live in self._live.items()}

    def expire(self, now: float) -> list[ExpiredBroker]:
        """
        Remove every broker that did not register for 120 s.

        :returns: the removed brokers; the caller closes their connections.
        """
        expired = [
            ExpiredBroker(address, live.channel)
            for address, live in self._live.items()
            if live.last_update + BROKER_EXPIRED_SECONDS < now
        ]
        for broker in expired:
            self._remove_address(broker.address)
        return expired

    def rivals(self, now: float) -> list[Rival]:
        """Return the addresses that claim an id which a registered broker holds."""
        return [
            rival
            for rival in self.claims.rivals(now)
            if rival.holder in self._live
            and self._is_registered(rival.broker_name, rival.broker_id, rival.holder)
        ]

    def claim(self, broker: BrokerIdentity, now: float) -> None:
        """
        Note a claim if a broker names itself as the master without registering, and another one
        holds the id.
        """
        if broker.broker_id == MASTER_ID and self._living_holder(broker) is not None:
            self.claims.note_claim(broker.broker_name, MASTER_ID, broker.address, now)

    def query_data_version(
        self, address: str, data_version: DataVersion, now: float
    ) -> tuple[bool, DataVersion | None]:
        """
        Answer QUERY_DATA_VERSION; an equal version counts as a sign of life.

        :returns: whether the broker should register, and the version that this name server has.
        """
        live = self._live.get(address)
        if live is None:
            return True, None
        changed = live.data_version != data_version
        if not changed:
            live.last_update = now
        return changed, live.data_version

    def route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic; None if no registered broker has it."""
        queues = self._topics.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        filters = {
            address: self._filter_servers[address]
            for data in brokers
            for address in data.addresses.values()
            if address in self._filter_servers
        }
        return TopicRoute(list(queues.values()), brokers, filters)

    def cluster_info(self) -> ClusterInfo:
        """
        Return all brokers and clusters. Encode the result at once, since it shares these tables.
        """
        return ClusterInfo(
            self._brokers, {cluster: list(names) for cluster, names in self._clusters.items()}
        )

    def topics(self) -> list[str]:
        """Return every topic that a master registered."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics on any broker of a cluster; empty for an unknown cluster."""
        names = self._clusters.get(cluster, {})
        return [
            topic for topic, queues in self._topics.items() if not names.keys().isdisjoint(queues)
        ]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics named as clusters and brokers, and the address of any broker."""
        topics: dict[str, None] = {}
        for cluster, names in self._clusters.items():
            topics[cluster] = None
            topics.update(names)
        address = next(
            (item for data in self._brokers.values() for item in data.addresses.values()), None
        )
        return list(topics), address

    def unit_topics(self) -> list[str]:
        return self._topics_with(lambda flag: bool(flag & TOPIC_UNIT))

    def unit_sub_topics(self) -> list[str]:
        """Return the topics with a subscription from a unit."""
        return self._topics_with(lambda flag: bool(flag & TOPIC_UNIT_SUB))

    def unit_sub_non_unit_topics(self) -> list[str]:
        """
        Return the topics with a subscription from a unit that do not belong to a unit themselves.
        """
        return self._topics_with(
            lambda flag: flag & (TOPIC_UNIT | TOPIC_UNIT_SUB) == TOPIC_UNIT_SUB
        )

    def has_broker(self, broker_name: str) -> bool:
        """Whether a broker of this name is registered."""
        return broker_name in self._brokers

    def wipe_write_perm(self, broker_name: str) -> int:
        """
        Have producers avoid a broker. That ends when the broker registers changed topics, unless
        `is_wiped` still says that producers must avoid it.

        :returns: number of its topics.
        """
        return self._each_queue(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """
        Let producers use a broker again.

        :returns: number of its topics.
        """
        return self._each_queue(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        if cluster is None:
            self.pairs -= len(self._topics.pop(topic, ()))
            return
        queues = self._topics.get(topic)
        if queues is None:
            return
        for name in self._clusters.get(cluster, {}):
            self.pairs -= queues.pop(name, None) is not None
        if not queues:
            del self._topics[topic]

    def pairs_with(self, broker_name: str, topics: Mapping[str, TopicConfig]) -> int:
        """Return the number of pairs that there will be once these topics are registered."""
        known = self._topics
        return self.pairs + sum(broker_name not in known.get(name, ()) for name in topics)

    def _put_topics(self, broker_name: str, topics: Mapping[str, TopicConfig]) -> None:
        allowed = ~PERM_WRITE if self._is_wiped(broker_name) else -1
        for name, config in topics.items():
            queues = self._topics.setdefault(name, {})
            self.pairs += broker_name not in queues
            queues[broker_name] = QueueRoute(
                broker_name,
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm & allowed,
                config.topic_sys_flag,
            )

    def _put_filter_servers(self, address: str, filter_servers: list[str] | None) -> None:
        if filter_servers:
            self._filter_servers[address] = filter_servers
        elif filter_servers is not None:
            self._filter_servers.pop(address, None)

    def _remove_address(self, address: str) -> None:
        self._live.pop(address, None)
        self._filter_servers.pop(address, None)
        for data in list(self._brokers.values()):
            for broker_id, known in list(data.addresses.items()):
                if known == address:
                    del data.addresses[broker_id]
            self._drop_if_empty(data)

    def _drop_if_empty(self, data: BrokerRoute) -> None:
        """Remove a broker name from its cluster and its topics when its last address is gone."""
        if data.addresses:
            return
        name = data.broker_name
        del self._brokers[name]
        for cluster, names in list(self._clusters.items()):
            names.pop(name, None)
            if not names:
                del self._clusters[cluster]
        self._drop_topics_but((), name)

    def _drop_topics_but(self, kept: Container[str], broker_name: str) -> None:
        """Remove a broker's queues from the routes of all topics but `kept`."""
        for topic, queues in list(self._topics.items()):
            if topic not in kept and queues.pop(broker_name, None) is not None:
                self.pairs -= 1
                if not queues:
                    del self._topics[topic]

    def _topics_with(self, matches: Callable[[int], bool]) -> list[str]:
        return [
            topic
            for topic, queues in self._topics.items()
            if queues and matches(next(iter(queues.values())).topic_sys_flag)
        ]

    def _each_queue(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queue.perm = change(queue.perm)
                count += 1
        return count
