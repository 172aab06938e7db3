"""`rmqha-admin dledger` against members that answer as ours and as Java's do."""

import json
from io import StringIO
from random import Random
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from rich.console import Console
from twisted.internet.defer import Deferred

from rmq_ha.base.config.dledger_settings import DLedgerSettings, parse_peers
from rmq_ha.base.errors import RemotingConnectError
from rmq_ha.base.store_format.dledger_values import TermVote
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.admin import handover
from rmq_ha.ops.admin.dledger import hand_over, known_group, show_status
from rmq_ha.ops.admin.dledger_group import GroupClient, GroupRefused, why_not_transferred
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.admin.output import Output
from rmq_ha.server.dledger.actions import AnswerRequest
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from rmq_ha.server.dledger.messages import (
    HeartBeatRequest,
    LeadershipTransferRequest,
    MetadataRequest,
    PushEntryRequest,
)
from rmq_ha.server.dledger.node import Node
from tests.sim_kit.group import BrokerGroup
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say

PEERS = "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3"
KINDS = {
    DLedgerRequestCode.METADATA: MetadataRequest,
    DLedgerRequestCode.HEART_BEAT: HeartBeatRequest,
    DLedgerRequestCode.PUSH: PushEntryRequest,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: LeadershipTransferRequest,
}
# What a Java 4.9.7 follower n1 of leader n0 in term 4, with entries 0 to 41, answers.
JAVA_FOLLOWER = {
    50000: b'{"code":200,"group":"g","leaderId":"n0","peers":{"n0":"127.0.0.1:1"},"term":-1}',
    51002: b'{"code":403,"term":4}',
    51004: b'{"beginIndex":0,"code":200,"count":0,"endIndex":41,"group":"g","term":-1}',
}
# And the leader itself.
JAVA_LEADER = {
    50000: b'{"code":200,"group":"g","leaderId":"n0","peers":{"n0":"127.0.0.1:1"},"term":-1}',
    51002: b'{"code":403,"term":4}',
    51004: b'{"beginIndex":0,"code":405,"count":0,"endIndex":43,"group":"g","term":-1}',
    51005: b'{"code":200,"term":5}',
}


class FakeLedger:
    """Empty."""

    begin_index = end_index = end_term = committed_index = -1


def our_candidate():
    """A member of ours that knows no leader."""
    settings = DLedgerSettings("g", "n2", parse_peers(PEERS))
    node = Node(settings, FakeLedger(), TermVote(4, "n0"), Random(1), 0)

    def answer(command):
        node.request(command.code, decode_body(KINDS[command.code], command.body), "token", 0)
        (found,) = [one for one in node.outbox if isinstance(one, AnswerRequest)]
        node.outbox.clear()
        return encode_body(found.message)

    return answer


class Members:
    """What each address answers: a table of bodies, a function, or nothing."""

    def __init__(self, **answers):
        self.answers = dict(zip(parse_peers(PEERS).values(), answers.values(), strict=True))
        self.asked = []

    async def invoke(self, address, command, timeout_ms=0):
        self.asked.append((address, command.code))
        answers = self.answers[address]
        if answers is None:
            raise RemotingConnectError(f"cannot connect to {address}")
        body = answers(command) if callable(answers) else answers[command.code]
        return RemotingCommand(200, None, body)

    exchange = invoke


def result_of(coroutine):
    results = []
    Deferred.fromCoroutine(coroutine).addBoth(results.append)
    (result,) = results
    if hasattr(result, "raiseException"):
        result.raiseException()
    return result


def group(members, name="g"):
    return GroupClient(name, parse_peers(PEERS), members.invoke)


def all_kinds():
    return Members(n0=JAVA_LEADER, n1=JAVA_FOLLOWER, n2=our_candidate())


def test_java_members_tell_by_their_refusals_and_ours_by_themselves():
    leader, follower, ours = result_of(group(all_kinds()).status())
    assert (leader.kind, leader.role, leader.term, leader.end) == ("Java", "LEADER", 4, 43)
    assert (follower.role, follower.begin, follower.end, follower.lag) == ("FOLLOWER", 0, 41, 2)
    assert follower.committed is None
    assert (ours.kind, ours.role, ours.term, ours.leader) == ("rmq-ha", "CANDIDATE", 4, None)
    assert (ours.end, ours.committed, ours.lag) == (-1, -1, 44)


def test_nothing_that_status_asks_can_change_a_member():
    members = all_kinds()
    sent = []
    invoke = members.invoke

    async def listen(address, command):
        sent.append(decode_body(KINDS[command.code], command.body))
        return await invoke(address, command)

    members.invoke = listen
    result_of(group(members).status())
    assert {one.term for one in sent} == {-1}
    assert {getattr(one, "commit_index", -1) for one in sent} == {-1}


def test_a_member_that_is_down_does_not_hide_the_others():
    members = Members(n0=JAVA_LEADER, n1=None, n2=our_candidate())
    leader, down, _ = result_of(group(members).status())
    assert leader.problem is None
    assert down.problem == "cannot connect to 127.0.0.1:2"
    assert down.lag is None


def test_a_wrong_group_or_member_is_said_in_words():
    _, _, ours = result_of(group(all_kinds(), "other").status())
    assert ours.problem == "it is in another group than other"


def test_a_transfer_asks_the_leader_in_its_term():
    members = all_kinds()
    assert result_of(group(members).transfer("n1")) == 5
    assert members.asked[-1] == ("127.0.0.1:1", DLedgerRequestCode.LEADERSHIP_TRANSFER)


def test_a_transfer_to_the_leader_is_no_transfer():
    members = all_kinds()
    assert result_of(group(members).transfer("n0")) is None
    assert DLedgerRequestCode.LEADERSHIP_TRANSFER not in [code for _, code in members.asked]


def test_a_transfer_to_a_stranger_or_without_a_leader_is_refused():
    with pytest.raises(GroupRefused, match="n7 is not a member of g, which has n0, n1, n2"):
        result_of(group(all_kinds()).transfer("n7"))
    members = Members(n0=None, n1=JAVA_FOLLOWER, n2=our_candidate())
    with pytest.raises(GroupRefused, match=r"nobody of the group says that it leads \(n0: cannot"):
        result_of(group(members).transfer("n1"))


@pytest.mark.parametrize("code", list(DLedgerResponseCode))
def test_every_refusal_has_words_and_its_code(code):
    text = why_not_transferred(code, "n0", "n1")
    assert text.endswith(f"({code.value} {code.name})")
    assert "{" not in text


def test_an_unknown_code_is_shown_as_it_is():
    assert why_not_transferred(999, "n0", "n1") == "the transfer failed (999)"


class Printed:
    """What a command writes."""

    def __init__(self, as_json):
        self.out, self.err = StringIO(), StringIO()
        self.output = Output(as_json, Console(file=self.out), Console(file=self.err, width=200))

    def session(self, members):
        return SimpleNamespace(output=self.output, options=Options(), exchange=members.exchange)


def test_the_table_is_whole_and_the_exit_code_tells():
    printed = Printed(False)
    known = known_group("g", PEERS, None)
    assert result_of(show_status(printed.session(all_kinds()), known)) is None
    row = printed.out.getvalue().splitlines()[3].split()
    assert row == ["n1", "127.0.0.1:2", "Java", "FOLLOWER", "4", "n0", "0", "41", "-", "2"]
    members = Members(n0=None, n1=JAVA_FOLLOWER, n2=our_candidate())
    assert result_of(show_status(printed.session(members), known)) == 1
    members = Members(n0=JAVA_LEADER, n1=None, n2=our_candidate())
    assert result_of(show_status(printed.session(members), known)) == 4
    assert "n1: cannot connect" in printed.err.getvalue()


def test_json_has_every_column():
    printed = Printed(True)
    result_of(show_status(printed.session(all_kinds()), known_group("g", PEERS, None)))
    found = json.loads(printed.out.getvalue())
    assert found["leader"] == "n0"
    assert [row["lag"] for row in found["rows"]] == [0, 2, 44]


def test_a_transfer_tells_the_new_term():
    printed = Printed(False)
    known = known_group("g", PEERS, None)
    assert (
        result_of(hand_over(printed.session(all_kinds()), known, "n1", yes=True, dry_run=False))
        is None
    )
    assert printed.out.getvalue() == "n1 leads g in term 5\n"
    assert (
        result_of(hand_over(printed.session(all_kinds()), known, "n9", yes=True, dry_run=False))
        == 1
    )
    assert "not a member" in printed.err.getvalue()


def test_a_members_configuration_names_the_group(tmp_path):
    path = tmp_path / "broker.properties"
    path.write_text(f"dLegerGroup=g\ndLegerPeers={PEERS}\n")
    with path.open("rb") as file:
        assert known_group(None, None, file) == ("g", parse_peers(PEERS))
    with path.open("rb") as file:
        assert known_group("h", None, file).group == "h"
    with pytest.raises(click.UsageError, match="give --group and --peers"):
        known_group("g", None, None)
    with pytest.raises(click.UsageError, match="not of the form"):
        known_group("g", "n0=1", None)


YES = {"yes": True, "dry_run": False}


def test_a_leader_hands_over_to_who_lacks_least_unless_somebody_is_named():
    members = all_kinds()
    printed = Printed(True)
    known = known_group("g", PEERS, None)
    dry = {"yes": False, "dry_run": True}
    assert result_of(handover.give_over(printed.session(members), known, None, **dry)) is None
    assert json.loads(printed.out.getvalue().splitlines()[-1]) == {"leader": "n0", "to": "n1"}
    orders = [code for _, code in members.asked if code == DLedgerRequestCode.LEADERSHIP_TRANSFER]
    assert orders == []
    result_of(handover.give_over(printed.session(members), known, None, **YES))
    assert json.loads(printed.out.getvalue().splitlines()[-1]) == {
        "leader": "n1",
        "term": 5,
        "changed": True,
    }
    again = Printed(True)
    assert result_of(handover.give_over(again.session(members), known, "n0", **YES)) is None
    assert json.loads(again.out.getvalue().splitlines()[-1])["changed"] is False
    assert result_of(handover.give_over(again.session(members), known, "n7", **YES)) == 1


def test_without_a_leader_or_followers_nobody_hands_over():
    known = known_group("g", PEERS, None)
    for found in (
        Members(n0=None, n1=JAVA_FOLLOWER, n2=None),
        Members(n0=JAVA_LEADER, n1=None, n2=None),
    ):
        printed = Printed(True)
        assert result_of(handover.give_over(printed.session(found), known, None, **YES)) == 4
        assert "nobody can hand over" in printed.err.getvalue()


def test_a_broker_says_which_group_it_is_in_and_the_group_has_another_leader():
    sim = BrokerGroup().start()
    cluster = SimpleNamespace(
        world=sim.world,
        namesrv=sim.name_server,
        wait=lambda later, limit: sim.wait(Deferred.fromCoroutine(later)),
    )
    sim.run(40)
    before = sim.master()

    async def work(session):
        name = before.configuration.broker.broker_name
        return await handover.give_over_of(session, name, None, **YES)

    operator = sim.world.hosts["n0"].seams  # takes orders from the hosts of dLegerPeers
    said = say(cluster, work, operator)
    assert said.code == 0, said.err
    assert said.last["changed"]
    sim.wait_until(lambda: sim.master() not in (None, before))
    after = sim.master().configuration.store.dleger_self_id
    assert after == said.last["leader"]


def test_a_master_without_a_slave_cannot_hand_over(tmp_path):
    cluster = SimCluster("one")
    said = say(cluster, lambda s: handover.give_over_of(s, "one", None, **YES))
    assert said.code == 3
    assert "one has no slave to hand over to: start one first" in said.err
    path = tmp_path / "broker.properties"
    path.write_text("brokerName=one\n")
    done = CliRunner().invoke(main, ["handover", "--config", str(path), "--yes"])
    assert done.exit_code == 2
    assert "for a classic pair, type rmqha-admin handover BROKER" in done.output
