"""Signs requests for a broker with ACL.

Spec: remoting.md, section 10.1.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmq_ha.acl.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Signer, signing_content
from rmq_ha.wire.command import RemotingCommand

if TYPE_CHECKING:  # the blocking client signs too, and wants no Twisted
    from twisted.internet.defer import Deferred


class Credentials(NamedTuple):
    """
    An account, as a client has it.

    :ivar security_token: of a temporary account; brokers take it into the signature only.
    """

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, ...)"


class Calls(Protocol):
    """What is used of a `rmq_ha.remoting.client.RemotingClient`."""

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        """Ask and wait for the answer."""

    def oneway(self, address: str, command: RemotingCommand) -> "Deferred[None]":
        """Send, and expect no answer."""


def sign(command: RemotingCommand, credentials: Credentials) -> RemotingCommand:
    """
    A copy of a request with the account's key and signature in its header.

    Sign last: every change of header map or body makes the signature wrong.
    """
    return replace(command, ext=_signed(command, credentials, Signer(credentials.secret_key)))


class SigningCalls:
    """Signs every request on its way to a remoting client."""

    def __init__(self, calls: Calls, credentials: Credentials) -> None:
        self._calls = calls
        self._credentials = credentials
        self._signer = Signer(credentials.secret_key)

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        """Ask and wait for the answer."""
        return self._calls.invoke(address, self._sign(command), timeout_ms)

    def oneway(self, address: str, command: RemotingCommand) -> "Deferred[None]":
        """Send, and expect no answer."""
        return self._calls.oneway(address, self._sign(command))

    def _sign(self, command: RemotingCommand) -> RemotingCommand:
        return replace(command, ext=_signed(command, self._credentials, self._signer))


def _signed(command: RemotingCommand, credentials: Credentials, signer: Signer) -> dict[str, str]:
    ext = dict(command.ext or {})
    ext.pop(SIGNATURE, None)
    ext[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        ext[SECURITY_TOKEN] = credentials.security_token
    ext[SIGNATURE] = signer.sign(signing_content(ext), command.body)
    return ext
