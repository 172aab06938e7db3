"""What haStatus (907) is told of replication in controller mode.

Spec: controller.md, section 5.2.
"""

from collections.abc import Iterable
from typing import Any

from rmq_ha.server.replication.epochs.feed import EpochFeed
from rmq_ha.server.replication.epochs.replica import EpochReplica

_NO_SLAVE = {
    "lastReadTimestamp": 0,
    "lastWriteTimestamp": 0,
    "masterFlushOffset": 0,
    "maxOffset": 0,
    "transferredByteInSecond": 0,
}


def master_status(
    end: int, members: Iterable[int], feeds: Iterable[tuple[str, EpochFeed]], now: float
) -> dict[str, Any]:
    """
    Of a broker that leads.

    :param end: of the log.
    :param members: who is in sync, this broker among them.
    :param feeds: by `host:port` of the slave.
    """
    in_sync = set(members)
    return {
        "haClientRuntimeInfo": _NO_SLAVE,
        "haConnectionInfo": [
            {
                "addr": peer,
                "diff": end - feed.acked,
                "inSync": feed.slave.broker_id in in_sync,
                "slaveAckOffset": feed.acked,
                "transferFromWhere": max(feed.sent, 0),
                "transferredByteInSecond": feed.rate.per_second(now),
            }
            for peer, feed in feeds
            if feed.slave is not None
        ],
        "inSyncSlaveNums": max(len(in_sync) - 1, 0),
        "master": True,
        "masterCommitLogMaxOffset": end,
    }


def slave_status(
    end: int, ha_address: str, replica: EpochReplica | None, now: float, now_ms: int
) -> dict[str, Any]:
    """
    Of a broker that follows, or does not know whom yet.

    :param end: of the log.
    :param ha_address: of the master; empty: not known.
    :param replica: None while there is no connection.
    :param now_ms: wall clock; the tool shows when something was read and written last.
    """
    own: dict[str, Any] = {**_NO_SLAVE, "maxOffset": end}
    if ha_address:
        own["masterAddr"] = ha_address
    if replica is not None:
        own |= {
            "lastReadTimestamp": now_ms - int((now - replica.last_read) * 1000),
            "lastWriteTimestamp": now_ms - int((now - replica.last_write) * 1000),
            "transferredByteInSecond": replica.rate.per_second(now),
        }
    return {
        "haClientRuntimeInfo": own,
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": False,
        "masterCommitLogMaxOffset": 0,
    }
