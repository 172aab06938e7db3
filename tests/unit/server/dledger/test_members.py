"""Whose requests a member takes. Spec: dledger.md, sections 5.2 and 18.2."""

from typing import Any

import pytest

from rmq_ha.base.config.dledger_settings import DLedgerSettings, parse_peers
from rmq_ha.base.model.networks import Networks
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from rmq_ha.server.dledger.members import Members
from rmq_ha.server.dledger.messages import (
    GroupMessage,
    HeartBeatRequest,
    PushEntryRequest,
    VoteRequest,
)

N0, N1, STRANGER = "10.0.0.1", "10.0.0.2", "10.0.0.9"
OF_MEMBERS: list[tuple[int, type[GroupMessage]]] = [
    (DLedgerRequestCode.VOTE, VoteRequest),
    (DLedgerRequestCode.HEART_BEAT, HeartBeatRequest),
    (DLedgerRequestCode.PUSH, PushEntryRequest),
]
FOR_OPERATORS = [
    DLedgerRequestCode.APPEND,
    DLedgerRequestCode.GET,
    DLedgerRequestCode.LEADERSHIP_TRANSFER,
]


def members(
    peers: str = f"n0-{N0}:1;n1-{N1}:1;n2-10.0.0.3:1", further: str = "", operators: str = ""
) -> Members:
    settings = DLedgerSettings("g", "n2", parse_peers(peers))
    return Members(settings, Networks(further), Networks(operators))


def said(message: type[GroupMessage], leader: str | None, sender: str | None = None) -> Any:
    return message(group="g", remote_id="n2", leader_id=leader, local_id=sender)


@pytest.mark.parametrize(("code", "message"), OF_MEMBERS)
def test_a_member_is_believed_at_its_own_address_only(
    code: int, message: type[GroupMessage]
) -> None:
    found = members()
    assert found.refusal(code, said(message, "n0", "n0"), N0) == ""
    assert found.refusal(code, said(message, "n0"), N0) == ""
    for leader, sender, host in [
        ("n0", "n0", STRANGER),
        ("n0", "n0", N1),
        ("n0", "n1", N0),
        ("n0", "n1", N1),
        ("n2", "n2", N1),
        ("n7", None, N0),
        (None, "n0", N0),
        (None, None, N0),
        ("n0", "n0", "127.0.0.1"),
    ]:
        assert found.refusal(code, said(message, leader, sender), host), (leader, sender, host)
    assert found.refusal(code, said(message, "n0"), N1) == (f"it says to be n0's, who is at {N0}")


@pytest.mark.parametrize("code", FOR_OPERATORS)
def test_operators_are_this_machine_the_members_and_who_is_named(code: int) -> None:
    found, named = members(), members(operators="10.0.0.9")
    assert [found.refusal(code, GroupMessage(), host) for host in (N0, N1, "127.0.0.1")] == [""] * 3
    assert found.refusal(code, GroupMessage(), STRANGER)
    assert named.refusal(code, GroupMessage(), STRANGER) == ""
    assert named.refusal(code, GroupMessage(), N0) == ""  # a leader that hands over
    assert members(operators="*").refusal(code, GroupMessage(), "192.0.2.1") == ""


def test_operators_are_no_members() -> None:
    found = members(operators="*")
    for code, message in OF_MEMBERS:
        assert found.refusal(code, said(message, "n0"), STRANGER)


def test_a_stranger_s_requests_are_not_even_read() -> None:
    found = members()
    for code in DLedgerRequestCode:
        assert bool(found.refusal_unread(code, STRANGER)) == (code != DLedgerRequestCode.METADATA)
        assert found.refusal_unread(code, N1) == ""


@pytest.mark.parametrize("further", ["*", "10.0.0.8/30"])
def test_members_may_be_seen_elsewhere(further: str) -> None:
    found = members(further=further)
    for code, message in OF_MEMBERS:
        assert found.refusal(code, said(message, "n0", "n0"), STRANGER) == ""


def test_a_name_is_what_it_was_looked_up_to_be() -> None:
    found = members("n0-broker-a.example:1;n1-10.0.0.2:1;n2-localhost:1")
    assert found.names == {"n0": "broker-a.example"}
    beat = said(HeartBeatRequest, "n0")
    assert found.refusal_unread(DLedgerRequestCode.HEART_BEAT, N0)
    assert found.doubtful == {"n0"}
    found.doubtful.clear()
    found.located("n0", [N0, "fd00::1"])
    assert found.refusal(DLedgerRequestCode.HEART_BEAT, beat, N0) == ""
    assert found.refusal(DLedgerRequestCode.HEART_BEAT, beat, "fd00:0::1") == ""
    assert found.doubtful == set()
    found.located("n0", [STRANGER])
    assert found.refusal(DLedgerRequestCode.HEART_BEAT, beat, N1) == (
        f"it says to be n0's, who is at {STRANGER}"
    )
    assert found.doubtful == {"n0"}


def test_one_machine_s_addresses_are_one() -> None:
    """A name that stands for 127.0.1.1, as Debian's host name does, connects from 127.0.0.1."""
    found = members("n0-h:1;n1-h:2;n2-h:3")
    found.located("n0", ["127.0.1.1"])
    assert (
        found.refusal(DLedgerRequestCode.HEART_BEAT, said(HeartBeatRequest, "n0"), "127.0.0.1")
        == ""
    )
    assert found.refusal(DLedgerRequestCode.HEART_BEAT, said(HeartBeatRequest, "n0"), "::1") == ""
