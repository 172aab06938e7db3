"""All files together, compiled: the decision about a request.

Spec: remoting.md, section 10.2.
"""

from collections.abc import Iterable, Mapping

from rmq_ha.acl.accounts import Account, AclFile
from rmq_ha.acl.addresses import AddressPatterns
from rmq_ha.acl.needs import ADMIN_CODES, STRICT_ADMIN_CODES, Need, needs_of
from rmq_ha.acl.permissions import (
    DENY,
    PUB,
    allows,
    group_resource,
    permission,
    resource_text,
    split_entry,
)
from rmq_ha.acl.signature import ACCESS_KEY, SIGNATURE, Signer, SigningContent
from rmq_ha.errors import RequestRejected
from rmq_ha.model.topics import RETRY_PREFIX, TRACE_TOPIC
from rmq_ha.wire.codes import ResponseCode
from rmq_ha.wire.command import RemotingCommand

_KNOWN_HOSTS = 4096
_NO_EXT: Mapping[str, str] = {}
_HINT_LENGTH = 100


class Rules:
    """
    Who may do what.

    :param files: in the order of precedence: the first that has an access key defines it.
    :param strict: refuse also what 4.9.7 forgets to check.
    :ivar files: the same.
    :ivar accounts: those that count, by access key.
    :ivar home: the path of the file that defines an access key.
    :ivar notices: what is odd about the files together.
    """

    def __init__(self, files: Iterable[AclFile], *, strict: bool) -> None:
        self.files = tuple(files)
        self.accounts: dict[str, Account] = {}
        self.home: dict[str, str] = {}
        self.notices: list[str] = []
        self._strict = strict
        self._admin_codes = STRICT_ADMIN_CODES if strict else ADMIN_CODES
        self._white = AddressPatterns()
        self._rules: dict[str, _Rule] = {}
        self._hosts: dict[str, bool] = {}
        self._content = SigningContent()
        for file in self.files:
            self._add(file)
        if not self._white and not self._rules:
            self.notices.append("no account and no white address is defined: nobody is let in")

    def check(self, request: RemotingCommand, host: str) -> None:
        """
        Let a request pass, or not.

        :param host: the peer's address without its port.
        :raises RequestRejected: with the reason; it names neither secret nor signature.
        """
        is_white = self._hosts.get(host)
        if is_white is None:
            is_white = self._judge_host(host)
        if is_white:
            return
        ext = request.ext or _NO_EXT
        access_key = ext.get(ACCESS_KEY)
        if access_key is None:
            raise _refusal(
                f"No accessKey is configured: the request is not signed, and {host} is not among "
                "globalWhiteRemoteAddresses"
            )
        rule = self._rules.get(access_key)
        if rule is None:
            raise _refusal(f"No acl config for {access_key[:_HINT_LENGTH]}")
        if rule.white.matches(host):
            return
        signature = ext.get(SIGNATURE)
        if signature is None or not rule.signer.is_signed(
            signature, self._content.of(ext), request.body
        ):
            raise _refusal(
                f"Check signature failed for accessKey={access_key}: the secret key is another "
                "than the broker's, or the request was changed after it was signed"
            )
        code = request.code
        needs = needs_of(code, ext, request.body, strict=self._strict)
        if (TRACE_TOPIC, PUB) in needs:
            return
        if code in self._admin_codes and not rule.is_admin:
            raise _refusal(
                f"Need admin permission for request code={code}, but accessKey={access_key} is not"
            )
        rule.check(needs)

    def every_notice(self) -> list[str]:
        """What is odd about the files, together and each for itself."""
        return [*self.notices, *(text for file in self.files for text in file.notices)]

    def _judge_host(self, host: str) -> bool:
        is_white = self._white.matches(host)
        if len(self._hosts) >= _KNOWN_HOSTS:
            self._hosts.clear()
        self._hosts[host] = is_white
        return is_white

    def _add(self, file: AclFile) -> None:
        for address in file.white_addresses:
            self._white.add(address)
        for account in file.accounts:
            home = self.home.setdefault(account.access_key, file.path)
            if account.access_key in self._rules:
                self.notices.append(
                    f"{file.path}: account {account.access_key} has no effect: {home} defines it"
                )
            else:
                self.accounts[account.access_key] = account
                self._rules[account.access_key] = _Rule(account)


class _Rule:
    """One account, compiled."""

    __slots__ = (
        "_access_key",
        "_default_group",
        "_default_topic",
        "_resources",
        "is_admin",
        "signer",
        "white",
    )

    def __init__(self, account: Account) -> None:
        self.is_admin = account.admin
        self.signer = Signer(account.secret_key)
        self.white = AddressPatterns()
        self.white.add(account.white_remote_address)
        self._access_key = account.access_key
        self._default_topic = permission(account.default_topic_perm)
        self._default_group = permission(account.default_group_perm)
        self._resources: dict[str, int] = {}
        for entry in account.topic_perms or ():
            name, word = split_entry(entry)
            self._resources[name] = permission(word)
        for entry in account.group_perms or ():
            name, word = split_entry(entry)
            self._resources[group_resource(name)] = permission(word)

    def check(self, needs: list[Need]) -> None:
        """:raises RequestRejected: one of these permissions is not granted."""
        resources = self._resources
        if self.is_admin and not resources:
            return
        for resource, needed in needs:
            owned = resources.get(resource)
            if owned is None:
                is_group = resource.startswith(RETRY_PREFIX)
                owned = self._default_group if is_group else self._default_topic
            if not allows(owned, needed):
                raise self._denied(resource, needed, owned)

    def _denied(self, resource: str, needed: int, owned: int) -> RequestRejected:
        word = "PUB" if needed == PUB else "SUB"
        reason = "denies it" if owned & DENY else f"does not include {word}"
        source = "the account's entry" if resource in self._resources else "the account's default"
        return _refusal(
            f"No default permission for {resource_text(resource[:_HINT_LENGTH])}: accessKey="
            f"{self._access_key} needs {word}, {source} {reason}"
        )


def _refusal(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, f"AclException: {reason}")
