"""Shows what the broker counted, and lists groups and producers: codes 315, 317 and 328.

Spec: remoting.md, section 7.5.
"""

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.timing.slices import in_slices
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.stat_bodies import (
    BrokerStatsData,
    ConsumeOffset,
    ConsumeStats,
    ConsumeStatsList,
    ProducerClient,
    ProducerTable,
)
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.consume_tables import ConsumeTables
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.clients import ClientChannelInfo, ProducerManager
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager

_QUEUES_A_TURN = 1000


class AdminStatsProcessor:
    """
    Shows rates, the lag of all groups, and all producers.

    :param address: this broker's address, `ip:port`.
    """

    def __init__(
        self,
        *,
        stats: BrokerStats,
        groups: SubscriptionGroupManager,
        producers: ProducerManager,
        consume_tables: ConsumeTables,
        address: str,
        clock: IReactorTime,
    ) -> None:
        self._stats = stats
        self._groups = groups
        self._producers = producers
        self._consume_tables = consume_tables
        self._address = address
        self._clock = clock

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_consume_stats,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def stats_data(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer VIEW_BROKER_STATS_DATA (315) with the growth over a minute, an hour and a day."""
        header = fields.header(request)
        name, key = fields.text(header, "statsName"), fields.text(header, "statsKey")
        growths = self._stats.growths(name, key)
        if growths is None:
            return request.response(
                ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist"
            )
        return request.response(body=BrokerStatsData.from_growths(growths).encode())

    def all_consume_stats(
        self, channel: Channel, request: RemotingCommand
    ) -> "Deferred[RemotingCommand | None]":
        """
        Answer GET_BROKER_CONSUME_STATS (317): the offsets of every group, in the write queues of
        the topics that the group consumes.
        """
        fields.text(fields.header(request), "isOrder")
        is_order = fields.flag(fields.header(request), "isOrder")
        rows: list[dict[str, list[fastjson.RawJson]]] = []
        behind = 0

        def slices() -> Iterator[None]:
            nonlocal behind
            queues = 0
            topics = self._consume_tables.topics_by_group()
            for group in list(self._groups.table):
                bodies: list[fastjson.RawJson] = []
                rows.append({group: bodies})
                for config in self._consume_tables.topics_of(group, topics.get(group, ())):
                    if is_order and not config.order:
                        continue
                    table = self._consume_tables.offsets(config, group, config.write_queue_nums)
                    behind += sum(map(_lag, table.values()))
                    rate = self._stats.group_get_rate(config.topic_name, group)
                    bodies.append(fastjson.part(ConsumeStats(table, float(rate))))
                    queues += len(table)
                    if queues > _QUEUES_A_TURN:
                        queues = 0
                        yield

        def answer(_: object) -> RemotingCommand:
            return request.response(body=ConsumeStatsList(self._address, rows, behind).encode())

        return in_slices(self._clock, slices()).addCallback(answer)

    def all_producers(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_PRODUCER_INFO (328) with the clients of all producer groups."""
        producers = self._producers
        table = {
            group: [_producer(client) for client in producers.clients(group)]
            for group in producers.groups()
        }
        return request.response(body=ProducerTable(table).encode())


def _producer(client: ClientChannelInfo) -> ProducerClient:
    return ProducerClient(
        client.client_id,
        client.language,
        client.version,
        client.last_update_ms,
        f"/{client.channel.remote_text}",
    )


def _lag(offset: ConsumeOffset) -> int:
    return offset.broker_offset - offset.consumer_offset
