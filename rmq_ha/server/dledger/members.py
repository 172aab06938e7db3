"""Whose requests a member takes: by the address that they come from.

Spec: dledger.md, sections 5.2 and 18.2.
"""

from collections.abc import Iterable

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import Networks, canonical, is_loopback
from rmq_ha.server.dledger.codes import RequestCode
from rmq_ha.server.dledger.messages import GroupMessage

# What only the others of the group send: the sender says who it is, and must be there.
_OF_MEMBERS = frozenset({RequestCode.VOTE, RequestCode.HEART_BEAT, RequestCode.PUSH})
_LOOPBACK = "127.0.0.1"
_STRANGER = "it comes from no member's address"


class Members:
    """
    Where the members are, and who else may ask for what.

    A candidate or leader must be at the address that `dLegerPeers` has for its id; METADATA is for
    everybody, all else for members and operators. Members on one machine cannot be told apart.

    :ivar names: by member, the host to look up, where it is no address.
    :ivar doubtful: the members of `names` that a refused request may have come from: whoever looks
        up their names empties it.
    """

    def __init__(self, settings: DLedgerSettings, further: Networks, operators: Networks) -> None:
        """
        :param further: where any member may be besides (`dLegerPeerHosts`).
        :param operators: besides this machine and the members' (`dLegerOperatorHosts`).
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
        """This is what a member's name stands for."""
        self._places[peer] = frozenset(map(_place, addresses))

    def refusal_unread(self, code: int, host: str) -> str:
        """
        Why nothing of this host is worth reading; empty: it may be.

        :param host: an address.
        """
        if code == RequestCode.METADATA or host in self._further or self._may_operate(host):
            return ""
        self.doubtful.update(self.names)
        return _STRANGER

    def refusal(self, code: int, message: GroupMessage, host: str) -> str:
        """
        Why a request of another member is refused, or an empty text if it is taken.

        A request is taken if it names its sender and comes from an address of that member. Names
        that
        come from an unknown address are looked up again (`doubtful`): the member may have moved.

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
    """The address; all of the machine itself are one: a connection to 127.0.1.1 is 127.0.0.1's."""
    return _LOOPBACK if is_loopback(host) else canonical(host) or host
