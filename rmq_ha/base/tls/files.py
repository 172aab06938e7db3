"""Reads keys and certificates from files; errors name the file, the reason and the next step."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.tls.options import ReadBytes, TlsOptions

WARN_BEFORE = timedelta(days=30)
_NAMES = (
    x509.DNSName,
    x509.IPAddress,
    x509.UniformResourceIdentifier,
    x509.RFC822Name,
)
_YEAR = timedelta(days=365)


class KeyPair(NamedTuple):
    """
    The key and certificate of this end.

    :ivar chain: certificates between this certificate and its root.
    :ivar source: the setting that names the file, for messages.
    """

    key: Any
    certificate: x509.Certificate
    chain: list[x509.Certificate]
    source: str


class ExpiryNotice(NamedTuple):
    """
    A text about the end of a certificate.

    :ivar is_error: whether it has ended or not begun; else it will end soon.
    """

    text: str
    is_error: bool


class TlsFiles:
    """
    Reads the files that settings name.

    :ivar paths: all files that were read, so that changes of them can be watched.
    """

    def __init__(self, options: TlsOptions, read_bytes: ReadBytes) -> None:
        self._options = options
        self._read_bytes = read_bytes
        self.paths: list[str] = [options.config_file] if options.config_file else []

    def key_pair(self, prefix: str) -> KeyPair | None:
        """
        Read key and certificate; None if the settings name neither.

        :param prefix: prefix of the settings: `tls.server`, `tls.client` or `tls.ha`.
        :raises ConfigurationError: a file is missing or not valid, or key and certificate differ.
        """
        key_path = self._options.text(f"{prefix}.keyPath")
        certificate_path = self._options.text(f"{prefix}.certPath")
        if not (key_path or certificate_path):
            return None
        for name, path in (("keyPath", key_path), ("certPath", certificate_path)):
            if not path:
                raise ConfigurationError(
                    f"{prefix}.{name} is missing: key and certificate go together; set both, or "
                    f"neither"
                )
        key = self._private_key(prefix, key_path)
        certificates = self._certificates(f"{prefix}.certPath", certificate_path)
        if _public_bytes(key) != _public_bytes(certificates[0]):
            raise ConfigurationError(
                f"{prefix}.keyPath={key_path} is not the key of {prefix}.certPath="
                f"{certificate_path} ({certificate_text(certificates[0])}): the certificate of "
                f"this server must be the first in its file"
            )
        return KeyPair(key, certificates[0], certificates[1:], f"{prefix}.certPath")

    def trust_root(self, prefix: str) -> list[x509.Certificate] | None:
        """
        Read the trusted certificates; None if the settings name no file.

        :raises ConfigurationError: the file is missing or has no certificate.
        """
        key = f"{prefix}.trustCertPath"
        path = self._options.text(key)
        return self._certificates(key, path) if path else None

    def _private_key(self, prefix: str, path: str) -> Any:
        setting = f"{prefix}.keyPath={path}"
        data = self._bytes(f"{prefix}.keyPath", path)
        if b"-----BEGIN" not in data:
            raise ConfigurationError(
                f"{setting}: not PEM; convert it: openssl pkey -inform der -in ... -out ..."
            )
        password = self._options.text(f"{prefix}.keyPassword")
        try:
            try:
                return serialization.load_pem_private_key(data, password.encode() or None)
            except TypeError:
                if not password:
                    raise ConfigurationError(
                        f"{setting}: it is encrypted; set {prefix}.keyPassword"
                    ) from None
                # A password for a key that has none is harmless.
                return serialization.load_pem_private_key(data, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            if password and b"ENCRYPTED" in data:
                reason = f"{prefix}.keyPassword does not open it, or it is damaged"
            else:
                reason = f"no usable private key in it ({_one_line(error)})"
            raise ConfigurationError(
                f"{setting}: {reason}; test it with: openssl pkey -noout -in {path}"
            ) from None

    def _certificates(self, key: str, path: str) -> list[x509.Certificate]:
        data = self._bytes(key, path)
        try:
            return x509.load_pem_x509_certificates(data)
        except ValueError as error:
            if b"-----BEGIN CERTIFICATE" in data:
                reason = f"damaged ({_one_line(error)})"
            else:
                reason = "no PEM certificate in it"
            raise ConfigurationError(
                f"{key}={path}: {reason}; test it with: openssl x509 -noout -text -in {path}"
            ) from None

    def _bytes(self, key: str, path: str) -> bytes:
        self.paths.append(path)
        try:
            return self._read_bytes(path)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigurationError(
                f"{key}={path}: {reason}; it must be there and readable for this user"
            ) from None


def expiry_notices(
    certificates: Iterable[tuple[str, x509.Certificate]], now_ms: int
) -> list[ExpiryNotice]:
    """
    Return notices for certificates that have ended, or will end within 30 days.

    :param certificates: certificates with the settings that they come from.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    notices = []
    for key, certificate in certificates:
        end, begin = certificate.not_valid_after_utc, certificate.not_valid_before_utc
        who = f"{key} ({certificate_text(certificate)})"
        if end <= now:
            text = f"{who} ended at {end:%Y-%m-%d %H:%M} UTC: peers refuse it; renew it now"
            notices.append(ExpiryNotice(text, True))
        elif begin > now:
            text = f"{who} is valid only from {begin:%Y-%m-%d %H:%M} UTC: is this clock right?"
            notices.append(ExpiryNotice(text, True))
        elif end - now < WARN_BEFORE:
            days = (end - now).days
            text = f"{who} ends in {days} days, at {end:%Y-%m-%d %H:%M} UTC: renew it, then SIGHUP"
            notices.append(ExpiryNotice(text, False))
    return notices


def certificate_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """
    Return DNS names, addresses, URIs and e-mail addresses among a certificate's subjectAltNames.

    Only for a certificate without subjectAltNames its common name is returned: the name constraints
    of a root do not cover common names.
    """
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = list(extension.value)
    except x509.ExtensionNotFound:
        names = []
    except Exception:  # a peer's certificate may break any rule
        return ()
    if not names:
        common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return tuple(str(name.value) for name in common)
    return tuple(str(name.value) for name in names if isinstance(name, _NAMES))


def certificate_text(certificate: x509.Certificate) -> str:
    """Return the names in a certificate as text of at most 200 printable characters."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = [str(name.value) for name in extension.value]
    except Exception:  # a peer's certificate may break any rule
        names = []
    text = ", ".join(names) or certificate.subject.rfc4514_string() or "without a name"
    return "".join(char if char.isprintable() else "?" for char in text[:200])


def self_signed(now_ms: int) -> KeyPair:
    """
    Make a key and a self-signed certificate, which no peer trusts, for test mode.

    :param now_ms: the current time, in ms since the epoch. The certificate is valid from a year
        before it to ten years after it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rmq-ha")])
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
    return KeyPair(key, certificate, [], "tls.test.mode.enable")


def _public_bytes(holder: Any) -> bytes:
    """Return the public key of a key or of a certificate as bytes."""
    data: bytes = holder.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
