"""Standing: the role in which this broker appears to clients, name servers and tools.

Spec: controller.md, section 9.2.
"""

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.broker_identity import MASTER_ID, BrokerIdentity
from rmq_ha.base.store_flags import Flag, RunningFlags
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.server.store.journal import Electorate, Journal

_ANOTHER = "another broker may have been elected"


class Standing:
    """
    Decides whether this broker is the master. If it only looks like the master, `why_not_master`
    says why it is not.

    An elected broker is the master only while no other broker can have been elected, which a lease
    says. The master of a classic pair stands aside when another broker took its place.

    :param flags: flags of the store; one of them refuses puts while this broker stands aside.
    :ivar successor: address of the broker for which this one stands aside; empty if there is none.
    :ivar leaves_for: address of the slave to which this master hands over now; else empty.
    """

    def __init__(self, journal: Journal, flags: RunningFlags) -> None:
        self.successor = ""
        self.leaves_for = ""
        self._journal = journal
        self._flags = flags

    def stand_aside(self, successor: str) -> None:
        """
        Refuse puts until the next start, as another broker is the master of this broker's name.
        """
        self.successor = successor
        self._flags.hoist(
            Flag.ANOTHER_MASTER,
            f"{successor} is the master of this brokerName now; make this broker its slave with "
            "rmqha-admin demote, or stop that one and restart this one",
        )

    @property
    def _group(self) -> Electorate | None:
        """
        The elections of this broker's group, if they give the master a lease, as a controller's
        elections do; else None.
        """
        group = self._journal.role.electorate
        return group if group is not None and group.epoch is not None else None

    @property
    def is_elected(self) -> bool:
        """Whether the master of this broker's journal is elected."""
        return self._journal.role.electorate is not None

    @property
    def has_leases(self) -> bool:
        """Whether this broker is the master only as long as its lease lasts."""
        return self._group is not None

    @property
    def lacks_master(self) -> bool:
        """Whether this broker is a slave of a classic pair and follows no master."""
        role = self._journal.role
        if role.electorate is not None or not role.is_slave:
            return False
        return not self._journal.statistics().follows_master

    @property
    def epoch(self) -> int:
        """
        Epoch of the last election that this broker heard of; 0 if name servers are told no epoch.
        """
        group = self._group
        return 0 if group is None else group.epoch or 0

    def presented(self, identity: BrokerIdentity) -> BrokerIdentity:
        """
        Return the identity for name servers: a master without a lease has the id of a slave.

        So its topics stay in the routes, and consumers may read from it.

        :param identity: the identity with the brokerId of the last role.
        """
        group = self._group
        if identity.broker_id != MASTER_ID or group is None or group.is_sure_to_lead:
            return identity
        return identity._replace(broker_id=group.slave_id)

    def why_not_master(self) -> str:
        """
        Return why this broker must not act as the master; empty if it is the master or a slave.
        """
        if self.successor:
            return f"{self.successor} is the master of this brokerName"
        if self.leaves_for:
            return f"it hands over to {self.leaves_for}"
        group = self._group
        if group is None or self._journal.role.is_slave or group.is_sure_to_lead:
            return ""
        return self._journal.why_no_puts() or _ANOTHER

    def check(self) -> None:
        """
        Refuse commits of offsets, and changes of tables and settings, if this broker looks like the
        master and is not sure to be it.

        A slave accepts them: consumers commit at a slave while there is no master, and its settings
        are its own.

        :raises RequestRejected: this broker looks like the master, and must not act as the master.
        """
        _refuse(self.why_not_master())

    def check_alone(self) -> None:
        """
        Refuse queue locks if another broker may give them too, as a queue would have two owners.

        Differs from 5.3.3 on purpose: a slave refuses as well. Clients ask it only by an outdated
        route.

        :raises RequestRejected: another broker may lock queues, too.
        """
        group = self._group
        if group is None:
            self.check()
        elif not group.is_sure_to_lead:
            _refuse(self._journal.why_no_puts() or _ANOTHER)


def _refuse(why: str) -> None:
    if why:
        raise RequestRejected(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker is not the master now: {why}"
        )
