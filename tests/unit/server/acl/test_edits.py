"""Changes of a file's text."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.server.acl.accounts import AccountChange
from rmq_ha.server.acl.edits import (
    Edit,
    checked_change,
    delete_account,
    edited,
    set_account,
    set_white_addresses,
)
from rmq_ha.server.acl.reading import read_file

VERSION = DataVersion(1700000000000, 7)
FILE = """
# a comment
globalWhiteRemoteAddresses:
- 10.10.103.*
foo: [1, x, 2020-01-01]
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: true
  topicPerms:
  - topicA=DENY
  extra: 9
- {accessKey: otheraccount, secretKey: "12345678"}
"""


def apply(edit: Edit, text: str = FILE) -> str:
    return edited("f", text.encode(), edit, VERSION).decode()


def test_an_account_is_added_and_all_else_stays() -> None:
    change = AccountChange(
        "newaccount", "87654321", "1.2.3.4", False, None, "SUB", ("a=PUB", "b=SUB"), ()
    )
    # As RocketMQ writes it, the quotes included.
    assert apply(set_account(change)) == (
        """globalWhiteRemoteAddresses:
- 10.10.103.*
foo: [1, x, 2020-01-01]
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: true
  topicPerms:
  - topicA=DENY
  extra: 9
- {accessKey: otheraccount, secretKey: "12345678"}
- accessKey: newaccount
  secretKey: '87654321'
  whiteRemoteAddress: 1.2.3.4
  admin: false
  defaultGroupPerm: SUB
  topicPerms:
  - a=PUB
  - b=SUB
  groupPerms: []
dataVersion:
- counter: 7
  timestamp: 1700000000000
"""
    )


def test_only_what_a_change_says_is_changed_but_admin_always() -> None:
    text = apply(set_account(AccountChange("RocketMQ", "secondsecret", default_topic_perm="PUB")))
    account = read_file("f", text.encode()).accounts[0]
    assert account.secret_key == "secondsecret"
    assert account.default_topic_perm == "PUB"
    assert account.topic_perms == ("topicA=DENY",)
    assert not account.admin
    assert yaml.safe_load(text)["accounts"][0]["extra"] == 9


def test_an_account_in_brackets_is_changed_too() -> None:
    change = AccountChange("otheraccount", "12345678", topic_perms=("a=PUB|SUB",))
    accounts = read_file("f", apply(set_account(change)).encode()).accounts
    assert accounts[1].topic_perms == ("a=PUB|SUB",)


def test_an_account_is_deleted() -> None:
    accounts = read_file("f", apply(delete_account("RocketMQ")).encode()).accounts
    assert [account.access_key for account in accounts] == ["otheraccount"]
    assert "accounts: []" in apply(
        delete_account("otheraccount"), apply(delete_account("RocketMQ"))
    )


def test_white_addresses_are_replaced() -> None:
    file = read_file("f", apply(set_white_addresses(["1.1.1.1", "2.2.*.*"])).encode())
    assert file.white_addresses == ("1.1.1.1", "2.2.*.*")
    assert file.version == VERSION
    assert len(file.accounts) == 2
    assert read_file("f", apply(set_white_addresses([])).encode()).white_addresses == ()


def test_an_empty_file_gets_its_first_account() -> None:
    text = apply(set_account(AccountChange("newaccount", "87654321")), "")
    assert read_file("f", text.encode()).accounts[0].access_key == "newaccount"


def test_a_white_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        set_white_addresses(["1.1.1.1", "nonsense"])


def test_a_broken_file_is_not_written() -> None:
    with pytest.raises(ConfigurationError, match="f:1:"):
        apply(set_white_addresses([]), "- a")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (AccountChange(), "accessKey is None"),
        (AccountChange("someaccount"), "must both be given"),
        (AccountChange("short", "longenough"), "at least 7 characters; accessKey is 'short'"),
        (AccountChange("longenough", "s3cret"), "at least 7"),
        (AccountChange("longenough", "longenough", "zz"), "'zz' is no address"),
        (AccountChange("longenough", "longenough", default_topic_perm="ALL"), "defaultTopicPerm"),
        (AccountChange("longenough", "longenough", default_group_perm="pub"), "defaultGroupPerm"),
        (AccountChange("longenough", "longenough", topic_perms=("a",)), "name=permission"),
        (AccountChange("longenough", "longenough", topic_perms=("a=XX",)), "topicPerms: 'a=XX'"),
        (AccountChange("longenough", "longenough", group_perms=("",)), "name=permission"),
        (AccountChange("longenough", "longenough", topic_perms=("a=PUB", "b=XX")), "'b=XX'"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: AccountChange, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        checked_change(change)
    assert "s3cret" not in str(caught.value)


_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=7, max_size=12)


@given(_NAMES, _NAMES, st.lists(_NAMES.filter(lambda name: "=" not in name and name.strip())))
def test_whatever_an_account_is_called_it_is_read_as_it_was_written(
    key: str, secret: str, topics: list[str]
) -> None:
    change = AccountChange(key, secret, topic_perms=tuple(f"{name}=PUB" for name in topics))
    checked_change(change)
    account = read_file("f", apply(set_account(change)).encode()).accounts[-1]
    assert (account.access_key, account.secret_key) == (key, secret)
    assert account.topic_perms == change.topic_perms
