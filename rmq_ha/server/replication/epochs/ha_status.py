"""The answers to haStatus (907) in controller mode.

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
    Return the status of a broker that leads.

    :param end: end of the log.
    :param members: ids of the brokers in sync, including this one.
    :param feeds: pairs of a slave's `host:port` and its feed.
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
    Return the status of a broker that follows, or does not know its master yet.

    :param end: end of the log.
    :param ha_address: replication address of the master; empty: not known.
    :param replica: the replica of the connection; None while there is none.
    :param now_ms: wall clock in milliseconds, for the times of the last read and write.
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
