"""
The requests of brokers, controllers and operators that only controller mode has: codes 906, 907,
1007 and 1008.

Spec: controller.md, section 5.2.
"""

from collections.abc import Callable
from typing import Any, Protocol

from rmq_ha.base.model.broker_identity import MASTER_ID, BrokerIdentity
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.replication.epochs.epochs import OPEN_END, Epochs
from rmq_ha.server.store.log.journal_log import JournalLog

MASTER_BEGINS = "masterMinOffset"
"""A field of the answer to 906 that only rmq-ha masters send: the offset of their first file."""


class ReplicationAccess(Protocol):
    """The calls of replication that these requests need."""

    @property
    def epochs(self) -> Epochs:
        """Return the epochs of the log."""

    def notified(self, channel: Channel, request: RemotingCommand) -> None:
        """Take request 1008, in which a controller tells of an election."""

    def ha_status(self) -> dict[str, Any]:
        """Return the content of the answer to GET_BROKER_HA_STATUS (907)."""


class ControllerModeRequests:
    """
    Answers the codes 906, 907, 1007 and 1008.

    :param identity: returns this broker's present identity.
    """

    def __init__(
        self,
        replication: ReplicationAccess,
        log: JournalLog,
        identity: Callable[[], BrokerIdentity],
    ) -> None:
        self._replication = replication
        self._log = log
        self._identity = identity

    def routes(self) -> dict[int, Any]:
        """Return the handler of each request code."""
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange_ha_info,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epoch_cache,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._replication.notified,
        }

    def exchange_ha_info(self, _: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        EXCHANGE_BROKER_HA_INFO: answer with a master's replication address; a slave's answer is
        empty.
        """
        identity = self._identity()
        if identity.broker_id != MASTER_ID:
            return request.response()
        return request.response(
            ext={
                "masterAddress": identity.address,
                "masterHaAddress": identity.ha_address,
                "masterFlushOffset": str(self._log.flushed_offset),
                MASTER_BEGINS: str(self._log.min_offset),
            }
        )

    def ha_status(self, _: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        GET_BROKER_HA_STATUS: answer which slaves follow and how far they are, or which master is
        followed.
        """
        return request.response(body=fastjson.encode(self._replication.ha_status()))

    def epoch_cache(self, _: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_EPOCH_CACHE: answer which epoch wrote which part of the log."""
        identity, entries = self._identity(), self._replication.epochs.entries
        ends = [entry.start for entry in entries[1:]] + [OPEN_END]
        listed: list[dict[str, Any]] = [
            {"endOffset": end, "epoch": entry.epoch, "startOffset": entry.start}
            for entry, end in zip(entries, ends, strict=bool(entries))
        ]
        return request.response(
            body=fastjson.encode(
                {
                    "brokerId": identity.broker_id,
                    "brokerName": identity.broker_name,
                    "clusterName": identity.cluster,
                    "epochList": listed,
                    "maxOffset": self._log.max_offset,
                }
            )
        )
