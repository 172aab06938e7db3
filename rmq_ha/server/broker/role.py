"""RoleSwitch: makes a running broker a slave or a master, as the election of its group demands.

Spec: dledger.md, chapter 16.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topics import HALF_TOPIC
from rmq_ha.base.remoting.audit import OwnActs
from rmq_ha.server.broker.forwarding import Forwarding
from rmq_ha.server.broker.registration import Registration
from rmq_ha.server.broker.slave import SlaveSynchronize
from rmq_ha.server.broker.tables.client_offsets import ClientOffsets
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.broker.transactions.service import TransactionalMessageCheckService
from rmq_ha.server.store.journal import Electorate, Role
from rmq_ha.server.store.message_store import DefaultMessageStore

READY_LOOK_S = 0.02
RETRY_S = 1.0
MASTER_LOOKS_S = (0.3, 1.0, 3.0, 7.0)
"""Seconds between the looks for the master after a role change: it may register later than its
slaves."""


class RoleKeeper(Protocol):
    """Gives a broker its role, from before its store is loaded until it stops."""

    def prepare(self) -> None:
        """
        Prepare the role. Called when the tables are loaded, and the store is not yet.

        :raises StoreError: a table that a slave copied cannot be read.
        """

    def store_is_open(self) -> None:
        """
        Take note that all messages of the log are in the queues now. Called before any client is
        served.
        """

    def start(self) -> None: ...

    def stop(self) -> "Deferred[None]":
        """
        Begin no more changes of the role.

        :returns: fires when a change under way is over; never fails.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleParts:
    """
    The parts of a broker that depend on its role.

    :ivar drain_clients: has the clients of the gRPC port leave their connections. Called when the
        master has become a slave, and its held receives are answered.
    """

    store: DefaultMessageStore
    topics: TopicConfigManager
    delay_offsets: DelayOffsetCopy
    client_offsets: ClientOffsets
    transaction_checks: TransactionalMessageCheckService
    slave_synchronize: SlaveSynchronize
    registration: Registration
    drain_clients: Callable[[], object]
    forwarding: Forwarding


def make_role_keeper(
    clock: IReactorTime, configuration: BrokerConfiguration, parts: RoleParts, role: Role
) -> RoleKeeper:
    """
    Make the keeper of a broker's role.

    If its master is elected, the keeper follows the elections from now on.
    """
    if role.electorate is not None or role.is_slave:
        parts.store.on_arrival(parts.slave_synchronize.on_arrival)
    if role.electorate is None:
        return LastingRole(configuration, parts, role)
    made = RoleSwitch(clock, configuration, parts, role.electorate)
    role.observe(made)
    return made


class RoleSteps:
    """
    Changes the parts of a running broker from one role to the other, in the order of RocketMQ's
    `changeToSlave` and `changeToMaster`.
    """

    log = Logger()

    def __init__(self, configuration: BrokerConfiguration, parts: RoleParts) -> None:
        self._configuration = configuration
        self._parts = parts

    async def change_to_slave(self, broker_id: int) -> None:
        """
        Stop all work of a master, and begin to copy the tables of the new one.

        The caller has set `brokerRole` before, so that no message is put meanwhile.
        """
        parts = self._parts
        was_master = self._configuration.broker.broker_id == MASTER_ID
        self._identify(broker_id)
        for state in parts.store.log_states:
            state.stop()
        if was_master:
            parts.drain_clients()
        await parts.store.schedule.stop()
        try:
            parts.delay_offsets.load()
        except StoreError as error:
            self.log.warn("no delay offsets before the first copy: {error}", error=error)
        parts.slave_synchronize.start()
        parts.registration.register_all()
        self.log.info("this broker is a slave now, brokerId {broker_id}", broker_id=broker_id)

    def change_to_master(
        self, role: BrokerRole, admit_puts: Callable[[], None], *, has_all: bool = False
    ) -> "Deferred[None]":
        """
        Begin all work of a master.

        :param role: SYNC_MASTER or ASYNC_MASTER.
        :param admit_puts: allows puts; called when queues and tables are those of a master.
        :param has_all: whether this log certainly has all messages of the old master.
        :returns: fires when every name server was told, or did not answer; never fails.
        """
        parts = self._parts
        parts.store.renumber()
        parts.slave_synchronize.stop()
        parts.client_offsets.became_master(parts.store.log.max_offset, has_all=has_all)
        parts.topics.create_in_send_back(HALF_TOPIC)
        parts.store.schedule.start()
        parts.transaction_checks.start()
        self._identify(MASTER_ID)
        self._configuration.store.broker_role = role
        admit_puts()
        for state in parts.store.log_states:
            state.start()
        return parts.registration.register_all()

    def _identify(self, broker_id: int) -> None:
        self._configuration.broker.broker_id = broker_id
        registration = self._parts.registration
        registration.identity = registration.identity._replace(broker_id=broker_id)


class LastingRole:
    """Gives a broker the role in its configuration until its next start."""

    def __init__(self, configuration: BrokerConfiguration, parts: RoleParts, role: Role) -> None:
        self._configuration = configuration
        self._parts = parts
        self._role = role

    def prepare(self) -> None:
        if self._role.is_slave:
            self._parts.delay_offsets.load()
        else:
            # The transaction check reads this topic; clients and mqadmin expect it.
            self._parts.topics.create_in_send_back(HALF_TOPIC)

    def store_is_open(self) -> None:
        if not self._role.is_slave:
            self._parts.client_offsets.became_master(self._parts.store.log.max_offset)

    def start(self) -> None:
        """
        See `RoleKeeper`.

        The audit log gets the role, since an operator promotes a slave of a pair by starting it as
        the master.
        """
        if self._role.is_slave:
            self._parts.slave_synchronize.start()
        else:
            self._parts.transaction_checks.start()
            self._parts.forwarding.lead()
        broker, role = self._configuration.broker, self._configuration.store.broker_role
        OwnActs().tell("started as", role.name, broker.broker_name or "", brokerId=broker.broker_id)

    def stop(self) -> "Deferred[None]":
        return succeed(None)


class RoleSwitch:
    """
    Carries out role changes one after the other; of several waiting changes only the last one
    counts.

    Differs from 4.9.7 on purpose: a slave looks for its master at once, and copies the master's
    tables as soon as it has found the master.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        configuration: BrokerConfiguration,
        parts: RoleParts,
        group: Electorate,
    ) -> None:
        self._clock = clock
        self._configuration = configuration
        self._parts = parts
        self._group = group
        self._steps = RoleSteps(configuration, parts)
        self._audit = OwnActs()
        self._wanted: deque[tuple[bool, int]] = deque()
        self._running: Deferred[None] | None = None
        self._is_started = self._is_stopped = False
        self._pause: tuple[IDelayedCall, Deferred[None]] | None = None
        self._look: IDelayedCall | None = None
        self._again: IDelayedCall | None = None

    @property
    def is_slave(self) -> bool:
        """
        Whether this broker is a slave now.

        A member that is neither slave nor master is not; it takes no puts.
        """
        return self._configuration.store.broker_role is BrokerRole.SLAVE

    def prepare(self) -> None:
        """
        See `RoleKeeper`.

        The group has elected nobody yet, but the configuration may say SLAVE.
        """
        if self.is_slave:
            self._parts.delay_offsets.load()

    def store_is_open(self) -> None:
        """See `RoleKeeper`. The group has elected nobody yet."""

    def start(self) -> None:
        """
        Carry out the change that was demanded before the broker served clients, and all later ones.
        """
        self._is_started = True
        self._run_on()

    def stop(self) -> "Deferred[None]":
        """
        Begin no more changes.

        :returns: fires when a change under way is over; never fails.
        """
        self._is_stopped = True
        self._stop_looking()
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._pause is not None:
            timer, waiting = self._pause
            timer.cancel()
            self._pause = None
            waiting.callback(None)
        if self._running is None:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._running.chainDeferred(done)
        return done

    def follow(self) -> None:
        """Become a slave: refuse puts at once, and change the other parts after earlier changes."""
        self._refuse_puts()
        self._want(False, 0)

    def stand(self) -> None:
        """
        Take note that this broker is a candidate: do what `follow` does, unless it is a slave
        already.
        """
        self._refuse_puts()
        if not (self._configuration.broker.broker_id == self._group.slave_id and not self._wanted):
            self._want(False, 0)

    def lead(self, term: int) -> None:
        """Become the master of this term, as soon as everything is committed and dispatched."""
        self._want(True, term)

    def _refuse_puts(self) -> None:
        self._group.admit_puts(False)
        self._configuration.store.broker_role = BrokerRole.SLAVE
        self._parts.forwarding.wait()

    def _want(self, leads: bool, term: int) -> None:
        self._wanted.append((leads, term))
        self._run_on()

    def _run_on(self) -> None:
        if self._is_started and not self._is_stopped and self._wanted and self._running is None:
            self._running = Deferred()
            Deferred.fromCoroutine(self._run()).addErrback(self._failed).addBoth(self._ran)

    def _failed(self, failure: object) -> None:
        self.log.error("a role change failed: {failure}", failure=failure)

    def _ran(self, _: object) -> None:
        running, self._running = self._running, None
        self._run_on()
        if running is not None:
            running.callback(None)

    async def _run(self) -> None:
        leads, term = self._wanted.pop()
        self._wanted.clear()
        if not leads:
            await self._change_to_slave()
        elif await self._is_ready(term):
            try:
                self._change_to_master(term)
            except Exception:
                self.log.failure("this broker cannot become the master yet; it tries again")
                await self._change_to_slave()
                self._try_again(term)

    def _try_again(self, term: int) -> None:
        """
        Try again later to become the master. While the elected leader does not become the master,
        its group has none.
        """
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if not self._is_stopped:
            self._again = self._clock.callLater(RETRY_S, self._on_again, term)

    def _on_again(self, term: int) -> None:
        self._again = None
        if self._group.leads(term):
            self._want(True, term)

    async def _is_ready(self, term: int) -> bool:
        """
        Wait until all of the log is committed and dispatched. Before, write the delay offsets that
        came from the old master, as the schedule service begins with the file.

        :returns: whether this broker still leads then.
        """
        await self._parts.delay_offsets.persist_if_dirty()
        while self._group.leads(term) and not self._is_stopped and not self._wanted:
            if self._group.is_settled() and self._parts.store.dispatcher.bytes_behind <= 0:
                return True
            waiting: Deferred[None] = Deferred()
            timer = self._clock.callLater(READY_LOOK_S, self._paused)
            self._pause = (timer, waiting)
            await waiting
        return False

    def _paused(self) -> None:
        if self._pause is not None:
            waiting, self._pause = self._pause[1], None
            waiting.callback(None)

    async def _change_to_slave(self) -> None:
        self._refuse_puts()
        slave_id = self._group.slave_id
        await self._steps.change_to_slave(slave_id)
        self._tell("slave", brokerId=slave_id)
        self._look_for_master(MASTER_LOOKS_S)
        await self._parts.transaction_checks.stop()  # a round under way ends at its next put

    def _change_to_master(self, term: int) -> None:
        self._stop_looking()
        self._steps.change_to_master(BrokerRole.SYNC_MASTER, lambda: self._group.admit_puts(True))
        self._parts.forwarding.lead()
        self.log.info("this broker is the master now, by term {term}", term=term)
        self._tell("master", term=term)

    def _tell(self, role: str, **details: int) -> None:
        self._audit.tell("became", role, self._configuration.broker.broker_name or "", **details)

    # A slave's master

    def _look_for_master(self, pauses: tuple[float, ...]) -> None:
        self._stop_looking()
        if pauses and not self._is_stopped:
            self._look = self._clock.callLater(pauses[0], self._on_look, pauses[1:])

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _on_look(self, later: tuple[float, ...]) -> None:
        self._look = None
        self._look_for_master(later)
        self._parts.registration.register_all().addCallback(self._registered)

    def _registered(self, _: object) -> None:
        if self.is_slave and not self._is_stopped:
            self._parts.slave_synchronize.synchronize()
