"""Requests that read and change the users and policies of brokers of RocketMQ 5 (ACL 2.0)."""

from rmq_ha.base.wire.auth_bodies import AclInfo, UserInfo, decode_list
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.asking import Ask, Asking, expect


def list_users(address: str) -> Asking[list[UserInfo]]:
    """
    Ask a broker for its users with their passwords.

    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: the broker does not answer.
    """
    command = RemotingCommand(RequestCode.AUTH_LIST_USER, {})
    response = yield from expect(Ask(command, address))
    return decode_list(UserInfo, response.body) if response.body else []


def list_acls(address: str) -> Asking[list[AclInfo]]:
    """Ask a broker for the policies of its users; raises as `list_users` does."""
    command = RemotingCommand(RequestCode.AUTH_LIST_ACL, {})
    response = yield from expect(Ask(command, address))
    return decode_list(AclInfo, response.body) if response.body else []


def put_user(address: str, user: UserInfo, *, is_new: bool) -> Asking[None]:
    """Create or change a user on one broker; raises as `list_users` does."""
    code = RequestCode.AUTH_CREATE_USER if is_new else RequestCode.AUTH_UPDATE_USER
    command = RemotingCommand(code, {"username": user.username or ""}, user.encode())
    yield from expect(Ask(command, address))


def put_acl(address: str, acl: AclInfo, *, is_new: bool) -> Asking[None]:
    """
    Give a user its policies on one broker; raises as `list_users` does.

    :param acl: the policies; without any, the user has none afterwards.
    :param is_new: whether the user has none. Otherwise they are deleted first, because a broker
        merges policies by resource and would mix old and new ones.
    """
    subject = {"subject": acl.subject or ""}
    if not is_new:
        yield from expect(Ask(RemotingCommand(RequestCode.AUTH_DELETE_ACL, dict(subject)), address))
    if not acl.policies:
        return
    command = RemotingCommand(RequestCode.AUTH_CREATE_ACL, subject, acl.encode())
    yield from expect(Ask(command, address))
