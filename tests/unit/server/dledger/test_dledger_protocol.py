"""DLedger's requests over remoting. Spec: dledger.md, chapter 5."""

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.dledger.codec import encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from rmq_ha.server.dledger.members import Members
from rmq_ha.server.dledger.messages import (
    GroupMessage,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
)
from rmq_ha.server.dledger.protocol import PeerRequests, read_response, request_frame

CHANNEL: Any = SimpleNamespace(remote_text="10.0.0.9:4711")


REFUSED: list[tuple[Any, ...]] = []
PEERS = {"n0": "10.0.0.9:1", "n1": "10.0.0.1:1", "n2": "10.0.0.2:1"}


def requests(is_known: bool = True) -> tuple[PeerRequests, list[tuple[int, GroupMessage]]]:
    """:param is_known: n0 is where the requests come from."""
    served: list[tuple[int, GroupMessage]] = []

    def serve(code: int, message: GroupMessage, answered: "Deferred[GroupMessage]") -> None:
        served.append((code, message))
        answered.callback(HeartBeatResponse(term=-1))

    peers = PEERS if is_known else {**PEERS, "n0": "10.0.0.8:1"}
    members = Members(DLedgerSettings("g", "n1", peers), Networks(), Networks())
    return PeerRequests(serve, members, lambda *told: REFUSED.append(told)), served


def ask(
    made: PeerRequests, code: int, message: GroupMessage, binary: bool = False
) -> RemotingCommand:
    request = request_frame(code, message)
    request.opaque, request.binary = 7, binary
    answers: list[RemotingCommand] = []
    made.handle(CHANNEL, request).addCallback(answers.append)
    return answers[0]


@pytest.mark.parametrize("binary", [False, True])
def test_an_answer_has_200_in_its_header_and_the_requests_form(binary: bool) -> None:
    """Spec: dledger.md, chapter 5 and section 20.1."""
    made, served = requests()
    beat = HeartBeatRequest(group="g", remote_id="n1", local_id="n0", leader_id="n0", term=2)
    answer = ask(made, DLedgerRequestCode.HEART_BEAT, beat, binary)
    assert (answer.code, answer.opaque, answer.binary, answer.ext) == (200, 7, binary, None)
    assert answer.body == b'{"code":200,"term":-1}'
    assert served == [(DLedgerRequestCode.HEART_BEAT, beat)]


@pytest.mark.parametrize(
    "code", set(DLedgerRequestCode) - {DLedgerRequestCode.METADATA, DLedgerRequestCode.PULL}
)
def test_a_stranger_s_body_is_not_read(code: int) -> None:
    """What would take long to read, or cannot be read, is answered at once."""
    made, served = requests(is_known=False)
    REFUSED.clear()
    answers: list[RemotingCommand] = []
    made.handle(CHANNEL, RemotingCommand(code, body=b"[" * 1000)).addCallback(answers.append)
    assert b'"code":401' in (answers[0].body or b"")
    assert served == []
    (told,) = REFUSED
    assert told == ("10.0.0.9", code, "it comes from no member's address")


def test_a_member_speaks_for_nobody_else() -> None:
    made, served = requests()
    beat = HeartBeatRequest(group="g", remote_id="n1", local_id="n2", leader_id="n2", term=2)
    assert b'"code":401' in (ask(made, DLedgerRequestCode.HEART_BEAT, beat).body or b"")
    assert served == []


def test_a_stranger_transfers_no_leadership() -> None:
    """Spec: dledger.md, section 18.2."""
    made, served = requests(is_known=False)
    request = LeadershipTransferRequest(group="g", remote_id="n0", transferee_id="n1")
    answer = ask(made, DLedgerRequestCode.LEADERSHIP_TRANSFER, request)
    assert b'"code":401' in (answer.body or b"")
    assert served == []


def test_pull_has_no_handler() -> None:
    """Spec: dledger.md, section 5.1."""
    assert DLedgerRequestCode.PULL not in requests()[0].routes()
    assert len(requests()[0].routes()) == 7


@pytest.mark.parametrize("body", [None, b"", b"[]", b"{", b'{"term":"x"}'])
def test_a_body_that_cannot_be_read_is_the_one_documented_error(body: bytes | None) -> None:
    with pytest.raises(ProtocolViolation):
        requests()[0].handle(CHANNEL, RemotingCommand(DLedgerRequestCode.VOTE, body=body))


@pytest.mark.parametrize("body", [None, b"{"])
def test_an_answer_that_is_none_counts_as_no_answer(body: bytes | None) -> None:
    with pytest.raises(RemotingError):
        read_response(DLedgerRequestCode.VOTE, RemotingCommand(1, body=body, remark="out of order"))


def test_requests_look_like_java_s() -> None:
    """Spec: dledger.md, section 20.1: the body; keys in alphabetical order."""
    beat = HeartBeatRequest(group="RaftG", remote_id="n1", local_id="n0", leader_id="n0", term=2)
    frame = request_frame(DLedgerRequestCode.HEART_BEAT, beat)
    assert frame.code == 51002
    assert frame.body == encode_body(beat)
    assert frame.body == (
        b'{"code":200,"group":"RaftG","leaderId":"n0","localId":"n0","remoteId":"n1","term":2}'
    )
