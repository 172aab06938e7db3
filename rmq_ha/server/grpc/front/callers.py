"""Reads the headers of a call that name its client, its account and its signature.

Spec: grpc.md, sections 2.3 and 3.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from rmq_ha.base.model.message import Address
from rmq_ha.base.wire.codes import LANGUAGE_BY_NAME, LanguageCode, RequestCode
from rmq_ha.base.wire.versions import V5_0_0, version_names
from rmq_ha.server.door import DateSignature, DoorCaller
from rmq_ha.server.grpc.face import GrpcCall, GrpcPeer
from rmq_ha.server.grpc.front.names import has_control
from rmq_ha.server.grpc.front.refusals import FrontRefusal
from rmq_ha.server.grpc.wire.enums import AnswerCode

_DATE = "x-mq-date-time"
_SCHEME = "MQv2-HMAC-SHA1"
_PART = re.compile(r"(\w+)=([^,\s]*)")
_LONGEST_ID = 256
_LONGEST_WORD = 40
_NOT_SIGNED = DateSignature()


class ClientIdentity(NamedTuple):
    """
    A client as it names itself.

    :ivar language: a name of `LanguageCode`; OTHER for a language that is not in it.
    :ivar version: as the client writes it, such as `5.1.2`.
    """

    client_id: str
    language: str
    version: str

    @property
    def version_number(self) -> int:
        """The version as remoting's headers have it; that of 5.0.0 for one without a number."""
        name = "V" + self.version.replace(".", "_")
        names = version_names()
        return names.index(name) if name in names else V5_0_0


def identity_of(metadata: Mapping[str, str]) -> ClientIdentity:
    """
    Return the client that calls.

    :raises FrontRefusal: the client id is missing, too long, or has control characters.
    """
    client_id = metadata.get("x-mq-client-id", "")
    if not client_id.strip():
        raise FrontRefusal(AnswerCode.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > _LONGEST_ID or has_control(client_id):
        raise FrontRefusal(
            AnswerCode.CLIENT_ID_REQUIRED,
            f"a client id has at most {_LONGEST_ID} characters, and no control characters",
        )
    language = metadata.get("x-mq-language", "").upper()
    if language not in LANGUAGE_BY_NAME:
        language = LanguageCode.OTHER.name
    version = metadata.get("x-mq-client-version", "")
    return ClientIdentity(
        client_id, language, "" if has_control(version) else version[:_LONGEST_WORD]
    )


def signature_of(metadata: Mapping[str, str]) -> DateSignature:
    """
    Return the signature of a call. Some SDKs send one without an account, which signs nothing.

    :raises FrontRefusal: the header has another form.
    """
    header = metadata.get("authorization", "")
    if not header:
        return _NOT_SIGNED
    scheme, _, rest = header.partition(" ")
    parts = dict(_PART.findall(rest))
    if scheme != _SCHEME or not {"Credential", "Signature"} <= parts.keys():
        raise FrontRefusal(
            AnswerCode.UNAUTHORIZED,
            f"the header authorization has not the form {_SCHEME} Credential=, SignedHeaders=, "
            "Signature=",
        )
    access_key = parts["Credential"].partition("/")[0]
    if not access_key:
        return _NOT_SIGNED
    if parts.get("SignedHeaders", _DATE).lower() != _DATE:
        raise FrontRefusal(
            AnswerCode.UNAUTHORIZED, f"the signature has to cover the header {_DATE} alone"
        )
    try:
        digest = bytes.fromhex(parts["Signature"])
    except ValueError:
        digest = b""
    date = metadata.get(_DATE, "").encode("latin-1", "replace")
    return DateSignature(access_key, b64encode(digest).decode(), date)


def caller_of(call: GrpcCall, code: RequestCode) -> DoorCaller:
    """
    Return the client, the account and the request of a call, for access control.

    :param code: the code of the same request in remoting.
    :raises FrontRefusal: see `signature_of`.
    """
    peer = call.peer
    signed = signature_of(call.metadata)
    return DoorCaller(peer.remote_text, peer.host, peer.security, signed, code)


class CallSender:
    """The client of a call, as a `door.MessageSender`; all calls of a connection are one sender."""

    __slots__ = ("_peer", "account", "host", "remote", "remote_text")

    def __init__(self, peer: GrpcPeer, account: str) -> None:
        self._peer = peer
        self.remote: Address = peer.remote
        self.remote_text = peer.remote_text
        self.host = peer.host
        self.account = account

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallSender) and self._peer is other._peer

    def __hash__(self) -> int:
        return hash(self._peer)

    def hold(self, size: int, work: "Deferred[Any]") -> None:
        """Let the connection's other calls go on: calls of one connection have no order."""
