"""Users and policies of RocketMQ 5 (3001 to 3010) on the accounts of a broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.server.broker.sim_broker import SimBroker

VECTORS = Path(__file__).parents[3] / "vectors" / "auth" / "java-5.3.3.json"
ROOT = Credentials("rootroot", "rootsecret")
FILE = b"accounts:\n- {accessKey: rootroot, secretKey: rootsecret, admin: true}\n"
ALICE = {"subject": "User:alice01"}

OTHERWISE = {
    "a status, changed": (29, "an account here is always enabled"),
    "no resource": (29, "only Topic:NAME"),
    "no action": (29, "the actions is empty"),
    "no decision": (29, "the decision is null or illegal"),
    "no address": (29, "this broker has no permission for an address"),
    "any action": (29, "the actions is empty"),
    "an empty acl": (1, "The body of acl is null"),
}
"""Requests that we refuse in other words than Java, or that it takes and we cannot."""


class Accounts(SimBroker):
    """A broker with one account, the administrator's."""

    def __init__(self, *, is_strict: bool = True) -> None:
        super().__init__()
        self.host.disk.replace("/conf/plain_acl.yml", FILE)
        self.configuration.broker.acl_enable = True
        self.configuration.ours.acl_plug_in = "plain"
        self.configuration.ours.acl_strict = is_strict
        self.configuration.ours.acl_directory = "/conf"

    def asked(
        self, code: int, ext: dict[str, str], body: Any = None, by: Credentials = ROOT
    ) -> RemotingCommand:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return self.call(sign(RemotingCommand(code, dict(ext), data), by))

    def allow(self, resource: str, actions: str, **more: Any) -> RemotingCommand:
        """As `mqadmin createAcl -s User:alice01` asks."""
        entry = {"resource": resource, "actions": actions.split(","), "decision": "Allow"} | more
        return self.asked(3006, ALICE, {"policies": [{"entries": [entry]}]})

    def alice(self) -> dict[str, Any]:
        (config,) = (
            item
            for item in self.broker.access_controls[0].to_json()["plainAccessConfigs"]
            if item["accessKey"] == "alice01"
        )
        return dict(config)


def body_of(topic: str) -> bytes:
    entry = {"resource": f"Topic:{topic}", "actions": ["Pub"], "decision": "Allow"}
    return json.dumps({"policies": [{"entries": [entry]}]}).encode()


def in_order(value: Any) -> Any:
    """Lists sorted: ours has topics before groups, Java's what was made first."""
    if isinstance(value, dict):
        return {name: in_order(item) for name, item in value.items()}
    return sorted(map(in_order, value), key=str) if isinstance(value, list) else value


@pytest.fixture
def broker() -> Iterator[Accounts]:
    made = Accounts().start()
    made.asked(3001, {"username": "alice01"}, {"password": "alicepass"})
    yield made
    made.stop()


def test_it_answers_as_java_5_3_3() -> None:
    """The same conversation, step by step; what differs is in `OTHERWISE`."""
    broker = Accounts().start()
    for asked in json.loads(VECTORS.read_text()):
        what, body = asked["what"], asked["body"]
        answer = broker.asked(asked["code"], asked["ext"], body and body.encode())
        if what in OTHERWISE:
            code, text = OTHERWISE[what]
            assert (answer.code, text in answer.remark) == (code, True), (what, answer)
            continue
        assert answer.code == asked["answer"], (what, answer)
        if answer.code:
            assert answer.remark == asked["remark"], what
        told = json.loads(answer.body) if answer.body else None
        expected = json.loads(asked["answered"]) if asked["answered"] else None
        if "disabled" in what or what == "all that are left":
            expected = json.loads(asked["answered"].replace('"disable"', '"enable"'))
        assert in_order(told) == in_order(expected), what
    broker.stop()


def test_a_policy_becomes_the_permission_of_the_account(broker: Accounts) -> None:
    assert broker.allow("Topic:Orders", "Pub,Sub,Get").code == 0
    assert broker.allow("group:workers", "sub").code == 0
    assert broker.allow("Topic:Secret", "All", decision="Deny").code == 0
    alice = broker.alice()
    assert alice["topicPerms"] == ("Orders=PUB|SUB", "Secret=DENY")
    assert alice["groupPerms"] == ("workers=SUB",)
    assert (alice["defaultTopicPerm"], alice["secretKey"]) == ("DENY", "alicepass")
    assert broker.allow("Topic:*", "Sub").code == 0
    assert broker.alice()["defaultTopicPerm"] == "SUB"
    assert broker.asked(3008, {**ALICE, "resource": "Topic:*"}).code == 0
    assert broker.asked(3008, {**ALICE, "resource": "Topic:Secret"}).code == 0
    assert broker.alice()["defaultTopicPerm"] == "DENY"
    assert broker.alice()["topicPerms"] == ("Orders=PUB|SUB",)


def test_an_entry_that_replaces_the_default_is_shown_with_what_it_denies(broker: Accounts) -> None:
    """RocketMQ 5 would allow Sub by Topic:*, and this broker does not."""
    given = {"accessKey": "alice01", "secretKey": "alicepass"}
    given |= {"defaultTopicPerm": "SUB", "topicPerms": "A=PUB"}
    assert broker.asked(50, given).code == 0
    shown = json.loads(broker.asked(3009, ALICE).body)
    assert shown["policies"] == [
        {
            "policyType": "Custom",
            "entries": [
                {"resource": "Topic:A", "actions": ["Pub"], "decision": "Allow"},
                {"resource": "Topic:A", "actions": ["Sub"], "decision": "Deny"},
            ],
        },
        {
            "policyType": "Default",
            "entries": [{"resource": "Topic:*", "actions": ["Sub"], "decision": "Allow"}],
        },
    ]


@pytest.mark.parametrize(
    ("resource", "actions", "more", "reason"),
    [
        ("Topic:Ord*", "Pub", {}, "for all names that begin so"),
        ("*", "Pub", {}, "only Topic:NAME"),
        ("Cluster:c", "Get", {}, "make the user Super"),
        ("Topic:A", "Pub", {"sourceIps": ["10.0.0.1"]}, "no permission for an address"),
        ("Topic:A", "All", {}, "make the user Super"),
        ("Topic:A", "Pub,Create", {}, "allows Create"),
        ("Topic:A", "Pub,Get", {}, "Get without Sub"),
        ("Topic:A", "Pub", {"decision": "Deny"}, "denies Pub alone"),
        ("Topic:A", "Create", {"decision": "Deny"}, "nothing to deny"),
        ("Topic:a=b", "Pub", {}, "can have this name"),
    ],
)
def test_what_an_account_cannot_carry_is_refused(
    broker: Accounts, resource: str, actions: str, more: dict[str, Any], reason: str
) -> None:
    before = broker.alice()
    answer = broker.allow(resource, actions, **more)
    assert (answer.code, reason in answer.remark) == (29, True), answer
    assert broker.alice() == before


def test_what_would_lean_on_the_default_is_refused(broker: Accounts) -> None:
    """In RocketMQ 5 `Topic:*` adds to the rules of one topic, here these replace it."""
    assert broker.allow("Topic:*", "Sub").code == 0
    answer = broker.allow("Topic:A", "Pub")
    assert (answer.code, "Topic:* would add Sub" in answer.remark) == (29, True)
    assert broker.allow("Topic:A", "Pub,Sub").code == 0
    answer = broker.allow("Topic:*", "Pub,Sub")
    assert answer.code == 0
    assert broker.allow("Group:g", "Sub").code == 0
    assert "Group:* would add Pub" in broker.allow("Group:*", "Pub,Sub").remark


def test_a_super_user_has_no_policies(broker: Accounts) -> None:
    broker.allow("Topic:A", "Pub")
    answer = broker.asked(3002, {"username": "alice01"}, {"userType": "Super"})
    assert (answer.code, "delete them first" in answer.remark) == (29, True)
    assert broker.asked(3008, ALICE).code == 0
    assert broker.asked(3002, {"username": "alice01"}, {"userType": "Super"}).code == 0
    assert broker.alice()["admin"] is True
    answer = broker.allow("Topic:A", "Pub")
    assert (answer.code, "is of the type Super" in answer.remark) == (29, True)
    assert broker.asked(3002, {"username": "alice01"}, {"userType": "normal"}).code == 0
    assert broker.alice()["admin"] is False
    answer = broker.asked(3002, {"username": "alice01"}, {"userType": "King"})
    assert (answer.code, "give Super or Normal" in answer.remark) == (29, True)


def test_names_and_secrets_have_a_least_length(broker: Accounts) -> None:
    answer = broker.asked(3001, {"username": "bob"}, {"password": "bobspass1"})
    assert (answer.code, "at least 7 characters" in answer.remark) == (29, True)
    assert broker.asked(3002, {"username": "alice01"}, {"password": "short"}).code == 29


@pytest.mark.parametrize("is_strict", [True, False])
def test_only_an_administrator_asks(is_strict: bool) -> None:
    """Also where other requests are judged as RocketMQ 4.9 does, since it has none of these."""
    broker = Accounts(is_strict=is_strict).start()
    broker.asked(3001, {"username": "alice01"}, {"password": "alicepass"})
    alice = Credentials("alice01", "alicepass")
    for code in range(3001, 3011):
        answer = broker.asked(code, {"username": "alice01", **ALICE}, {}, by=alice)
        assert answer.code in (1, 16), (code, answer)
        assert "admin" in answer.remark
        assert b"rootsecret" not in (answer.body or b"")
    broker.stop()


def test_two_changes_that_come_together_both_count(broker: Accounts) -> None:
    """The second one builds on the first, though it comes before that is on the disk."""
    waiting = [
        broker.ask(sign(RemotingCommand(3006, dict(ALICE), body_of(topic)), ROOT))
        for topic in ("A", "B")
    ]
    assert [broker.wait(answer).code for answer in waiting] == [0, 0]
    assert broker.alice()["topicPerms"] == ("A=PUB", "B=PUB")


def test_without_access_control_it_says_so() -> None:
    broker = SimBroker().start()
    for code in range(3001, 3011):
        request = RemotingCommand(code, {"username": "alice01", **ALICE}, b"{}")
        answer = broker.call(request)
        assert (answer.code, "aclEnable=true" in answer.remark) == (1, True), answer
    broker.stop()
