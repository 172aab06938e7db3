"""What the roles of a broker in controller mode work with."""

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
    """What replication needs of its journal besides the log."""

    @property
    def dispatched_to(self) -> int:
        """Physical offset up to which queues know what the log holds."""

    def set_aside(self, end: int, why: str) -> "Deferred[Any]":
        """Give up what lies behind `end`, and keep it in a folder."""

    def set_all_aside(self, why: str) -> "Deferred[Any]":
        """Give up all of the log, and keep it in a folder."""

    def why_not_stored(self) -> str:
        """Why the disk takes no messages; empty: it does."""


@dataclass(frozen=True, kw_only=True)
class BrokerParts:
    """
    The parts of its broker that replication works with.

    :ivar client: asks controllers and masters; it is not stopped here.
    :ivar tables: go to slaves of ours, and are taken from a master of ours.
    :ivar on_master: is called with the master's address for clients when it is known; None:
        nobody.
    :ivar masters: which of the masters that controllers name is followed.
    """

    client: Calls
    journal: OwnJournal
    tables: Tables
    on_master: Callable[[str | None], None]
    masters: Masters


@dataclass(kw_only=True)
class RoleContext:
    """
    One broker, its log, and what was decided of it.

    :ivar decision: the newest of the controllers; None: there is none, or this broker stops.
    """

    host: Host
    configuration: BrokerConfiguration
    log: EpochCommitLog
    settings: ReplicationSettings
    history: EpochHistory
    shared: SharedEnd
    decision: Lead | Follow | StepDown | None = None
    attached: BrokerParts | None = None
    controllers: ControllerClient | None = None

    @property
    def broker(self) -> BrokerParts:
        """Whoever was given a role has been attached."""
        assert self.attached is not None
        return self.attached

    @property
    def conversation(self) -> ControllerClient:
        """Whoever was given a role talks with controllers."""
        assert self.controllers is not None
        return self.controllers

    @property
    def has_to_follow_first(self) -> bool:
        """What a classic pair's slave lacks of its master's log, it must not take from others."""
        return self.configuration.was_slave and not self.history.is_of_controllers

    @property
    def broker_id(self) -> int | None:
        """As the controllers gave it; None: not yet."""
        identity = None if self.controllers is None else self.controllers.manager.identity
        return None if identity is None else identity.broker_id

    def now(self) -> float:
        return self.host.clock.seconds()
