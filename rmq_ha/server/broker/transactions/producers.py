"""CHECK_TRANSACTION_STATE: asks one connected producer of a group, in turn.

Spec: remoting.md, sections 2.4 and 7.10.
"""

from itertools import count
from typing import cast

from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord, ProtocolViolation
from rmq_ha.base.model.message import AppendResult, BrokerMessage
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.server.broker.tables.clients import ProducerManager
from rmq_ha.server.broker.transactions.messages import check_request, half_message
from rmq_ha.server.door import DoorProducer

_OPAQUE_MASK = 0x7FFFFFFF


class ProducerAsker:
    """Sends the requests of the transaction check to producers."""

    log = Logger()

    def __init__(self, producers: ProducerManager) -> None:
        self._producers = producers
        self._asked = count()

    def is_overloaded(self, group: str) -> bool:
        """Return whether the group has producers, and the connection of each of them is full."""
        channels = self._channels(group)
        return bool(channels) and all(channel.is_full for channel in channels)

    def ask(self, group: str, copy: BrokerMessage, append: AppendResult, stored_ms: int) -> None:
        """
        Ask one producer of the group about a half message; harmless if there is none.

        :param stored_ms: store time of the half message that the copy replaces, ms.
        """
        channels = [item for item in self._channels(group) if not item.is_full]
        if not channels:
            self.log.debug("nobody of producer group {group} is here to be asked", group=group)
            return
        try:
            number = next(self._asked)
            channel = channels[number % len(channels)]
            if isinstance(channel, DoorProducer):
                channel.ask(half_message(copy, append, stored_ms))
                return
            request = check_request(copy, append, stored_ms)
            request.opaque = number & _OPAQUE_MASK
            channel.send(request)
        except (CorruptRecord, ProtocolViolation) as error:
            self.log.error(
                "no producer can be asked about half message {half_offset}: {error}",
                half_offset=append.queue_offset,
                error=error,
            )

    def _channels(self, group: str) -> list[Channel | DoorProducer]:
        clients = [client for client in self._producers.clients(group) if client.may_settle]
        channels = (cast(Channel | DoorProducer, client.channel) for client in clients)
        return [channel for channel in channels if channel.is_open]
