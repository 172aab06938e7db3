"""Translates headers and bodies to values and back, byte for byte as upstream writes them.

Spec: controller.md, sections 5.1 and 5.2; remoting.md, section 1.9.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import read_body, text
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.text import to_bytes
from rmq_ha.server.controller.messages import (
    ControllerHeader,
    ElectedBody,
    ReplicasInfo,
    SetReplica,
    SyncStateSet,
)

H = TypeVar("H", bound=ControllerHeader)

_MOST_NAMES = 10_000
_INT64 = range(-(1 << 63), 1 << 63)


def decode_header(kind: type[H], ext: Mapping[str, str] | None) -> H:
    """
    Read the fields of a request or response; unknown ones are left out.

    :raises RequestRejected: a field is missing, or cannot be read.
    """
    try:
        return msgspec.convert(_as_java(kind, ext or {}), kind, strict=False)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"the request header cannot be read: {error}"
        ) from None


def _as_java(kind: type[ControllerHeader], ext: Mapping[str, str]) -> Mapping[str, str]:
    """Write booleans as Java reads them: every text but `true` is false."""
    return {
        **ext,
        **{
            name: "true" if ext[name].lower() == "true" else "false"
            for name in _booleans(kind)
            if name in ext
        },
    }


@cache
def _booleans(kind: type[ControllerHeader]) -> tuple[str, ...]:
    """
    Return the wire names of a header's boolean fields. They are cached, since looking at the class
    each time would cost as much as the rest of the decoding.
    """
    fields = msgspec.structs.fields(kind)
    return tuple(item.encode_name for item in fields if item.type is bool)


def encode_set(value: SyncStateSet) -> bytes:
    """Encode the body of 1001, 1003, 1004 and 1008."""
    return fastjson.encode({"syncStateSet": value.members, "syncStateSetEpoch": value.epoch})


def decode_set(body: bytes) -> SyncStateSet:
    """
    Decode the body of 1001, 1003, 1004 and 1008.

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(body, _set)


def encode_elected(value: ElectedBody) -> bytes:
    """Encode the body of ELECT_MASTER (1002)."""
    group = {
        "brokerAddrs": value.addresses,
        "brokerName": value.broker_name,
        "cluster": value.cluster_name,
    }
    return fastjson.encode(
        {
            "brokerMemberGroup": group if value.addresses else None,
            "syncStateSet": value.members,
        }
    )


def decode_elected(body: bytes) -> ElectedBody:
    """
    Decode the body of ELECT_MASTER (1002); the keys of its map may be quoted or not.

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(body, _read_elected)


def encode_names(names: list[str]) -> bytes:
    """Encode the request body of 1006."""
    return fastjson.encode(names)


def decode_names(body: bytes) -> list[str]:
    """
    Decode the request body of 1006.

    :raises ProtocolViolation: it is no array of strings.
    """
    value = fastjson.parse(body, _MOST_NAMES)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ProtocolViolation("the body is no array of broker names")
    return value


def encode_replicas(table: Mapping[str, ReplicasInfo]) -> bytes:
    """Encode the response body of 1006."""
    return fastjson.encode(
        {"replicasInfoTable": {name: _replicas_json(info) for name, info in table.items()}}
    )


def decode_replicas(body: bytes) -> dict[str, ReplicasInfo]:
    """
    Decode the response body of 1006.

    :raises ProtocolViolation: it is not such a body.
    """
    return read_body(body, _table, None)


def encode_properties(lines: list[str]) -> bytes:
    """Encode the response body of 1010."""
    return to_bytes("".join(f"{line}\n" for line in lines))


def _replicas_json(info: ReplicasInfo) -> dict[str, Any]:
    return {
        "inSyncReplicas": [_replica_json(item) for item in info.in_sync],
        "masterAddress": info.master_address,
        "masterBrokerId": info.master_broker_id,
        "masterEpoch": info.master_epoch,
        "notInSyncReplicas": [_replica_json(item) for item in info.not_in_sync],
        "syncStateSetEpoch": info.sync_state_set_epoch,
    }


def _replica_json(replica: SetReplica) -> dict[str, Any]:
    return {
        "alive": replica.alive,
        "brokerAddress": replica.address,
        "brokerId": replica.broker_id,
        "brokerName": replica.broker_name,
    }


def _set(value: dict[str, Any]) -> SyncStateSet:
    return SyncStateSet(_ids(value.get("syncStateSet")), _number(value.get("syncStateSetEpoch")))


def _read_elected(value: dict[str, Any]) -> ElectedBody:
    group = value.get("brokerMemberGroup") or {}
    addresses = group.get("brokerAddrs") or {}
    return ElectedBody(
        _ids(value.get("syncStateSet")),
        {_number(int(key)): text(address) for key, address in addresses.items()},
        text(group.get("brokerName")),
        text(group.get("cluster")),
    )


def _table(value: dict[str, Any]) -> dict[str, ReplicasInfo]:
    return {str(name): _info(item) for name, item in value["replicasInfoTable"].items()}


def _info(value: dict[str, Any]) -> ReplicasInfo:
    master = value.get("masterBrokerId")
    address = value.get("masterAddress")
    return ReplicasInfo(
        _number(value.get("masterEpoch")),
        _number(value.get("syncStateSetEpoch")),
        tuple(map(_replica, value.get("inSyncReplicas") or ())),
        tuple(map(_replica, value.get("notInSyncReplicas") or ())),
        None if master is None else _number(master),
        None if address is None else text(address),
    )


def _replica(value: dict[str, Any]) -> SetReplica:
    return SetReplica(
        text(value.get("brokerName")),
        _number(value.get("brokerId")),
        text(value.get("brokerAddress")),
        value.get("alive") is True,
    )


def _ids(value: Any) -> tuple[int, ...]:
    """Return ids in ascending order, each once."""
    return tuple(sorted({_number(item) for item in value or ()}))


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        raise TypeError(f"a number was expected, not {value!r}")
    return value
