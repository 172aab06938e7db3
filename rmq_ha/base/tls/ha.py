"""TLS of replication, in a pair or a DLedger group; off by default, as Java has none.

One key and certificate for both roles, as a broker may have either: `tls.ha.keyPath`,
`tls.ha.keyPassword`, `tls.ha.certPath`. With `tls.ha.trustCertPath` both ends prove who they are;
who connects has one of `tls.ha.allowedNames`, as the same root may have signed for clients, too.
"""

from OpenSSL import SSL

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.networks import EVERYBODY
from rmq_ha.base.tls.client_material import client_session
from rmq_ha.base.tls.context import ClientAuth, client_context, server_context
from rmq_ha.base.tls.files import TlsFiles
from rmq_ha.base.tls.notices import tell_expiry
from rmq_ha.base.tls.options import TlsOptions
from rmq_ha.base.tls.server import Material, ServerTls, TlsMode
from rmq_ha.base.tls.session import TlsSession


class HaTls(ServerTls):
    """TLS settings of replication, for accepted connections and for the link to the master."""

    title = "tls.ha.mode"
    _link_context: SSL.Context | None
    _master_name: str

    @property
    def is_enabled(self) -> bool:
        """Whether the link to the master uses TLS (`tls.ha.enable`)."""
        return self._link_context is not None

    def link_session(self, host: str) -> TlsSession:
        """
        Make the session of a connection to the master.

        :param host: the name or IP address that is connected to. The master's certificate must
            carry it or `tls.ha.masterName`.
        """
        assert self._link_context is not None
        return client_session(
            self._link_context,
            host,
            is_verified=self._material.is_verified,
            certificate_name=self._master_name,
        )

    def _read(self) -> Material:
        options = TlsOptions(self._options, self._read_bytes)
        mode = TlsMode(options.text("tls.ha.mode", TlsMode.DISABLED.value))
        is_enabled = options.is_true("tls.ha.enable")
        if mode is TlsMode.DISABLED and not is_enabled:
            self._link_context = None
            return Material(mode)
        files = TlsFiles(options, self._read_bytes)
        pair = files.key_pair("tls.ha")
        trust = files.trust_root("tls.ha")
        allowed = tuple(
            name.strip() for name in options.text("tls.ha.allowedNames").split(",") if name.strip()
        )
        if trust is not None and mode is not TlsMode.ENFORCING:
            raise ConfigurationError(
                f"tls.ha.trustCertPath with tls.ha.mode={mode.value}: slaves that speak plain "
                f"cannot be verified and would get everything; set tls.ha.mode=enforcing, or "
                f"leave tls.ha.trustCertPath out until every slave speaks TLS"
            )
        if allowed and trust is None:
            raise ConfigurationError("tls.ha.allowedNames needs tls.ha.trustCertPath")
        if trust is not None and not allowed:
            raise ConfigurationError(
                "tls.ha.trustCertPath without tls.ha.allowedNames: every client with a certificate "
                "of that root could replicate everything and acknowledge it. Name the brokers "
                "(names of their certificates, comma-separated), or set tls.ha.allowedNames=* if "
                "that root is for brokers only"
            )
        if pair is None and mode is not TlsMode.DISABLED:
            raise ConfigurationError("TLS of replication needs tls.ha.keyPath and tls.ha.certPath")
        if trust is None:
            self.log.warn(
                "replication is encrypted, but nobody is verified: set tls.ha.trustCertPath"
            )
        link = client_context(pair, trust) if is_enabled else None
        auth = ClientAuth.NONE if trust is None else ClientAuth.REQUIRE
        context = server_context(pair, auth, trust) if pair is not None else None
        held = tell_expiry(self.log, pair, "tls.ha", trust, self._now_ms())
        # Nothing fails from here on, so either all settings change or none.
        self._link_context, self._master_name = link, options.text("tls.ha.masterName")
        return Material(
            mode,
            context,
            is_verified=trust is not None,
            allowed=() if EVERYBODY in allowed else allowed,
            files=tuple(files.paths),
            certificates=held,
        )


class HaCalls:
    """TLS settings of replication for a `RemotingClient`, which calls other members of a group."""

    def __init__(self, rules: HaTls) -> None:
        self._rules = rules

    @property
    def enabled(self) -> bool:
        """Whether connections to members use TLS (`tls.ha.enable`)."""
        return self._rules.is_enabled

    def session(self, host: str) -> TlsSession:
        """
        Make the session of a connection to a member.

        :param host: the member's host as in `dLegerPeers`.
        """
        return self._rules.link_session(host)
