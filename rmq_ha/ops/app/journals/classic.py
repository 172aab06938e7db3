"""What operators see of a pair: a master and its slaves, by RocketMQ 4.9's replication."""

from collections.abc import Mapping
from typing import Any

from rmq_ha.base.model.flags import PERM_WRITE
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.app.journals.members import members_of_pair
from rmq_ha.ops.app.page.values import Member
from rmq_ha.ops.app.status.health import Health, follows_nobody
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.ops.app.status.slaves import slave_names
from rmq_ha.server.replication.classic.link import Fault

_MOST_SLAVES = 100
STRANDED = "stranded"
"""Where a slave is whose log ends before its master's first file begins."""


class PairShown:
    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._config = broker.configuration.store
        self._most_alone = broker.configuration.ours.slave_alone_seconds

    def tell(self, samples: Samples) -> None:
        """What its slaves lack, and how it follows its master."""
        tell_replication(samples, self._broker.journal.statistics(), self._broker.is_slave)

    def health(self, name: str) -> Health:
        """A master is ready when it takes puts, a slave as long as it is not alone for too long."""
        told = self._broker.journal.statistics()
        if self._broker.is_slave:
            return self._slave_health(name, told.get("master") or {})
        reason = self._broker.store.why_not_writable()
        if reason:
            return Health(False, f"{name}: no puts: {reason}")
        if not self._broker.configuration.broker.broker_permission & PERM_WRITE:
            return Health(True, f"{name}: serves reads; writing is off (brokerPermission)")
        if "slaves" not in told:
            return Health(True, f"{name}: its journalPlugIn does not tell of slaves")
        slaves = len(_serving(told))
        refused = told.get("refused_ahead") or []
        ahead = f"; refused as it was ahead: {', '.join(refused[:3])}" if refused else ""
        if not slaves and self._config.broker_role is BrokerRole.SYNC_MASTER:
            text = f"no slave is connected; sends are answered SLAVE_NOT_AVAILABLE{ahead}"
            return Health(True, f"{name}: {text}")
        return Health(True, f"{name}: {slaves} slaves{ahead}")

    def _slave_health(self, name: str, link: Mapping[str, Any]) -> Health:
        fault = self._broker.journal.log.fault
        if fault is not None:
            return Health(False, f"{name}: it takes nothing of its master's log: {fault}")
        if link.get("state") == "following":
            return Health(True, f"{name}: following {link['address']}")
        state = link.get("state", "unknown")
        if link.get("fault"):
            return Health(False, f"{name}: {state}: {link['fault']}")
        text = f"{name}: serves reads, but does not follow a master"
        return follows_nobody(text, link.get("alone_seconds"), self._most_alone, state)

    def mode(self) -> str:
        return "pair"

    def members(self, why_no_puts: str) -> list[Member]:
        told, address = self._broker.journal.statistics(), self._broker.identity.address
        return members_of_pair(told, self._config.broker_role, address, why_no_puts)


def tell_replication(samples: Samples, told: Mapping[str, Any], is_slave: bool) -> None:
    """
    Add to a scrape what slaves lack, and of a slave how it follows its master.

    :param told: statistics of the journal of a pair, or of a set in controller mode.
    """
    _tell_slaves(samples, told)
    if is_slave:
        _tell_link(samples, told.get("master") or {})


def _tell_slaves(samples: Samples, statistics: Mapping[str, Any]) -> None:
    connections = statistics.get("slaves", ())
    serving = _serving(statistics)
    samples.add("rmqha_connections", len(connections), port="replication")
    samples.add("rmqha_replication_slaves", len(serving))
    samples.add("rmqha_replication_diverged_total", statistics.get("different"))
    samples.add("rmqha_replication_within_record_total", statistics.get("within_record"))
    samples.add("rmqha_replication_refused_total", statistics.get("refused") or 0)
    samples.add("rmqha_replication_turned_away_total", statistics.get("turned_away"))
    samples.add("rmqha_replication_refused_ahead", len(statistics.get("refused_ahead") or []))
    stranded = [slave for slave in connections if slave["stage"] == STRANDED]
    samples.add("rmqha_replication_stranded", len(statistics.get("stranded", stranded)))
    told = serving[:_MOST_SLAVES]
    for slave, address in zip(told, slave_names(told), strict=True):
        samples.add("rmqha_replication_lag_bytes", slave["lag"], slave=address)
        samples.add("rmqha_replication_lag_seconds", slave.get("lag_seconds"), slave=address)
        samples.add("rmqha_replication_acked_bytes", slave["acked"], slave=address)
    samples.add("rmqha_replication_unacknowledged_bytes", statistics.get("unacknowledged"))
    samples.add(
        "rmqha_replication_unacknowledged_seconds", statistics.get("unacknowledged_seconds")
    )


def _tell_link(samples: Samples, link: Mapping[str, Any]) -> None:
    state = link.get("state")
    samples.add("rmqha_slave_following", state == "following")
    samples.add("rmqha_slave_diverged", state == Fault.DIVERGED.value)
    samples.add("rmqha_slave_stranded", state == STRANDED)
    samples.add("rmqha_slave_log_unreadable", state == Fault.UNREADABLE.value)
    alone = link.get("alone_seconds")
    samples.add("rmqha_slave_alone_seconds", 0 if alone is None else alone)
    samples.add("rmqha_slave_reported_bytes", link.get("reported"))
    silent_ms = link.get("silent_ms")
    samples.add(
        "rmqha_slave_master_silence_seconds", None if silent_ms is None else silent_ms / 1000
    )


def _serving(statistics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Connections on the HA port that said where they are, and get what they lack."""
    return [
        slave
        for slave in statistics.get("slaves", ())
        if slave["requested"] is not None and slave["stage"] != STRANDED
    ]
