"""Queues of running brokers, which are found through name servers and read without a reactor."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, TypeVar
from warnings import warn

from rmq_ha.base.errors import CannotDecide, ProtocolViolation, RemotingError
from rmq_ha.base.host.blocking import pause, seconds
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.wire.bodies import MessageQueue, decode_queue_table
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import READER_GROUP, BlockingClient
from rmq_ha.client.lookup.asking import Ask, expect
from rmq_ha.client.lookup.lookups import PullTerms, addresses_in, commit_offset, pull_records
from rmq_ha.client.lookup.pulls import PulledRecords
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import MQClientError, NoRoute
from rmq_ha.client.rules.messages import decode_messages
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.lake.spark.source.live_reading import BrokerAway, Reading, ReadOptions, patiently
from rmq_ha.lake.spark.source.live_routes import (
    NameServerRoutes,
    OneBroker,
    Routes,
    bounds_of,
    connect,
    offset_of,
)
from rmq_ha.lake.spark.source.options import SourceOptions
from rmq_ha.lake.spark.source.reading import Ends, QueueId, QueueRange, Subscription
from rmq_ha.lake.spark.source.tables_rows import offsets_of_group

T = TypeVar("T")


class LiveQueues:
    """The queues of a cluster (`reading.Queues`)."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: BlockingClient | None = None
        self._choice = BrokerChoice(seconds)
        self._routes: Routes = NameServerRoutes()
        if options.broker_addr:
            self._routes = OneBroker(options.broker_addr, seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        return LiveQueues, (self._options,)

    def close(self) -> None:
        """Close the connections; the next call makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def queues(self, topics: Subscription) -> list[QueueId]:
        """Return the wanted queues that exist now, of all brokers."""
        queues, missing = self._look(topics)
        if missing:
            raise CannotDecide(
                f"no broker has the topic {missing[0]}, as far as"
                f" {self._options.broker_addr or self._options.namesrv} knows:"
                " is its name right, was it created, is its broker registered there?"
            )
        if self._options.broker_name is not None:
            self._check_broker(topics, queues)
        for queue in topics.assigned or ():
            if not any(queue in (known, known._replace(broker="")) for known in queues):
                raise CannotDecide(
                    f"there is no queue {queue} on a running broker; there are"
                    f" {', '.join(map(str, queues[:9])) or 'none'}"
                )
        return queues

    def present(self, topics: Subscription) -> list[QueueId]:
        """Return the wanted queues whose topics and brokers are registered at the moment."""
        return self._look(topics)[0]

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        """Return a queue's first offset and its end; a slave's if the master does not answer."""
        ends = self.ends(queue)
        if not ends.is_sure:
            warn(
                f"the master of {queue.broker} does not answer: {queue} is read from a slave, which"
                f" has {ends.min_offset} to {ends.max_offset - 1}; the master may have more",
                stacklevel=2,
            )
        return ends.min_offset, ends.max_offset

    def ends(self, queue: QueueId) -> Ends:
        """
        Return the beginning and end of a queue, and whether a master answered.

        :raises BrokerAway: no broker of the queue answers.
        :raises CannotDecide: a broker refused.
        """

        def ask(address: str, broker_id: int) -> Ends:
            return Ends(*bounds_of(self._connect(), queue, address), broker_id == MASTER_ID)

        return self._any_broker(queue, ask)

    def all_ends(self, queues: Iterable[QueueId]) -> dict[QueueId, Ends]:
        """
        Return beginnings and ends of many queues with few requests; queues of brokers that do not
        answer are left out.

        :raises CannotDecide: a broker refused.
        """
        ends: dict[QueueId, Ends] = {}
        away: set[str] = set()
        for (_, broker), group in groupby(sorted(queues), key=itemgetter(0, 1)):
            if broker not in away:
                try:
                    ends |= self.ends_of_topic(list(group))
                except BrokerAway:
                    away.add(broker)
        return ends

    def ends_of_topic(self, queues: Sequence[QueueId]) -> dict[QueueId, Ends]:
        """Return the ends of queues of one topic and broker; raises like `ends`."""

        def ask(address: str, broker_id: int) -> dict[QueueId, Ends]:
            command = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": queues[0].topic})
            answer = self._connect().run(
                expect(Ask(command, address), (ResponseCode.TOPIC_NOT_EXIST,))
            )
            table = {} if answer.code else decode_queue_table(answer.body or b"{}")
            is_sure = broker_id == MASTER_ID
            known = {
                queue.queue_id: Ends(low, max(low, _offset(item, "maxOffset")), is_sure)
                for queue, item in table.items()
                for low in (_offset(item, "minOffset"),)
            }
            return {queue: known[queue.queue_id] for queue in queues if queue.queue_id in known}

        ends = self._any_broker(queues[0], ask)
        # The answer has only queues that can be written; the others are asked for one by one.
        return ends | {queue: self.ends(queue) for queue in queues if queue not in ends}

    def offset_at(self, queue: QueueId, ms: int) -> int | None:
        """Return the offset of the first message stored at `ms` or later; None: there is none."""

        def ask(address: str, broker_id: int) -> int | None:
            client, search = self._connect(), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            low, high = bounds_of(client, queue, address)
            near = offset_of(client, search, queue, address, timestamp=str(ms))
            puller = _BrokerPuller(client, self._options, {broker_id: address})
            return first_since(ms, low, high, near, lambda at: puller.stored_at(queue, at))

        return self._any_broker(queue, ask)

    def group_offsets(self, group: str, queues: Sequence[QueueId]) -> dict[QueueId, int]:
        """Return offsets of the brokers' tables: asked for one, a broker without it guesses."""
        offsets: dict[QueueId, int] = {}
        broker = attrgetter("broker")
        for _, same in groupby(sorted(queues, key=broker), key=broker):
            here = list(same)

            def ask(address: str, _: int, here: list[QueueId] = here) -> dict[QueueId, int]:
                command = RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET)
                answer = self._connect().run(expect(Ask(command, address)))
                return offsets_of_group(bytes(answer.body or b"{}"), group, here, address)

            offsets |= self._any_broker(here[0], ask)
        return offsets

    def read(self, span: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the messages of a range; a slave is asked if the master does not answer."""
        options = self._options
        how = ReadOptions(
            options.batch_rows,
            options.pull_batch_size,
            options.fail_on_data_loss,
            options.tags,
            self._patience(),
        )
        puller = _BrokerPuller(self._connect(), options, self._routes)
        yield from Reading(span, puller, how, pause).batches(columns)

    def commit(self, group: str, queue: QueueId, offset: int) -> None:
        """Have the broker keep an offset for a group, so that consoles can show it."""

        def keep(client: BlockingClient) -> None:
            addresses = addresses_in(self._routes.route(client, queue.topic), queue.broker)
            client.run(commit_offset(addresses, group, MessageQueue(*queue), offset))

        self._patiently(keep, f"{queue}: offset {offset} of the group {group} cannot be kept")

    def _look(self, topics: Subscription) -> tuple[list[QueueId], list[str]]:
        """Return the wanted queues, and the topics that the options name but no broker has."""
        named = topics.named
        known: list[QueueId] = []
        missing: list[str] = []
        for topic in self._topics(topics) if named is None else named:
            queues = self._queues_of(topic)
            if queues is not None:
                known += queues
            elif named is not None:
                missing.append(topic)
        only = self._options.broker_name
        chosen = [queue for queue in known if topics.wants(queue) and only in (None, queue.broker)]
        return sorted(chosen), missing

    def _check_broker(self, topics: Subscription, queues: list[QueueId]) -> None:
        """Check that the broker of `brokerName` exists: a misspelt name would read nothing."""
        its_topics = {queue.topic for queue in queues}
        for topic in topics.named or ():
            brokers = sorted({queue.broker for queue in self._queues_of(topic) or ()})
            if topic not in its_topics and brokers and self._options.broker_name not in brokers:
                raise CannotDecide(
                    f"{topic} is not on the broker {self._options.broker_name}; it is on"
                    f" {', '.join(brokers)}"
                )

    def _queues_of(self, topic: str) -> list[QueueId] | None:
        """Return the queues of a topic; None: no name server knows it."""

        def ask(client: BlockingClient) -> list[QueueId] | None:
            try:
                route = self._routes.route(client, topic)
            except NoRoute:
                return None
            return [
                QueueId(queue.topic, queue.broker_name, queue.queue_id)
                for queue in subscribe_queues(topic, route)
            ]

        return self._patiently(ask, f"the queues of {topic} cannot be found")

    def _topics(self, topics: Subscription) -> list[str]:
        listed = self._patiently(self._routes.topics, "the topics cannot be listed")
        return sorted(topic for topic in listed if topics.wants_topic(topic))

    def _any_broker(self, queue: QueueId, ask: Callable[[str, int], T]) -> T:
        """Return the master's answer, or a slave's."""

        def ask_one(client: BlockingClient) -> T:
            route = self._routes.route(client, queue.topic)
            addresses = addresses_in(route, queue.broker)
            last: RemotingError | None = None
            away = self._choice.is_avoided
            for broker_id in sorted(addresses, key=lambda peer: (away(addresses[peer]), peer)):
                try:
                    return ask(addresses[broker_id], broker_id)
                except RemotingError as error:
                    self._choice.failed(addresses[broker_id])
                    last = error
            raise last or MQClientError(f"no address of the broker {queue.broker} is known")

        return self._patiently(ask_one, f"{queue} cannot be asked for its offsets")

    def _patiently(self, call: Callable[[BlockingClient], T], what: str) -> T:
        """Call a function with the client by `patiently`; errors say `what` was not done."""
        return patiently(lambda: call(self._connect()), self._patience(), pause, what)

    def _patience(self) -> tuple[int, ...]:
        """Return how many ms to wait before each retry."""
        return (self._options.retry_interval_ms,) * self._options.num_retries

    def _connect(self) -> BlockingClient:
        if self._client is None:
            self._client = connect(self._options)
        return self._client


def _offset(item: Any, name: str) -> int:
    """Return a number of an answer, at least 0; raise ProtocolViolation if it is none."""
    value = item.get(name, 0) if isinstance(item, dict) else None
    if type(value) is not int:
        raise ProtocolViolation(f"{name} of a queue is {value!r}")
    return max(0, value)


def first_since(
    ms: int, low: int, high: int, near: int, stored_at: Callable[[int], int]
) -> int | None:
    """
    Return the first offset in [low, high) of a message stored at `ms` or later; None: there is
    none.

    Java's brokers choose a file by the time of its last change, which copying a store changes. So
    their answer may be a message before or after the right one, and the search begins there.

    :param near: the broker's answer.
    :param stored_at: returns when the message at an offset was stored, in ms.
    """
    stop = high
    for probe in (near, near - 1, near + 1):
        if low <= probe < stop:
            low, stop = (low, probe) if stored_at(probe) >= ms else (probe + 1, stop)
    first = low + bisect_left(range(low, stop), ms, key=stored_at)
    return first if first < high else None


class _BrokerPuller:
    """
    Pulls messages, and remembers which broker answers.

    :param where: the brokers of any queue, or addresses by id that alone are asked.
    """

    def __init__(
        self, client: BlockingClient, options: SourceOptions, where: Routes | dict[int, str]
    ) -> None:
        self.choice = BrokerChoice(seconds)
        self._client = client
        self._options = options
        self._where = where

    def pull(self, queue: MessageQueue, offset: int, count: int) -> PulledRecords:
        """Pull the next messages with the tags of the options."""
        return self._pull(queue, offset, count, self._options.tag_expression)

    def stored_at(self, queue: QueueId, offset: int) -> int:
        """Return when a message was stored, in ms since the epoch; -1: it does not exist."""
        pulled = self._pull(MessageQueue(*queue), offset, 1, "*")
        messages = decode_messages(pulled.body)
        return messages[0].store_timestamp if messages else -1

    def _pull(self, queue: MessageQueue, offset: int, count: int, expression: str) -> PulledRecords:
        """Pull messages with these tags from the broker that answered last, or from another."""
        addresses = self._where
        if not isinstance(addresses, dict):
            route = addresses.route(self._client, queue.topic)
            addresses = addresses_in(route, queue.broker_name)
        terms = PullTerms(self._options.group or READER_GROUP, count, expression)
        return self._client.run(pull_records(self.choice, addresses, queue, offset, terms))
