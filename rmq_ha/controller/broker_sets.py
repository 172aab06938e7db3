"""The tables that all controllers have alike: who belongs to which set, and who leads it.

Spec: controller.md, sections 10.1 and 10.2.
"""

from dataclasses import dataclass, field

from rmq_ha.controller.events import (
    AddressUpdated,
    BrokerDataCleaned,
    BrokerIdApplied,
    Event,
    MasterElected,
    SyncStateSetAltered,
)
from rmq_ha.controller.messages import SyncStateSet


@dataclass(slots=True)
class KnownBroker:
    """:ivar check_code: with which its id was applied for."""

    address: str
    check_code: str


@dataclass(slots=True)
class BrokerSet:
    """
    All brokers of one name.

    :ivar next_id: above every id that was ever given; Java's counts them (14.22).
    :ivar master: None: nobody leads.
    :ivar master_epoch: 0: nobody was ever elected.
    :ivar members: ids of the SyncStateSet, ascending.
    :ivar set_epoch: of `members`.
    :ivar silence_ms: for which the master may be silent.
    """

    cluster_name: str
    next_id: int = 1
    brokers: dict[int, KnownBroker] = field(default_factory=dict)
    master: int | None = None
    master_epoch: int = 0
    members: tuple[int, ...] = ()
    set_epoch: int = 0
    silence_ms: int = 0

    @property
    def sync_state_set(self) -> SyncStateSet:
        """Members and their epoch."""
        return SyncStateSet(self.members, self.set_epoch)

    @property
    def master_address(self) -> str | None:
        """Where the master is, if there is one."""
        return None if self.master is None else self.brokers[self.master].address

    @property
    def addresses(self) -> dict[int, str]:
        """Of all brokers, by id."""
        return {number: self.brokers[number].address for number in sorted(self.brokers)}


class BrokerSets:
    """
    Applies events in the order of the log; equal logs give equal tables, whoever applies them.

    An event whose set or broker is not there any more changes nothing: who decided it did so before
    he knew.
    """

    def __init__(self) -> None:
        self._sets: dict[str, BrokerSet] = {}

    def get(self, broker_name: str) -> BrokerSet | None:
        """One set."""
        return self._sets.get(broker_name)

    def names(self) -> list[str]:
        """Of all sets."""
        return list(self._sets)

    def apply(self, event: Event) -> None:
        """One committed entry."""
        if isinstance(event, BrokerIdApplied):
            self._applied(event)
            return
        found = self._sets.get(event.broker_name)
        if found is None:
            return
        if isinstance(event, SyncStateSetAltered):
            _altered(found, event)
        elif isinstance(event, MasterElected):
            _elected(found, event)
        elif isinstance(event, AddressUpdated):
            if event.broker_id in found.brokers:
                found.brokers[event.broker_id].address = event.address
        else:
            self._cleaned(found, event)

    def _applied(self, event: BrokerIdApplied) -> None:
        found = self._sets.setdefault(event.broker_name, BrokerSet(event.cluster_name))
        if event.broker_id not in found.brokers:
            found.brokers[event.broker_id] = KnownBroker(event.address, event.check_code)
            found.next_id = max(found.next_id, event.broker_id + 1)

    def _cleaned(self, found: BrokerSet, event: BrokerDataCleaned) -> None:
        gone = set(event.broker_ids or found.brokers)
        if gone >= found.brokers.keys():
            del self._sets[event.broker_name]
            return
        for number in gone & found.brokers.keys():
            del found.brokers[number]
        members = tuple(number for number in found.members if number not in gone)
        if members != found.members:
            found.members, found.set_epoch = members, found.set_epoch + 1
        if found.master in gone:
            found.master, found.master_epoch = None, found.master_epoch + 1


def _altered(found: BrokerSet, event: SyncStateSetAltered) -> None:
    members = {number for number in event.members if number in found.brokers}
    if found.master is None or found.master in members:
        found.members, found.set_epoch = tuple(sorted(members)), found.set_epoch + 1


def _elected(found: BrokerSet, event: MasterElected) -> None:
    if event.master_epoch <= found.master_epoch:
        return
    if event.master_id is None:
        found.master, found.master_epoch = None, event.master_epoch
    elif event.master_id in found.brokers:
        found.master, found.master_epoch = event.master_id, event.master_epoch
        found.members, found.set_epoch = (event.master_id,), found.set_epoch + 1
        found.silence_ms = event.silence_ms
