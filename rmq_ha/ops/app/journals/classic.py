"""Metrics, health and members of a pair: a master and its slaves, by RocketMQ 4.9's replication."""

from typing import Any

from rmq_ha.base.model.flags import PERM_WRITE
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.app.journals.members import NO_LINK, members_of_pair
from rmq_ha.ops.app.page.values import MemberRow
from rmq_ha.ops.app.status.health import Health, follows_nobody
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.ops.app.status.slaves import slave_names
from rmq_ha.server.replication.classic.link import LinkFault
from rmq_ha.server.replication.statistics import (
    STRANDED,
    MasterStatistics,
    ReplicationStatistics,
)
from rmq_ha.server.store.journal_statistics import JournalStatistics

_MOST_SLAVES = 100


class PairView:
    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._config = broker.configuration.store
        self._most_alone = broker.configuration.ours.slave_alone_seconds

    def collect(self, samples: Samples) -> None:
        """Add to a scrape what the slaves lack, and how this broker follows its master."""
        statistics = _of_pair(self._broker.journal.statistics())
        collect_replication(samples, statistics, self._broker.is_slave)

    def health(self, name: str) -> Health:
        """
        Return the health. A master is ready when it takes puts, or when puts are switched off by
        brokerPermission. A slave is ready unless a fault keeps it from following its master, or it
        has been alone for too long.
        """
        told = self._broker.journal.statistics()
        statistics = _of_pair(told)
        if self._broker.is_slave:
            return self._slave_health(name, statistics.master or NO_LINK)
        reason = self._broker.store.why_not_writable()
        if reason:
            return Health(False, f"{name}: no puts: {reason}")
        if not self._broker.configuration.broker.broker_permission & PERM_WRITE:
            return Health(True, f"{name}: serves reads; writing is off (brokerPermission)")
        if statistics is not told:
            return Health(True, f"{name}: its journalPlugIn does not tell of slaves")
        slaves = len(statistics.served_slaves)
        refused = statistics.refused_ahead
        ahead = f"; refused as it was ahead: {', '.join(refused[:3])}" if refused else ""
        if not slaves and self._config.broker_role is BrokerRole.SYNC_MASTER:
            text = f"no slave is connected; sends are answered SLAVE_NOT_AVAILABLE{ahead}"
            return Health(True, f"{name}: {text}")
        return Health(True, f"{name}: {slaves} slaves{ahead}")

    def _slave_health(self, name: str, master: MasterStatistics) -> Health:
        fault = self._broker.journal.log.fault
        if fault is not None:
            return Health(False, f"{name}: it takes nothing of its master's log: {fault}")
        if master.is_followed:
            return Health(True, f"{name}: following {master.address}")
        if master.fault:
            return Health(False, f"{name}: {master.state}: {master.fault}")
        text = f"{name}: serves reads, but does not follow a master"
        return follows_nobody(text, master.alone_seconds, self._most_alone, master.state)

    def mode(self) -> str:
        return "pair"

    def members(self, why_no_puts: str) -> list[MemberRow]:
        statistics = _of_pair(self._broker.journal.statistics())
        address = self._broker.identity.address
        return members_of_pair(statistics, self._config.broker_role, address, why_no_puts)


def _of_pair(statistics: JournalStatistics) -> ReplicationStatistics:
    """Return the statistics of a pair; without slaves if a plugin's journal does not tell."""
    if isinstance(statistics, ReplicationStatistics):
        return statistics
    return ReplicationStatistics(waiting=statistics.waiting, refused=statistics.refused)


def collect_replication(
    samples: Samples, statistics: ReplicationStatistics, is_slave: bool
) -> None:
    """
    Add to a scrape what slaves lack, and how a slave follows its master.

    :param statistics: the statistics of a pair, or of a set in controller mode.
    """
    _collect_slaves(samples, statistics)
    if is_slave:
        _collect_link(samples, statistics.master or NO_LINK)


def _collect_slaves(samples: Samples, statistics: ReplicationStatistics) -> None:
    serving = statistics.served_slaves
    samples.add("rmqha_connections", len(statistics.slaves), port="replication")
    samples.add("rmqha_replication_slaves", len(serving))
    samples.add("rmqha_replication_diverged_total", statistics.different)
    samples.add("rmqha_replication_within_record_total", statistics.within_record)
    samples.add("rmqha_replication_refused_total", statistics.refused)
    samples.add("rmqha_replication_turned_away_total", statistics.turned_away)
    samples.add("rmqha_replication_refused_ahead", len(statistics.refused_ahead))
    samples.add("rmqha_replication_stranded", statistics.stranded)
    shown = serving[:_MOST_SLAVES]
    for slave, name in zip(shown, slave_names(shown), strict=True):
        samples.add("rmqha_replication_lag_bytes", slave.lag, slave=name)
        samples.add("rmqha_replication_lag_seconds", slave.lag_seconds, slave=name)
        samples.add("rmqha_replication_acked_bytes", slave.acked, slave=name)
    samples.add("rmqha_replication_unacknowledged_bytes", statistics.unacknowledged)
    samples.add("rmqha_replication_unacknowledged_seconds", statistics.unacknowledged_seconds)


def _collect_link(samples: Samples, master: MasterStatistics) -> None:
    samples.add("rmqha_slave_following", master.is_followed)
    samples.add("rmqha_slave_diverged", master.state == LinkFault.DIVERGED.value)
    samples.add("rmqha_slave_stranded", master.state == STRANDED)
    samples.add("rmqha_slave_log_unreadable", master.state == LinkFault.UNREADABLE.value)
    samples.add("rmqha_slave_alone_seconds", master.alone_seconds or 0)
    samples.add("rmqha_slave_reported_bytes", master.reported)
    silent_ms = master.silent_ms
    samples.add(
        "rmqha_slave_master_silence_seconds", None if silent_ms is None else silent_ms / 1000
    )
