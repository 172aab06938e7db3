"""The actions that a `ReplicasManager` wants done, and the values that it is given.

Spec: controller.md, chapter 3.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rmq_ha.server.controller.messages import ControllerHeader, SyncStateSet
from rmq_ha.server.replication.epochs.roles.identity import Identity


class LogProgress(NamedTuple):
    """The facts about the log that a heartbeat tells."""

    epoch: int
    max_offset: int
    confirm_offset: int


class SetRole(Enum):
    """The role of this broker."""

    NONE = "none"
    MASTER = "master"
    SLAVE = "slave"


@dataclass(frozen=True, eq=False, slots=True)
class AskController:
    """
    A request to a controller. `ReplicasManager.answered` must be called once for each.

    :ivar sent: when the request was put here, in seconds; a lease counts from then.
    """

    address: str
    code: int
    header: ControllerHeader | None
    body: bytes
    sent: float


class ControllerAnswer(NamedTuple):
    """A controller's answer to a request."""

    code: int
    remark: str | None
    ext: dict[str, str]
    body: bytes


class Apply(NamedTuple):
    """Write the application to brokerIdentity-temp, then call `write_done`."""

    application: Identity


class Accept(NamedTuple):
    """Write the identity to brokerIdentity, remove brokerIdentity-temp, and call `write_done`."""

    identity: Identity


class Withdraw(NamedTuple):
    """Remove brokerIdentity-temp, then call `write_done`."""


class Lead(NamedTuple):
    """Be the master of an epoch. A broker that cannot lead calls `ControllerClient.failed`."""

    epoch: int
    known: SyncStateSet


class Follow(NamedTuple):
    """Be a slave of this master."""

    master_id: int
    master_address: str
    epoch: int


class StepDown(NamedTuple):
    """Stop leading, without another master to follow: accept no messages."""

    why: str


class Adopt(NamedTuple):
    """
    The controller has this set for this broker's epoch.

    :ivar is_final: whether the controller can no longer accept any set that was proposed until now.
    :ivar lacks_heartbeat: whether the controller refused the last proposal because a member had
        sent no heartbeat yet.
    """

    known: SyncStateSet
    is_final: bool = False
    lacks_heartbeat: bool = False


Action = AskController | Apply | Accept | Withdraw | Lead | Follow | StepDown | Adopt
