"""Accounts of brokers with access control, seen and changed from outside.

Spec: remoting.md, sections 2.2 and 10.3.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmq_ha.base.wire.bodies import optional_text, read_body
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.asking import Ask, Asking, expect


class Account(NamedTuple):
    """
    What one account may do, as a broker tells it; None: its file says nothing.

    :ivar topic_perms: `name=PERMISSION`.
    """

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()


class AclRules(NamedTuple):
    """
    All that a broker's files of accounts say.

    :ivar white_addresses: from where nobody needs an account.
    """

    white_addresses: list[str]
    accounts: dict[str, Account]


class FileVersion(NamedTuple):
    """:ivar broker_name: of the broker that has the file."""

    broker_name: str
    path: str
    counter: int
    timestamp: int


def acl_rules(address: str) -> Asking[AclRules]:
    """
    Accounts with their secrets, and white addresses.

    :raises BrokerRefused: it does not tell.
    :raises RemotingError: it does not answer; Java's never does without access control.
    """
    command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    response = yield from expect(Ask(command, address))
    return read_body(
        response.body or b"{}",
        lambda value: AclRules(
            [str(item) for item in value.get("globalWhiteAddrs") or ()],
            {item.access_key: item for item in map(_account, value["plainAccessConfigs"] or ())},
        ),
        None,
    )


def _account(value: Mapping[str, Any]) -> Account:
    return Account(
        str(value["accessKey"]),
        optional_text(value.get("secretKey")),
        optional_text(value.get("whiteRemoteAddress")),
        bool(value.get("admin")),
        optional_text(value.get("defaultTopicPerm")),
        optional_text(value.get("defaultGroupPerm")),
        tuple(map(str, value.get("topicPerms") or ())),
        tuple(map(str, value.get("groupPerms") or ())),
    )


def acl_versions(address: str) -> Asking[list[FileVersion]]:
    """How often each file of accounts was changed, and when last; raises as `acl_rules`."""
    command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    ext = (yield from expect(Ask(command, address))).ext or {}
    return read_body(
        (ext.get("allAclFileVersion") or "{}").encode(),
        lambda value: [
            FileVersion(
                ext.get("brokerName", ""), str(path), int(item["counter"]), int(item["timestamp"])
            )
            for path, item in value.items()
        ],
        None,
    )


def put_account(address: str, account: Account) -> Asking[None]:
    """
    Create or change an account on one broker; what is None or empty stays as it is there.

    :raises BrokerRefused: it does not, and why.
    :raises RemotingError: it does not answer.
    """
    ext = {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_remote_address,
        "admin": "true" if account.admin else "false",
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "topicPerms": ",".join(account.topic_perms) or None,
        "groupPerms": ",".join(account.group_perms) or None,
    }
    given = {key: value for key, value in ext.items() if value is not None}
    command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, given)
    yield from expect(Ask(command, address))


def delete_account(address: str, access_key: str) -> Asking[None]:
    """On one broker; raises as `put_account`."""
    command = RemotingCommand(RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key})
    yield from expect(Ask(command, address))


def put_white_addresses(address: str, addresses: str) -> Asking[None]:
    """
    From where nobody needs an account, on one broker; raises as `put_account`.

    :param addresses: separated by commas; all that there were go.
    """
    ext = {"globalWhiteAddrs": addresses}
    command = RemotingCommand(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, ext)
    yield from expect(Ask(command, address))
