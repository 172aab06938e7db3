"""Requests that read and change the accounts of brokers with access control.

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
    The permissions of one account, as a broker tells them; None for values that its file lacks.

    :ivar topic_perms: texts of the form `name=PERMISSION`.
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
    The content of a broker's files of accounts.

    :ivar white_addresses: client addresses that need no account.
    """

    white_addresses: list[str]
    accounts: dict[str, Account]


class FileVersion(NamedTuple):
    """
    The version of one file of accounts.

    :ivar broker_name: the broker that has the file.
    """

    broker_name: str
    path: str
    counter: int
    timestamp: int


def acl_rules(address: str) -> Asking[AclRules]:
    """
    Ask a broker for its accounts with their secrets, and its white addresses.

    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: the broker does not answer; Java's never does without access control.
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
    """
    Ask how many times each file of accounts was changed, and when last; raises as `acl_rules` does.
    """
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
    Create or change an account on one broker; values that are None or empty stay unchanged there.

    :raises BrokerRefused: the broker refuses; the error says why.
    :raises RemotingError: the broker does not answer.
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
    """Delete an account on one broker; raises as `put_account` does."""
    command = RemotingCommand(RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key})
    yield from expect(Ask(command, address))


def put_white_addresses(address: str, addresses: str) -> Asking[None]:
    """
    Set the addresses that need no account on one broker; raises as `put_account` does.

    :param addresses: addresses separated by commas; they replace all former ones.
    """
    ext = {"globalWhiteAddrs": addresses}
    command = RemotingCommand(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, ext)
    yield from expect(Ask(command, address))
