"""`rmqha-admin acl export` and `import`: accounts go to RocketMQ 5's users and come back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from rmq_ha.base.wire.auth_bodies import AclInfo, UserInfo, decode_list
from rmq_ha.ops.admin import acl_auth
from rmq_ha.ops.admin.auth_document import (
    AuthDocument,
    document_of,
    plain_acl_of,
    read_document,
)
from rmq_ha.ops.admin.session import FAILED, USAGE, ChangeRefused
from rmq_ha.server.acl.policies import PolicyRule, Rights, rights_of, rules_of
from rmq_ha.server.acl.reading import read_file
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.typing_kit import Typist, of

ADMIN = "{accessKey: adminadmin, secretKey: adminsecret, admin: true}"
USER = (
    "{accessKey: useruser, secretKey: usersecret, defaultTopicPerm: SUB, "
    "topicPerms: [A=PUB, B=PUB|SUB, C=DENY], groupPerms: [g=SUB, '%RETRY%h=SUB']}"
)
ONE = f"accounts:\n- {ADMIN}\n- {USER}\n"
TWO = f"accounts:\n- {ADMIN}\n- {{accessKey: useruser, secretKey: anothersecret}}\n"


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster()
    made.add_guarded("one", ONE)
    made.add_guarded("two", TWO)
    return made


@pytest.fixture
def typed(cluster: SimCluster, monkeypatch: pytest.MonkeyPatch) -> Typist:
    monkeypatch.setenv("RMQHA_ACCESS_KEY", "adminadmin")
    monkeypatch.setenv("RMQHA_SECRET_KEY", "adminsecret")
    return Typist(cluster, monkeypatch)


def from_file(text: str, cluster: str = "c") -> AuthDocument:
    content = read_file("plain_acl.yml", text.encode())
    return document_of(content.accounts, content.white_addresses, cluster)


def allowed_by_java(document: AuthDocument, name: str, resource: str, action: str) -> bool:
    """What a broker of RocketMQ 5 decides: AclAuthorizationHandler, for rules without prefixes."""
    (acl,) = (acl for acl in document.acls if acl.subject == f"User:{name}")
    for kind in ("Custom", "Default"):
        entries = [
            entry
            for policy in acl.policies or ()
            for entry in policy.entries or ()
            if policy.policy_type == kind
            and entry.resource in (resource, resource.split(":")[0] + ":*")
            and action in (entry.actions or ())
        ]
        if entries:
            return any(entry.decision == "Allow" for entry in entries)
    return False


def test_the_same_account_may_do_the_same() -> None:
    """An entry replaces the default, also where RocketMQ 5 would add both up."""
    document = from_file(ONE)
    assert [(user.username, user.user_type) for user in document.users] == [
        ("adminadmin", "Super"),
        ("useruser", "Normal"),
    ]
    may = {
        "Topic:A": "Pub",
        "Topic:B": "Pub Sub Get",
        "Topic:C": "",
        "Topic:Other": "Sub Get",
        "Topic:SCHEDULE_TOPIC_XXXX": "",
        "Topic:RMQ_SYS_TRACE_TOPIC": "Pub",
        "Topic:c_REPLY_TOPIC": "Pub",
        "Group:g": "Sub Get",
        "Group:h": "Sub Get",
        "Group:other": "",
    }
    for resource, actions in may.items():
        found = [
            action
            for action in ("Pub", "Sub", "Get")
            if allowed_by_java(document, "useruser", resource, action)
        ]
        assert " ".join(found) == actions, resource


def test_it_comes_back() -> None:
    text = plain_acl_of(from_file(ONE), 5).text
    accounts = {item["accessKey"]: item for item in yaml.safe_load(text)["accounts"]}
    user = accounts["useruser"]
    assert accounts["adminadmin"]["admin"] is True
    assert (user["secretKey"], user["defaultTopicPerm"]) == ("usersecret", "SUB")
    assert user["topicPerms"] == ["A=PUB", "B=PUB|SUB", "C=DENY"]
    assert user["groupPerms"] == ["g=SUB", "h=SUB"]


@pytest.mark.parametrize("default", ["DENY", "PUB", "SUB", "PUB|SUB"])
@pytest.mark.parametrize("own", ["DENY", "PUB", "SUB", "PUB|SUB"])
def test_every_pair_of_words_comes_back(default: str, own: str) -> None:
    rights = Rights(default, default, {"A": own}, {"g": own})
    assert rights_of(rules_of(rights)) == rights


def test_what_is_lost_is_said() -> None:
    document = from_file(
        "globalWhiteRemoteAddresses: [10.1.1.*]\n"
        "accounts:\n"
        "- {accessKey: limited1, secretKey: limitedsecret, admin: true, topicPerms: [A=SUB]}\n"
        "- {accessKey: address1, secretKey: addresssecret, whiteRemoteAddress: 10.0.0.1,\n"
        "   previousSecretKey: formersecret, certificateNames: [a.example],\n"
        "   topicPerms: ['A*=PUB']}\n",
        cluster="",
    )
    for words in (
        "globalWhiteRemoteAddresses (10.1.1.*)",
        "give --cluster",
        "limited1: is an administrator with permissions for single topics",
        "address1: whiteRemoteAddress 10.0.0.1",
        "address1: previousSecretKey",
        "address1: certificateNames",
        "address1: A* is left out",
    ):
        assert any(words in note for note in document.notes), words
    assert "A*" not in json.dumps(document.to_members()["acls"])


def test_users_of_java_become_accounts_that_may_not_do_more() -> None:
    """What cannot be said is left out; where that would allow more, all permissions are."""
    users = [
        ("prefix1", "enable"),
        ("denies1", "enable"),
        ("allows1", "enable"),
        ("disabled", "disable"),
        ("tiny", "enable"),
    ]

    def acl(name: str, *entries: tuple[str, str, str]) -> dict[str, Any]:
        rows = [
            {"resource": resource, "actions": actions.split(","), "decision": decision}
            for resource, actions, decision in entries
        ]
        return {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": rows}]}

    acls = [
        acl("prefix1", ("Topic:Ord*", "Pub", "Allow"), ("Topic:A", "Pub", "Allow")),
        acl("denies1", ("Topic:Sec*", "All", "Deny"), ("Topic:*", "Sub", "Allow")),
        acl("allows1", ("Topic:A", "All", "Allow"), ("Topic:*", "Sub", "Allow")),
    ]
    document = AuthDocument(
        [UserInfo("a-secret", status, "Normal", name) for name, status in users],
        decode_list(AclInfo, json.dumps(acls).encode()),
        [],
    )
    made = plain_acl_of(document, 5)
    accounts = {item["accessKey"]: item for item in yaml.safe_load(made.text)["accounts"]}
    assert set(accounts) == {"prefix1", "denies1", "allows1"}
    assert accounts["prefix1"]["topicPerms"] == ["A=PUB"]
    assert "topicPerms" not in accounts["denies1"]
    assert accounts["denies1"]["defaultTopicPerm"] == "DENY"
    assert accounts["allows1"]["topicPerms"] == ["A=PUB|SUB"]
    for words in (
        "prefix1: Topic:Ord* is for all names",
        "denies1: has no permissions in the file",
        "allows1: Topic:A allows All",
        "disabled is disabled",
        "tiny is left out",
    ):
        assert any(words in note for note in made.notes), words


def test_the_default_adds_to_a_rule_of_one_topic_in_java() -> None:
    rules = [
        PolicyRule("Topic", "A", frozenset({"Pub"})),
        PolicyRule("Topic", "*", frozenset({"Sub"})),
    ]
    assert rights_of(rules) == Rights("SUB", "DENY", {"A": "PUB|SUB"})


def test_a_rule_below_the_default_is_said() -> None:
    """RocketMQ 5.5 refuses a route if one of its actions is denied; 5.3.3 does not."""
    assert any("Topic:A, Topic:RMQ_SYS_TRACE_TOPIC" in note for note in from_file(ONE).notes)


def test_who_is_allowed_and_denied_the_same_is_denied() -> None:
    both = frozenset({"Pub", "Sub"})
    rules = [PolicyRule("Topic", "A", both, frozenset({"Sub"}))]
    assert rights_of(rules) == Rights("DENY", "DENY", {"A": "PUB"})


def test_from_one_broker_to_another(cluster: SimCluster, typed: Typist) -> None:
    """The second one had another secret and no permissions; a second import finds nothing."""
    told = typed("acl export /accounts.json --v2 --on one")
    assert told.code == 0, told.err
    assert told.lines[0]["users"] == 2
    disk = typed.host.disk
    document = read_document(disk.read_bytes("/accounts.json"))
    assert typed("acl export /accounts.json --v2").code == FAILED
    assert typed("acl export /other.json").code == USAGE

    def imported(which: str, **sure: bool) -> Any:
        given = {"yes": True, "dry_run": False} | sure
        return say(
            cluster,
            lambda session: acl_auth.import_document(session, document, which, **given),
            credentials=typed_credentials(),
        )

    dry = imported("two", yes=False, dry_run=True)
    rows = json.loads(dry.out.splitlines()[0])["rows"]
    assert of(rows, "kind", "name", "action") == [
        ("user", "useruser", "change"),
        ("policies", "User:useruser", "create"),
    ]
    assert imported("two").last == {"set": 2}
    assert json.loads(imported("two").out.splitlines()[0])["rows"] == []
    rules = [
        cluster.brokers[name].access_controls[0].to_json()["plainAccessConfigs"][1]
        for name in ("one", "two")
    ]
    assert rules[1]["secretKey"] == "usersecret"
    assert set(rules[0]["topicPerms"]) <= set(rules[1]["topicPerms"])
    without = AuthDocument(document.users, [], [])
    document = without
    assert imported("two").last == {"set": 1}
    told = typed("acl export /back.yml --v1 --on two")
    assert told.code == 0, told.err
    (user,) = (
        item
        for item in yaml.safe_load(disk.read_bytes("/back.yml"))["accounts"]
        if item["accessKey"] == "useruser"
    )
    assert "topicPerms" not in user


def typed_credentials() -> Any:
    from rmq_ha.base.remoting.signing import Credentials

    return Credentials("adminadmin", "adminsecret")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"users": 5, "acls": []}', '{"users": [5]}'])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ChangeRefused, match="no document of `acl export --v2`"):
        read_document(text.encode())
