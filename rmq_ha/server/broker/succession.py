"""Succession: the master of a classic pair finds out whether another broker took its place.

Spec: remoting.md, section 9.1.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID, BrokerIdentity
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.remoting.audit import OwnActs
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.broker.standing import Standing


class Peer(NamedTuple):
    """
    A broker that name servers have as the master of this broker's name.

    :ivar leads: it answers, and does not say that it is no master.
    :ivar since_ms: time of its start by its own clock, ms; None if it does not tell.
    """

    address: str
    leads: bool
    since_ms: int | None = None


class Succession:
    """
    Of two masters of one name, lets the one that started later continue and the other one stand
    aside.

    A starting broker stands aside whenever another one leads: a machine that reboots does not know
    that its slave was promoted. A running broker stands aside when name servers send clients to a
    broker that started later, or when a name server refuses its registration for such a broker. It
    never continues by itself, as its log may lack messages that the other broker has acknowledged.

    :param trusts: returns whether an address may be a master of this name.
    :param boot_ms: time when this broker started, ms.
    :ivar standing: the role in which this broker appears to others.
    :ivar dead: by name server, the address that it has as the master, and that does not lead.
    """

    log = Logger()

    def __init__(
        self,
        configuration: BrokerConfiguration,
        identity: BrokerIdentity,
        api: BrokerOuterAPI,
        standing: Standing,
        trusts: Callable[[str], bool],
        boot_ms: int,
    ) -> None:
        self.dead: dict[str, str] = {}
        self._configuration = configuration
        self._identity = identity
        self._api = api
        self.standing = standing
        self._trusts = trusts
        self._boot_ms = boot_ms
        self._told = ""
        self._audit = OwnActs()

    @property
    def is_needed(self) -> bool:
        """
        Whether this broker is the master of a classic pair, and the configuration does not allow
        two masters.
        """
        broker, store = self._configuration.broker, self._configuration.store
        return (
            not self._configuration.ours.start_beside_another_master
            and not self.standing.is_elected
            and store.broker_role is not BrokerRole.SLAVE
            and broker.broker_id == MASTER_ID
        )

    async def look(self, name_servers: Iterable[str], *, is_start: bool = False) -> None:
        """
        Ask name servers which broker has this broker's name and id, and that broker whether it
        leads.

        :param is_start: this broker has not served any client yet.
        """
        if not self.is_needed or self.standing.successor:
            return
        named = await self._named(name_servers)
        peers = await self._ask(named.values())
        self.dead = {
            name_server: address
            for name_server, address in named.items()
            if not peers[address].leads or not self._trusts(address)
        }
        for peer in peers.values():
            if not peer.leads or not self._trusts(peer.address):
                continue
            if is_start or self._is_newer(peer):
                self._stand_aside(peer.address, is_start=is_start)
                return
            self._tell(peer.address)

    async def refused(self, name_server: str, holder: str) -> None:
        """Stand aside if the broker leads for which a name server keeps this broker's id."""
        if not self.is_needed or self.standing.successor:
            return
        peer = (await self._ask([holder]))[holder]
        if peer.leads and self._trusts(holder):
            self._stand_aside(holder, is_start=False)
        else:
            self.dead[name_server] = holder

    async def _named(self, name_servers: Iterable[str]) -> dict[str, str]:
        """
        Return by name server the address that has this broker's name and id there, unless it is our
        own.
        """
        named: dict[str, str] = {}

        async def ask(name_server: str) -> None:
            try:
                address = await self._api.master_of(name_server, self._identity.broker_name)
            except (RemotingError, ProtocolViolation):
                return  # the next round reports it
            if address is not None and address != self._identity.address:
                named[name_server] = address

        await gatherResults([Deferred.fromCoroutine(ask(item)) for item in name_servers])
        return named

    async def _ask(self, addresses: Iterable[str]) -> Mapping[str, Peer]:
        asked = {address: self._peer(address) for address in set(addresses)}
        peers = await gatherResults([Deferred.fromCoroutine(item) for item in asked.values()])
        return {peer.address: peer for peer in peers}

    async def _peer(self, address: str) -> Peer:
        """Ask a broker for its role. One that answers and does not tell counts as a master."""
        try:
            told = await self._api.standing_of(address)
        except (RemotingError, ProtocolViolation):
            return Peer(address, leads=False)
        is_ours = told.broker_name in (None, self._identity.broker_name)
        is_slave = told.role == BrokerRole.SLAVE.value or told.stands_aside
        return Peer(address, is_ours and not is_slave, told.since_ms)

    def _is_newer(self, peer: Peer) -> bool:
        if peer.since_ms is None:
            return True
        return (peer.since_ms, peer.address) > (self._boot_ms, self._identity.address)

    def _two_masters(self, other: str) -> str:
        own = self._identity
        place = f"{own.broker_name}/{MASTER_ID}"
        return f"TWO MASTERS: {own.address} and {other} both register as {place}"

    def _tell(self, older: str) -> None:
        if older != self._told:
            self._told = older
            self.log.error(
                "{both}; this broker, {own}, started later and goes on. Stop {older}, or make it a "
                "slave: rmqha-admin demote",
                both=self._two_masters(older),
                own=self._identity.address,
                older=older,
            )

    def _stand_aside(self, successor: str, *, is_start: bool) -> None:
        if self.standing.successor:
            return
        self.standing.stand_aside(successor)
        own = self._identity
        self._audit.tell("stands aside for", "master", own.broker_name, at=successor)
        begin = f"{successor} leads {own.broker_name}, and this broker was started as its master"
        self.log.error(
            "{begin}; clients are sent to {successor}. This broker takes no messages and registers "
            "nowhere until it is started again: make it a slave (rmqha-admin demote). If it is to "
            "be the master, stop {successor} and restart this broker "
            "(startBesideAnotherMaster=true asks nobody)",
            begin=begin if is_start else self._two_masters(successor),
            successor=successor,
        )
