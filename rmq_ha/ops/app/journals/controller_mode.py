"""Metrics, health and members of a broker in controller mode."""

from typing import Any

from rmq_ha.ops.app.journals.classic import collect_replication
from rmq_ha.ops.app.journals.members import members_of_set
from rmq_ha.ops.app.page.values import MemberRow
from rmq_ha.ops.app.status.health import Health, follows_nobody
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.server.replication.statistics import SetStatistics


class SetView:
    def __init__(self, broker: Any) -> None:
        self._broker = broker

    def collect(self, samples: Samples) -> None:
        """Add to a scrape the values of a pair, and the broker's place in the set."""
        statistics: SetStatistics = self._broker.journal.statistics()
        collect_replication(samples, statistics, self._broker.is_slave)
        collect_set(samples, statistics)

    def health(self, name: str) -> Health:
        journal = self._broker.journal
        statistics: SetStatistics = journal.statistics()
        why = journal.why_no_puts()
        if statistics.leads:  # a slave's store knows no more than the values above
            why = self._broker.store.why_not_writable() or why
        most = self._broker.configuration.ours.slave_alone_seconds
        return set_health(name, statistics, why, most)

    def mode(self) -> str:
        statistics: SetStatistics = self._broker.journal.statistics()
        return f"controller mode, epoch {max(0, statistics.epoch)}"

    def members(self, why_no_puts: str) -> list[MemberRow]:
        """Return the master and its slaves, in sync or not."""
        statistics: SetStatistics = self._broker.journal.statistics()
        return members_of_set(statistics, self._broker.identity.address, why_no_puts)


def collect_set(samples: Samples, statistics: SetStatistics) -> None:
    """Add the state of a broker in controller mode to a scrape."""
    samples.add("rmqha_controller_epoch", max(statistics.epoch, 0))
    samples.add("rmqha_controller_is_master", statistics.leads)
    samples.add("rmqha_controller_has_lease", statistics.has_lease)
    samples.add("rmqha_controller_in_sync", len(statistics.in_sync))
    samples.add("rmqha_controller_unconfirmed_bytes", statistics.unconfirmed)
    samples.add("rmqha_controller_role_changes_total", statistics.elections)


def set_health(
    name: str, statistics: SetStatistics, why_no_puts: str, most_alone: int = 0
) -> Health:
    """
    Return the health. A master is ready when it takes puts. A slave is ready when it follows its
    master, or has been alone for a short time only. With a fault, or without a known master, it is
    not ready. It is in sync when it follows, and the controllers have it in their set.

    :param name: name of the broker.
    :param why_no_puts: why it takes no puts; empty: it takes puts.
    :param most_alone: the setting slaveAloneSeconds.
    """
    number = "no id yet" if statistics.broker_id is None else f"id {statistics.broker_id}"
    text = f"{name}: {number}, epoch {max(statistics.epoch, 0)}"
    if statistics.leads:
        if why_no_puts:
            return Health(False, f"{text}: leads, but no puts: {why_no_puts}")
        members = ", ".join(map(str, sorted(statistics.in_sync)))
        return Health(True, f"{text}: leads; in sync: {members}")
    master = statistics.master
    if master is None:
        return Health(False, f"{text}: {why_no_puts}")
    if master.fault:
        return Health(False, f"{text}: does not follow {master.address}: {master.fault}")
    if master.is_followed:
        return Health(True, f"{text}: following {master.address}", statistics.is_in_sync)
    why = f"{text}: serves reads, but does not follow a master"
    alone = follows_nobody(why, master.alone_seconds, most_alone, master.state)
    return alone._replace(is_in_sync=False)
