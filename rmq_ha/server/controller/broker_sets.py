"""The tables that are the same at all controllers: which brokers belong to a set, and which one
leads it.

Spec: controller.md, sections 10.1 and 10.2.
"""

from dataclasses import dataclass, field

from rmq_ha.server.controller.events import (
    AddressUpdated,
    BrokerDataCleaned,
    BrokerIdApplied,
    Event,
    MasterElected,
    SyncStateSetAltered,
)
from rmq_ha.server.controller.messages import SyncStateSet


@dataclass(slots=True)
class KnownBroker:
    """
    A registered broker.

    :ivar check_code: the code with which its id was applied for.
    """

    address: str
    check_code: str


@dataclass(slots=True)
class BrokerSet:
    """
    All brokers of one name.

    :ivar next_id: higher than every id that was ever given; Java counts the brokers instead
        (controller.md, chapter 14, hazard 22).
    :ivar master: id of the master; None: nobody leads.
    :ivar master_epoch: epoch of the last election; 0: nobody was ever elected.
    :ivar members: ids of the SyncStateSet, ascending.
    :ivar set_epoch: epoch of `members`.
    :ivar silence_ms: time for which the master may be silent, in milliseconds.
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
        """Return the members with their epoch."""
        return SyncStateSet(self.members, self.set_epoch)

    @property
    def master_address(self) -> str | None:
        """Return the master's address; None without a master."""
        return None if self.master is None else self.brokers[self.master].address

    @property
    def addresses(self) -> dict[int, str]:
        return {number: self.brokers[number].address for number in sorted(self.brokers)}


class BrokerSets:
    """
    Applies events in the order of the log; equal logs give equal tables at every controller.

    An event whose set or broker does not exist any more changes nothing: its removal was not known
    yet when the event was decided.
    """

    def __init__(self) -> None:
        self._sets: dict[str, BrokerSet] = {}

    def get(self, broker_name: str) -> BrokerSet | None:
        return self._sets.get(broker_name)

    def names(self) -> list[str]:
        return list(self._sets)

    def apply(self, event: Event) -> None:
        if isinstance(event, BrokerIdApplied):
            self._applied(event)
            return
        broker_set = self._sets.get(event.broker_name)
        if broker_set is None:
            return
        if isinstance(event, SyncStateSetAltered):
            _altered(broker_set, event)
        elif isinstance(event, MasterElected):
            _elected(broker_set, event)
        elif isinstance(event, AddressUpdated):
            if event.broker_id in broker_set.brokers:
                broker_set.brokers[event.broker_id].address = event.address
        else:
            self._cleaned(broker_set, event)

    def _applied(self, event: BrokerIdApplied) -> None:
        broker_set = self._sets.setdefault(event.broker_name, BrokerSet(event.cluster_name))
        if event.broker_id not in broker_set.brokers:
            broker_set.brokers[event.broker_id] = KnownBroker(event.address, event.check_code)
            broker_set.next_id = max(broker_set.next_id, event.broker_id + 1)

    def _cleaned(self, broker_set: BrokerSet, event: BrokerDataCleaned) -> None:
        gone = set(event.broker_ids or broker_set.brokers)
        if gone >= broker_set.brokers.keys():
            del self._sets[event.broker_name]
            return
        for number in gone & broker_set.brokers.keys():
            del broker_set.brokers[number]
        members = tuple(number for number in broker_set.members if number not in gone)
        if members != broker_set.members:
            broker_set.members, broker_set.set_epoch = members, broker_set.set_epoch + 1
        if broker_set.master in gone:
            broker_set.master, broker_set.master_epoch = None, broker_set.master_epoch + 1


def _altered(broker_set: BrokerSet, event: SyncStateSetAltered) -> None:
    members = {number for number in event.members if number in broker_set.brokers}
    if broker_set.master is None or broker_set.master in members:
        broker_set.members, broker_set.set_epoch = tuple(sorted(members)), broker_set.set_epoch + 1


def _elected(broker_set: BrokerSet, event: MasterElected) -> None:
    if event.master_epoch <= broker_set.master_epoch:
        return
    if event.master_id is None:
        broker_set.master, broker_set.master_epoch = None, event.master_epoch
    elif event.master_id in broker_set.brokers:
        broker_set.master, broker_set.master_epoch = event.master_id, event.master_epoch
        broker_set.members, broker_set.set_epoch = (event.master_id,), broker_set.set_epoch + 1
        broker_set.silence_ms = event.silence_ms
