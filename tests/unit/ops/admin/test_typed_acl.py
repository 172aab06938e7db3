"""`rmqha-admin acl` as it is typed: what is sent, shown and refused."""

from __future__ import annotations

import pytest

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND, USAGE
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.typing_kit import Typist, of

ADMIN = "{accessKey: adminadmin, secretKey: adminsecret, admin: true}"
FILES = {
    "one": f"accounts:\n- {ADMIN}\n- {{accessKey: useruser, secretKey: usersecret, "
    "whiteRemoteAddress: 10.0.*.*, defaultTopicPerm: PUB, defaultGroupPerm: SUB, "
    "topicPerms: [A=PUB, B=SUB], groupPerms: [g=SUB, h=DENY]}\n",
    "two": f"globalWhiteRemoteAddresses: [10.9.9.9]\naccounts:\n- {ADMIN}\n"
    "- {accessKey: another1, secretKey: anothersecret}\n",
}
USER = {
    "admin": False,
    "from": "10.0.*.*",
    "default_topic": "PUB",
    "default_group": "SUB",
    "topics": "A=PUB B=SUB",
    "groups": "g=SUB h=DENY",
}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """As the admin; both brokers have him, and one account that the other one has not."""
    cluster = SimCluster()
    for name, text in FILES.items():
        cluster.add_guarded(name, text)
    monkeypatch.setenv("RMQHA_ACCESS_KEY", "adminadmin")
    monkeypatch.setenv("RMQHA_SECRET_KEY", "adminsecret")
    return Typist(cluster, monkeypatch)


def test_all_accounts_are_listed_by_name_and_those_that_differ_are_warned_of(
    typed: Typist,
) -> None:
    told = typed.does("acl list")
    assert of(told.rows, "account", "broker", "secret") == [
        ("adminadmin", "one", "(hidden)"),
        ("adminadmin", "two", "(hidden)"),
        ("another1", "two", "(hidden)"),
        ("useruser", "one", "(hidden)"),
    ]
    user = told.rows[3]
    assert {key: user[key] for key in USER} == USER
    assert told.rows[2] | {"topics": None, "groups": None, "from": None} == told.rows[2]
    assert [name in told.err for name in ("adminadmin", "another1", "useruser")] == [
        False,
        True,
        True,
    ]
    address = typed.cluster.address
    assert told.lines[0]["white_addresses"] == {address("one"): [], address("two"): ["10.9.9.9"]}
    assert of(typed.does("acl list two").rows, "account") == [("adminadmin",), ("another1",)]
    shown = typed.does("acl list one --show-secrets").rows
    assert of(shown, "account", "secret") == [
        ("adminadmin", "adminsecret"),
        ("useruser", "usersecret"),
    ]


def test_one_account_is_shown_where_it_is(typed: Typist) -> None:
    (row,) = typed.does("acl show another1 --show-secrets").rows
    assert (row["broker"], row["secret"]) == ("two", "anothersecret")
    told = typed("acl show another1 --on one")
    assert (told.code, "no broker has the account another1" in told.err) == (NOT_FOUND, True)
    (row,) = typed.does(f"acl show adminadmin --on {typed.cluster.address('one')}").rows
    assert row["broker"] == row["address"] == typed.cluster.address("one")


def test_an_account_is_set_with_all_that_is_given(typed: Typist) -> None:
    """What was before stands beside it, secrets never."""
    told = typed.does(
        "acl set useruser --on one --new-secret betterone --admin --from 10.1.*.* --yes"
        " --default-topic SUB --default-group DENY --topic B=PUB|SUB --topic C=DENY --group g=SUB"
    )
    assert of(told.rows, "account", "broker", "key", "before", "after") == [
        ("useruser", "one", "secret", "(hidden)", "(hidden)"),
        ("useruser", "one", "from", "10.0.*.*", "10.1.*.*"),
        ("useruser", "one", "admin", False, True),
        ("useruser", "one", "default_topic", "PUB", "SUB"),
        ("useruser", "one", "default_group", "SUB", "DENY"),
        ("useruser", "one", "topics", "A=PUB B=SUB", "A=PUB B=PUB|SUB C=DENY"),
    ]
    assert told.lines[-1] == {"done": True}
    (row,) = typed.does("acl show useruser --show-secrets").rows
    assert (
        row
        | {
            "secret": "betterone",
            "admin": True,
            "topics": "A=PUB B=PUB|SUB C=DENY",
            "groups": "g=SUB h=DENY",
        }
        == row
    )
    (new,) = typed.does("acl set newcomer --on two --new-secret longenough --dry-run").rows
    assert (new["key"], new["before"], new["after"]) == ("secret", None, "(hidden)")
    (first,) = typed.does("acl set another1 --on two --group k=SUB --no-admin --yes").rows
    assert (first["key"], first["before"], first["after"]) == ("groups", None, "k=SUB")


def test_nothing_is_sent_where_nothing_changes(typed: Typist) -> None:
    typed.asked.clear()
    told = typed.does("acl set useruser --on one --topic A=PUB --yes")
    assert told.lines == [{"done": False, "rows": []}]
    assert RequestCode.UPDATE_AND_CREATE_ACL_CONFIG not in typed.asked
    told = typed("acl set useruser --topic A=PUB --yes")
    assert told.code == FAILED, "the other broker has none, and no secret was given"
    assert f"{typed.cluster.address('two')} has no useruser" in told.err


def test_who_changes_the_own_secret_is_told_to_look_with_the_new_one(typed: Typist) -> None:
    told = typed.does("acl set adminadmin --new-secret betterone --yes")
    assert told.lines[-1] == {}
    assert "goes over the network as it is" in told.err
    assert typed("acl list").code == FAILED
    typed.does("acl list --secret-key betterone")
    told = typed.does("acl set adminadmin --default-topic SUB --secret-key betterone --yes")
    assert told.lines[-1] == {"done": True}, "who keeps the secret is verified"
    assert "goes over the network" not in told.err


def test_a_broker_that_has_something_else_afterwards_is_named(typed: Typist) -> None:
    done = RemotingCommand(0, {})
    for name in ("one", "two"):
        typed.answers(name, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, lambda _: done)
        typed.answers(name, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, lambda _: done)
    told = typed("acl set useruser --on one --topic A=SUB --no-admin --yes")
    assert (told.code, told.lines[-1]) == (FAILED, {"done": False})
    address = typed.cluster.address("one")
    assert f"{address} has topics A=PUB B=SUB of useruser, not A=SUB B=SUB" in told.err
    told = typed("acl set another1 --new-secret longenough --on two --yes")
    assert (told.code, told.lines[-1]) == (FAILED, {"done": False})
    told = typed("acl white 10.1.1.1 10.9.9.9 --yes")
    assert (told.code, told.lines[-1]) == (FAILED, {"done": False})
    assert f"{typed.cluster.address('two')} has 10.9.9.9" in told.err


def test_an_account_is_deleted_where_it_is(typed: Typist) -> None:
    told = typed.does("acl delete another1 --dry-run")
    assert told.lines == [
        {
            "deleted": False,
            "rows": [
                {"account": "another1", "broker": "two", "address": typed.cluster.address("two")}
            ],
        }
    ]
    assert typed("acl delete another1 --on one --yes").code == NOT_FOUND
    typed.asked.clear()
    typed.does("acl delete another1 --yes")
    assert typed.asked.count(RequestCode.DELETE_ACL_CONFIG) == 1
    assert of(typed.does("acl list").rows, "account") == [
        ("adminadmin",),
        ("adminadmin",),
        ("useruser",),
    ]
    told = typed("acl delete adminadmin --yes")
    assert (told.code, "is the account of this command" in told.err) == (FAILED, True)


def test_versions_of_files_have_their_broker(typed: Typist) -> None:
    rows = typed.does("acl version").rows
    assert of(rows, "broker", "file") == [
        ("one", "/conf/plain_acl.yml"),
        ("two", "/conf/plain_acl.yml"),
    ]
    assert all(row["last"].startswith("20") for row in rows)
    typed.does("acl set useruser --on one --default-topic SUB --yes")
    (after,) = typed.does("acl version one").rows
    assert after["changes"] == rows[0]["changes"] + 1


def test_white_addresses_are_those_that_are_given(typed: Typist) -> None:
    told = typed.does("acl white 10.1.*.* 10.9.9.9 --yes")
    assert of(told.rows, "broker", "before", "after") == [
        ("one", "", "10.1.*.* 10.9.9.9"),
        ("two", "10.9.9.9", "10.1.*.* 10.9.9.9"),
    ]
    assert told.lines[-1] == {"done": True}
    told = typed.does("acl white 10.1.*.* 10.9.9.9 --yes")
    assert told.lines == [{"done": False, "rows": []}]
    told = typed.does("acl white --on two --yes")
    assert of(told.rows, "broker", "after") == [("two", "")]
    address = typed.cluster.address
    assert typed.does("acl list").lines[0]["white_addresses"] == {
        address("one"): ["10.1.*.*", "10.9.9.9"],
        address("two"): [],
    }


def test_a_java_broker_without_access_control_is_silent_and_that_is_said(typed: Typist) -> None:
    for line, code in (
        ("acl list", RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG),
        ("acl version", RequestCode.GET_BROKER_CLUSTER_ACL_INFO),
    ):
        typed.keeps_silent("two", code)
        told = typed(line, "--timeout", "1")
        assert told.code == NO_ANSWER
        assert "a Java broker with aclEnable=false does not answer this" in told.err


def test_what_is_no_permission_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = Typist(SimCluster(), monkeypatch)
    for given in ("A", "=PUB", "A=pub", "A,B=PUB"):
        told = typed(f"acl set useruser --topic {given} --yes")
        assert (told.code, f"{given!r} is not NAME=" in told.err) == (USAGE, True)
