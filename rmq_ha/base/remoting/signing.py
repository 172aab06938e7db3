"""Signs requests for a broker with ACL.

Spec: remoting.md, section 10.1.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from rmq_ha.base.acl.signature import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    Signer,
    SigningContent,
)
from rmq_ha.base.acl.signed_time import SIGNED_TIME, TimedContent, stamp_text
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.wire.command import RemotingCommand

if TYPE_CHECKING:  # the blocking client signs too, and wants no Twisted
    from twisted.internet.defer import Deferred


class Credentials(NamedTuple):
    """
    The credentials of an account at a client.

    :ivar security_token: the token of a temporary account; brokers only include it in the
        signature.
    """

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, ...)"


class SignedTimes:
    """
    Makes the stamps of signed requests. The requests to one address are numbered, and form one
    session.

    Threads may share an object of this class, processes may not.

    :param now_ms: returns the current time, in ms since the epoch.
    :param random: draws the names of sessions.
    """

    def __init__(self, now_ms: Callable[[], int], random: Random) -> None:
        self._now_ms = now_ms
        self._random = random
        self._sessions: dict[str, tuple[int, Iterator[int]]] = {}

    def next(self, address: str) -> str:
        """Return the stamp of the next request to an address."""
        known = self._sessions.get(address)
        if known is None:
            known = self._sessions.setdefault(address, (self._random.getrandbits(64), count(1)))
        session, numbers = known
        return stamp_text(self._now_ms(), session, next(numbers))


class RequestSigner:
    """
    Signs requests for one account.

    Sign a request last: every later change of its fields or body makes the signature wrong. Sign a
    request again before it is sent a second time.

    :param times: makes stamps, so that code, field names and time are signed too; None to sign as
        RocketMQ 4.9 does.
    """

    def __init__(self, credentials: Credentials, times: SignedTimes | None = None) -> None:
        self._credentials = credentials
        self._times = times
        self._signer = Signer(credentials.secret_key)
        self._timed_signer = Signer(credentials.secret_key, is_long=True)
        self._content = SigningContent()
        self._timed_content = TimedContent()

    def sign(self, command: RemotingCommand, address: str = "") -> RemotingCommand:
        """
        Return a copy of a request with the account's key and signature in its header.

        :param address: the address that the request goes to; empty for an answer to a broker's own
            request.
        """
        credentials = self._credentials
        ext = dict(command.ext or {})
        ext.pop(SIGNATURE, None)
        ext.pop(SIGNED_TIME, None)
        ext[ACCESS_KEY] = credentials.access_key
        if credentials.security_token is not None:
            ext[SECURITY_TOKEN] = credentials.security_token
        if self._times is not None:
            stamp = self._times.next(address)
            content = self._timed_content.bytes_of(command.code, stamp, ext)
            ext[SIGNED_TIME] = f"{stamp}.{self._timed_signer.sign(content, command.body)}"
        ext[SIGNATURE] = self._signer.sign(self._content.bytes_of(ext), command.body)
        return replace(command, ext=ext)


def sign(command: RemotingCommand, credentials: Credentials) -> RemotingCommand:
    """Return a copy of a request that is signed as RocketMQ 4.9 does."""
    return RequestSigner(credentials).sign(command)


class SigningCalls:
    """Signs every request on its way to a remoting client."""

    def __init__(self, calls: Calls, signer: RequestSigner) -> None:
        self._calls = calls
        self._signer = signer

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        """Send a signed copy of a request, and wait for the response; see `Calls.invoke`."""
        return self._calls.invoke(address, self._signer.sign(command, address), timeout_ms)

    def oneway(self, address: str, command: RemotingCommand) -> "Deferred[None]":
        return self._calls.oneway(address, self._signer.sign(command, address))
