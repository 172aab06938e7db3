"""The objects that a broker in controller mode gives to its two roles, master and slave."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.seams import Host
from rmq_ha.server.replication.epochs.commit_log import EpochCommitLog
from rmq_ha.server.replication.epochs.history import EpochHistory
from rmq_ha.server.replication.epochs.roles.actions import Follow, Lead, StepDown
from rmq_ha.server.replication.epochs.roles.controller_client import ControllerClient
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.shared_end import SharedEnd
from rmq_ha.server.replication.epochs.tables import Tables
from rmq_ha.server.store.journal import Masters


class OwnJournal(Protocol):
    """The access of replication to its journal, besides the log."""

    @property
    def dispatched_to(self) -> int:
        """Return the physical offset up to which the log is dispatched to the queues."""

    def set_aside(self, end: int, why: str) -> "Deferred[Any]":
        """Cut the log at `end`, and keep the cut part in a folder."""

    def set_all_aside(self, why: str) -> "Deferred[Any]":
        """Give up all of the log, and keep it in a folder."""

    def why_not_stored(self) -> str:
        """Return why the disk takes no messages; empty: it takes them."""


@dataclass(frozen=True, kw_only=True)
class ReplicationParts:
    """
    The parts of its broker that replication works with.

    :ivar client: calls controllers and masters; the broker stops it.
    :ivar tables: the topics, groups and offsets. A rmq-ha master sends them to its rmq-ha slaves.
    :ivar on_master: called with the master's address for clients when that is known; with None when
        there is no other master.
    :ivar masters: decides which of the masters that controllers name may be followed.
    """

    client: Calls
    journal: OwnJournal
    tables: Tables
    on_master: Callable[[str | None], None]
    masters: Masters


@dataclass(kw_only=True)
class RoleContext:
    """
    One broker with its log, and the controllers' decision about it.

    :ivar decision: the controllers' newest decision; None: there is none, or this broker stops.
    :ivar is_leaving: whether this broker was told to stop, and hands over if it leads.
    """

    host: Host
    configuration: BrokerConfiguration
    log: EpochCommitLog
    settings: ReplicationSettings
    history: EpochHistory
    shared: SharedEnd
    decision: Lead | Follow | StepDown | None = None
    attached: ReplicationParts | None = None
    controllers: ControllerClient | None = None
    is_leaving: bool = False

    @property
    def broker(self) -> ReplicationParts:
        """Return the broker's parts. Every broker with a role has been attached."""
        assert self.attached is not None
        return self.attached

    @property
    def conversation(self) -> ControllerClient:
        """Return the conversation with the controllers. Every broker with a role has one."""
        assert self.controllers is not None
        return self.controllers

    @property
    def has_to_follow_first(self) -> bool:
        """
        Whether this broker must follow a master before it may lead. It was a classic pair's slave,
        so it may lack messages of its master.
        """
        return self.configuration.was_slave and not self.history.is_of_controllers

    @property
    def broker_id(self) -> int | None:
        """Return the id that the controllers gave this broker; None: none yet."""
        identity = None if self.controllers is None else self.controllers.manager.identity
        return None if identity is None else identity.broker_id

    @property
    def slave_id(self) -> int:
        """Return the id that this broker has as a slave; 1 until the controllers give it one."""
        return self.broker_id or 1

    def now(self) -> float:
        return self.host.clock.seconds()
