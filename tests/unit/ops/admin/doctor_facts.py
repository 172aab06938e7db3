"""Facts of a healthy cluster, to be spoilt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts, NameServer, Port, Status

NOW = 1_700_000_000_000
HOUR = 3_600_000
MASTER, SLAVE, SECOND = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"

Spoil = Callable[[ClusterFacts], Any]


def broker(address: str, name: str = "pair", broker_id: int = 0, **config: str) -> BrokerFacts:
    """A master, or a slave that follows."""
    host = address.partition(":")[0]
    role = "SLAVE" if broker_id else "SYNC_MASTER"
    replication: dict[str, Any] = {"role": role}
    if broker_id:
        link = {"address": "10.0.0.1:10912", "state": "following", "fault": None, "silent_ms": 900}
        replication |= {"master": {**link, "set_aside": 0}, "slaves": [], "tables_seconds": 4.0}
    else:
        one = {"address": "10.0.0.2:40000", "stage": "transfer", "acked": 5000, "lag": 0}
        replication["slaves"] = [{**one, "lag_seconds": 0.0}]
    return BrokerFacts(
        address=address,
        name=name,
        cluster="DefaultCluster",
        broker_id=broker_id,
        clock_ahead_ms=300,
        config={
            "brokerName": name,
            "brokerId": str(broker_id),
            "brokerRole": role,
            "brokerClusterName": "DefaultCluster",
            "brokerIP2": host,
            "haListenPort": "10912",
            "brokerPermission": "6",
            "fileReservedTime": "72",
            "diskMaxUsedSpaceRatio": "75",
            "diskSpaceCleanForciblyRatio": "85",
            "diskSpaceWarningLevelRatio": "90",
            "flushDiskType": "ASYNC_FLUSH",
            "startAcceptSendRequestTimeStamp": "0",
            "haSlaveFallbehindMax": str(256 << 20),
            "aclEnable": "true",
            **config,
        },
        info={
            "brokerVersionDesc": "V4_9_7",
            "bootTimestamp": str(NOW - 100 * HOUR),
            "runtime": "[ 4 days, 4 hours, 0 minutes, 0 seconds ]",
            "commitLogMaxOffset": "5000",
            "commitLogMinOffset": "0",
            "commitLogDiskRatio": "0.4",
            "consumeQueueDiskRatio": "0.4",
            "commitLogDirCapacity": "Total : 100.0 GiB, Free : 60.0 GiB.",
            "earliestMessageTimeStamp": str(NOW - 80 * HOUR),
            "dispatchBehindBytes": "0",
            "remainHowManyDataToFlush": "0 B",
            "putLatency99": "1.00",
            "putMessageFailedTimes": "0",
        },
        replication=replication,
        topics=frozenset({"Orders"}),
        plain=Port(address),
        ha=None if broker_id else Port(f"{host}:10912"),
        fast=Port(f"{host}:10909"),
        status=Status(address=f"{host}:5557", health="ready: all is well"),
    )


def healthy() -> ClusterFacts:
    """Two name servers, a pair; no rule has anything to say."""
    facts = ClusterFacts(now_ms=NOW)
    facts.name_servers = [
        NameServer(
            address=f"10.0.1.{number}:9876",
            brokers={"pair": {0: MASTER, 1: SLAVE}},
            clusters={"pair": "DefaultCluster"},
            topics=frozenset({"Orders"}),
        )
        for number in (1, 2)
    ]
    facts.brokers = [broker(SLAVE, broker_id=1), broker(MASTER)]
    return facts


def master(facts: ClusterFacts) -> BrokerFacts:
    """Of the pair."""
    return facts.brokers[1]


def slave(facts: ClusterFacts) -> BrokerFacts:
    """Of the pair."""
    return facts.brokers[0]


def setting(who: Callable[[ClusterFacts], BrokerFacts], **values: str) -> Spoil:
    """Give it other settings."""
    return lambda facts: who(facts).config.update(values)


def told(who: Callable[[ClusterFacts], BrokerFacts], **values: str) -> Spoil:
    """Have it say something else of itself."""
    return lambda facts: who(facts).info.update(values)


def having(who: Callable[[ClusterFacts], Any], **values: Any) -> Spoil:
    """Set attributes of it."""

    def spoil(facts: ClusterFacts) -> None:
        for name, value in values.items():
            setattr(who(facts), name, value)

    return spoil
