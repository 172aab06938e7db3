"""PlainAccessControl: the rules in force, and their changes while the broker runs.

Spec: remoting.md, chapter 10.
"""

import os.path
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from zope.interface import implementer

from rmq_ha.base.acl.refusals import RefusalLog, RefusalReason
from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.interfaces import IAccessControl, IBrokerContext, ICallAccess
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.topics import REPLY_SUFFIX
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.one_by_one import OneByOne
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.acl.accounts import AccountChange, AclFile
from rmq_ha.server.acl.edits import (
    Edit,
    checked_change,
    delete_account,
    set_account,
    set_white_addresses,
)
from rmq_ha.server.acl.files import AclFiles
from rmq_ha.server.acl.freshness import AclKeys, Freshness
from rmq_ha.server.acl.grant import Grant
from rmq_ha.server.acl.needs import Need
from rmq_ha.server.acl.rules import Rules
from rmq_ha.server.acl.table import RecordAt
from rmq_ha.server.door import DoorCaller

LOOK_S = 1.0
REFUSAL_PERIOD_S = 10.0
REMINDER_PERIOD_S = 600.0


def make_access_control(broker: IBrokerContext) -> "PlainAccessControl":
    """
    Make the access control of the built-in plugin `plain`.

    :raises ConfigurationError: a file cannot be used, or there is none.
    """
    config = broker.configuration.ours
    if config.acl_directory is None:
        raise ConfigurationError("aclPlugIn=plain: set aclDirectory to where plain_acl.yml is")
    return PlainAccessControl(
        broker.host,
        config.acl_directory,
        strict=config.acl_strict,
        reply_topic=broker.configuration.broker.broker_cluster_name + REPLY_SUFFIX,
        record_at=broker.record_starting_at,
        keys=config,
    )


@implementer(IAccessControl, ICallAccess)
class PlainAccessControl:
    """
    Checks every request by the rules of the ACL files, which it reads again when they change.

    :param directory: directory with `plain_acl.yml` and the folder `acl`.
    :param strict: whether also requests are checked that RocketMQ 4.9.7 lets pass unchecked.
    :param reply_topic: topic in which replies of this cluster are stored.
    :param record_at: returns the record that starts at a physical offset.
    :param keys: settings of signed requests.
    :ivar refused: number of refused requests, by reason.
    :ivar odd_times: number of requests that were accepted although `aclRequiresSignedTime` would
        refuse their signed time.
    :ivar previous_secrets: number of requests that were signed with a previous secret.
    :raises ConfigurationError: a file cannot be used, or there is none.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        directory: str,
        *,
        strict: bool,
        reply_topic: str,
        record_at: RecordAt,
        keys: AclKeys,
    ) -> None:
        self._clock = host.clock
        self._worker = host.worker
        self._now_ms = host.now_ms
        self._strict = strict
        self._reply_topic = reply_topic
        self._record_at = record_at
        self._files = AclFiles(host.disk, directory)
        self._files.load(host.now_ms())
        self.previous_secrets = 0
        self.odd_times = 0
        self._reminders = RefusalLog(REMINDER_PERIOD_S)
        self.refused = dict.fromkeys(RefusalReason, 0)
        self._requires_tls = keys.acl_requires_tls
        self._freshness = Freshness(
            host.now_ms,
            is_required=keys.acl_requires_signed_time,
            window_s=keys.acl_signed_time_window,
            most_sessions=keys.acl_signed_sessions,
            on_odd=self._let_odd_pass,
        )
        self._one_at_a_time = OneByOne()
        self._refusals = RefusalLog(REFUSAL_PERIOD_S)
        self._periodic = Periodic(host.clock, "a look at the ACL files", self._look, LOOK_S)
        self._started_at = DataVersion(host.now_ms(), 0)
        self._rules = self._compile(())
        self._take_over()

    # ------------------------------------------------------------ checking

    def validate(self, request: RemotingCommand, remote_address: str) -> None:
        """
        Check a request, and count and log a refusal.

        :param remote_address: `host:port`.
        :raises RequestRejected: the request is refused.
        """
        host = host_of(remote_address)
        try:
            request.grant = self._check(request, host)
        except RequestRejected as refusal:
            self._count(refusal, request.code, host, remote_address)
            raise

    def admit(self, caller: DoorCaller, needs: Iterable[Need]) -> Grant | None:
        """
        Check a call of the gRPC door, and count and log a refusal.

        :param needs: the permissions that the call needs.
        :returns: the rights of the account that signed the call, or that the client's certificate
            names; None: this address needs no account.
        :raises RequestRejected: the call is refused.
        """
        try:
            return self._rules.admit(caller, needs)
        except RequestRejected as refusal:
            self._count(refusal, caller.code, caller.host, caller.remote_text)
            raise

    def _count(self, refusal: RequestRejected, code: int, host: str, peer: str) -> None:
        kind = RefusalReason(getattr(refusal, "kind", RefusalReason.PERMISSION))
        self.refused[kind] += 1
        line = self._refusals.count(host, self._clock.seconds())
        if line is not None:
            self.log.warn(
                "refused request {code} of {peer}: {reason!r} ({silent} refusals before it "
                "were not logged)",
                code=code,
                peer=peer,
                reason=getattr(refusal, "reason", refusal.remark),
                silent=line.silent,
            )

    def is_administrator(
        self, access_key: str, signature: str, content: bytes, remote_host: str
    ) -> bool:
        """
        Whether an administrator signed `content`, such as the text of a call of the status port. A
        refusal is counted and logged.

        :param access_key: the account that the caller names.
        :param signature: HMAC-SHA256, in Base64.
        :param content: the bytes that were signed; they are no request of remoting.
        :param remote_host: the peer's address without its port.
        """
        if self._rules.is_administrator(access_key, signature, content):
            return True
        self.refused[RefusalReason.SIGNATURE] += 1
        line = self._refusals.count(remote_host, self._clock.seconds())
        if line is not None:
            self.log.warn(
                "refused {peer} on the status port: no administrator accessKey={account} signed "
                "that ({silent} refusals before it were not logged)",
                peer=remote_host,
                account=access_key[:100],
                silent=line.silent,
            )
        return False

    def _check(self, request: RemotingCommand, host: str) -> Grant | None:
        return self._rules.check(request, host, self._record_at)

    def _used_previous(self, account: str, host: str) -> None:
        self.previous_secrets += 1
        line = self._reminders.count(f"{account} {host}", self._clock.seconds())
        if line is not None:
            self.log.info(
                "account {account} at {peer} signs with its previousSecretKey still ({silent} more "
                "requests before it)",
                account=account,
                peer=host,
                silent=line.silent,
            )

    def _let_odd_pass(self, account: str, reason: str) -> None:
        self.odd_times += 1
        line = self._reminders.count(account, self._clock.seconds())
        if line is not None:
            self.log.warn(
                "a request of account {account} was let pass, as aclRequiresSignedTime=false: "
                "{reason} ({silent} more before it)",
                account=account,
                reason=reason,
                silent=line.silent,
            )

    # ------------------------------------------------------------ watching

    def start(self) -> None:
        """Begin to look for changed files."""
        self._periodic.start()

    def stop(self) -> "Deferred[None]":
        """Stop looking for changed files; the Deferred fires when the last look has ended."""
        return self._periodic.stop()

    def _look(self) -> "Deferred[None]":
        return self._one_at_a_time.run(self._refresh)

    def _refresh(self) -> "Deferred[None]":
        looked = self._worker.call(self._files.refresh, self._now_ms())
        return looked.addCallback(lambda is_news: self._take_over() if is_news else None)

    def _compile(self, files: Iterable[AclFile]) -> Rules:
        return Rules(
            files,
            strict=self._strict,
            reply_topic=self._reply_topic,
            freshness=self._freshness,
            requires_tls=self._requires_tls,
            on_previous=self._used_previous,
        )

    def _take_over(self) -> None:
        """Put the content of the files in force, and log their faults."""
        files = self._files
        rules = self._compile(files.current())
        for fault in files.faults.values():
            self.log.error(
                "ACL: {fault}. The rules that were read before stay in force; correct the file",
                fault=fault,
            )
        for notice in rules.every_notice():
            self.log.warn("ACL: {notice}", notice=notice)
        self._rules = rules
        self.log.info(
            "ACL: {accounts} accounts of {files} in force",
            accounts=len(rules.home),
            files=", ".join(file.path for file in rules.files),
        )

    # ------------------------------------------------------------ administration

    def set_account(self, change: AccountChange) -> "Deferred[None]":
        """
        Add or change an account.

        :returns: fires when the change is in force; fails with `ConfigurationError`.
        """
        try:
            access_key, _ = checked_change(change)
        except ValueError as error:
            return fail(ConfigurationError(str(error)))
        return self._change(
            lambda: self._rules.home.get(access_key, self._files.default), set_account(change)
        )

    def delete_account(self, access_key: str) -> "Deferred[None]":
        """
        Remove an account.

        :returns: fires when the account has no rights any more; fails with `ConfigurationError`.
        """

        def home() -> str:
            path = self._rules.home.get(access_key)
            if path is None:
                raise ConfigurationError(f"there is no account {access_key}")
            return path

        return self._change(home, delete_account(access_key))

    def set_white_addresses(self, addresses: list[str], path: str | None) -> "Deferred[None]":
        """
        Replace the global white list of one file.

        :returns: fires when the list is in force; fails with `ConfigurationError`.
        """

        def home() -> str:
            if path is None:
                return self._files.default
            normal_path = os.path.normpath(path)
            known = [file.path for file in self._rules.files]
            for item in known:
                if os.path.normpath(item) == normal_path:
                    return item
            raise ConfigurationError(f"{path} is none of the ACL files: {', '.join(known)}")

        try:
            edit = set_white_addresses(addresses)
        except ValueError as error:
            return fail(ConfigurationError(str(error)))
        return self._change(home, edit)

    def versions(self) -> tuple[DataVersion, dict[str, DataVersion]]:
        """Return the version of the default file, and the versions of all files."""
        versions = self._files.versions()
        return versions.get(self._files.default, self._started_at), versions

    def to_json(self) -> dict[str, Any]:
        """Return all white addresses and accounts, secrets included."""
        files = self._rules.files
        return {
            "globalWhiteAddrs": [text for file in files for text in file.white_addresses],
            "plainAccessConfigs": [item.to_json() for item in self._rules.accounts.values()],
        }

    def _change(self, home: Callable[[], str], edit: Edit) -> "Deferred[None]":
        def change() -> "Deferred[None]":
            changed = self._worker.call(self._files.change, home(), edit, self._now_ms())
            return changed.addCallback(lambda _: self._take_over())

        return self._one_at_a_time.run(change)
