"""Decides by the sender's address whether this member accepts a request.

Spec: dledger.md, sections 5.2 and 18.2.
"""

from collections.abc import Iterable

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import Networks, canonical, is_loopback
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from rmq_ha.server.dledger.messages import GroupMessage

# Requests that only members send. They name their sender, and must come from that member's address.
_OF_MEMBERS = frozenset(
    {DLedgerRequestCode.VOTE, DLedgerRequestCode.HEART_BEAT, DLedgerRequestCode.PUSH}
)
_LOOPBACK = "127.0.0.1"
_STRANGER = "it comes from no member's address"


class Members:
    """
    The addresses of the members, and the rules that say which requests an address may send.

    A candidate or leader must be at the address that `dLegerPeers` has for its id, or at a host in
    `dLegerPeerHosts`. METADATA is open to everybody; all other requests are for members and
    operators. Members on one machine have the same address, so this class cannot tell one from the
    other.

    :ivar names: by member, its host name to look up; members given by an address are not included.
    :ivar doubtful: members of `names` that may have sent a refused request from a new address.
        `Lookups` looks up their names and empties this set.
    """

    def __init__(self, settings: DLedgerSettings, further: Networks, operators: Networks) -> None:
        """
        :param further: other addresses at which any member may be (`dLegerPeerHosts`).
        :param operators: addresses of operators besides this machine and the members
            (`dLegerOperatorHosts`).
        """
        self._further = further
        self._operators = operators
        self._places: dict[str, frozenset[str]] = {}
        self.names: dict[str, str] = {}
        self.doubtful: set[str] = set()
        for peer, address in settings.peers.items():
            host = host_of(address)
            host = _LOOPBACK if host == "localhost" else host
            if canonical(host) is None:
                self.names[peer] = host
                self.located(peer, [])
            else:
                self.located(peer, [host])

    def located(self, peer: str, addresses: Iterable[str]) -> None:
        """Take the addresses that a member's name stands for."""
        self._places[peer] = frozenset(map(_place, addresses))

    def refusal_unread(self, code: int, host: str) -> str:
        """
        Return why a request from this host is refused without being read; empty: read it.

        :param host: an IP address.
        """
        if code == DLedgerRequestCode.METADATA or host in self._further or self._may_operate(host):
            return ""
        self.doubtful.update(self.names)
        return _STRANGER

    def refusal(self, code: int, message: GroupMessage, host: str) -> str:
        """
        Return why a request of another member is refused; empty: accept it.

        A request is accepted if it names its sender and comes from an address of that member. The
        names of members with an unknown address are looked up again (`doubtful`): the member may
        have moved.

        :param host: the IP address of the sender.
        """
        if code not in _OF_MEMBERS or host in self._further:
            return self.refusal_unread(code, host)
        if message.leader_id is None:
            return "it does not say whose it is"
        place = _place(host)
        for name in filter(None, (message.leader_id, message.local_id)):
            known = self._places.get(name)
            if known is None:
                return f"it says to be {name}'s, who is not in dLegerPeers"
            if place not in known:
                self.doubtful.update(self.names.keys() & {name})
                where = " or ".join(sorted(known)) or "no known address"
                return f"it says to be {name}'s, who is at {where}"
        return ""

    def _may_operate(self, host: str) -> bool:
        place = _place(host)
        return (
            place == _LOOPBACK
            or host in self._operators
            or any(place in places for places in self._places.values())
        )


def _place(host: str) -> str:
    """
    Return the canonical address. All of this machine's loopback addresses count as one: a
    connection to 127.0.1.1 may come from 127.0.0.1.
    """
    return _LOOPBACK if is_loopback(host) else canonical(host) or host
