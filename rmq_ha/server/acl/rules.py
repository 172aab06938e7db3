"""The compiled rules of all files together, which decide about a request.

Spec: remoting.md, section 10.2.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from rmq_ha.base.acl.addresses import AddressPatterns
from rmq_ha.base.acl.refusals import RefusalReason
from rmq_ha.base.acl.signature import ACCESS_KEY, SIGNATURE, SigningContent
from rmq_ha.base.acl.signed_time import SIGNED_TIME, TimedContent, read_signed_time
from rmq_ha.base.errors import AccessRefused
from rmq_ha.base.model.security import Security
from rmq_ha.base.model.topics import TRACE_TOPIC
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.acl import needs as javas
from rmq_ha.server.acl import table
from rmq_ha.server.acl.accounts import AccountEntry, AclFile
from rmq_ha.server.acl.freshness import Freshness
from rmq_ha.server.acl.grant import Grant, Secret
from rmq_ha.server.acl.needs import Need
from rmq_ha.server.acl.permissions import PUB
from rmq_ha.server.door import DateSignature, DoorCaller

_KNOWN_HOSTS = 4096
_NO_EXT: Mapping[str, str] = {}
_HINT_LENGTH = 100
_NOBODY = (Secret(""),)
"""The secrets of an unknown account, so that its check takes as long as that of a wrong secret."""


class Rules:
    """
    The rights of all accounts.

    :param files: in the order of precedence: the first file that has an access key defines it.
    :param strict: check requests by `table`; otherwise as 4.9.7, which forgets most codes.
    :param reply_topic: topic in which replies of this cluster are stored.
    :param freshness: judges signed times; None: they are not judged.
    :param on_previous: called with account and host when a request is signed with an account's
        previous secret.
    :param requires_tls: whether signed requests by plain TCP are refused.
    :ivar files: the same files.
    :ivar accounts: the accounts that count, by access key.
    :ivar home: by access key, the path of the file that defines it.
    :ivar notices: oddities of the files together.
    """

    def __init__(
        self,
        files: Iterable[AclFile],
        *,
        strict: bool,
        reply_topic: str = "",
        freshness: Freshness | None = None,
        requires_tls: bool = False,
        on_previous: Callable[[str, str], object] = lambda account, host: None,
    ) -> None:
        self.files = tuple(files)
        self.accounts: dict[str, AccountEntry] = {}
        self.home: dict[str, str] = {}
        self.notices: list[str] = []
        self._strict = strict
        self._reply_topic = reply_topic
        self._white = AddressPatterns()
        self._grants: dict[str, Grant] = {}
        self._hosts: dict[str, bool] = {}
        self._content = SigningContent()
        self._timed = TimedContent()
        self._freshness = freshness
        self._requires_tls = requires_tls
        self._on_previous = on_previous
        self._certified: dict[str, Grant] = {}
        for file in self.files:
            self._add(file)
        if not self._white and not self._grants:
            self.notices.append("no account and no white address is defined: nobody is let in")

    def check(
        self,
        request: RemotingCommand,
        host: str,
        record_at: table.RecordAt = lambda _: None,
    ) -> Grant | None:
        """
        Check a request, and return the rights of its account.

        :param host: the peer's address without its port.
        :param record_at: returns the record that starts at a physical offset.
        :returns: the rights of the account that signed the request, or that the client's
            certificate names; None: this address needs no account.
        :raises RequestRejected: with the reason, which names neither secret nor signature.
        """
        if self._is_white(host):
            return None
        grant = self._account_of(self._claim_of(request), host)
        if self._strict:
            grant.check(request.code, table.needs_of(request, record_at))
        elif not grant.white.matches(host):
            self._check_as_java(request, grant)
        return grant

    def admit(self, caller: DoorCaller, needs: Iterable[Need]) -> Grant | None:
        """
        Check a call of the gRPC door, and return the rights of the caller's account.

        :param needs: the permissions that the call needs.
        :returns: see `check`.
        :raises RequestRejected: see `check`.
        """
        host, signed = caller.host, caller.signed
        if self._is_white(host):
            return None
        claim = _Claim(
            signed.access_key or None,
            bool(signed.signature),
            caller.security,
            partial(_secret_of_date, signed),
            self._check_date,
        )
        grant = self._account_of(claim, host)
        if self._strict or not grant.white.matches(host):
            grant.check(caller.code, needs)
        return grant

    def every_notice(self) -> list[str]:
        """Return all oddities of the files: those of single files, and those between files."""
        return [*self.notices, *(text for file in self.files for text in file.notices)]

    def is_administrator(self, access_key: str, signature: str, content: bytes) -> bool:
        """
        Whether an administrator's secret key signed `content`, which is no request of remoting.

        :param access_key: the account that the caller names.
        :param signature: HMAC-SHA256, in Base64.
        """
        grant = self._grants.get(access_key)
        secrets = _NOBODY if grant is None else grant.secrets
        is_signed = any(secret.timed.is_signed(signature, content) for secret in secrets)
        return is_signed and grant is not None and grant.is_admin

    def check_administrator(self, request: RemotingCommand, host: str) -> Grant | None:
        """
        Refuse a request, whatever its code, unless an administrator sent it or its address needs no
        account.

        :returns: the same as `check`.
        :raises RequestRejected: the same as `check`.
        """
        if self._is_white(host):
            return None
        grant = self._account_of(self._claim_of(request), host)
        if not grant.is_admin:
            raise grant.not_admin(request.code)
        return grant

    def _claim_of(self, request: RemotingCommand) -> "_Claim":
        ext = request.ext or _NO_EXT
        return _Claim(
            ext.get(ACCESS_KEY),
            SIGNATURE in ext,
            request.security,
            partial(self._secret_of, request, ext),
            partial(self._check_time, request, ext),
        )

    def _account_of(self, claim: "_Claim", host: str) -> Grant:
        """
        Return the account of the client's certificate or, without one, the account that signed. If
        both are there, they must be the same.

        :raises AccessRefused: neither is there, they differ, or the signature is not accepted.
        """
        security = claim.security
        if self._requires_tls and not security.is_tls and claim.is_signed:
            raise _refusal(
                RefusalReason.PLAIN,
                "the request is signed and came by plain TCP, where others can record it, and "
                "aclRequiresTls=true: connect with TLS (useTLS). If the network is not your own, "
                "give the account another secret key",
            )
        certified = self._by_certificate(security.names) if self._certified else None
        access_key = claim.access_key
        if certified is None:
            return self._signer_of(claim, host)
        if access_key is not None and access_key != certified.account:
            raise _refusal(
                RefusalReason.CERTIFICATE,
                f"the request is signed with accessKey={access_key[:_HINT_LENGTH]}, and its "
                f"client's certificate is for accessKey={certified.account}: use one account for "
                "both",
            )
        if claim.is_signed:
            self._signer_of(claim, host, is_certified=True)
        return certified

    def _by_certificate(self, names: tuple[str, ...]) -> Grant | None:
        grants = {grant.account: grant for name in names if (grant := self._certified.get(name))}
        if len(grants) > 1:
            raise _refusal(
                RefusalReason.CERTIFICATE,
                f"the client's certificate has names of several accounts ({', '.join(grants)}): "
                "leave one of them in certificateNames, or give it another certificate",
            )
        return next(iter(grants.values()), None)

    def _signer_of(self, claim: "_Claim", host: str, *, is_certified: bool = False) -> Grant:
        """
        Return the account that a request names, if its signature is right. The signature is not
        checked if the peer's address is one of the account's white addresses.

        :param is_certified: whether a certificate names the same account; then the signature needs
            no time.
        :raises AccessRefused: the request names no account, or its signature or time is wrong.
        """
        access_key = claim.access_key
        if access_key is None:
            raise _refusal(
                RefusalReason.UNSIGNED,
                f"No accessKey is configured: the request is not signed, {host} is not among "
                "globalWhiteRemoteAddresses, and no client certificate names an account",
            )
        grant = self._grants.get(access_key)
        if grant is None or not grant.white.matches(host):
            secret = claim.find_secret(_NOBODY if grant is None else grant.secrets)
            if grant is None or secret is None:
                raise self._wrong_signature(access_key[:_HINT_LENGTH], is_known=grant is not None)
            claim.check_time(grant, secret, is_certified)
            if secret is not grant.secrets[0]:
                self._on_previous(grant.account, host)
        return grant

    def _wrong_signature(self, access_key: str, *, is_known: bool) -> AccessRefused:
        """
        Return the refusal of a wrong signature. With `strict`, it does not tell whether the access
        key exists.
        """
        if not is_known and not self._strict:
            return _refusal(RefusalReason.SIGNATURE, f"No acl config for {access_key}")
        reason = "the secret is wrong" if is_known else "there is no such account"
        return _refusal(
            RefusalReason.SIGNATURE,
            f"Check signature failed for accessKey={access_key}: the broker knows no such account, "
            "or its secret key is another, or the request was changed after it was signed",
            f"accessKey={access_key}: {reason}",
        )

    def _check_time(
        self,
        request: RemotingCommand,
        ext: Mapping[str, str],
        grant: Grant,
        secret: Secret,
        is_certified: bool,
    ) -> None:
        """
        Check the field `SignedTime`: rmq-ha's signature with a time, a session and a number. It may
        be missing unless the settings require it and no certificate names the account.

        :raises AccessRefused: the field is missing, its signature is wrong, or the request came
            before or too late.
        """
        freshness = self._freshness
        if freshness is None:
            return
        value = ext.get(SIGNED_TIME)
        if value is None:
            if freshness.is_required and not is_certified:
                raise _refusal(
                    RefusalReason.NOT_TIMED,
                    f"accessKey={grant.account}: the request has a signature as of RocketMQ 4.9 "
                    "only, and aclRequiresSignedTime=true: use a client of rmq-ha with sign_time, "
                    "or a client certificate of the account, or set that key to false",
                )
            return
        read = read_signed_time(value)
        if read is not None:
            stamp, signature = read
            content = self._timed.bytes_of(request.code, stamp.text, ext)
            if secret.timed.is_signed(signature, content, request.body):
                stale = freshness.take(grant.account, stamp)
                if stale is None:
                    return
                raise _refusal(stale.kind, f"accessKey={grant.account}: {stale.reason}")
        raise _refusal(
            RefusalReason.SIGNATURE,
            f"Check signature failed for accessKey={grant.account}: its {SIGNED_TIME} is of "
            "another request: code, names or values were changed after it was signed",
        )

    def _check_date(self, grant: Grant, secret: Secret, is_certified: bool) -> None:
        """
        Refuse a call of the gRPC door where signatures need a time, unless a certificate names the
        account. The signature of such a call covers only a date in the client's own zone, so an
        attacker could use it again at any time.
        """
        freshness = self._freshness
        if freshness is not None and freshness.is_required and not is_certified:
            raise _refusal(
                RefusalReason.NOT_TIMED,
                f"accessKey={grant.account}: clients of RocketMQ 5 sign a date that can be used "
                "again at any time, and aclRequiresSignedTime=true: give the client a certificate "
                "of the account, or set that key to false",
            )

    def _check_as_java(self, request: RemotingCommand, grant: Grant) -> None:
        needs = javas.needs_of(request)
        if (TRACE_TOPIC, PUB) in needs:
            return
        if request.code in javas.ADMIN_CODES and not grant.is_admin:
            raise grant.not_admin(request.code)
        grant.check(request.code, needs)

    def _secret_of(
        self, request: RemotingCommand, ext: Mapping[str, str], secrets: tuple[Secret, ...]
    ) -> Secret | None:
        """Return the one of some secrets that signed a request; None if none of them did."""
        signature = ext.get(SIGNATURE)
        if signature is None:
            return None
        content, body = self._content.bytes_of(ext), request.body
        for secret in secrets:
            if secret.signer.is_signed(signature, content, body):
                return secret
        return None

    def _is_white(self, host: str) -> bool:
        is_white = self._hosts.get(host)
        if is_white is not None:
            return is_white
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
            if account.access_key in self._grants:
                self.notices.append(
                    f"{file.path}: account {account.access_key} has no effect: {home} defines it"
                )
            else:
                self.accounts[account.access_key] = account
                grant = self._grants[account.access_key] = Grant(
                    account, strict=self._strict, reply_topic=self._reply_topic
                )
                for name in account.certificate_names or ():
                    self._add_certificate(name, grant, file)

    def _add_certificate(self, name: str, grant: Grant, file: AclFile) -> None:
        owner = self._certified.setdefault(name, grant)
        if owner is not grant:
            self.notices.append(
                f"{file.path}: certificateNames: {name} of account {grant.account} has no effect: "
                f"it is account {owner.account}'s"
            )


class _Claim(NamedTuple):
    """
    The account that a request or a call of gRPC says it comes from, and how to check that.

    :ivar access_key: the account that it names; None if it names none.
    :ivar is_signed: whether it has a signature.
    :ivar security: whether the connection uses TLS, and the names in the client's certificate.
    :ivar find_secret: takes some secrets, and returns the one by which the signature was made; None
        if none of them was used.
    :ivar check_time: checks the time of the signature; takes the account, the secret that signed,
        and whether a certificate names the same account.
    """

    access_key: str | None
    is_signed: bool
    security: Security
    find_secret: Callable[[tuple[Secret, ...]], Secret | None]
    check_time: Callable[[Grant, Secret, bool], None]


def _secret_of_date(signed: DateSignature, secrets: tuple[Secret, ...]) -> Secret | None:
    for secret in secrets:
        if secret.signer.is_signed(signed.signature, signed.date):
            return secret
    return None


def _refusal(kind: RefusalReason, remark: str, reason: str | None = None) -> AccessRefused:
    return AccessRefused(ResponseCode.SYSTEM_ERROR, f"AclException: {remark}", reason, kind)
