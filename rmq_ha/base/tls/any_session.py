"""Interfaces of TLS sessions, which hide the library that implements them."""

from typing import Protocol


class AnyCheck(Protocol):
    """The identity of the other end; see `rmq_ha.base.tls.peer.PeerCheck`."""

    @property
    def identity(self) -> str:
        """The name in the other end's certificate; empty until a certificate was accepted."""

    @property
    def names(self) -> tuple[str, ...]: ...


class AnySession(Protocol):
    """The protocol of one connection; see `rmq_ha.base.tls.session.TlsSession`."""

    is_secured: bool
    is_closed: bool

    @property
    def check(self) -> AnyCheck:
        """The identity of the other end."""

    @property
    def version(self) -> str:
        """The version of the protocol, such as `TLSv1.3`."""

    def start(self) -> None:
        """Begin the handshake; raises TlsRefused."""

    def receive_data(self, data: bytes) -> bytes:
        """Decrypt received bytes; raises TlsRefused."""

    def send(self, data: bytes) -> None:
        """Encrypt bytes to send; only after the handshake; raises TlsRefused."""

    def data_to_send(self) -> bytes:
        """Return and remove the encrypted bytes that are to be written to the transport."""

    def close(self) -> None: ...
