"""The rights of one account, compiled from its entry.

Spec: remoting.md, section 10.2.
"""

from collections.abc import Iterable

from zope.interface import implementer

from rmq_ha.base.acl.addresses import AddressPatterns
from rmq_ha.base.acl.signature import Signer
from rmq_ha.base.errors import AccessRefused
from rmq_ha.base.interfaces import IGrant
from rmq_ha.base.model.topics import DLQ_PREFIX, HOLD_OTHERS, RETRY_PREFIX, TRACE_TOPIC, is_system
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.server.acl.accounts import AccountEntry
from rmq_ha.server.acl.needs import Need
from rmq_ha.server.acl.permissions import (
    ADMIN,
    DENY,
    PUB,
    SUB,
    allows,
    group_resource,
    permission,
    resource_text,
    split_entry,
)

_HINT_LENGTH = 100
_NOTHING: frozenset[str] = frozenset()


class Secret:
    """
    One secret key.

    :ivar signer: checks signatures of RocketMQ 4.9.
    :ivar timed: checks rmq-ha's signatures with a time, see `rmq_ha.base.acl.signed_time`.
    """

    __slots__ = ("signer", "timed")

    def __init__(self, key: str) -> None:
        self.signer = Signer(key)
        self.timed = Signer(key, is_long=True)


@implementer(IGrant)
class Grant:
    """
    The rights of one account, compiled.

    :param strict: whether the account's default permissions leave out topics of RocketMQ itself,
        see `_default`.
    :param reply_topic: topic in which replies of this cluster are stored.
    :ivar account: access key of the account.
    :ivar owner: see `IGrant`.
    :ivar white: addresses from which the account's requests need no right signature.
    :ivar secrets: the valid secrets, the current one first.
    """

    __slots__ = (
        "_default_group",
        "_default_topic",
        "_reply_topic",
        "_resources",
        "_services",
        "_strict",
        "account",
        "is_admin",
        "owner",
        "secrets",
        "white",
    )

    def __init__(self, account: AccountEntry, *, strict: bool, reply_topic: str) -> None:
        self.account = account.access_key
        self.owner = account.access_key if strict else None
        self.is_admin = account.admin
        keys = [account.secret_key, account.previous_secret_key]
        self.secrets = tuple(Secret(key) for key in keys if key is not None)
        self.white = AddressPatterns()
        self.white.add(account.white_remote_address)
        self._strict = strict
        self._reply_topic = reply_topic
        self._default_topic = permission(account.default_topic_perm)
        self._default_group = permission(account.default_group_perm)
        self._resources: dict[str, int] = {}
        for entry in account.topic_perms or ():
            name, word = split_entry(entry)
            self._resources[name] = permission(word)
        topics = [self._default_topic, *self._resources.values()]
        uses_any = any(allows(owned, PUB | SUB) for owned in topics)
        self._services = PUB if uses_any else DENY
        for entry in account.group_perms or ():
            name, word = split_entry(entry)
            self._resources[group_resource(name)] = permission(word)

    def check(self, code: int, needs: Iterable[Need]) -> None:
        """
        Check that the account has the permissions that a request needs.

        :raises RequestRejected: the account lacks a permission.
        """
        resources, is_admin = self._resources, self.is_admin
        if is_admin and not resources:
            return
        guarded = HOLD_OTHERS if self._strict and not is_admin else _NOTHING
        for resource, needed in needs:
            if resource in guarded or needed == ADMIN:
                if not is_admin:
                    raise self.not_admin(code, resource)
                if needed == ADMIN:
                    continue
            owned = resources.get(resource)
            if owned is None:
                owned = self._default(resource)
            if owned & DENY or not owned & needed:
                raise self._denial(resource, needed, owned)

    def may_settle(self, group: str) -> bool:
        if not self._strict or (self.is_admin and not self._resources):
            return True
        return allows(self._permission_for(group_resource(group)), PUB)

    def not_admin(self, code: int, topic: str = "") -> AccessRefused:
        """
        Return the refusal of a request for admins.

        :param topic: a topic that only admins may use; empty: the request itself is for admins.
        """
        use = f" on topic:{topic}" if topic else ""
        return AccessRefused(
            ResponseCode.SYSTEM_ERROR,
            f"AclException: Need admin permission for request code={code}{use}, but accessKey="
            f"{self.account} is not",
        )

    def _permission_for(self, resource: str) -> int:
        owned = self._resources.get(resource)
        return self._default(resource) if owned is None else owned

    def _default(self, resource: str) -> int:
        """
        Return an account's permission for a resource that its entry does not name.

        Without `strict`, and for admins, that is the account's default permission. With `strict`
        the defaults hold for users' topics and groups only. Then an account that has a permission
        on at least one topic may write traces and replies, but may not read them. Other topics of
        RocketMQ itself are closed. Dead letters of a group have the default for topics, if the
        account may read with that group.
        """
        if resource.startswith(RETRY_PREFIX):
            return self._default_group
        if self._strict and not self.is_admin:
            if resource in (TRACE_TOPIC, self._reply_topic):
                return self._services
            if is_system(resource):
                return 0
            if resource.startswith(DLQ_PREFIX):
                group = self._permission_for(group_resource(resource.removeprefix(DLQ_PREFIX)))
                return self._default_topic if allows(group, SUB) else DENY
        return self._default_topic

    def _denial(self, resource: str, needed: int, owned: int) -> AccessRefused:
        word = {PUB: "PUB", SUB: "SUB"}.get(needed, "PUB or SUB")
        reason = "denies it" if owned & DENY else f"does not include {word}"
        source = "the account's entry" if resource in self._resources else "the account's default"
        return AccessRefused(
            ResponseCode.SYSTEM_ERROR,
            f"AclException: No default permission for {resource_text(resource[:_HINT_LENGTH])}: "
            f"accessKey={self.account} needs {word}, {source} {reason}",
        )
