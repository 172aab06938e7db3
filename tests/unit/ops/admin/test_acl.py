"""`rmqha-admin acl` against a simulated pair of brokers with access control."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.ops.admin import acl
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.session import FAILED, NOT_FOUND, USAGE, Session
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say
from tests.unit.ops.admin.typing_kit import Typist

FILE = """
globalWhiteRemoteAddresses: [10.9.9.9]
accounts:
- {accessKey: adminadmin, secretKey: adminsecret, admin: true}
- accessKey: useruser
  secretKey: usersecret
  defaultGroupPerm: SUB
  topicPerms: [Orders=PUB|SUB]
"""
PATH = "/conf/plain_acl.yml"
ADMIN = Credentials("adminadmin", "adminsecret")
NOTHING: dict[str, Any] = {
    "secret_key": None,
    "admin": None,
    "white_remote_address": None,
    "default_topic_perm": None,
    "default_group_perm": None,
    "topic_perms": {},
    "group_perms": {},
}
YES = {"yes": True, "dry_run": False}
DRY = {"yes": False, "dry_run": True}


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster()
    for name in ("one", "two"):
        made.add_guarded(name, FILE)
    return made


def told(cluster: SimCluster, work: Any, account: Credentials = ADMIN) -> Said:
    def signed(session: Session) -> Any:
        session.options = replace(session.options, credentials=account)
        return work(session)

    return say(cluster, signed)


def put(cluster: SimCluster, name: str, which: str = "", sure: Any = YES, **given: Any) -> Said:
    return told(cluster, lambda s: acl.set_account(s, name, which, NOTHING | given, **sure))


def text(cluster: SimCluster, name: str) -> str:
    return cluster.hosts[name].disk.read_bytes(PATH).decode()


def test_accounts_are_shown_without_their_secrets(cluster: SimCluster) -> None:
    said = told(cluster, lambda s: acl.show_accounts(s, ""))
    assert [(row["account"], row["broker"]) for row in said.json["rows"]] == [
        ("adminadmin", "one"),
        ("adminadmin", "two"),
        ("useruser", "one"),
        ("useruser", "two"),
    ]
    assert said.json["rows"][2]["topics"] == "Orders=PUB|SUB"
    assert list(said.json["white_addresses"].values()) == [["10.9.9.9"]] * 2
    assert "secret" not in said.out.replace('"secret": "(hidden)"', "")
    said = told(cluster, lambda s: acl.show_accounts(s, "one", "useruser", show_secrets=True))
    assert said.json["rows"][0]["secret"] == "usersecret"
    assert told(cluster, lambda s: acl.show_accounts(s, "", "nobody")).code == NOT_FOUND
    user = Credentials("useruser", "usersecret")
    said = told(cluster, lambda s: acl.show_accounts(s, ""), user)
    assert said.code == FAILED


def test_an_account_is_changed_on_all_and_what_is_not_given_stays(cluster: SimCluster) -> None:
    before = text(cluster, "one")
    said = put(cluster, "useruser", sure=DRY, topic_perms={"Bills": "PUB"})
    assert said.json["rows"][0]["after"] == "Orders=PUB|SUB Bills=PUB"
    assert text(cluster, "one") == before
    said = put(cluster, "useruser", topic_perms={"Bills": "PUB"}, secret_key="anothersecret")
    assert (said.code, said.last) == (0, {"done": True})
    assert "anothersecret" not in said.out + said.err
    assert "--tls" in said.err
    found = told(cluster, lambda s: acl.show_accounts(s, "", "useruser", show_secrets=True))
    for row in found.json["rows"]:
        assert (row["topics"], row["default_group"], row["secret"], row["admin"]) == (
            "Orders=PUB|SUB Bills=PUB",
            "SUB",
            "anothersecret",
            False,
        )
    again = put(cluster, "useruser", topic_perms={"Bills": "PUB"})
    assert (again.code, again.json["rows"]) == (0, [])
    put(cluster, "adminadmin", default_topic_perm="SUB")
    assert put(cluster, "useruser", topic_perms={"C": "SUB"}).code == 0  # still an admin


def test_a_new_account_needs_a_secret_and_brokers_that_differ_are_named(
    cluster: SimCluster,
) -> None:
    assert put(cluster, "newcomer").code == FAILED
    assert put(cluster, "newcomer", "one", secret_key="short").code == FAILED
    assert put(cluster, "newcomer", "one", secret_key="longenough", admin=True).code == 0
    said = told(cluster, lambda s: acl.show_accounts(s, "", "newcomer"))
    assert [row["broker"] for row in said.json["rows"]] == ["one"]
    assert "newcomer is not the same on all brokers" in said.err


def test_accounts_are_deleted_but_not_the_one_that_asks(cluster: SimCluster) -> None:
    def gone(name: str, **sure: bool) -> Said:
        return told(cluster, lambda s: acl.remove_account(s, name, "", **sure))

    assert gone("adminadmin", **YES).code == FAILED
    assert len(gone("useruser", **DRY).json["rows"]) == 2
    assert "useruser" in text(cluster, "two")
    assert gone("useruser", **YES).last == {"account": "useruser", "deleted": True}
    assert "useruser" not in text(cluster, "one") + text(cluster, "two")
    assert gone("useruser", **YES).code == NOT_FOUND


def test_versions_of_the_files_count_changes(cluster: SimCluster) -> None:
    def versions() -> list[int]:
        said = told(cluster, lambda s: acl.show_versions(s, ""))
        assert {row["file"] for row in said.json["rows"]} == {PATH}
        return [row["changes"] for row in said.json["rows"]]

    one, two = versions()
    put(cluster, "useruser", "one", default_topic_perm="SUB")
    assert versions() == [one + 1, two]


def test_one_account_is_shown_as_it_is_typed(
    cluster: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = Typist(cluster, monkeypatch)
    line = "acl show useruser --access-key adminadmin --secret-key adminsecret"
    assert {(row["broker"], row["account"]) for row in typed.does(line).rows} == {
        ("one", "useruser"),
        ("two", "useruser"),
    }
    assert typed(line.replace("useruser", "nobody")).code == NOT_FOUND


def test_without_access_control_it_says_so() -> None:
    said = say(SimCluster("one"), lambda s: acl.show_accounts(s, ""))
    assert said.code == FAILED
    assert "aclEnable=true" in said.err


def test_permissions_are_words_that_brokers_know() -> None:
    done = CliRunner().invoke(main, ["acl", "set", "useruser", "--topic", "T=ALL", "--yes"])
    assert done.exit_code == USAGE
    assert "NAME=DENY/PUB/SUB/PUB|SUB" in done.output
