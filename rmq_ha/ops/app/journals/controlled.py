"""What operators see of a broker in controller mode."""

from collections.abc import Mapping
from typing import Any

from rmq_ha.ops.app.journals.classic import tell_replication
from rmq_ha.ops.app.journals.members import members_of_set
from rmq_ha.ops.app.page.values import Member
from rmq_ha.ops.app.status.health import Health, follows_nobody
from rmq_ha.ops.app.status.samples import Samples


class SetShown:
    def __init__(self, broker: Any) -> None:
        self._broker = broker

    def tell(self, samples: Samples) -> None:
        """As of a pair, and its place in the set."""
        told = self._broker.journal.statistics()
        tell_replication(samples, told, self._broker.is_slave)
        tell_set(samples, told)

    def health(self, name: str) -> Health:
        journal = self._broker.journal
        told, why = journal.statistics(), journal.why_no_puts()
        if told["leads"]:  # of a slave the store knows no more than that
            why = self._broker.store.why_not_writable() or why
        most = self._broker.configuration.ours.slave_alone_seconds
        return set_health(name, told, why, most)

    def mode(self) -> str:
        return f"controller mode, epoch {max(0, self._broker.journal.statistics()['epoch'])}"

    def members(self, why_no_puts: str) -> list[Member]:
        """The master and its slaves, in sync or not."""
        told, address = self._broker.journal.statistics(), self._broker.identity.address
        return members_of_set(told, address, why_no_puts)


def tell_set(samples: Samples, statistics: Mapping[str, Any]) -> None:
    """
    Add to a scrape.

    :param statistics: of `AutoSwitchHAService`.
    """
    samples.add("rmqha_controller_epoch", max(statistics["epoch"], 0))
    samples.add("rmqha_controller_is_master", statistics["leads"])
    samples.add("rmqha_controller_has_lease", statistics["lease"])
    samples.add("rmqha_controller_in_sync", len(statistics["in_sync"]))
    samples.add("rmqha_controller_unconfirmed_bytes", statistics["unconfirmed"])
    samples.add("rmqha_controller_role_changes_total", statistics["elections"])


def set_health(
    name: str, statistics: Mapping[str, Any], why_no_puts: str, most_alone: int = 0
) -> Health:
    """
    A master is ready when it takes puts, a slave when it can follow.

    :param name: of the broker.
    :param why_no_puts: empty: it takes puts.
    :param most_alone: slaveAloneSeconds.
    """
    number = "no id yet" if statistics["id"] is None else f"id {statistics['id']}"
    text = f"{name}: {number}, epoch {max(statistics['epoch'], 0)}"
    if statistics["leads"]:
        if why_no_puts:
            return Health(False, f"{text}: leads, but no puts: {why_no_puts}")
        members = ", ".join(map(str, sorted(statistics["in_sync"])))
        return Health(True, f"{text}: leads; in sync: {members}")
    link = statistics["master"]
    if link is None:
        return Health(False, f"{text}: {why_no_puts}")
    if link["fault"]:
        return Health(False, f"{text}: does not follow {link['address']}: {link['fault']}")
    if link["state"] == "following":
        return Health(True, f"{text}: following {link['address']}")
    why = f"{text}: serves reads, but does not follow a master"
    return follows_nobody(why, link["alone_seconds"], most_alone, link["state"])
