"""What a `ReplicasManager` wants done, and what it is told.

Spec: controller.md, chapter 3.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rmq_ha.server.controller.messages import Header, SyncStateSet
from rmq_ha.server.replication.epochs.roles.identity import Identity


class Progress(NamedTuple):
    """What a heartbeat tells of the log."""

    epoch: int
    max_offset: int
    confirm_offset: int


class Role(Enum):
    """What this broker is."""

    NONE = "none"
    MASTER = "master"
    SLAVE = "slave"


@dataclass(frozen=True, eq=False, slots=True)
class Ask:
    """
    A request to a controller; each one gets one `answered`.

    :ivar sent: when it was put here, in seconds; a lease counts from then.
    """

    address: str
    code: int
    header: Header | None
    body: bytes
    sent: float


class Answer(NamedTuple):
    """What a controller said to it."""

    code: int
    remark: str | None
    ext: dict[str, str]
    body: bytes


class Apply(NamedTuple):
    """Put this into brokerIdentity-temp, then call `kept`."""

    application: Identity


class Accept(NamedTuple):
    """Put this into brokerIdentity and remove the other file, then call `kept`."""

    identity: Identity


class Withdraw(NamedTuple):
    """Remove brokerIdentity-temp, then call `kept`."""


class Lead(NamedTuple):
    """Be the master. Whoever cannot says so with `failed`."""

    epoch: int
    known: SyncStateSet


class Follow(NamedTuple):
    """Be a slave of this one."""

    master_id: int
    master_address: str
    epoch: int


class StepDown(NamedTuple):
    """Lead no more, without anybody to follow: accept nothing."""

    why: str


class Adopt(NamedTuple):
    """
    The controller has this set of ours.

    :ivar is_final: and will have no other that it was asked for until now.
    :ivar lacks_heartbeat: it refused the last one because a member had sent no heartbeat yet.
    """

    known: SyncStateSet
    is_final: bool = False
    lacks_heartbeat: bool = False


Action = Ask | Apply | Accept | Withdraw | Lead | Follow | StepDown | Adopt
