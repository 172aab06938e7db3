"""ClientMaterial: TLS context and certificates for all connections of a client, read once."""

import ipaddress
from collections.abc import Callable
from typing import NamedTuple

from OpenSSL import SSL
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.tls.context import client_context
from rmq_ha.base.tls.files import TlsFiles
from rmq_ha.base.tls.notices import Held, tell_expiry
from rmq_ha.base.tls.options import ReadBytes, TlsOptions
from rmq_ha.base.tls.peer import PeerCheck
from rmq_ha.base.tls.session import TlsSession


class ClientMaterial(NamedTuple):
    """The context and certificates of one reading of all files."""

    context: SSL.Context
    is_verified: bool = False
    files: tuple[str, ...] = ()
    certificates: tuple[Held, ...] = ()

    def session(self, host: str) -> TlsSession:
        """Make the session of a connection to a host."""
        return client_session(self.context, host, is_verified=self.is_verified)


def read_material(
    options: TlsOptions, read_bytes: ReadBytes, now_ms: Callable[[], int], log: Logger
) -> ClientMaterial:
    """
    Read the files that the `tls.client.*` keys name.

    :raises ConfigurationError: a value or a file is not valid.
    """
    if options.is_test_mode("client"):
        return ClientMaterial(client_context(None, None))
    files = TlsFiles(options, read_bytes)
    pair = files.key_pair("tls.client")
    trust = files.trust_root("tls.client")
    verifies = options.is_true("tls.client.authServer", trust is not None)
    if verifies and trust is None:
        raise ConfigurationError(
            "tls.client.authServer=true needs tls.client.trustCertPath: the file of the "
            "certificates that servers' certificates come from"
        )
    if not verifies:
        trust = None
        log.warn(
            "servers are not verified: set tls.client.trustCertPath and tls.client.authServer=true"
        )
    context = client_context(pair, trust)
    held = tell_expiry(log, pair, "tls.client", trust, now_ms())
    return ClientMaterial(context, trust is not None, tuple(files.paths), held)


def client_session(
    context: SSL.Context, host: str, *, is_verified: bool, certificate_name: str = ""
) -> TlsSession:
    """
    Make the session of a connection to a host.

    :param certificate_name: the name that the host's certificate must carry; empty for `host`.
    """
    name = certificate_name or host
    session = TlsSession(context, PeerCheck([name], is_verified=is_verified), connects=True)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        session.name_server(name)
    return session
