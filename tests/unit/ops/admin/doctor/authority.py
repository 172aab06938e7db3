"""Certificates for the names, and of the days, that a test wants."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from rmq_ha.testing.host import SimHost

OPTIONS = {
    "tls.test.mode.enable": "false",
    "tls.server.certPath": "/cert.pem",
    "tls.server.keyPath": "/key.pem",
}
LINES = tuple("=".join(item) for item in OPTIONS.items())


def put_certificate(host: SimHost, begins: int, ends: int, address: str = "") -> None:
    """
    Its files, on a machine.

    :param begins: days from now, as `ends`.
    :param address: that it is for; empty: the machine's.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.fromtimestamp(host.now_ms() / 1000, UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    names = [x509.IPAddress(ipaddress.ip_address(address or host.ip))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now + timedelta(days=begins))
        .not_valid_after(now + timedelta(days=ends))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    host.disk.replace("/cert.pem", made.public_bytes(Encoding.PEM))
    host.disk.replace("/key.pem", private)
