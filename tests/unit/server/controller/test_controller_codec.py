"""Headers and bodies of controller mode, as Java 5.3.3 wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.base.wire.frame import FrameReader, decode_frame
from rmq_ha.server.controller.codec import (
    decode_elected,
    decode_header,
    decode_names,
    decode_replicas,
    decode_set,
    encode_elected,
    encode_names,
    encode_properties,
    encode_replicas,
    encode_set,
)
from rmq_ha.server.controller.codes import ControllerRequestCode
from rmq_ha.server.controller.messages import (
    AlterSyncStateSetRequest,
    AlterSyncStateSetResponse,
    ApplyBrokerIdRequest,
    ApplyBrokerIdResponse,
    CleanBrokerDataRequest,
    ControllerHeader,
    ElectedBody,
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetadataResponse,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    HeartbeatRequest,
    NotifyRoleChangedRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)

VECTORS = Path(__file__).parents[3] / "vectors" / "controller"
Codec = tuple[Any, Any]
_SET: Codec = (decode_set, encode_set)
KINDS: dict[
    int, tuple[type[ControllerHeader], Codec | None, type[ControllerHeader], Codec | None]
] = {
    904: (HeartbeatRequest, None, ControllerHeader, None),
    1001: (AlterSyncStateSetRequest, _SET, AlterSyncStateSetResponse, _SET),
    1002: (ElectMasterRequest, None, ElectMasterResponse, (decode_elected, encode_elected)),
    1003: (RegisterBrokerRequest, None, RegisterBrokerResponse, _SET),
    1004: (GetReplicaInfoRequest, None, GetReplicaInfoResponse, _SET),
    1005: (ControllerHeader, None, GetMetadataResponse, None),
    1006: (
        ControllerHeader,
        (decode_names, encode_names),
        ControllerHeader,
        (decode_replicas, encode_replicas),
    ),
    1008: (NotifyRoleChangedRequest, _SET, ControllerHeader, None),
    1011: (CleanBrokerDataRequest, None, ControllerHeader, None),
    1012: (GetNextBrokerIdRequest, None, GetNextBrokerIdResponse, None),
    1013: (ApplyBrokerIdRequest, None, ApplyBrokerIdResponse, None),
}
"""Header and body of the request, and of its response."""


def frames() -> list[tuple[str, int, bool, bytes]]:
    """What it is, its request's code, whether it is a response, and all of its bytes."""
    found = []
    for case in json.loads((VECTORS / "codes.json").read_text()):
        code = case["request"]["code"]
        if code in KINDS and case["response"]["code"] != 3:
            found.append((case["case"], code, False, bytes.fromhex(case["request_hex"])))
            found.append((case["case"], code, True, bytes.fromhex(case["response_hex"])))
    for name, frame in json.loads((VECTORS / "frames.json").read_text()).items():
        code, kind = name.split()[:2]
        found.append((name, int(code), kind == "response", bytes.fromhex(frame["hex"])))
    return found


@pytest.mark.parametrize(("name", "code", "answers", "data"), frames())
def test_what_java_wrote_is_read_and_written_again(
    name: str, code: int, answers: bool, data: bytes
) -> None:
    """Spec: controller.md, sections 5.1 and 5.2."""
    (frame,) = FrameReader().receive_data(data)
    command = decode_frame(*frame)
    asked, asked_body, given, given_body = KINDS[code]
    kind, body = (given, given_body) if answers else (asked, asked_body)
    header = decode_header(kind, command.ext)
    if answers and command.code and not command.ext:
        assert ext_fields(header) == ext_fields(kind())  # type: ignore[call-arg]
    else:
        assert ext_fields(header) == (command.ext or {})
    if command.body is None:
        return
    assert body is not None
    decode, encode = body
    # The recorder's own requests have spaces, which Java's do not.
    assert encode(decode(command.body)) == command.body.replace(b", ", b",").replace(b": ", b":")


def test_every_request_was_recorded() -> None:
    seen = {code for _, code, _, _ in frames()} | {1009, 1010}
    assert seen == set(map(int, ControllerRequestCode))


def test_booleans_are_read_as_java_does() -> None:
    for value, designated in (("true", True), ("TRUE", True), ("1", False), ("yes", False)):
        request = decode_header(ElectMasterRequest, {"brokerName": "b", "designateElect": value})
        assert request.designate_elect is designated


@pytest.mark.parametrize(
    "ext",
    [
        None,
        {"brokerName": "b"},
        {"brokerName": "b", "masterBrokerId": "one", "masterEpoch": "1"},
        {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": "2147483648"},
    ],
)
def test_a_header_that_cannot_be_read_is_refused(ext: dict[str, str] | None) -> None:
    with pytest.raises(RequestRejected):
        decode_header(AlterSyncStateSetRequest, ext)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"syncStateSet":["1"]}',
        b'{"syncStateSet":[true]}',
        b'{"syncStateSet":[9223372036854775808]}',
        b'{"syncStateSet":5}',
        b'{"syncStateSetEpoch":"1"}',
    ],
)
def test_a_set_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_set(body)


def test_names_are_strings() -> None:
    for body in (b'{"a":1}', b"[1]", b'"a"'):
        with pytest.raises(ProtocolViolation):
            decode_names(body)


def test_keys_of_addresses_may_be_quoted() -> None:
    """Spec: controller.md, section 10.6."""
    quoted = b'{"brokerMemberGroup":{"brokerAddrs":{"1":"h:1"}},"syncStateSet":[2,1,1]}'
    assert decode_elected(quoted) == ElectedBody((1, 2), {1: "h:1"})


def test_properties_are_lines() -> None:
    assert encode_properties(["a=1", "b=2"]) == b"a=1\nb=2\n"
