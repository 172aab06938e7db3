"""What an ACL file says, as values.

Spec: remoting.md, section 10.3.
"""

from dataclasses import dataclass
from typing import Any

from rmq_ha.base.model.data_version import DataVersion

MIN_KEY_LENGTH = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """
    One entry of `accounts`; None where the file says nothing.

    :ivar topic_perms: `topic=PUB|SUB` and the like.
    :ivar previous_secret_key: is valid, too, while clients are given the new one. Ours.
    :ivar certificate_names: of clients' certificates; who shows one of them is this account. Ours.
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
        """As code 54 tells it, the secret included, the previous one left out."""
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
    What code 50 asks for: an account with these values, the others as they were.

    :ivar admin: RocketMQ always sets it: absent is false.
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
    One file.

    :ivar version: None where the file has none.
    :ivar notices: what is odd in it, for the operator.
    :ivar is_empty: it says nothing at all.
    """

    path: str
    white_addresses: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    version: DataVersion | None = None
    notices: tuple[str, ...] = ()
    is_empty: bool = False
