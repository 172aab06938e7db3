"""The messages between brokers, tools and controllers, with field names in the style of Python.

Spec: controller.md, sections 5.1 and 5.2.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]

ANYONE = -1
"""The broker id in an election that is for no particular broker."""
LEAST_PRIORITY = 2147483647


class ControllerHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The ext fields of a request or response; None means an absent field."""


class HeartbeatRequest(ControllerHeader, frozen=True, kw_only=True):
    """
    The request BROKER_HEARTBEAT (904).

    :ivar epoch: the last epoch in the broker's epoch file; -1: it has none.
    :ivar heartbeat_timeout_mills: after this silence the broker counts as dead, in milliseconds.
    :ivar election_priority: after epoch and offset, the broker with the smaller number wins.
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


class AlterSyncStateSetRequest(ControllerHeader, frozen=True, kw_only=True):
    """The request ALTER_SYNC_STATE_SET (1001); the wanted set is the body."""

    broker_name: str
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64 | None = None


class AlterSyncStateSetResponse(ControllerHeader, frozen=True, kw_only=True):
    """The response to 1001; the epoch is 0 in refusals."""

    new_sync_state_set_epoch: Int32 = 0


class ElectMasterRequest(ControllerHeader, frozen=True, kw_only=True):
    """
    The request ELECT_MASTER (1002).

    :ivar broker_id: the broker that asks, or that shall lead; or `ANYONE`.
    :ivar designate_elect: elect this broker or none.
    """

    cluster_name: str = ""
    broker_name: str
    broker_id: Int64 = ANYONE
    designate_elect: bool = False
    invoke_time: Int64 | None = None


class ElectMasterResponse(ControllerHeader, frozen=True, kw_only=True):
    """The response to 1002; refusals have only a code and a remark."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class RegisterBrokerRequest(ControllerHeader, frozen=True, kw_only=True):
    """The request REGISTER_BROKER (1003), with which a broker that has an id tells its address."""

    cluster_name: str = ""
    broker_name: str
    broker_id: Int64
    broker_address: str
    invoke_time: Int64 | None = None


class RegisterBrokerResponse(ElectMasterResponse, frozen=True, kw_only=True):
    """
    The response to 1003. Master and epochs are set only if a master is alive. The set is the body.
    """

    cluster_name: str | None = None
    broker_name: str | None = None


class GetReplicaInfoRequest(ControllerHeader, frozen=True, kw_only=True):
    """The request GET_REPLICA_INFO (1004), which asks who leads a set."""

    broker_name: str


class GetReplicaInfoResponse(ControllerHeader, frozen=True, kw_only=True):
    """
    The response to 1004; the master's fields are absent without a master. The set is the body.
    """

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetMetadataResponse(ControllerHeader, frozen=True, kw_only=True):
    """
    The response to GET_METADATA_INFO (1005), from every controller.

    :ivar controller_leader_address: address of the controllers' leader; empty during an election.
    :ivar peers: `n0:host:port;` for each controller, the semicolon included.
    """

    group: str
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str = ""


class NotifyRoleChangedRequest(ControllerHeader, frozen=True, kw_only=True):
    """The one-way request NOTIFY_BROKER_ROLE_CHANGED (1008) to brokers; the set is the body."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class CleanBrokerDataRequest(ControllerHeader, frozen=True, kw_only=True):
    """
    The request CLEAN_BROKER_DATA (1011).

    :ivar broker_controller_ids_to_clean: ids such as `1;2`; None: the whole set.
    """

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 | None = None


class GetNextBrokerIdRequest(ControllerHeader, frozen=True, kw_only=True):
    """The request GET_NEXT_BROKER_ID (1012), which asks for the next free id of a set."""

    cluster_name: str = ""
    broker_name: str


class GetNextBrokerIdResponse(ControllerHeader, frozen=True, kw_only=True):
    """The response to 1012; the id is not reserved."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


class ApplyBrokerIdRequest(ControllerHeader, frozen=True, kw_only=True):
    """
    The request APPLY_BROKER_ID (1013).

    :ivar register_check_code: `host:port;milliseconds`.
    """

    cluster_name: str = ""
    broker_name: str
    applied_broker_id: Int64
    register_check_code: str


class ApplyBrokerIdResponse(ControllerHeader, frozen=True, kw_only=True):
    """The response to 1013, also in refusals."""

    cluster_name: str | None = None
    broker_name: str | None = None


class SyncStateSet(msgspec.Struct, frozen=True):
    """
    The body of 1001, 1003, 1004 and 1008.

    :ivar epoch: epoch of the set; in a request, that of the set to be replaced.
    """

    members: tuple[int, ...] = ()
    epoch: int = 0


class ElectedBody(msgspec.Struct, frozen=True):
    """
    The body of 1002.

    :ivar addresses: by id, the addresses of all brokers of the set, including dead ones. If it is
        empty, as when nobody was elected, `brokerMemberGroup` is null.
    """

    members: tuple[int, ...]
    addresses: dict[int, str] = {}
    broker_name: str = ""
    cluster_name: str = ""


class SetReplica(msgspec.Struct, frozen=True):
    """One broker of a set in the answer to 1006."""

    broker_name: str
    broker_id: int
    address: str
    alive: bool


class ReplicasInfo(msgspec.Struct, frozen=True):
    """
    One set in the answer to 1006.

    :ivar master_address: None while nobody leads.
    """

    master_epoch: int
    sync_state_set_epoch: int
    in_sync: tuple[SetReplica, ...]
    not_in_sync: tuple[SetReplica, ...]
    master_broker_id: int | None = None
    master_address: str | None = None
