"""What connections that we make do about TLS.

Spec: remoting.md, section 1.10.
"""

import ipaddress
from collections.abc import Callable, Mapping
from typing import NamedTuple

from OpenSSL import SSL
from twisted.logger import Logger

from rmq_ha.errors import ConfigurationError
from rmq_ha.tls.context import client_context
from rmq_ha.tls.files import TlsFiles
from rmq_ha.tls.notices import tell_expiry
from rmq_ha.tls.options import ReadBytes, TlsOptions, check_proof
from rmq_ha.tls.peer import PeerCheck
from rmq_ha.tls.session import TlsSession


class _Material(NamedTuple):
    """
    What one reading of all files gave.

    :ivar context: None: connections are plain.
    """

    context: SSL.Context | None = None
    is_verified: bool = False
    files: tuple[str, ...] = ()


class ClientTls:
    """The rules for all remoting connections that one client makes: TLS, or not."""

    log = Logger()
    subject = "TLS"

    def __init__(
        self,
        options: Mapping[str, str],
        read_bytes: ReadBytes,
        now_ms: Callable[[], int],
        *,
        enabled: bool = False,
        demanded_by: str = "",
    ) -> None:
        """
        :param options: the `tls.*` keys.
        :param enabled: `useTLS`; `tls.enable` says the same, and a server that enforces TLS
            implies it, as in RocketMQ.
        :param demanded_by: the setting that wants TLS with servers that prove who they are, as
            what is signed for others can be recorded by them; empty: none does.
        :raises ConfigurationError: a value or a file does not fit.
        """
        self._options = options
        self._read_bytes = read_bytes
        self._now_ms = now_ms
        self._enabled = enabled
        self._demanded_by = demanded_by
        self._material = self._read()

    @property
    def enabled(self) -> bool:
        """Connections are TLS."""
        return self._material.context is not None

    @property
    def files(self) -> tuple[str, ...]:
        """What was read: a change of one of them is worth a `reload`."""
        return self._material.files

    def reload(self) -> None:
        """
        Read everything again, for connections to come.

        :raises ConfigurationError: something does not fit; what there was stays.
        """
        self._material = self._read()

    def session(self, host: str) -> TlsSession:
        """
        For a connection to this host; with a trust root the server has to prove that it is it.

        :param host: name or IP address, as it is connected to.
        """
        material = self._material
        assert material.context is not None
        return client_session(material.context, host, is_verified=material.is_verified)

    def _read(self) -> _Material:
        options = TlsOptions(self._options, self._read_bytes)
        default = options.text("tls.server.mode") == "enforcing"
        enabled = self._enabled or options.is_true("tls.enable", default)
        if self._demanded_by:
            check_proof(self._demanded_by, options, is_tls=enabled)
        if not enabled:
            return _Material()
        if options.is_test_mode("client"):
            return _Material(client_context(None, None))
        files = TlsFiles(options, self._read_bytes)
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
            self.log.warn(
                "servers are not verified: set tls.client.trustCertPath and "
                "tls.client.authServer=true"
            )
        context = client_context(pair, trust)
        tell_expiry(self.log, pair, "tls.client", trust, self._now_ms())
        return _Material(context, trust is not None, tuple(files.paths))


def client_session(
    context: SSL.Context, host: str, *, is_verified: bool, wanted: str = ""
) -> TlsSession:
    """
    A session to a host.

    :param wanted: the name that its certificate must carry; the host itself when empty.
    """
    name = wanted or host
    session = TlsSession(context, PeerCheck([name], is_verified=is_verified), connects=True)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        session.name_server(name)
    return session
