"""OpenSSL contexts: TLS 1.2 and later, no renegotiation, no resumption.

A resumed session would live on after the certificate that it was opened with was replaced.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from cryptography import x509
from OpenSSL import SSL, crypto

from rmq_ha.base.tls.files import KeyPair

_OPTIONS = SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET


class ClientAuth(Enum):
    """`tls.server.need.client.auth`: whether a client has to show a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


def server_context(
    pair: KeyPair, auth: ClientAuth, trust: Sequence[x509.Certificate] | None
) -> SSL.Context:
    """
    Make the context of accepted connections.

    :param trust: trusted roots; None to accept any client certificate, as RocketMQ does.
    """
    context = _context(pair, trust)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_alpn_select_callback(_select)
    if auth is not ClientAuth.NONE:
        asks = SSL.VERIFY_PEER
        if auth is ClientAuth.REQUIRE:
            asks |= SSL.VERIFY_FAIL_IF_NO_PEER_CERT
        context.set_verify(asks, _verify)
    return context


def client_context(pair: KeyPair | None, trust: Sequence[x509.Certificate] | None) -> SSL.Context:
    """
    Make the context of connections to servers.

    :param trust: trusted roots; None to accept any server certificate.
    """
    context = _context(pair, trust)
    if trust is not None:
        context.set_verify(SSL.VERIFY_PEER, _verify)
    return context


def _context(pair: KeyPair | None, trust: Sequence[x509.Certificate] | None) -> SSL.Context:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_options(_OPTIONS)
    if pair is not None:
        context.use_privatekey(pair.key)
        context.use_certificate(pair.certificate)
        for item in pair.chain:
            context.add_extra_chain_cert(item)
    if trust is not None:
        store = context.get_cert_store()
        assert store is not None
        store.set_flags(
            crypto.X509StoreFlags.PARTIAL_CHAIN
        )  # trust every named certificate, also an intermediate one, as in Java
        for item in trust:
            store.add_cert(crypto.X509.from_cryptography(item))
    return context


def _select(connection: Any, offered: Sequence[bytes]) -> Any:
    """Choose a protocol within TLS among those that a client offers."""
    served: Sequence[bytes] = connection.get_app_data().protocols
    return next((item for item in served if item in offered), SSL.NO_OVERLAPPING_PROTOCOLS)


def _verify(connection: Any, certificate: Any, error: int, depth: int, is_good: int) -> bool:
    check = connection.get_app_data()
    try:
        return bool(check.judge(certificate.to_cryptography(), 0 if is_good else error, depth))
    except Exception as failure:  # no peer's certificate may break more
        check.reason = f"its certificate cannot be read ({type(failure).__name__})"
        return False
