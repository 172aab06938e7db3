"""Certificates that live as long as a test module."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from tests.interop.wire import Wire


class Authority:
    """A root, its certificate as a file, and what it issues."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        self._authority = trustme.CA(organization_name=name)
        self.path = folder / f"{name}-root.pem"
        self._authority.cert_pem.write_to_path(str(self.path))

    def issue(self, *names: str, file: str, ends: timedelta | None = None) -> tuple[Path, Path]:
        """Key (PKCS#8, which Java wants) and certificate of these names; their paths."""
        not_after = None if ends is None else datetime.now(UTC) + ends
        issued = self._authority.issue_cert(*names, not_after=not_after)
        loaded = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        key, certificate = self.folder / f"{file}.key", self.folder / f"{file}.pem"
        key.write_bytes(
            loaded.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        return key, certificate

    def settings(self, prefix: str, file: str) -> dict[str, str]:
        """What names a pair that was issued, and this root."""
        return {
            f"{prefix}.keyPath": f"{self.folder}/{file}.key",
            f"{prefix}.certPath": f"{self.folder}/{file}.pem",
            f"{prefix}.trustCertPath": str(self.path),
        }


class TlsWire(Wire):
    """A connection that speaks TLS, shows nothing and believes anybody."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._socket = _believing().wrap_socket(self._socket)


def _believing() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def stranger(
    port: int, pair: tuple[Path, Path] | None, first: bytes, *, is_plain: bool = False
) -> bytes:
    """Connect, show a certificate or none, say something; all that came back."""
    with socket.create_connection(("127.0.0.1", port), 30) as plain:
        plain.settimeout(30)
        try:
            if is_plain:
                plain.sendall(first)
                return plain.recv(1 << 16)
            context = _believing()
            if pair is not None:
                context.load_cert_chain(pair[1], pair[0])
            with context.wrap_socket(plain) as secured:
                secured.sendall(first)
                return secured.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            return b""


def shown_certificate(port: int) -> bytes:
    """The certificate that a port shows to anybody, DER."""
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        _believing().wrap_socket(plain) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""
