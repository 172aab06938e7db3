"""The content of an ACL file as values.

Spec: remoting.md, section 10.3.
"""

from dataclasses import dataclass
from typing import Any

from rmq_ha.base.model.data_version import DataVersion

MIN_KEY_LENGTH = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountEntry:
    """
    One entry of `accounts`. A value is None if the file does not give it.

    :ivar topic_perms: entries such as `topic=PUB|SUB`.
    :ivar previous_secret_key: also valid while clients are given the new key. Only rmq-ha has it.
    :ivar certificate_names: names in clients' certificates; a client with one of them is this
        account. Only rmq-ha has it.
    """

    access_key: str
    secret_key: str
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    group_perms: tuple[str, ...] | None = None
    certificate_names: tuple[str, ...] | None = None
    previous_secret_key: str | None = None

    def __repr__(self) -> str:
        return f"<Account {self.access_key}>"

    def to_json(self) -> dict[str, Any]:
        """
        Return the account as request code 54 shows it: with its secret key, but without the
        previous one.
        """
        members = {
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "whiteRemoteAddress": self.white_remote_address,
            "admin": self.admin,
            "defaultTopicPerm": self.default_topic_perm,
            "defaultGroupPerm": self.default_group_perm,
            "topicPerms": self.topic_perms,
            "groupPerms": self.group_perms,
            "certificateNames": self.certificate_names,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class AccountChange:
    """
    A change of one account, which request code 50 asks for. A value that is None leaves the
    account's value as it is.

    :ivar admin: never None, as RocketMQ always sets it: an absent value counts as false.
    """

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    group_perms: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"<AccountChange {self.access_key}>"


@dataclass(frozen=True, slots=True)
class AclFile:
    """
    The content of one file.

    :ivar version: None if the file has none.
    :ivar notices: oddities in the file, for the operator.
    :ivar is_empty: whether the file has no content at all.
    """

    path: str
    white_addresses: tuple[str, ...] = ()
    accounts: tuple[AccountEntry, ...] = ()
    version: DataVersion | None = None
    notices: tuple[str, ...] = ()
    is_empty: bool = False
