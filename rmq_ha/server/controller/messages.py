"""What brokers, tools and controllers say to each other: the fields of chapter 5 in our spelling.

Spec: controller.md, sections 5.1 and 5.2.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]

ANYONE = -1
"""The broker id of an election that is for no broker in particular."""
LEAST_PRIORITY = 2147483647


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The ext fields of a request or response; None is an absent one."""


class HeartbeatRequest(Header, frozen=True, kw_only=True):
    """
    904.

    :ivar epoch: of the last entry of the broker's epoch file; -1: it has none.
    :ivar heartbeat_timeout_mills: after this silence the broker counts as dead.
    :ivar election_priority: the smaller one wins, after epoch and offset.
    """

    cluster_name: str = ""
    broker_name: str
    broker_addr: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class AlterSyncStateSetRequest(Header, frozen=True, kw_only=True):
    """1001; the wanted set is the body."""

    broker_name: str
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64 | None = None


class AlterSyncStateSetResponse(Header, frozen=True, kw_only=True):
    """1001; the epoch is 0 in refusals."""

    new_sync_state_set_epoch: Int32 = 0


class ElectMasterRequest(Header, frozen=True, kw_only=True):
    """
    1002.

    :ivar broker_id: who asks, or who shall lead; `ANYONE`.
    :ivar designate_elect: this broker or none.
    """

    cluster_name: str = ""
    broker_name: str
    broker_id: Int64 = ANYONE
    designate_elect: bool = False
    invoke_time: Int64 | None = None


class ElectMasterResponse(Header, frozen=True, kw_only=True):
    """1002; refusals have nothing but code and remark."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class RegisterBrokerRequest(Header, frozen=True, kw_only=True):
    """Answer request code 1003."""

    cluster_name: str = ""
    broker_name: str
    broker_id: Int64
    broker_address: str
    invoke_time: Int64 | None = None


class RegisterBrokerResponse(ElectMasterResponse, frozen=True, kw_only=True):
    """1003; master and epochs only where a master lives. The set is the body."""

    cluster_name: str | None = None
    broker_name: str | None = None


class GetReplicaInfoRequest(Header, frozen=True, kw_only=True):
    """Answer request code 1004."""

    broker_name: str


class GetReplicaInfoResponse(Header, frozen=True, kw_only=True):
    """1004; without a master where there is none. The set is the body."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetMetadataResponse(Header, frozen=True, kw_only=True):
    """
    1005, of every controller.

    :ivar controller_leader_address: empty during an election.
    :ivar peers: `n0:host:port;`, each one with its semicolon.
    """

    group: str
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str = ""


class NotifyRoleChangedRequest(Header, frozen=True, kw_only=True):
    """1008, one-way to brokers; the set is the body."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class CleanBrokerDataRequest(Header, frozen=True, kw_only=True):
    """
    1011.

    :ivar broker_controller_ids_to_clean: `1;2`; without it the whole set.
    """

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 | None = None


class GetNextBrokerIdRequest(Header, frozen=True, kw_only=True):
    """Answer request code 1012."""

    cluster_name: str = ""
    broker_name: str


class GetNextBrokerIdResponse(Header, frozen=True, kw_only=True):
    """1012; nothing is reserved."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


class ApplyBrokerIdRequest(Header, frozen=True, kw_only=True):
    """
    1013.

    :ivar register_check_code: `host:port;milliseconds`.
    """

    cluster_name: str = ""
    broker_name: str
    applied_broker_id: Int64
    register_check_code: str


class ApplyBrokerIdResponse(Header, frozen=True, kw_only=True):
    """1013, in refusals too."""

    cluster_name: str | None = None
    broker_name: str | None = None


class SyncStateSet(msgspec.Struct, frozen=True):
    """
    Body of 1001, 1003, 1004 and 1008.

    :ivar epoch: of the set; in a request the one that is to be replaced.
    """

    members: tuple[int, ...] = ()
    epoch: int = 0


class ElectedBody(msgspec.Struct, frozen=True):
    """
    Body of 1002.

    :ivar addresses: of all brokers of the set, dead ones too, by id; empty where nobody was
        elected: the whole group is absent then.
    """

    members: tuple[int, ...]
    addresses: dict[int, str] = {}
    broker_name: str = ""
    cluster_name: str = ""


class Replica(msgspec.Struct, frozen=True):
    """One broker of a set, as 1006 shows it."""

    broker_name: str
    broker_id: int
    address: str
    alive: bool


class ReplicasInfo(msgspec.Struct, frozen=True):
    """
    One set, as 1006 shows it.

    :ivar master_address: None while nobody leads.
    """

    master_epoch: int
    sync_state_set_epoch: int
    in_sync: tuple[Replica, ...]
    not_in_sync: tuple[Replica, ...]
    master_broker_id: int | None = None
    master_address: str | None = None
