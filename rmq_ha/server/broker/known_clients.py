"""The heartbeats of all connected clients, written anew from the tables of a broker."""

from collections.abc import Iterator

from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.tables.clients import (
    ClientChannelInfo,
    ConsumerManager,
    ProducerManager,
)


def heartbeats_of(
    consumers: ConsumerManager, producers: ProducerManager
) -> Iterator[tuple[Channel, RemotingCommand]]:
    """
    Return each remoting client's connection, and a heartbeat that registers the client as it is
    registered here.
    """
    by_channel: dict[Channel, tuple[ClientChannelInfo, HeartbeatData]] = {}

    def data_of(client: ClientChannelInfo) -> HeartbeatData | None:
        channel = client.channel
        if not isinstance(channel, Channel):  # a client of gRPC
            return None
        data = HeartbeatData(client_id=client.client_id)
        return by_channel.setdefault(channel, (client, data))[1]

    for name in consumers.groups():
        group = consumers.group(name)
        if group is None:
            continue
        consumer = ConsumerData(
            name,
            group.consume_type,
            group.message_model,
            group.consume_from_where,
            list(group.subscriptions.values()),
        )
        for client in group.members.values():
            if (data := data_of(client)) is not None:
                data.consumers.append(consumer)
    for name in producers.groups():
        for client in producers.clients(name):
            if (data := data_of(client)) is not None:
                data.producers.append(ProducerData(name))
    for channel, (client, data) in by_channel.items():
        request = RemotingCommand(RequestCode.HEART_BEAT, {}, data.encode())
        request.language, request.version = client.language, client.version
        yield channel, request
