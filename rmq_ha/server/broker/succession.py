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
from rmq_ha.server.broker.tables.promotions import Promotions


class Peer(NamedTuple):
    """
    A broker that name servers have as the master of this broker's name.

    :ivar leads: whether it answers, has this broker's name, and does not deny that it is a master.
    :ivar since_ms: time of its start by its own clock, ms since the epoch; None: not told.
    :ivar promotions: its count of promotions; None if it does not tell, as brokers of Java.
    """

    address: str
    leads: bool
    since_ms: int | None = None
    promotions: int | None = None


class Succession:
    """
    Of two masters of one name, lets the one that was promoted last continue, and the other one
    stand aside.

    An operator decides by a promotion which broker is the master, and each broker keeps its count
    of promotions on its disk. So the counts decide first. If they are equal, or a broker of Java
    tells none, a starting broker stands aside whenever another broker leads. In that case a running
    broker stands aside when name servers send clients to a broker that started later, or when a
    name server refuses its registration for another broker that leads.

    A broker that stands aside never continues by itself, as its log may lack messages that the
    other broker has acknowledged.

    :param trusts: returns whether an address may be a master of this name.
    :param boot_ms: time when this broker started, ms since the epoch.
    :ivar standing: the role in which this broker appears to others.
    :ivar overruled: by name server, the address that it wrongly has as the master of this name: the
        broker there does not lead, or has to yield to this broker. The next registration at that
        name server takes the id over from the address.
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
        promotions: Promotions,
    ) -> None:
        self.overruled: dict[str, str] = {}
        self._configuration = configuration
        self._identity = identity
        self._api = api
        self.standing = standing
        self._trusts = trusts
        self._boot_ms = boot_ms
        self._promotions = promotions
        self._told = ""
        self._insisted: set[str] = set()  # addresses from which the id was taken back
        self._audit = OwnActs()

    @property
    def is_needed(self) -> bool:
        """
        Whether this broker is the master of a classic pair, does not hand over now, and may not be
        a master beside another one.
        """
        broker, store = self._configuration.broker, self._configuration.store
        return (
            not self._configuration.ours.start_beside_another_master
            and not self.standing.leaves_for
            and not self.standing.is_elected
            and store.broker_role is not BrokerRole.SLAVE
            and broker.broker_id == MASTER_ID
        )

    async def look(self, name_servers: Iterable[str], *, is_start: bool = False) -> None:
        """
        Ask name servers which broker has this broker's name and id, and ask that broker whether it
        leads. Stand aside for it, or note in `overruled` that it has to yield.

        :param is_start: whether this broker has not served any client yet.
        """
        if not self.is_needed or self.standing.successor:
            return
        named = await self._holders_of_name(name_servers)
        peers = await self._ask(named.values())
        masters = {item.address: item for item in peers.values() if self._is_master(item)}
        for peer in masters.values():
            if is_start:
                yields = self._compare(peer) <= 0
            else:
                yields = self._yields(peer, by_old_rule=self._is_newer(peer))
            if yields:
                await self._stand_aside(peer, is_start=is_start)
                return
            self._tell(peer)
        self.overruled = {
            name_server: address
            for name_server, address in named.items()
            if address not in masters
            or address in self._insisted
            or self._compare(masters[address]) > 0
        }

    async def refused(self, name_server: str, holder: str) -> None:
        """
        Act on a refused registration: stand aside if `holder` leads, unless this broker was
        promoted later. Otherwise the next registration at that name server takes the id over.

        :param name_server: the name server that refused.
        :param holder: address of the broker for which it keeps this broker's id.
        """
        if not self.is_needed or self.standing.successor:
            return
        peer = (await self._ask([holder]))[holder]
        if self._is_master(peer) and self._yields(peer, by_old_rule=True):
            await self._stand_aside(peer, is_start=False)
        else:
            self.overruled[name_server] = holder

    async def begin(self) -> None:
        """Note on the disk in which role this broker serves clients from now on."""
        if self.standing.is_elected or self.standing.successor:
            return
        if self._configuration.store.broker_role is BrokerRole.SLAVE:
            await self._promotions.follow()
        else:
            await self._promotions.lead()

    def heard_of(self, master: str | None) -> None:
        """Ask the master that this slave follows for its count of promotions, and note it."""
        if master is not None and not self.standing.is_elected:
            Deferred.fromCoroutine(self._copy_count(master))

    async def _copy_count(self, master: str) -> None:
        peer = await self._peer(master)
        if peer.leads and peer.promotions is not None:
            await self._promotions.follow(peer.promotions)

    async def _holders_of_name(self, name_servers: Iterable[str]) -> dict[str, str]:
        """
        Return by name server the address that has this broker's name and id there, unless it is
        this broker's own.
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
        """
        Ask a broker for its role. A broker that answers, but does not tell its role, counts as a
        master; a broker of another name does not.
        """
        try:
            told = await self._api.standing_of(address)
        except (RemotingError, ProtocolViolation):
            return Peer(address, leads=False)
        is_ours = told.broker_name in (None, self._identity.broker_name)
        is_slave = told.role == BrokerRole.SLAVE.value or told.stands_aside
        return Peer(address, is_ours and not is_slave, told.since_ms, told.promotions)

    def _is_master(self, peer: Peer) -> bool:
        return peer.leads and self._trusts(peer.address)

    def _compare(self, peer: Peer) -> int:
        """
        Return a number below 0 if the peer was promoted last, above 0 if this broker was, and 0 if
        nobody knows.

        This broker's count may come from a promotion of another broker: it copies the count of a
        master that it follows, or for which it stands aside. So a higher count counts only if the
        last promotion was this broker's own (`Promotions.is_own`).
        """
        own = self._promotions
        difference = 0 if peer.promotions is None else own.count - peer.promotions
        return difference if own.is_own else min(difference, 0)

    def _yields(self, peer: Peer, *, by_old_rule: bool) -> bool:
        """
        Return whether this broker, which serves clients already, stands aside for a peer.

        A promoted broker takes its id back once from a peer that tells no count. A name server of
        rmq-ha then refuses the peer. If the peer is the master there again, the name server is one
        of Java. Two masters would then take messages for good, so this broker stands aside.

        :param by_old_rule: the decision if no count tells which of the two was promoted last.
        """
        difference = self._compare(peer)
        if difference or not by_old_rule:
            return difference < 0
        own = self._promotions
        if peer.promotions is None and own.is_own and own.count:
            is_back = peer.address in self._insisted
            self._insisted.add(peer.address)
            return is_back
        return True

    def _is_newer(self, peer: Peer) -> bool:
        if peer.since_ms is None:
            return True
        return (peer.since_ms, peer.address) > (self._boot_ms, self._identity.address)

    def _two_masters(self, other: str) -> str:
        own = self._identity
        place = f"{own.broker_name}/{MASTER_ID}"
        return f"TWO MASTERS: {own.address} and {other} both register as {place}"

    def _tell(self, peer: Peer) -> None:
        older = peer.address
        if older != self._told:
            self._told = older
            self.log.error(
                "{both}; this broker, {own}, {reason} and goes on. Stop {older}, or make it a "
                "slave: rmqha-admin demote",
                both=self._two_masters(older),
                own=self._identity.address,
                reason=self._reason(peer),
                older=older,
            )

    def _reason(self, peer: Peer) -> str:
        if self._compare(peer) > 0:
            return "was promoted later"
        return "was promoted" if peer.address in self._insisted else "started later"

    async def _stand_aside(self, peer: Peer, *, is_start: bool) -> None:
        if self.standing.successor:
            return
        successor = peer.address
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
        # The operator who starts this broker again, as the line says, wants it to be the master.
        # Then its start counts as a promotion.
        await self._promotions.follow(peer.promotions or 0)
