"""ACL files: what they say, and what is wrong with them."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.server.acl.accounts import AccountEntry
from rmq_ha.server.acl.reading import read_file

SECRET = "s3cr3t-S3CR3T"
UPSTREAM = """
globalWhiteRemoteAddresses: ["10.10.103.*", "192.168.0.*"]
accounts:
  - accessKey: RocketMQ
    secretKey: "12345678"
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"]
    groupPerms: ["groupA=DENY", "groupB=PUB|SUB"]
  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
dataVersion: [{counter: 1, timestamp: 1700000000000}]
"""


def test_the_file_of_the_documentation() -> None:
    file = read_file("/c/plain_acl.yml", UPSTREAM.encode())
    assert file.white_addresses == ("10.10.103.*", "192.168.0.*")
    assert file.version == DataVersion(1700000000000, 1)
    assert file.notices == ()
    assert file.accounts == (
        AccountEntry(
            access_key="RocketMQ",
            secret_key="12345678",
            default_topic_perm="DENY",
            default_group_perm="SUB",
            topic_perms=("topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"),
            group_perms=("groupA=DENY", "groupB=PUB|SUB"),
        ),
        AccountEntry(
            access_key="rocketmq2",
            secret_key="12345678",
            white_remote_address="192.168.1.*",
            admin=True,
        ),
    )


def test_all_that_is_odd_is_told() -> None:
    """With its line; whoever mends one thing finds no other after it."""
    file = read_file(
        "f",
        b"""one: 1
two: 2
accounts:
- accessKey: someaccount
  secretKey: somesecret
  three: 3
  four: 4
  topicPerms: [a=pub, b=sub]
""",
    )
    assert [notice.split(" ")[:2] for notice in file.notices] == [
        ["f:1:", "one"],
        ["f:2:", "two"],
        ["f:6:", "three"],
        ["f:7:", "four"],
        ["f:8:", "topicPerms"],
        ["f:8:", "topicPerms"],
    ]


def test_an_empty_file_has_no_accounts() -> None:
    for data in (b"", b"\n# nothing\n", b"---\n", b"\xef\xbb\xbf"):
        file = read_file("f", data)
        assert file.is_empty
        assert file.accounts == ()
    assert not read_file("f", b"accounts: []").is_empty


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "f:1: the file must consist of `name: value` lines"),
        ("- a", "f:1: the file must consist"),
        ("a: }", "f:1: is no YAML: "),
        ("accounts:\n\t- x", "f:2: is no YAML: "),
        ("a: 1\n---\nb: 2", "f:2: is no YAML: "),
        ("a: \x00", "f: is no YAML: a character is not allowed"),
        ("a: " + "[" * 30, "f:1: nests deeper than 20"),
        ("accounts: 5", "f:1: accounts: must be a list"),
        ("accounts: [5]", "f:1: accounts: must be `name: value` lines"),
        ("accounts:\n-", "f:2: accounts: must be `name: value` lines"),
        ("accounts: []\naccounts: []", "f:2: accounts: is there twice, also at line 1"),
        ("? [a]\n: b", "f:1: a name must be a word"),
        ("globalWhiteRemoteAddresses: 10.0.0.1", "f:1: globalWhiteRemoteAddresses: must be a list"),
        ("globalWhiteRemoteAddresses:\n- x", "f:2: globalWhiteRemoteAddresses: 'x' is no address"),
        ("dataVersion: [{counter: x}]", "f:1: dataVersion.counter: must be a number"),
        ("dataVersion: [{counter: 99999999999999999999}]", "must be a number"),
    ],
)
def test_a_broken_file_is_refused_with_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_file("f", text.encode())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "f:2: accessKey: is missing in this account"),
        ("accessKey: short", "f:2: accessKey: must have at least 7 characters"),
        ("accessKey: longenough", "f:2: secretKey: is missing in this account"),
        ("accessKey: 0x12345678", "f:2: accessKey: put it in quotes: YAML does not read it as"),
        ("accessKey: 2020-01-01", "f:2: accessKey: put it in quotes"),
        ("accessKey: [a]", "f:2: accessKey: must be one value"),
        ("admin: maybe", "f:2: admin: must be true or false"),
        ("topicPerms: topicA=PUB", "f:2: topicPerms: must be a list"),
        ("topicPerms: [topicA]", "f:2: topicPerms: 'topicA' must be name=permission"),
        ("topicPerms: [a=PUB=SUB]", "f:2: topicPerms: 'a=PUB=SUB' must be"),
        ("groupPerms: ['=PUB']", "f:2: groupPerms: '=PUB' must be"),
        ("whiteRemoteAddress: 10.0.0.999", "f:2: whiteRemoteAddress: '10.0.0.999' is no address"),
    ],
)
def test_a_broken_account_is_refused(line: str, message: str) -> None:
    complete = "accessKey: longenough\n  secretKey: longenough\n  "
    text = f"accounts:\n- {line}" if "Key" in line or not line else None
    if text is None:
        text = f"accounts:\n- {line}\n  {complete}"
    elif not line:
        text = "accounts:\n- secretKey: longenough"
    with pytest.raises(ConfigurationError) as caught:
        read_file("f", text.encode())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "accounts:\n- {accessKey: longenough, secretKey: '%s', admin: x}",
        "accounts:\n- {accessKey: longenough, secretKey: *%s}",
        "accounts:\n- {accessKey: longenough, secretKey: !%s x}",
        "accounts:\n- {accessKey: longenough, secretKey: '%s",
        'accounts:\n- {accessKey: longenough, secretKey: "%s\\q"}',
        "accounts:\n- {accessKey: longenough, secretKey: '%s\x01'}",
        "accounts:\n- {accessKey: longenough, secretKey: [%s]}",
        "accounts:\n- {accessKey: longenough, secretKey: {%s}}",
        "accounts:\n- {accessKey: longenough, secretKey: @%s}",
        "accounts:\n- {accessKey: longenough, secretKey: %%%s}",
        "accounts:\n  secretKey: %s\n accessKey: longenough",
    ],
)
def test_no_message_shows_a_secret(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_file("f", (text % SECRET).encode())
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(AccountEntry(access_key="k", secret_key=SECRET))


def test_what_is_odd_is_noticed_with_its_line() -> None:
    text = """
foo: 1
accounts:
- accessKey: someaccount
  secretKey: "12345678"
  defaultTopicPerm: pub
  topicPerms: [a=pub]
  bar: 2
"""
    assert read_file("f", text.encode()).notices == (
        "f:2: foo is not known and has no effect",
        "f:6: defaultTopicPerm 'pub' denies: it is not DENY, PUB, SUB or PUB|SUB",
        "f:7: topicPerms 'a=pub' denies: 'pub' is not DENY, PUB, SUB or PUB|SUB",
        "f:8: bar is not known and has no effect",
    )


def test_aliases_are_read_as_what_they_stand_for() -> None:
    text = """
base: &perms [a=PUB]
accounts:
- {accessKey: someaccount, secretKey: "12345678", topicPerms: *perms}
- {accessKey: otheraccount, secretKey: "12345678", topicPerms: *perms}
"""
    file = read_file("f", text.encode())
    assert [account.topic_perms for account in file.accounts] == [("a=PUB",)] * 2


_WORDS = st.sampled_from(
    ["accounts", "accessKey", "secretKey", "admin", "topicPerms", "dataVersion", "counter"]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_WORDS | st.text(max_size=3), inner)
    ),
    max_leaves=20,
)


@given(_VALUES)
@settings(deadline=None)
def test_any_yaml_is_a_file_or_a_configuration_error(value: object) -> None:
    check(yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "replace"))


@given(
    st.binary(max_size=200) | st.text("[]{}-:,&*!|>'\"%@`#? \n\tab1", max_size=60).map(str.encode)
)
@settings(deadline=None)
def test_any_bytes_are_a_file_or_a_configuration_error(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    try:
        read_file("f", data)
    except ConfigurationError as error:
        message = str(error)
    else:
        return
    assert message.startswith("f:")
