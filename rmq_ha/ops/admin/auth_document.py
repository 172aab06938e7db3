"""Accounts of `plain_acl.yml` as users and policies of RocketMQ 5 (ACL 2.0), and back."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topics import HOLD_OTHERS, REPLY_SUFFIX, TRACE_TOPIC
from rmq_ha.base.wire.auth_bodies import ENABLED, NORMAL, SUPER, USER_PREFIX, AclInfo, UserInfo
from rmq_ha.base.wire.members import from_members
from rmq_ha.ops.admin.session import ChangeRefused
from rmq_ha.server.acl.accounts import MIN_KEY_LENGTH, AccountChange
from rmq_ha.server.acl.edits import edited, set_account
from rmq_ha.server.acl.policies import (
    NotCarried,
    PolicyRule,
    Rights,
    merged,
    policies_of,
    rights_of,
    rules_in,
    rules_of,
)


class AnyAccount(Protocol):
    """An account of a file, or one that a broker told."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str | None: ...
    @property
    def white_remote_address(self) -> str | None: ...
    @property
    def admin(self) -> bool: ...
    @property
    def default_topic_perm(self) -> str | None: ...
    @property
    def default_group_perm(self) -> str | None: ...
    @property
    def topic_perms(self) -> tuple[str, ...] | None: ...
    @property
    def group_perms(self) -> tuple[str, ...] | None: ...


class AuthDocument(NamedTuple):
    """
    Users with their policies.

    :ivar notes: a sentence for each rule that could not be carried over.
    """

    users: list[UserInfo]
    acls: list[AclInfo]
    notes: list[str]

    def to_members(self) -> dict[str, Any]:
        return {
            "users": [_members(user) for user in self.users],
            "acls": [_members(acl) for acl in self.acls],
            "notes": self.notes,
        }


def read_document(data: bytes) -> AuthDocument:
    """
    Read a document that `acl export --v2` wrote.

    :raises ChangeRefused: it is none.
    """
    try:
        value = json.loads(data)
        users = [from_members(UserInfo, item) for item in value["users"]]
        acls = [from_members(AclInfo, item) for item in value["acls"]]
    except (ValueError, RecursionError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise ChangeRefused(f"it is no document of `acl export --v2`: {error}") from None
    return AuthDocument(users, acls, [])


# ------------------------------------------------------------ to RocketMQ 5


def document_of(
    accounts: Iterable[AnyAccount], white_addresses: Iterable[str], cluster: str
) -> AuthDocument:
    """
    Return what a cluster of RocketMQ 5 needs so that the accounts have the same permissions.

    :param white_addresses: `globalWhiteRemoteAddresses`.
    :param cluster: its name, which the topic of replies has; empty: not known.
    """
    made = AuthDocument([], [], [])
    white = ", ".join(white_addresses)
    if white:
        made.notes.append(
            f"globalWhiteRemoteAddresses ({white}): RocketMQ 5 lets nobody in without an account. "
            "Give the clients there an account, and brokers innerClientAuthenticationCredentials"
        )
    if not cluster:
        made.notes.append(
            "no cluster was named, so nobody may send replies: give --cluster, if consumers reply"
        )
    for account in accounts:
        made.notes.extend(f"{account.access_key}: {text}" for text in _left_behind(account))
        kind = SUPER if account.admin else NORMAL
        made.users.append(UserInfo(account.secret_key, ENABLED, kind, account.access_key))
        rights = Rights.from_words(
            account.default_topic_perm,
            account.default_group_perm,
            account.topic_perms,
            account.group_perms,
        )
        if account.admin:
            continue
        for name in [*rights.topics, *rights.groups]:
            if name.endswith("*"):
                made.notes.append(
                    f"{account.access_key}: {name} is left out: in RocketMQ 5 it would be for all "
                    "names that begin so"
                )
        rules = rules_of(_with_services(rights, cluster))
        mixed = [rule.resource for rule in rules if rule.allowed and rule.denied]
        if mixed:
            made.notes.append(
                f"{account.access_key}: {', '.join(mixed)} may less than the default, which needs "
                "a rule that denies. A name server or proxy of RocketMQ 5.5 that checks them then "
                "refuses the route; brokers do not. Name the topics instead of a default"
            )
        policies = policies_of(rules, is_for_java=True)
        if policies:
            made.acls.append(AclInfo(policies, USER_PREFIX + account.access_key))
    return made


def _left_behind(account: AnyAccount) -> list[str]:
    """Return what of an account RocketMQ 5 cannot have, apart from its permissions."""
    lost = []
    if account.white_remote_address:
        lost.append(
            f"whiteRemoteAddress {account.white_remote_address} is left out: its clients have to "
            "sign in RocketMQ 5"
        )
    if account.admin and (account.topic_perms or account.group_perms):
        lost.append(
            "is an administrator with permissions for single topics or groups, and no such limit "
            "holds for a Super user: it may send to and read everything"
        )
    if getattr(account, "previous_secret_key", None):
        lost.append("previousSecretKey is left out: only secretKey is valid in RocketMQ 5")
    if getattr(account, "certificate_names", None):
        lost.append("certificateNames are left out: its clients have to sign in RocketMQ 5")
    if "Sub" in (account.default_topic_perm or "").title():
        lost.append(
            "may read all topics by default, and in RocketMQ 5 these include the dead letters "
            "(%DLQ%) of every group"
        )
    return lost


def _with_services(rights: Rights, cluster: str) -> Rights:
    """
    Add what each account has here without an entry: it may write traces and replies, and the topics
    in which messages of all topics wait are not in its default.
    """
    topics = {name: word for name, word in rights.topics.items() if not name.endswith("*")}
    groups = {name: word for name, word in rights.groups.items() if not name.endswith("*")}
    words = [rights.default_topic, *rights.topics.values()]
    if any(word != "DENY" for word in words):
        topics.setdefault(TRACE_TOPIC, "PUB")
        if cluster:
            topics.setdefault(cluster + REPLY_SUFFIX, "PUB")
    if rights.default_topic != "DENY":
        for name in sorted(HOLD_OTHERS):
            topics.setdefault(name, "DENY")
    return rights._replace(topics=topics, groups=groups)


# ------------------------------------------------------------ from RocketMQ 5


class AclText(NamedTuple):
    """
    The text of a `plain_acl.yml`.

    :ivar accounts: how many accounts it has.
    :ivar notes: a sentence for each rule that could not be carried over.
    """

    text: bytes
    accounts: int
    notes: list[str]


def plain_acl_of(document: AuthDocument, now_ms: int) -> AclText:
    """
    Return the `plain_acl.yml` that gives the users the permissions that they have.

    A user who would have more permissions than before gets none, with a note.
    """
    acls = {acl.subject: acl for acl in document.acls}
    text, notes, count = b"accounts: []\n", [], 0
    for user in document.users:
        name, secret = user.username or "", user.password or ""
        if (user.user_status or ENABLED).lower() != ENABLED:
            notes.append(f"{name} is disabled, and left out")
            continue
        if min(len(name), len(secret)) < MIN_KEY_LENGTH:
            notes.append(
                f"{name} is left out: name and password must have at least {MIN_KEY_LENGTH} "
                "characters each. Give it longer ones there first"
            )
            continue
        rights = Rights()
        is_super = (user.user_type or NORMAL).capitalize() == SUPER
        acl = acls.get(USER_PREFIX + name)
        if acl is not None and not is_super:
            rights, lost = _rights_in(acl)
            notes += [f"{name}: {reason}" for reason in lost]
        change = AccountChange(
            name,
            secret,
            admin=is_super,
            default_topic_perm=None if is_super else rights.default_topic,
            default_group_perm=None if is_super else rights.default_group,
            topic_perms=_entries(rights.topics),
            group_perms=_entries(rights.groups),
        )
        count += 1
        text = edited("plain_acl.yml", text, set_account(change), DataVersion(now_ms, count))
    return AclText(text, count, notes)


def _rights_in(acl: AclInfo) -> tuple[Rights, list[str]]:
    rules: list[PolicyRule] = []
    lost, denies = [], False
    for rule in rules_in(acl.policies or ()):
        if isinstance(rule, NotCarried):
            lost.append(str(rule))
            denies = denies or rule.denies
            if rule.part is not None:
                rules.append(rule.part)
        else:
            rules.append(rule)
    if denies:
        lost.append(
            "has no permissions in the file, because it would have more without the rules that "
            "deny: write them yourself"
        )
        return Rights(), lost
    rights = rights_of(merged((), rules))
    topics = {name: word for name, word in rights.topics.items() if not _is_given(name, word)}
    return rights._replace(topics=topics), lost


def _is_given(topic: str, word: str) -> bool:
    """Whether an entry says what holds for each account without it."""
    if topic == TRACE_TOPIC or topic.endswith(REPLY_SUFFIX):
        return word == "PUB"
    return topic in HOLD_OTHERS and word == "DENY"


def _entries(words: Mapping[str, str]) -> tuple[str, ...] | None:
    return tuple(f"{name}={word}" for name, word in words.items()) or None


def _members(body: UserInfo | AclInfo) -> Any:
    return json.loads(body.encode())
