"""TLS on the remoting port: configuration keys to OpenSSL contexts.

The first byte of a connection tells TLS (0x16) from remoting: as a length it would be too large.

Spec: remoting.md, section 1.10.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL, crypto
from twisted.internet import ssl

from rmq_ha.errors import ConfigurationError

TLS_HANDSHAKE = 0x16
# Twisted's helpers are untyped.
_ssl: Any = ssl
_YEAR = timedelta(days=365)
ReadBytes = Callable[[str], bytes]


class TlsMode(Enum):
    """`tls.server.mode`: plain only, both, TLS only."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class FirstByte(Enum):
    """What becomes of a new connection."""

    PLAIN = "plain"
    START_TLS = "start TLS"
    CLOSE = "close"


class ServerTls:
    """
    What a server does about TLS.

    :ivar mode: which kinds of connections are taken.
    """

    def __init__(
        self, options: Mapping[str, str], read_bytes: ReadBytes, now_ms: Callable[[], int]
    ) -> None:
        """
        :param options: the `tls.*` keys; missing ones take RocketMQ's defaults.
        :param read_bytes: reads a key or certificate file.
        :param now_ms: the validity of a test certificate is counted from here.
        :raises ConfigurationError: a value or a file does not fit.
        """
        self._now_ms = now_ms
        name = options.get("tls.server.mode", TlsMode.PERMISSIVE.value)
        try:
            self.mode = TlsMode(name)
        except ValueError:
            allowed = ", ".join(mode.value for mode in TlsMode)
            raise ConfigurationError(f"tls.server.mode={name}: use one of {allowed}") from None
        self._is_test = _is_true(options, "tls.test.mode.enable", True)
        self._context: Any = None
        if self.mode is not TlsMode.DISABLED and not self._is_test:
            self._context = _server_context(options, read_bytes)

    def judge(self, first: int) -> FirstByte:
        """
        Decide about a connection.

        :param first: its first byte.
        """
        if first != TLS_HANDSHAKE:
            return FirstByte.CLOSE if self.mode is TlsMode.ENFORCING else FirstByte.PLAIN
        if self.mode is TlsMode.DISABLED or (self._context is None and not self._is_test):
            return FirstByte.CLOSE
        return FirstByte.START_TLS

    def context_factory(self) -> Any:
        """For `startTLS`; in test mode with a self-signed certificate, made when first needed."""
        if self._context is None:
            certificate = self_signed_certificate(self._now_ms())
            self._context = _ssl.CertificateOptions(
                privateKey=certificate.privateKey.original, certificate=certificate.original
            )
        return self._context


class ClientTls:
    """What a client does about TLS: all its connections, or none."""

    def __init__(
        self, options: Mapping[str, str], read_bytes: ReadBytes, *, enabled: bool = False
    ) -> None:
        """
        :param options: the `tls.*` keys.
        :param enabled: `useTLS`; `tls.enable` says the same.
        :raises ConfigurationError: a value or a file does not fit.
        """
        self.enabled = enabled or _is_true(options, "tls.enable", False)
        self._trust_root: Any = None
        self._certificate: ssl.PrivateCertificate | None = None
        is_test = _is_true(options, "tls.test.mode.enable", True)
        if not self.enabled or is_test:
            return
        self._certificate = _key_pair(options, "tls.client", read_bytes)
        if _is_true(options, "tls.client.authServer", False):
            self._trust_root = _trust_root(options, "tls.client", read_bytes)
            if self._trust_root is None:
                raise ConfigurationError(
                    "tls.client.authServer=true needs tls.client.trustCertPath"
                )

    def context_factory(self, hostname: str) -> Any:
        """
        For `startTLS` on a connection to this host.

        With a trusted certificate the server has to prove that it is this host; without one,
        any server will do.
        """
        if self._trust_root is not None:
            return _ssl.optionsForClientTLS(
                hostname, trustRoot=self._trust_root, clientCertificate=self._certificate
            )
        if self._certificate is not None:
            return _ssl.CertificateOptions(
                privateKey=self._certificate.privateKey.original,
                certificate=self._certificate.original,
            )
        return _ssl.CertificateOptions()


def self_signed_certificate(now_ms: int, name: str = "rmq-ha") -> ssl.PrivateCertificate:
    """
    A fresh key and a certificate that nobody has a reason to trust, for test mode.

    :param now_ms: it is valid from a year before to ten years after.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _YEAR)
        .not_valid_after(now + 10 * _YEAR)
        .sign(key, hashes.SHA256())
    )
    pair: ssl.PrivateCertificate = _ssl.PrivateCertificate.fromCertificateAndKeyPair(
        _ssl.Certificate(crypto.X509.from_cryptography(certificate)),
        _ssl.KeyPair(crypto.PKey.from_cryptography_key(key)),
    )
    return pair


def _is_true(options: Mapping[str, str], key: str, default: bool) -> bool:
    value = options.get(key)
    return default if value is None else value.strip().lower() == "true"


def _file(options: Mapping[str, str], key: str, read_bytes: ReadBytes) -> bytes | None:
    path = options.get(key)
    if not path:
        return None
    try:
        return read_bytes(path)
    except OSError as error:
        raise ConfigurationError(f"{key}={path}: {error}") from None


def _key_pair(
    options: Mapping[str, str], prefix: str, read_bytes: ReadBytes
) -> ssl.PrivateCertificate | None:
    key_file = _file(options, f"{prefix}.keyPath", read_bytes)
    certificate_file = _file(options, f"{prefix}.certPath", read_bytes)
    if key_file is None or certificate_file is None:
        return None
    password = options.get(f"{prefix}.keyPassword")
    try:
        key = serialization.load_pem_private_key(key_file, password.encode() if password else None)
        certificate = crypto.load_certificate(crypto.FILETYPE_PEM, certificate_file)
        pair: ssl.PrivateCertificate = _ssl.PrivateCertificate.fromCertificateAndKeyPair(
            _ssl.Certificate(certificate),
            _ssl.KeyPair(crypto.PKey.from_cryptography_key(key)),  # type: ignore[arg-type]
        )
    except (ValueError, TypeError, UnsupportedAlgorithm, crypto.Error) as error:
        raise ConfigurationError(
            f"{prefix}.keyPath, {prefix}.certPath: key and certificate (PEM) do not fit: {error}"
        ) from None
    return pair


def _certificates(data: bytes, key: str) -> list[ssl.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise ConfigurationError(f"{key}: no PEM certificates: {error}") from None
    return [_ssl.Certificate(crypto.X509.from_cryptography(item)) for item in found]


def _trust_root(options: Mapping[str, str], prefix: str, read_bytes: ReadBytes) -> Any:
    key = f"{prefix}.trustCertPath"
    data = _file(options, key, read_bytes)
    return None if data is None else _ssl.trustRootFromCertificates(_certificates(data, key))


def _server_context(options: Mapping[str, str], read_bytes: ReadBytes) -> Any:
    """None without key and certificate, as in Java: TLS connections are then closed."""
    pair = _key_pair(options, "tls.server", read_bytes)
    if pair is None:
        return None
    chain_file = _file(options, "tls.server.certPath", read_bytes) or b""
    chain = [item.original for item in _certificates(chain_file, "tls.server.certPath")[1:]]
    wanted = options.get("tls.server.need.client.auth", "none")
    if wanted not in ("none", "optional", "require"):
        raise ConfigurationError(
            f"tls.server.need.client.auth={wanted}: use none, optional or require"
        )
    trust_root = None
    if _is_true(options, "tls.server.authClient", False):
        trust_root = _trust_root(options, "tls.server", read_bytes)
        if trust_root is None:
            raise ConfigurationError("tls.server.authClient=true needs tls.server.trustCertPath")
    verifies = wanted != "none" and trust_root is not None
    factory = _ssl.CertificateOptions(
        privateKey=pair.privateKey.original,
        certificate=pair.original,
        extraCertChain=chain,
        trustRoot=trust_root if verifies else None,
    )
    if wanted != "none":
        required = SSL.VERIFY_FAIL_IF_NO_PEER_CERT if wanted == "require" else 0
        factory.getContext().set_verify(
            SSL.VERIFY_PEER | required, _as_openssl_found if verifies else _any_certificate
        )
    return factory


def _as_openssl_found(
    connection: object, certificate: object, number: int, depth: int, is_good: int
) -> bool:
    return bool(is_good)


def _any_certificate(*_: object) -> bool:
    """Without `tls.server.authClient` a certificate is asked for and not looked at, as in Java."""
    return True
