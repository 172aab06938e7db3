"""What a TLS session is to those who carry its bytes, whatever library it stands on."""

from typing import Protocol


class AnyCheck(Protocol):
    """What is known of the other end; see `rmq_ha.base.tls.peer.PeerCheck`."""

    @property
    def identity(self) -> str:
        """Whom its certificate names; empty until one was believed."""

    @property
    def names(self) -> tuple[str, ...]: ...


class AnySession(Protocol):
    """The protocol of one connection; see `rmq_ha.base.tls.session.TlsSession`."""

    is_secured: bool
    is_closed: bool

    @property
    def check(self) -> AnyCheck:
        """What is known of the other end."""

    @property
    def version(self) -> str:
        """The version of the protocol, such as `TLSv1.3`."""

    def start(self) -> None:
        """Say hello; raises TlsRefused."""

    def receive_data(self, data: bytes) -> bytes:
        """Bytes of the wire to what they say; raises TlsRefused."""

    def send(self, data: bytes) -> None:
        """Encrypt; only when secured; raises TlsRefused."""

    def data_to_send(self) -> bytes:
        """What is to go over the wire."""

    def close(self) -> None: ...
