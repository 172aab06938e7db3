"""
Gathers what the page shows of topics, groups and clients: the rows of each list, and the details of
one topic or group. It works in slices, so that the broker serves requests in between.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rmq_ha.base.model.attributes import message_type
from rmq_ha.base.model.topics import BUILT_IN_GROUPS, DLQ_PREFIX, RETRY_PREFIX, is_system
from rmq_ha.base.wire.versions import version_name
from rmq_ha.ops.app.page.values import (
    ClientRow,
    GroupMember,
    GroupOfTopic,
    GroupRow,
    GroupSheet,
    ProgressRow,
    QueueRow,
    SubscriptionRow,
    Topic,
    TopicSheet,
)
from rmq_ha.server.broker.tables.clients import ClientChannelInfo

AT_ONCE = 50
LOOKS_AT_ONCE = 1500
"""How many queues are looked at in one turn of the reactor: about two milliseconds."""
MOST_COUNTED = 2048
"""How many queues of a topic are counted at most."""
MOST_QUEUES = 256
MOST_MEMBERS = 200

_Members = Mapping[tuple[str, int], str]


class PageRows:
    """
    Gathers rows from one broker.

    :param broker: a `Broker`.
    """

    def __init__(self, broker: Any) -> None:
        self._broker = broker

    # ------------------------------------------------------------ lists

    def topics(self, rows: list[Topic]) -> Iterator[None]:
        looks = 0
        for name in list(self._broker.topics.table):
            row = self.topic(name)
            if row is None:
                continue
            rows.append(row)
            looks += AT_ONCE // 2 + 2 * row.queues
            if looks >= LOOKS_AT_ONCE:
                looks = 0
                yield

    def groups(self, rows: list[GroupRow]) -> Iterator[None]:
        """
        Add all groups that were created, have committed or are connected.

        Groups that every broker has, such as CID_ONSAPI_OWNER, are added only when a client uses
        them.
        """
        broker = self._broker
        topics: dict[str, set[str]] = {}
        for number, key in enumerate(list(broker.consumer_offsets.table)):
            if number % (AT_ONCE * 10) == AT_ONCE * 10 - 1:
                yield
            topic, separator, group = key.partition("@")
            if separator:
                topics.setdefault(group, set()).add(topic)
        made = [name for name in broker.groups.table if name not in BUILT_IN_GROUPS]
        live = [*broker.consumers.groups(), *broker.door_consumers.groups()]
        names = dict.fromkeys([*topics, *live, *made])
        looks = 0
        for group in names:
            known = topics.get(group, ())
            rows.append(self.group(group, known))
            looks += AT_ONCE // 2
            looks += sum([len(broker.consumer_offsets.queues(group, topic)) for topic in known])
            if looks >= LOOKS_AT_ONCE:
                looks = 0
                yield

    def clients(self, rows: list[ClientRow]) -> Iterator[None]:
        """Add all connections of producers and consumers, once for each of their groups."""
        broker = self._broker
        for group in broker.producers.groups():
            rows += [_client(item, group, "producer") for item in broker.producers.clients(group)]
            yield
        for group in broker.consumers.groups():
            info = broker.consumers.group(group)
            if info is not None:
                members = list(info.members.values())
                rows += [_client(item, group, "consumer") for item in members]
            yield
        for group in broker.door_consumers.groups():
            members = broker.door_consumers.members(group)
            rows += [_client(item, group, "consumer") for item in members]
            yield

    def topic(self, name: str) -> Topic | None:
        """Return the row of a topic; None: no topic has this name."""
        broker, config = self._broker, self._broker.topics.table.get(name)
        if config is None:
            return None
        queues = max(config.read_queue_nums, config.write_queue_nums)
        end_of, begin_of = broker.store.max_offset_in_queue, broker.store.min_offset_in_queue
        counted = range(min(queues, MOST_COUNTED))
        ends = sum([end_of(name, number) for number in counted])
        begins = sum([begin_of(name, number) for number in counted]) if ends else 0
        return Topic(
            name=name,
            kind=kind_of(name),
            message_type=message_type(config.attributes, ""),
            queues=queues,
            perm=config.perm,
            messages=ends - begins,
            total=ends,
            put_rate=self._rate("TOPIC_PUT_NUMS", name),
            put_bytes=self._rate("TOPIC_PUT_SIZE", name),
        )

    def group(self, name: str, topics: Iterable[str]) -> GroupRow:
        """
        Return the row of a group.

        :param topics: topics of which the group has committed offsets.
        """
        broker = self._broker
        lag = retrying = 0
        rate = 0.0
        count = 0
        for topic in topics:
            behind = self._lag(topic, name)
            lag += behind
            if topic.startswith(RETRY_PREFIX):
                retrying += behind
            else:
                count += 1
            rate += broker.stats.group_get_rate(topic, name)
        info = broker.consumers.group(name)
        return GroupRow(
            name=name,
            topics=count,
            lag=lag,
            retrying=retrying,
            dead=self._dead(name),
            members=self._count_members(name),
            get_rate=rate,
            model="" if info is None else info.message_model,
        )

    # ------------------------------------------------------------ sheets

    def topic_sheet(self, name: str, sheets: list[TopicSheet]) -> Iterator[None]:
        """Append the sheet of a topic, if there is such a topic."""
        topic = self.topic(name)
        if topic is None:
            return
        store = self._broker.store
        queues = []
        for number in range(min(topic.queues, MOST_QUEUES)):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            begin = store.min_offset_in_queue(name, number)
            end = store.max_offset_in_queue(name, number)
            last = store.store_timestamp_at(name, number, end - 1) if end > begin else -1
            queues.append(
                QueueRow(
                    queue_id=number,
                    min_offset=begin,
                    max_offset=end,
                    last_ms=last if last > 0 else None,
                )
            )
        groups: list[GroupOfTopic] = []
        yield from self._groups_of(name, groups)
        groups.sort(key=lambda item: (-item.lag, item.name))
        sheets.append(TopicSheet(topic, queues, max(0, topic.queues - MOST_QUEUES), groups))

    def groups_with(self, topic: str, names: list[str]) -> Iterator[None]:
        """Append the names of the groups that have committed offsets of a topic."""
        prefix = f"{topic}@"
        for number, key in enumerate(list(self._broker.consumer_offsets.table)):
            if number % 2000 == 1999:
                yield
            if key.startswith(prefix):
                names.append(key[len(prefix) :])

    def _groups_of(self, topic: str, groups: list[GroupOfTopic]) -> Iterator[None]:
        names: list[str] = []
        yield from self.groups_with(topic, names)
        for number, name in enumerate(names[:MOST_QUEUES]):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            members = self._count_members(name)
            groups.append(GroupOfTopic(name, self._lag(topic, name), members))

    def is_group(self, name: str) -> bool:
        """Return whether a group is configured, or has connected members."""
        broker = self._broker
        return name in broker.groups.table or self._count_members(name) > 0

    def _count_members(self, group: str) -> int:
        """Return how many consumers of a group are connected, by remoting and by gRPC."""
        info = self._broker.consumers.group(group)
        at_door = self._broker.door_consumers.members(group)
        return (0 if info is None else len(info.members)) + len(at_door)

    def group_sheet(
        self, name: str, members: _Members, now_ms: int, sheets: list[GroupSheet]
    ) -> Iterator[None]:
        """
        Append the sheet of a group, if the group is known.

        :param members: client id by topic and queue, of the members that answered.
        """
        broker = self._broker
        suffix = f"@{name}"
        topics = []
        for number, key in enumerate(list(broker.consumer_offsets.table)):
            # The table has a key for each group and topic. A look through many keys must not hold
            # up requests.
            if number % 2000 == 1999:
                yield
            if key.endswith(suffix):
                topics.append(key[: -len(suffix)])
        if not topics and not self.is_group(name):
            return
        queues: list[ProgressRow] = []
        left_out = 0
        for topic in sorted(topics):
            for queue_id, committed in sorted(broker.consumer_offsets.queues(name, topic).items()):
                if len(queues) >= MOST_QUEUES:
                    left_out += 1
                    continue
                queues.append(self._progress(name, topic, queue_id, committed, members, now_ms))
                if len(queues) % AT_ONCE == 0:
                    yield
        info = broker.consumers.group(name)
        clients = [] if info is None else list(info.members.values())
        clients = [*clients, *broker.door_consumers.members(name)][:MOST_MEMBERS]
        by_topic = broker.door_consumers.subscriptions(name)
        if info is not None:
            by_topic |= info.subscriptions
        subscriptions = list(by_topic.values())
        sheets.append(
            GroupSheet(
                self.group(name, topics),
                queues,
                left_out,
                [_member(client, queues) for client in clients],
                [
                    SubscriptionRow(item.topic, item.sub_string[:200], str(item.expression_type))
                    for item in subscriptions[:MOST_QUEUES]
                ],
            )
        )

    def _progress(
        self,
        group: str,
        topic: str,
        queue_id: int,
        committed: int,
        members: _Members,
        now_ms: int,
    ) -> ProgressRow:
        store = self._broker.store
        end = store.max_offset_in_queue(topic, queue_id)
        lag = max(0, end - committed)
        next_ms = store.store_timestamp_at(topic, queue_id, committed) if lag else -1
        return ProgressRow(
            topic=topic,
            queue_id=queue_id,
            committed=committed,
            end=end,
            lag=lag,
            behind_s=max(0, now_ms - next_ms) / 1000 if next_ms > 0 else None,
            member=members.get((topic, queue_id)),
            in_flight=self._out_of(group, topic, queue_id),
        )

    def _out_of(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return how many messages of a queue are out; None for a group that pulls the queue."""
        pops = self._broker.pops
        out: int | None = pops.out_of(group, topic, queue_id) if pops.is_enabled else None
        return out

    def _lag(self, topic: str, group: str) -> int:
        end_of = self._broker.store.max_offset_in_queue
        committed = self._broker.consumer_offsets.queues(group, topic)
        return sum([max(0, end_of(topic, number) - at) for number, at in committed.items()])

    def _dead(self, group: str) -> int:
        topic = DLQ_PREFIX + group
        config = self._broker.topics.table.get(topic)
        if config is None:
            return 0
        store, queues = self._broker.store, range(config.write_queue_nums)
        ends = sum([store.max_offset_in_queue(topic, number) for number in queues])
        return int(ends - sum([store.min_offset_in_queue(topic, number) for number in queues]))

    def _rate(self, name: str, key: str) -> float:
        growths = self._broker.stats.growths(name, key)
        return 0.0 if growths is None else float(growths[0].per_second)


def kind_of(topic: str) -> str:
    """Return the kind of a topic: `retry`, `dlq`, `system` or `normal`."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dlq"
    return "system" if is_system(topic) else "normal"


def _client(client: ClientChannelInfo, group: str, kind: str) -> ClientRow:
    return ClientRow(
        client_id=client.client_id,
        address=client.channel.remote_text,
        group=group,
        kind=kind,
        language=str(client.language)[:20],
        version=client.sdk or version_name(client.version),
        protocol="gRPC" if client.sdk else "remoting",
        seen_ms=client.last_update_ms,
    )


def _member(client: ClientChannelInfo, queues: list[ProgressRow]) -> GroupMember:
    own = [queue for queue in queues if queue.member == client.client_id]
    return GroupMember(
        client_id=client.client_id,
        address=client.channel.remote_text,
        language=str(client.language)[:20],
        version=client.sdk or version_name(client.version),
        protocol="gRPC" if client.sdk else "remoting",
        lag=sum([queue.lag for queue in own]) if own else None,
        queues=len(own) if own else None,
    )
