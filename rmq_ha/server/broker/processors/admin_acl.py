"""Shows and changes accounts and white lists: codes 50 to 54.

Spec: remoting.md, sections 2.2 and 10.3.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.acl.accounts import AccountChange
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Answer, Handler

_SHOWN = 200
OFF = "access control is off: set aclEnable=true in the broker's properties file and restart it"


class AdminAclProcessor:
    """
    Shows and changes the rules of access.

    :param control: an `IAccessControl`; None if access control is off, or if its plugin has none.
    """

    log = Logger()

    def __init__(self, *, control: Any, identity: BrokerIdentity) -> None:
        self._control = control
        self._identity = identity

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.set_account,
            RequestCode.DELETE_ACL_CONFIG: self.delete_account,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.set_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.rules,
        }

    def set_account(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer UPDATE_AND_CREATE_ACL_CONFIG (50): set the rights of an account, or create it."""
        header = fields.header(request)
        change = AccountChange(
            header.get("accessKey"),
            header.get("secretKey"),
            header.get("whiteRemoteAddress"),
            fields.flag(header, "admin"),
            header.get("defaultTopicPerm"),
            header.get("defaultGroupPerm"),
            _entries(header.get("topicPerms")),
            _entries(header.get("groupPerms")),
        )
        return self._change(
            channel,
            request,
            lambda control: control.set_account(change),
            f"account {change.access_key!r} set",
            (ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, ""),
        )

    def delete_account(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer DELETE_ACL_CONFIG (51): delete an account from its file."""
        key = fields.header(request).get("accessKey")
        return self._change(
            channel,
            request,
            lambda control: control.delete_account(key or ""),
            f"account {key!r} deleted",
            (
                ResponseCode.DELETE_ACL_CONFIG_FAILED,
                f"The accesskey[{_short(key)}] corresponding to accessConfig has been deleted "
                "failed. ",
            ),
        )

    def set_white_addresses(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53): replace the addresses of one file that need no
        account.
        """
        header = fields.header(request)
        text = header.get("globalWhiteAddrs")
        path = (header.get("aclFileFullPath") or "").strip() or None
        failed = (
            ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
            f"The globalWhiteAddresses[{_short(text)}] has been updated failed. ",
        )
        if text is None:
            return request.response(failed[0], f"{failed[1]}globalWhiteAddrs is missing")
        addresses = [item.strip() for item in text.split(",") if item.strip()]
        return self._change(
            channel,
            request,
            lambda control: control.set_white_addresses(addresses, path),
            f"white addresses of {path or 'the default file'!r} set to {text!r}",
            failed,
        )

    def versions(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer GET_BROKER_CLUSTER_ACL_INFO (52) with the version of each file of accounts."""
        default, by_path = self._checked_control().versions()
        return request.response(
            ext={
                "version": fastjson.encode(default).decode(),
                "allAclFileVersion": fastjson.encode(by_path).decode(),
                "brokerName": self._identity.broker_name,
                "brokerAddr": self._identity.address,
                "clusterName": self._identity.cluster,
            }
        )

    def rules(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer GET_BROKER_CLUSTER_ACL_CONFIG (54) with all accounts, secret keys included."""
        return request.response(ext={}, body=fastjson.encode(self._checked_control().to_json()))

    def _checked_control(self) -> Any:
        """
        Return the access control.

        :raises RequestRejected: access control is off; 4.9.7 does not answer then.
        """
        if self._control is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, OFF)
        return self._control

    def _change(
        self,
        channel: Channel,
        request: RemotingCommand,
        change: "Callable[[Any], Deferred[None]]",
        what: str,
        failed: tuple[ResponseCode, str],
    ) -> Answer:
        code, text = failed
        if self._control is None:
            return request.response(code, text + OFF)

        return answered_when_changed(
            self.log, change(self._control), channel, request, what, failed
        )


def answered_when_changed(
    log: Logger,
    done: "Deferred[None]",
    channel: Channel,
    request: RemotingCommand,
    what: str,
    failed: tuple[ResponseCode, str],
) -> Answer:
    """
    Log a change of accounts when it is made or refused, and answer the request for it.

    :param done: fires when the change is in force, or fails with `ConfigurationError`.
    :param what: the change, for the log.
    :param failed: code of a refusal, and what its text begins with.
    """
    code, text = failed

    def changed(_: None) -> RemotingCommand:
        log.info("ACL: {what} by {peer}", what=what, peer=channel.remote_text)
        return request.response()

    def refused(failure: Failure) -> RemotingCommand:
        if not failure.check(ConfigurationError):  # type: ignore[no-untyped-call]
            failure.raiseException()
        reason = failure.getErrorMessage()
        log.warn(
            "ACL: not {what}, as {peer} wanted: {reason!r}",
            what=what,
            peer=channel.remote_text,
            reason=reason,
        )
        return request.response(code, text + reason)

    return done.addCallbacks(changed, refused)


def _short(text: str | None) -> str:
    return "null" if text is None else text[:_SHOWN]


def _entries(text: str | None) -> tuple[str, ...] | None:
    """Split a comma-separated list as Java does: without empty items at the end."""
    if text is None:
        return None
    return tuple(text.rstrip(",").split(","))
