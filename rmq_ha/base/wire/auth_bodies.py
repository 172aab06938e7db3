"""Bodies of RocketMQ 5's requests about users and their policies (3001 to 3010).

`tests/vectors/auth` has what a Java broker answered.
"""

from typing import TypeVar

import msgspec

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.bodies import Body
from rmq_ha.base.wire.fastjson import parse
from rmq_ha.base.wire.members import from_members

T = TypeVar("T", bound=Body)

SUPER, NORMAL = "Super", "Normal"
ENABLED = "enable"
CUSTOM, DEFAULT = "Custom", "Default"
ALLOW, DENY = "Allow", "Deny"
USER_PREFIX = "User:"
"""What the subject of a user's policies begins with."""


class UserInfo(Body):
    """
    A user.

    :ivar user_status: `enable` or `disable`.
    :ivar user_type: `Super` or `Normal`.
    """

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None

    def __repr__(self) -> str:
        return f"<UserInfo {self.username}>"


class PolicyEntry(Body):
    """
    One rule of a policy.

    :ivar actions: `Pub`, `Sub`, `Get`, `All`, ...
    :ivar decision: `Allow` or `Deny`.
    :ivar resource: `Topic:NAME`, `Group:NAME`, `Topic:*`, ...
    :ivar source_ips: the rule holds for these addresses only; None: for all.
    """

    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class Policy(Body):
    """
    The rules of one type: those of the type `Default` count where none of the type `Custom` fits.
    """

    entries: list[PolicyEntry] | None = None
    policy_type: str | None = None


class AclInfo(Body):
    """The policies of one user."""

    policies: list[Policy] | None = None
    subject: str | None = None


def decode_list(kind: type[T], body: bytes) -> list[T]:
    """
    Decode a list, as 3005 and 3010 answer it.

    :raises ProtocolViolation: the body has another form.
    """
    value = parse(body, None)
    if not isinstance(value, list):
        raise ProtocolViolation("the body is not a JSON list")
    try:
        return [from_members(kind, item) for item in value]
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ProtocolViolation(f"the body does not have the expected form: {error}") from None
