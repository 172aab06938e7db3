"""TLS with an `ssl.SSLContext` of the application."""

import ssl
from typing import Any, NamedTuple

from rmq_ha.base.errors import ConfigurationError, TlsRefused

_PIECE = 1 << 16


class StdCheck(NamedTuple):
    """
    The names in the other end's certificate.

    :ivar identity: its subject, or without one its subjectAltNames; empty if the context does not
        check certificates.
    :ivar names: its subjectAltNames.
    """

    identity: str = ""
    names: tuple[str, ...] = ()


class StdSession:
    """One TLS connection without a socket: bytes in, bytes out; see `TlsSession`."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        """:param host: the name or IP address that is connected to."""
        self.check = StdCheck()
        self.is_secured = False
        self.is_closed = False
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._connection = context.wrap_bio(self._in, self._out, server_hostname=host)

    def start(self) -> None:
        """
        Begin the handshake.

        :raises TlsRefused: this end has no version or cipher to offer.
        """
        self._shake_hands()

    def receive_data(self, data: bytes) -> bytes:
        """
        Decrypt bytes from the transport. Afterwards `data_to_send` may have bytes.

        :returns: data for the application; may be empty.
        :raises TlsRefused: the connection cannot be used; `data_to_send` may have an alert.
        """
        self._in.write(data)
        if not self.is_secured:
            self._shake_hands()
        return self._plain() if self.is_secured else b""

    def send(self, data: bytes) -> None:
        """
        Encrypt data of the application; only after the handshake.

        :raises TlsRefused: the connection cannot be used.
        """
        left = memoryview(data)
        try:
            while left:
                left = left[self._connection.write(left) :]
        except ssl.SSLError as error:
            raise _refused(error) from None

    def data_to_send(self) -> bytes:
        """Return and remove the encrypted bytes that are to be written to the transport."""
        return self._out.read()

    def close(self) -> None:
        try:
            self._connection.unwrap()
        except ssl.SSLError:
            pass  # the other end does not answer at once, or there was no handshake

    @property
    def version(self) -> str:
        """The version of the protocol, such as `TLSv1.3`."""
        return self._connection.version() or "TLS"

    def _shake_hands(self) -> None:
        try:
            self._connection.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise _refused(error) from None
        self.is_secured = True
        shown: Any = self._connection.getpeercert() or {}
        subject = [f"{key}={value}" for part in shown.get("subject", ()) for key, value in part]
        names = tuple(str(value) for _, value in shown.get("subjectAltName", ()))
        self.check = StdCheck(", ".join(subject) or ", ".join(names), names)

    def _plain(self) -> bytes:
        pieces: list[bytes] = []
        try:
            while piece := self._connection.read(_PIECE):
                pieces.append(piece)
            self.is_closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_closed = True
        except ssl.SSLError as error:
            raise _refused(error) from None
        return b"".join(pieces)


class ContextTls:
    """
    TLS for all connections of a client, with the application's context.

    :ivar enabled: always True.
    """

    enabled = True

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def session(self, host: str) -> StdSession:
        """Make the session of a connection to a host."""
        return StdSession(self._context, host)


def check_context(context: ssl.SSLContext, demanded_by: str) -> None:
    """
    Check that a context verifies servers, if a setting demands it.

    :param demanded_by: the setting that demands it; empty if none does.
    :raises ConfigurationError: the context does not verify certificate and host name.
    """
    proves = context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    if demanded_by and not proves:
        raise ConfigurationError(
            f"{demanded_by}: nobody would check who gets the signed requests: the ssl_context needs"
            " verify_mode=CERT_REQUIRED and check_hostname=True"
        )


def _refused(error: ssl.SSLError) -> TlsRefused:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsRefused(f"its certificate is refused: {error.verify_message}")
    said = (error.reason or str(error)).replace("_", " ").lower()
    return TlsRefused(f"it broke off the TLS connection: {said}")
