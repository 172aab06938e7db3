"""ConsumerManager and ProducerManager: the connected clients by group.

Both identify a client by its channel, as RocketMQ does; a channel here is any hashable object with
`remote_text`. They send nothing: they return what changed, and the broker notifies the group.

Spec: remoting.md, sections 7.1, 7.2 and 7.5.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.server.door import ClientChannel as ClientChannel
from rmq_ha.server.door import DoorProducer

CHANNEL_EXPIRED_MS = 120_000


@dataclass(slots=True)
class ClientChannelInfo:
    """
    One client of one group, as its last heartbeat described it.

    :ivar last_update_ms: wall clock time of that heartbeat, ms, for people.
    :ivar seen_ms: the same time by a clock that nobody sets, ms.
    :ivar owner: the account that owns the client id; None without an account.
    :ivar may_settle: whether this is a producer that may see half messages of its group, and decide
        about their transactions.
    :ivar sdk: the version of a client of gRPC, as the client writes it; empty for remoting.
    """

    channel: ClientChannel
    client_id: str
    language: str | None = "JAVA"
    version: int = 0
    last_update_ms: int = 0
    seen_ms: int = 0
    owner: str | None = None
    may_settle: bool = True
    sdk: str = ""


@dataclass(slots=True)
class ConsumerGroupInfo:
    """The live members of a consumer group, and the content of their last heartbeats."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[ClientChannel, ClientChannelInfo] = field(default_factory=dict)

    def client_ids(self) -> list[str]:
        """Return the client id of every member; a client with two connections is there twice."""
        return [member.client_id for member in self.members.values()]

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        """Return the member with this client id; if it has two connections, the later one."""
        for member in reversed(self.members.values()):
            if member.client_id == client_id:
                return member
        return None

    def replace_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """
        Take a member's whole subscription as the group's.

        :returns: whether a topic was added or removed; a newer expression for a known topic does
            not count.
        """
        changed = False
        listed: set[str] = set()
        for subscription in subscriptions:
            listed.add(subscription.topic)
            known = self.subscriptions.get(subscription.topic)
            if known is None:
                changed = True
            elif subscription.sub_version <= known.sub_version:
                continue
            self.subscriptions[subscription.topic] = subscription
        for topic in [topic for topic in self.subscriptions if topic not in listed]:
            del self.subscriptions[topic]
            changed = True
        return changed


class _Memberships:
    """The groups of each channel, so that a closed connection needs no scan of all groups."""

    def __init__(self) -> None:
        self._groups: dict[ClientChannel, dict[str, None]] = {}

    def add(self, channel: ClientChannel, group: str) -> None:
        self._groups.setdefault(channel, {})[group] = None

    def discard(self, channel: ClientChannel, group: str) -> None:
        groups = self._groups.get(channel)
        if groups is not None:
            groups.pop(group, None)
            if not groups:
                del self._groups[channel]

    def groups_of(self, channel: ClientChannel) -> list[str]:
        return list(self._groups.get(channel, ()))


class _ClientIds:
    """
    Maps a client id to the connection to which replies for this client are sent.

    The account that used an id first owns it. Among the connections of that account the one that
    sent a heartbeat last is used, so nobody gets the replies of another account by taking its id.
    """

    def __init__(self) -> None:
        self._ids: dict[ClientChannel, str] = {}
        self._channels: dict[str, ClientChannel] = {}
        self._owners: dict[str, str | None] = {}

    def put(self, client: ClientChannelInfo) -> None:
        channel, client_id = client.channel, client.client_id
        if client_id in self._channels and self._owners[client_id] != client.owner:
            return
        self._owners[client_id] = client.owner
        if self._ids.get(channel) != client_id:
            self.forget(channel)
            self._ids[channel] = client_id
            self._channels[client_id] = channel
        else:
            self._channels.setdefault(client_id, channel)  # a later connection came and closed

    def forget(self, channel: ClientChannel) -> None:
        client_id = self._ids.pop(channel, None)
        if client_id is not None and self._channels.get(client_id) is channel:
            del self._channels[client_id], self._owners[client_id]

    def find(self, client_id: str) -> ClientChannel | None:
        return self._channels.get(client_id)


class ConsumerManager:
    """
    Every consumer group with a live member.

    :param on_gone: called with the name of a group whose last member left.
    """

    def __init__(self, on_gone: Callable[[str], None] | None = None) -> None:
        self._on_gone = on_gone
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._memberships = _Memberships()

    def register(
        self,
        group: str,
        client: ClientChannelInfo,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Iterable[SubscriptionData],
    ) -> bool:
        """
        Register a consumer from a heartbeat.

        :returns: whether the group must be notified: the connection is new, or a topic was added or
            removed.
        """
        info = self._groups.get(group)
        if info is None:
            info = self._groups[group] = ConsumerGroupInfo(group)
        info.consume_type = consume_type
        info.message_model = message_model
        info.consume_from_where = consume_from_where
        is_new = client.channel not in info.members
        info.members[client.channel] = client
        if is_new:
            self._memberships.add(client.channel, group)
        return info.replace_subscriptions(subscriptions) or is_new

    def unregister(self, group: str, channel: ClientChannel) -> bool:
        """
        Remove this connection from the group.

        :returns: whether it was a member, so that the remaining members must be notified.
        """
        info = self._groups.get(group)
        if info is None or info.members.pop(channel, None) is None:
            return False
        self._memberships.discard(channel, group)
        if not info.members:
            del self._groups[group]
            if self._on_gone is not None:
                self._on_gone(group)
        return True

    def channel_closed(self, channel: ClientChannel) -> list[str]:
        """
        Remove a connection from all its groups.

        :returns: those groups; their remaining members must be notified.
        """
        groups = self._memberships.groups_of(channel)
        for group in groups:
            self.unregister(group, channel)
        return groups

    def expired(self, now_ms: int) -> list[ClientChannel]:
        """
        Return connections with a membership that no heartbeat renewed in time.

        :param now_ms: time of the clock of `ClientChannelInfo.seen_ms`.

        The caller closes them and reports `channel_closed`, so that their groups are notified, too.
        """
        return _expired_channels((info.members for info in self._groups.values()), now_ms)

    def group(self, group: str) -> ConsumerGroupInfo | None:
        """Return the group if it has a live member."""
        return self._groups.get(group)

    def groups(self) -> list[str]:
        """Return the names of the groups with a live member."""
        return list(self._groups)

    def client_ids(self, group: str) -> list[str]:
        """Return the client ids of the live members; empty if there are none."""
        info = self._groups.get(group)
        return [] if info is None else info.client_ids()

    def channels(self, group: str) -> list[ClientChannel]:
        """Return the connections of the live members."""
        info = self._groups.get(group)
        return [] if info is None else list(info.members)

    def find_client(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """Return the group's member with this client id; None if there is none."""
        info = self._groups.get(group)
        return None if info is None else info.find_client(client_id)

    def which_groups(self, topic: str) -> set[str]:
        """Return the groups with a live member that subscribe the topic."""
        return {name for name, info in self._groups.items() if topic in info.subscriptions}


class ProducerManager:
    """Every producer group with a live member."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[ClientChannel, ClientChannelInfo]] = {}
        self._memberships = _Memberships()
        self._client_ids = _ClientIds()

    def register(self, group: str, client: ClientChannelInfo) -> None:
        """Register a producer from a heartbeat."""
        members = self._groups.setdefault(group, {})
        if client.channel not in members:
            self._memberships.add(client.channel, group)
        members[client.channel] = client
        if not isinstance(client.channel, DoorProducer):  # gRPC has no replies
            self._client_ids.put(client)

    def unregister(self, group: str, channel: ClientChannel) -> None:
        """Remove this connection from the group; harmless if it is not a member."""
        members = self._groups.get(group)
        if members is None or members.pop(channel, None) is None:
            return
        self._memberships.discard(channel, group)
        if not self._memberships.groups_of(channel):
            self._client_ids.forget(channel)
        if not members:
            del self._groups[group]

    def channel_closed(self, channel: ClientChannel) -> None:
        """Remove a connection from all its groups."""
        for group in self._memberships.groups_of(channel):
            self.unregister(group, channel)

    def expired(self, now_ms: int) -> list[ClientChannel]:
        """
        Return connections with a membership that no heartbeat renewed in time; see
        `ConsumerManager`.
        """
        return _expired_channels(self._groups.values(), now_ms)

    def groups(self) -> list[str]:
        """Return the names of the groups with a live member."""
        return list(self._groups)

    def find_channel(self, client_id: str) -> ClientChannel | None:
        """Return the connection of the producer with this client id, the last one of several."""
        return self._client_ids.find(client_id)

    def clients(self, group: str) -> list[ClientChannelInfo]:
        """Return the live members of a group."""
        return list(self._groups.get(group, {}).values())


def _expired_channels(
    tables: Iterable[dict[ClientChannel, ClientChannelInfo]], now_ms: int
) -> list[ClientChannel]:
    channels: dict[ClientChannel, None] = {}
    for members in tables:
        for channel, client in members.items():
            if now_ms - client.seen_ms > CHANNEL_EXPIRED_MS:
                channels[channel] = None
    return list(channels)
