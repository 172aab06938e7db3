"""PeerCheck: checks the certificate of the other end, with a reason if it is refused."""

import ipaddress
from collections.abc import Sequence

from cryptography import x509
from OpenSSL.SSL import X509VerificationCodes as Codes
from service_identity import CertificateError, VerificationError
from service_identity.cryptography import (
    verify_certificate_hostname,
    verify_certificate_ip_address,
)

from rmq_ha.base.tls.files import certificate_names, certificate_text

_REASONS = {
    Codes.ERR_CERT_HAS_EXPIRED: "has expired",
    Codes.ERR_CERT_NOT_YET_VALID: "is not valid yet",
    Codes.ERR_DEPTH_ZERO_SELF_SIGNED_CERT: "is self-signed, and this side does not trust it",
    Codes.ERR_SELF_SIGNED_CERT_IN_CHAIN: "is signed by no root that this side trusts",
    Codes.ERR_UNABLE_TO_GET_ISSUER_CERT: "is signed by no root that this side trusts",
    Codes.ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "is signed by no root that this side trusts",
    Codes.ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE: "is signed by no root that this side trusts",
    Codes.ERR_CERT_SIGNATURE_FAILURE: "has a wrong signature",
    Codes.ERR_INVALID_PURPOSE: "is not for this purpose (extended key usage)",
    Codes.ERR_CERT_REVOKED: "is revoked",
}


class PeerCheck:
    """
    The check of the other end in one handshake.

    :ivar identity: the names in its certificate as text; empty until a certificate was accepted.
    :ivar names: these names one by one.
    :ivar reason: why the certificate was refused; empty if it was not.
    :ivar protocols: the protocols within TLS that this end serves, the best first (ALPN).
    """

    def __init__(self, names: Sequence[str] = (), *, is_verified: bool = False) -> None:
        """
        :param names: DNS names and IP addresses, of which the certificate must carry one; empty for
            any name.
        :param is_verified: whether a trust root is set; without it any certificate is accepted.
        """
        self._wanted = names
        self._is_verified = is_verified
        self.identity = ""
        self.names: tuple[str, ...] = ()
        self.reason = ""
        self.protocols: tuple[bytes, ...] = ()

    def judge(self, certificate: x509.Certificate, error: int, depth: int) -> bool:
        """
        Judge one certificate; OpenSSL calls this for each of the chain, the root first.

        :param error: OpenSSL's verification error; 0 for none.
        :param depth: position in the chain; 0 is the peer's own certificate.
        """
        if not self._is_verified:
            return True
        who = certificate_text(certificate)
        if error:
            what = _REASONS.get(error, f"is not valid (OpenSSL's verification error {error})")
            whose = "its certificate" if depth == 0 else "a certificate of its chain"
            self.reason = f"{whose} ({who}) {what}"
            return False
        if depth == 0:
            if self._wanted and not any(has_name(certificate, name) for name in self._wanted):
                expected = " or ".join(self._wanted)
                self.reason = f"its certificate is for {who}, not for {expected}"
                return False
            self.identity = who
            self.names = certificate_names(certificate)
        return True


def has_name(certificate: x509.Certificate, name: str) -> bool:
    """
    Whether a certificate carries a DNS name or IP address among its subjectAltNames.

    :param name: the name or address that is connected to.
    """
    try:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            verify_certificate_hostname(certificate, name)
        else:
            verify_certificate_ip_address(certificate, name)
    except (VerificationError, CertificateError, ValueError):
        return False
    return True
