"""Claims: addresses that lost a brokerName and brokerId to another one, and still claim them.

Pure: the time (seconds of any steady clock) comes in as an argument.
"""

from dataclasses import dataclass, field
from typing import TypeVar

from rmq_ha.base.wire.route_bodies import Rival

T = TypeVar("T")
CLAIM_SECONDS = 120.0
"""
Seconds after which a claim is over if it is not repeated. A broker registers at least once every
60 s.
"""
_MOST_NAMES = 10_000
_MOST_ADDRESSES = 16


@dataclass(slots=True)
class _Place:
    """
    One id of one name.

    :ivar holder: the address that had the id last, whether it is alive or not.
    :ivar losers: addresses that had the id earlier, and have registered with no other id since.
    :ivar claims: by address: the time in seconds at which it last claimed the id in vain.
    """

    holder: str | None = None
    losers: dict[str, None] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)


class Claims:
    """
    The holders of ids, and the addresses that claim the same ids.

    Holders that are gone are remembered, too: a machine that reboots registers as before. An
    address has accepted its loss when it registers with another brokerId.

    :ivar takeovers: number of times that an id was taken from an address that was alive.
    :ivar refused: number of registrations that claimed an id which another address holds.
    """

    def __init__(self) -> None:
        self.takeovers = 0
        self.refused = 0
        self._names: dict[str, dict[int, _Place]] = {}

    def has_lost(self, broker_name: str, broker_id: int, address: str) -> bool:
        """Return whether another address got the id after this address had it."""
        place = self._names.get(broker_name, {}).get(broker_id)
        return place is not None and address in place.losers

    def note_holder(self, broker_name: str, broker_id: int, address: str) -> None:
        """Note that the address holds the id now, and no other id of that name."""
        places = self._names.pop(broker_name, {})
        self._names[broker_name] = places  # keep the name that was heard of last at the end
        for number, place in places.items():
            place.losers.pop(address, None)
            place.claims.pop(address, None)
            if number != broker_id and place.holder == address:
                place.holder = None
        place = places.setdefault(broker_id, _Place())
        if place.holder not in (None, address):
            _remember(place.losers, str(place.holder), None)
        place.holder = address
        if len(self._names) > _MOST_NAMES:
            del self._names[next(iter(self._names))]

    def note_claim(self, broker_name: str, broker_id: int, address: str, now: float) -> bool:
        """
        Note that the address claims an id that another address holds.

        :returns: whether the claim is new: the address made none within the last `CLAIM_SECONDS`.
        """
        place = self._names.setdefault(broker_name, {}).setdefault(broker_id, _Place())
        before = place.claims.pop(address, None)
        _remember(place.claims, address, now)
        return before is None or before + CLAIM_SECONDS < now

    def rivals(self, now: float) -> list[Rival]:
        """Return all addresses that claim an id of another one."""
        return [
            Rival(name, number, address, str(place.holder))
            for name, places in self._names.items()
            for number, place in places.items()
            for address, last in place.claims.items()
            if place.holder not in (None, address) and last + CLAIM_SECONDS >= now
        ]


def _remember(table: dict[str, T], address: str, value: T) -> None:
    table[address] = value
    if len(table) > _MOST_ADDRESSES:
        del table[next(iter(table))]
