"""Shows and changes accounts in the words of RocketMQ 5 (ACL 2.0): codes 3001 to 3010.

A user is an account, and its policies are the account's permissions. What an account cannot carry
is refused with the reason. `tests/vectors/auth` has the answers of a Java broker.
"""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.timing.one_by_one import OneByOne
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.auth_bodies import (
    ENABLED,
    NORMAL,
    SUPER,
    USER_PREFIX,
    AclInfo,
    UserInfo,
)
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.acl.accounts import MIN_KEY_LENGTH, AccountChange
from rmq_ha.server.acl.policies import (
    NotCarried,
    PolicyRule,
    Rights,
    check_kept,
    merged,
    policies_of,
    rights_of,
    rules_in,
    rules_of,
)
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.admin_acl import OFF, answered_when_changed
from rmq_ha.server.broker.processors.fields import Answer, Handler

Accounts = Mapping[str, Mapping[str, Any]]
"""The accounts in force by access key, as request 54 shows them."""
Change = Callable[[Accounts], "Deferred[None] | None"]


class AdminAuthProcessor:
    """
    Shows and changes users and their policies.

    :param control: an `IAccessControl`; None if access control is off, or if its plugin has none.
    """

    log = Logger()

    def __init__(self, *, control: Any) -> None:
        self._control = control
        self._one_at_a_time = OneByOne()

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.set_acl,
            RequestCode.AUTH_UPDATE_ACL: self.set_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    # ------------------------------------------------------------ users

    def create_user(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer AUTH_CREATE_USER (3001): make an account without permissions."""
        name, info = _named_user(request)

        def change(accounts: Accounts) -> "Deferred[None]":
            if not (info.password or "").strip():
                raise _no_permission("password can not be blank")
            if name in accounts:
                raise _no_permission("The user is existed")
            is_super = _is_super(info) or False
            return self._set(AccountChange(name, info.password, admin=is_super))

        return self._change(channel, request, f"user {name!r} made", change)

    def update_user(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer AUTH_UPDATE_USER (3002): change the secret key of an account, or its type."""
        name, info = _named_user(request)

        def change(accounts: Accounts) -> "Deferred[None]":
            account = accounts.get(name)
            if account is None:
                raise _no_permission("The user is not exist")
            is_super = _is_super(info)
            if is_super and (account.get("topicPerms") or account.get("groupPerms")):
                raise _invalid(
                    f"{name} has permissions for single topics or groups, which limit an "
                    "administrator here, and no Super user of RocketMQ 5: delete them first "
                    f"(deleteAcl -s {USER_PREFIX}{name})"
                )
            secret = info.password if (info.password or "").strip() else account["secretKey"]
            admin = bool(account.get("admin")) if is_super is None else is_super
            return self._set(AccountChange(name, secret, admin=admin))

        return self._change(channel, request, f"user {name!r} changed", change)

    def delete_user(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer AUTH_DELETE_USER (3003): delete an account. If there is none, all is well."""
        name = fields.header(request).get("username", "")

        def change(accounts: Accounts) -> "Deferred[None] | None":
            deleted: Deferred[None] | None = None
            if name in accounts:
                deleted = self._control.delete_account(name)
            return deleted

        return self._change(channel, request, f"user {name!r} deleted", change)

    def get_user(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer AUTH_GET_USER (3004) with one user and its password, or without a body."""
        name = _user_name(request)
        account = self._accounts().get(name)
        body = None if account is None else _user(account).encode()
        return request.response(body=body)

    def list_users(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer AUTH_LIST_USER (3005) with the users whose name contains a text."""
        part = fields.header(request).get("filter") or ""
        accounts = sorted(self._accounts().items())
        users = [_user(account) for name, account in accounts if part in name]
        return request.response(body=fastjson.encode(users) if users else None)

    # ------------------------------------------------------------ policies

    def set_acl(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer AUTH_CREATE_ACL (3006) and AUTH_UPDATE_ACL (3007): replace the permissions for the
        resources that the request names. Others stay.
        """
        given = request.read(AclInfo.decode)
        subject = given.subject or fields.header(request).get("subject")
        name = _of_user(subject)

        def change(accounts: Accounts) -> "Deferred[None]":
            if not given.policies:
                raise RequestRejected(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
            account = accounts.get(name)
            if account is None:
                raise _no_permission(f"The subject of {subject} is not exist.")
            if account.get("admin"):
                raise _invalid(
                    f"{name} is of the type Super, and RocketMQ 5 asks no policy for such a user: "
                    "make it Normal first (updateUser -t Normal), or leave the policy out"
                )
            news = []
            for rule in rules_in(given.policies):
                if isinstance(rule, NotCarried):
                    raise _invalid(str(rule))
                news.append(rule)
            return self._set_rules(account, merged(rules_of(_rights(account)), news))

        return self._change(channel, request, f"permissions of {name!r} set", change)

    def delete_acl(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer AUTH_DELETE_ACL (3008): take the permission for one resource away, or all
        permissions. The account stays.
        """
        header = fields.header(request)
        name, resource = _of_user(header.get("subject")), header.get("resource")

        def change(accounts: Accounts) -> "Deferred[None]":
            account = accounts.get(name)
            if account is None:
                raise _no_permission("The subject is not exist.")
            rules = rules_of(_rights(account))
            if not rules:
                raise _no_permission("The acl is not exist.")
            left = [rule for rule in rules if resource and rule.resource != resource]
            return self._set_rules(account, left)

        return self._change(channel, request, f"permissions of {name!r} deleted", change)

    def get_acl(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer AUTH_GET_ACL (3009) with the policies of one user; no body if it has none."""
        account = self._accounts().get(_of_user(fields.header(request).get("subject")))
        if account is None:
            raise _no_permission("The subject is not exist.")
        rules = rules_of(_rights(account))
        return request.response(body=_acl(account, rules).encode() if rules else None)

    def list_acls(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer AUTH_LIST_ACL (3010) with the policies of the users whose subject contains a text.

        A filter of resources hides the other rules, as in RocketMQ 5.
        """
        header = fields.header(request)
        part, resource = header.get("subjectFilter") or "", header.get("resourceFilter") or ""
        infos = []
        for name, account in sorted(self._accounts().items()):
            subject = USER_PREFIX + name
            rules = [
                rule
                for rule in rules_of(_rights(account))
                if resource in subject or resource in rule.resource
            ]
            if rules and part in subject:
                infos.append(_acl(account, rules))
        return request.response(body=fastjson.encode(infos) if infos else None)

    # ------------------------------------------------------------ the rest

    def _accounts(self) -> Accounts:
        """
        Return the accounts.

        :raises RequestRejected: access control is off.
        """
        if self._control is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, OFF)
        configs = self._control.to_json()["plainAccessConfigs"]
        return {config["accessKey"]: config for config in configs}

    def _set(self, change: AccountChange) -> "Deferred[None]":
        if min(len(change.access_key or ""), len(change.secret_key or "")) < MIN_KEY_LENGTH:
            raise _invalid(
                f"username and password must have at least {MIN_KEY_LENGTH} characters each"
            )
        done: Deferred[None] = self._control.set_account(change)
        return done

    def _set_rules(self, account: Mapping[str, Any], rules: list[PolicyRule]) -> "Deferred[None]":
        rights = rights_of(rules)
        try:
            check_kept(rules, rights)
        except NotCarried as reason:
            raise _invalid(str(reason)) from None
        return self._set(
            AccountChange(
                account["accessKey"],
                account["secretKey"],
                admin=bool(account.get("admin")),
                default_topic_perm=rights.default_topic,
                default_group_perm=rights.default_group,
                topic_perms=tuple(f"{name}={word}" for name, word in rights.topics.items()),
                group_perms=tuple(f"{name}={word}" for name, word in rights.groups.items()),
            )
        )

    def _change(
        self, channel: Channel, request: RemotingCommand, what: str, change: Change
    ) -> Answer:
        """
        Make a change when those before it are in force, since it builds on what they left.

        :param change: gets the accounts; raises `RequestRejected`.
        """

        def begin() -> "Deferred[None]":
            return change(self._accounts()) or succeed(None)

        done = self._one_at_a_time.run(begin)
        failed = (ResponseCode.SYSTEM_ERROR, "")
        return answered_when_changed(self.log, done, channel, request, what, failed)


def _user_name(request: RemotingCommand) -> str:
    name = fields.header(request).get("username") or ""
    if not name.strip():
        raise _invalid("The username is blank")
    return name


def _named_user(request: RemotingCommand) -> tuple[str, UserInfo]:
    return _user_name(request), request.read(UserInfo.decode)


def _is_super(info: UserInfo) -> bool | None:
    """
    Return whether a user shall be Super; None if the request does not say.

    :raises RequestRejected: the request wants what an account cannot be.
    """
    status, kind = info.user_status or ENABLED, info.user_type or NORMAL
    if status.lower() != ENABLED:
        raise _invalid(
            f"the status {status[:40]!r}: an account here is always enabled. Delete the user, or "
            "give it another password, to lock it out"
        )
    if kind.capitalize() not in (SUPER, NORMAL):
        raise _invalid(f"the type {kind[:40]!r}: give Super or Normal")
    return None if info.user_type is None else kind.capitalize() == SUPER


def _of_user(subject: str | None) -> str:
    name = (subject or "").removeprefix(USER_PREFIX)
    if not name or name == subject:
        raise _invalid(f"the subject must be {USER_PREFIX}NAME")
    return name


def _user(account: Mapping[str, Any]) -> UserInfo:
    kind = SUPER if account.get("admin") else NORMAL
    return UserInfo(account["secretKey"], ENABLED, kind, account["accessKey"])


def _rights(account: Mapping[str, Any]) -> Rights:
    names = ("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms")
    return Rights.from_words(*map(account.get, names))


def _acl(account: Mapping[str, Any], rules: list[PolicyRule]) -> AclInfo:
    return AclInfo(policies_of(rules), USER_PREFIX + account["accessKey"])


def _no_permission(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.NO_PERMISSION, remark)


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
