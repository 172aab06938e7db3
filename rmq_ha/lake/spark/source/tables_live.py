"""Reads tables of running brokers over the wire."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from rmq_ha.base.errors import CannotDecide, ProtocolViolation, RemotingError
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.base.wire.bodies import TopicTable, read_body
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.lake.spark.source.live_routes import bounds_of, connect
from rmq_ha.lake.spark.source.options import SourceOptions
from rmq_ha.lake.spark.source.reading import QueueId
from rmq_ha.lake.spark.source.tables_rows import Row, batch_of, rows_of

UNITS = 1024
"""How many units of a consume queue are asked for at once."""
_CODES = {
    "consumerOffsets": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "topics": RequestCode.GET_ALL_TOPIC_CONFIG,
    "groups": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "delayOffsets": RequestCode.GET_ALL_DELAY_OFFSET,
}


class BrokerToAsk(NamedTuple):
    """A broker to ask; `name` is None if only its address is known."""

    name: str | None
    address: str


class LiveBrokerTables:
    """
    The tables of one broker, or of every broker name that the name servers know.

    Of a name the broker with the lowest id is asked: the master, if it is registered.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def parts(self) -> list[BrokerToAsk]:
        """
        Return the brokers to ask, one part each.

        :raises CannotDecide: no server answers, or there is no such broker.
        """
        options = self._options
        if options.broker_addr:
            return [BrokerToAsk(options.broker_name, options.broker_addr)]
        with closing(connect(self._options)) as client:
            try:
                known = client.cluster().brokers
            except (MQClientError, RemotingError, ProtocolViolation) as error:
                raise CannotDecide(f"the brokers cannot be listed: {error}") from None
        only = options.broker_name
        brokers = [
            BrokerToAsk(name, route.addresses[min(route.addresses)])
            for name, route in sorted(known.items())
            if route.addresses and only in (None, name)
        ]
        if not brokers:
            names = ", ".join(sorted(known)) or "none"
            raise CannotDecide(
                f"{options.namesrv} knows no broker {only or ''}; there are: {names}. Is it"
                " running, and is its namesrvAddr right?"
            )
        return brokers

    def batches(self, broker: BrokerToAsk, schema: Any) -> Iterator[Any]:
        """
        Yield the rows of one broker.

        :raises CannotDecide: the broker does not answer, or refuses.
        """
        with closing(connect(self._options)) as client:
            try:
                yield from self._batches(client, broker, schema)
            except (MQClientError, RemotingError, ProtocolViolation) as error:
                raise CannotDecide(
                    f"{broker.address} cannot be asked for {self._options.table}: {error}"
                ) from None

    def _batches(self, client: BlockingClient, broker: BrokerToAsk, schema: Any) -> Iterator[Any]:
        """Yield the rows of one broker; errors of the client are raised as they are."""
        table, topics = self._options.table, self._options.subscription
        if table in _CODES:
            body = _body(client, broker, _CODES[table])
            yield batch_of(rows_of(table, body, broker.name, topics, broker.address), schema)
            return
        rows: list[Row] = []
        for queue in self._queues(client, broker):
            low, high = bounds_of(client, queue, broker.address)
            if high <= 0:
                continue
            if table == "queues":
                rows.append((broker.name, queue.topic, queue.queue_id, low, high))
                continue
            for units in _units_of(client, broker, queue, low, high):
                yield batch_of(units, schema)
        yield batch_of(rows, schema)

    def _queues(self, client: BlockingClient, broker: BrokerToAsk) -> Iterator[QueueId]:
        """Yield the wanted queues of a broker, by its topics' configurations."""
        body = _body(client, broker, RequestCode.GET_ALL_TOPIC_CONFIG)
        subscription = self._options.subscription
        counts = {
            topic: max(config.read_queue_nums, config.write_queue_nums)
            for topic, config in TopicTable.decode(body).topics.items()
        }
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            counts.setdefault(topic, 1)  # brokers write to these topics without a configuration
        for topic, count in sorted(counts.items()):
            queues = (QueueId(topic, broker.name or "", number) for number in range(count))
            yield from filter(subscription.wants, queues)


def _body(client: BlockingClient, broker: BrokerToAsk, code: int, **ext: str) -> bytes:
    """Return the body of a broker's answer; empty: it has none."""
    return bytes(client.call(broker.address, RemotingCommand(code, ext)).body or b"")


def _units_of(
    client: BlockingClient, broker: BrokerToAsk, queue: QueueId, start: int, stop: int
) -> Iterator[list[Row]]:
    """Yield the units of a consume queue as rows, `UNITS` at a time."""
    ext = {"topic": queue.topic, "queueId": str(queue.queue_id)}
    while start < stop:
        ext |= {"index": str(start), "count": str(min(UNITS, stop - start))}
        body = _body(client, broker, RequestCode.QUERY_CONSUME_QUEUE, **ext)
        units = read_body(body, _units, None)
        if not units:
            raise CannotDecide(
                f"{queue} of {broker.address} has no unit {start}, {stop} was wanted: it was"
                " deleted meanwhile; read again"
            )
        yield [
            (broker.name, queue.topic, queue.queue_id, start + at, *unit)
            for at, unit in enumerate(units)
        ]
        start += len(units)


def _units(value: dict[str, Any]) -> list[Row]:
    """Return the units in a broker's answer: physical offset, size, and hash of the tags."""
    return [
        (int(unit["physicOffset"]), int(unit["physicSize"]), int(unit["tagsCode"]))
        for unit in value.get("queueData") or ()
    ]
