"""`dledger` and `handover` where members refuse, are strangers, or are of Java and say little."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.wire.codes import RequestCode as BrokerCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.admin import handover
from rmq_ha.ops.admin.dledger import known_group, show_status
from rmq_ha.ops.admin.dledger_group import (
    GroupClient,
    GroupRefused,
    MemberStatus,
    leader_of,
)
from rmq_ha.ops.admin.handover import _best_follower
from rmq_ha.ops.admin.handover_set import ControlledSet, SetMaster, _choose, set_of
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND, USAGE, ChangeRefused
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.test_admin_dledger import (
    JAVA_FOLLOWER,
    JAVA_LEADER,
    PEERS,
    YES,
    Members,
    Printed,
    all_kinds,
    group,
    our_candidate,
    result_of,
)
from tests.unit.ops.admin.typing_kit import Typist

DRY = {"yes": False, "dry_run": True}


def members(**of_leader: bytes) -> Members:
    """The leader is Java's, with other answers to some of the questions."""
    known = JAVA_LEADER | {int(code.removeprefix("c")): body for code, body in of_leader.items()}
    return Members(n0=known, n1=JAVA_FOLLOWER, n2=our_candidate())


def test_a_java_member_without_a_leader_is_a_candidate() -> None:
    found = result_of(group(members(c50000=b'{"code":200,"group":"g","term":-1}')).status())
    assert (found[0].kind, found[0].role, found[0].leader) == ("Java", "CANDIDATE", None)
    assert leader_of(found) is None
    assert [one.lag for one in found] == [None] * 3


def test_a_java_member_tells_its_term_only_by_its_refusal() -> None:
    found = result_of(group(members(c51002=b'{"code":200,"term":9}')).status())
    assert found[0].term is None


def test_a_member_alone_is_asked_for_no_heartbeat() -> None:
    known = all_kinds()
    client = GroupClient("g", {"n0": "127.0.0.1:1"}, known.invoke)
    (found,) = result_of(client.status())
    assert (found.role, found.term, found.end, found.lag) == ("LEADER", None, 43, 0)
    assert DLedgerRequestCode.HEART_BEAT not in [code for _, code in known.asked]
    with pytest.raises(GroupRefused, match="nobody of the group says that it leads; an election"):
        result_of(client.transfer("n0"))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (DLedgerResponseCode.UNKNOWN_GROUP, "it is in another group than g"),
        (DLedgerResponseCode.UNKNOWN_MEMBER, "it is another member than n0"),
        (DLedgerResponseCode.INTERNAL_ERROR, "it answers 600 INTERNAL_ERROR"),
        (12345, "it answers 12345"),
    ],
)
def test_why_a_member_is_none_of_the_group(code: int, text: str) -> None:
    code = int(code)
    found = result_of(group(members(c50000=b'{"code":%d}' % code)).status())
    if "INTERNAL" in text:
        text = f"it answers {code} INTERNAL_ERROR"
    assert (found[0].problem, found[0].kind, found[0].role) == (text, None, None)


@pytest.mark.parametrize(("code", "body"), [(1, b"{}"), (200, b""), (3, b"x")])
def test_a_port_that_is_none_of_a_group(code: int, body: bytes) -> None:
    known = all_kinds()

    async def invoke(address: str, command: RemotingCommand) -> RemotingCommand:
        if address.endswith(":1"):
            return RemotingCommand(code, None, body)
        found: RemotingCommand = await known.invoke(address, command)
        found.code = 0
        return found

    first, second, _ = result_of(GroupClient("g", parse_peers(PEERS), invoke).status())
    assert "is that the port of dLegerPeers?" in (first.problem or "")
    assert f"127.0.0.1:1 answers code {code}" in (first.problem or "")
    assert second.problem is None


def test_of_two_who_say_that_they_lead_the_later_one_does() -> None:
    def one(name: str, role: str, term: int | None) -> MemberStatus:
        return MemberStatus(name, name, role=role, term=term)

    found = [one("n0", "LEADER", 3), one("n1", "LEADER", 4), one("n2", "FOLLOWER", 9)]
    assert leader_of(found) is found[1]
    assert leader_of([one("n0", "LEADER", None), one("n1", "LEADER", 0)]).member == "n1"  # type: ignore[union-attr]


def test_who_lacks_least_takes_over_and_the_first_of_equals() -> None:
    def one(name: str, lag: int | None, problem: str | None = None) -> MemberStatus:
        return MemberStatus(name, name, lag=lag, problem=problem)

    leader = one("n0", 0)
    assert _best_follower([leader, one("n1", 9), one("n2", 3), one("n3", 3)], leader) == "n2"
    assert (
        _best_follower([leader, one("n1", 9), one("n2", 0, "silent"), one("n3", None)], leader)
        == "n1"
    )
    assert _best_follower([leader, one("n1", None)], leader) is None
    assert _best_follower([leader], leader) is None


def test_a_transfer_that_comes_to_nothing_says_why() -> None:
    code = DLedgerResponseCode.FALL_BEHIND_TOO_MUCH
    known = members(c51005=b'{"code":%d}' % code)
    printed = Printed(True)
    own = known_group("g", PEERS, None)
    assert result_of(handover.give_over(printed.session(known), own, "n1", **YES)) == FAILED
    told = json.loads(printed.err.getvalue().splitlines()[-1])
    assert (told["code"], told["exit_code"]) == (code, FAILED)
    assert "n1 lacks 1000 entries or more" in told["error"]


def test_each_member_that_is_not_known_is_warned_of() -> None:
    known = Members(n0=JAVA_LEADER, n1=None, n2=None)
    printed = Printed(True)
    assert (
        result_of(show_status(printed.session(known), known_group("g", PEERS, None))) == NO_ANSWER
    )
    found = json.loads(printed.out.getvalue())
    assert [row["problem"] is None for row in found["rows"]] == [True, False, False]
    assert len(printed.err.getvalue().splitlines()) == 2


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """A broker in no group."""
    return Typist(SimCluster("one", "two"), monkeypatch)


def test_a_group_is_named_by_a_broker_or_by_options(typed: Typist) -> None:
    told = typed("handover one --yes")
    assert (told.code, "one has no slave to hand over to" in told.err) == (NOT_FOUND, True)
    told = typed("handover three --yes")
    assert told.code == NOT_FOUND
    told = typed("handover --yes")
    assert (told.code, "give --group and --peers" in told.err) == (USAGE, True)
    typed.cluster.crash("one", power=True)
    told = typed("handover one --yes", "--timeout", "0.5")
    assert (told.code, typed.cluster.address("one") in told.err) == (NO_ANSWER, True)
    nobody = (
        f"--group g --peers n0-{typed.cluster.address('one')};n1-{typed.cluster.address('two')}"
    )
    told = typed(f"handover {nobody} --yes")
    assert told.code == NO_ANSWER
    assert "g: nobody leads, so nobody can hand over" in told.err
    assert typed(f"dledger status {nobody}").code == FAILED
    told = typed(f"dledger transfer --to n0 {nobody} --yes")
    assert (told.code, "nobody of the group says that it leads" in told.err) == (FAILED, True)
    told = typed(f"dledger transfer --to n0 {nobody} --dry-run")
    assert (told.code, len(told.lines)) == (0, 1), "it shows them and asks nobody"


def test_the_set_of_a_broker_is_what_its_settings_say() -> None:
    config = {
        "enableControllerMode": "true",
        "controllerAddr": "a:1; b:2 ;",
        "brokerClusterName": "C",
        "brokerName": "b",
    }
    assert set_of(config) == ControlledSet("C", "b", ("a:1", "b:2"))
    assert set_of({"enableControllerMode": "true"}) == ControlledSet("", "", ())
    assert set_of(config | {"enableControllerMode": "false"}) is None
    assert set_of({}) is None


def test_whom_controllers_are_asked_to_elect() -> None:
    found = SetMaster("c:1", 2, "b:1", (3, 2, 1))
    assert _choose(found, None) == 1
    assert _choose(found, "2") == 2
    assert _choose(found._replace(master_id=1), None) == 2
    for to in ("4", "x", ""):
        with pytest.raises(ChangeRefused, match=r"is not in sync \(3, 2, 1 are\)"):
            _choose(found, to)
    with pytest.raises(ChangeRefused, match=r"no other broker is in sync \(2 is\)"):
        _choose(found._replace(members=(2,)), None)
    with pytest.raises(ChangeRefused, match=r"\(nobody are\)"):
        _choose(found._replace(members=()), "1")


def test_controllers_that_do_not_answer_or_know_no_leader_are_said(typed: Typist) -> None:
    broker = typed.cluster.brokers["one"]
    config = broker.dispatcher.routes[BrokerCode.GET_BROKER_CONFIG]

    def controlled(addresses: str) -> None:
        def answer(channel: Any, command: Any) -> Any:
            told = config(channel, command)
            told.body += f"enableControllerMode=true\ncontrollerAddr={addresses}\n".encode()
            return told

        broker.dispatcher.routes[BrokerCode.GET_BROKER_CONFIG] = answer

    controlled("")
    told = typed("handover one --yes")
    assert (told.code, "no controller can elect: controllerAddr is empty" in told.err) == (
        FAILED,
        True,
    )
    controlled("10.9.9.9:9878")
    told = typed("handover one --yes", "--timeout", "0.5")
    assert (told.code, "no controller can elect: " in told.err) == (FAILED, True)
    assert "10.9.9.9:9878" in told.err
    knows_none = RemotingCommand(0, {"group": "c", "isLeader": "false"})
    typed.answers("two", 1005, lambda _: knows_none)
    controlled(f"10.9.9.9:9878;{typed.cluster.address('two')}")
    told = typed("handover one --yes", "--timeout", "0.5")
    assert (told.code, "knows no leader of the controllers" in told.err) == (FAILED, True)
