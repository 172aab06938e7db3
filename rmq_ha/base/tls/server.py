"""ServerTls: TLS settings of a listening port.

The first byte of a connection tells TLS (0x16) from remoting and replication: as the first byte of
a frame's length or of an offset, 0x16 would be too large.

Spec: remoting.md, section 1.10.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from OpenSSL import SSL
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.tls.context import ClientAuth, server_context
from rmq_ha.base.tls.files import TlsFiles, self_signed
from rmq_ha.base.tls.first_byte import FirstByte
from rmq_ha.base.tls.notices import Held, tell_expiry
from rmq_ha.base.tls.options import ReadBytes, TlsOptions
from rmq_ha.base.tls.peer import PeerCheck
from rmq_ha.base.tls.session import TlsSession

TLS_HANDSHAKE = 0x16


class TlsMode(Enum):
    """`tls.server.mode` and `tls.ha.mode`: plain only, both, TLS only."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class Material(NamedTuple):
    """
    The context and certificates of one reading of all files.

    :ivar context: None if it is made when first needed (test mode), or if TLS is not possible.
    :ivar allowed: names of which a client's certificate must carry one; empty for any name.
    """

    mode: TlsMode
    context: SSL.Context | None = None
    is_test: bool = False
    is_verified: bool = False
    allowed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    certificates: tuple[Held, ...] = ()


class ServerTls:
    """
    The TLS settings of a remoting port; `HaTls` has those of replication.

    :ivar title: the setting that decides about connections, for the log.
    """

    log = Logger()
    title = "tls.server.mode"
    subject = "TLS"

    def __init__(
        self, options: Mapping[str, str], read_bytes: ReadBytes, now_ms: Callable[[], int]
    ) -> None:
        """
        :param options: the `tls.*` keys; missing ones take RocketMQ's defaults.
        :param read_bytes: reads a key or certificate file.
        :param now_ms: returns the time to check certificates' validity, in ms since the epoch.
        :raises ConfigurationError: a value or a file is not valid.
        """
        self._options = options
        self._read_bytes = read_bytes
        self._now_ms = now_ms
        self._material = self._read()

    @property
    def mode(self) -> TlsMode:
        """Which kinds of connections are accepted."""
        return self._material.mode

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read; after a change of one of them call `reload`."""
        return self._material.files

    @property
    def certificates(self) -> tuple[Held, ...]:
        return self._material.certificates

    def reload(self) -> None:
        """
        Read all files again, for later connections.

        :raises ConfigurationError: a value or a file is not valid; the old ones stay in use.
        """
        self._material = self._read()

    def must_be_possible(self, demanded_by: str) -> None:
        """
        Check that TLS connections are accepted, as the server would be of no use without them.

        :param demanded_by: the setting that demands TLS.
        :raises ConfigurationError: no TLS connection would be accepted.
        """
        if self.judge(TLS_HANDSHAKE) is not FirstByte.START_TLS:
            raise ConfigurationError(
                f"{demanded_by} without TLS here lets nobody in who signs: set tls.server.keyPath "
                "and tls.server.certPath, and tls.server.mode=permissive or enforcing"
            )

    def judge(self, first: int) -> FirstByte:
        """
        Decide by the first byte of a connection whether it goes on with TLS or in plain text, or is
        closed.

        :param first: the first byte of the connection.
        """
        material = self._material
        if first != TLS_HANDSHAKE:
            return FirstByte.CLOSE if material.mode is TlsMode.ENFORCING else FirstByte.PLAIN
        if material.mode is TlsMode.DISABLED:
            return FirstByte.CLOSE
        if material.context is None and not material.is_test:
            return FirstByte.CLOSE
        return FirstByte.START_TLS

    def refusal(self, first: int) -> str:
        """Return why a connection that begins with this byte is closed."""
        mode = f"{self.title}={self.mode.value}"
        if first != TLS_HANDSHAKE:
            return f"it does not speak TLS, and {mode}"
        if self.mode is TlsMode.DISABLED:
            return f"it speaks TLS, and {mode}"
        return "it speaks TLS, and there is no certificate to show it (tls.server.certPath)"

    def session(self, protocols: Sequence[bytes] = ()) -> TlsSession:
        """
        Make the session of an accepted connection.

        :param protocols: the protocols within TLS that are served, the best first (ALPN).
        """
        material = self._material
        context = material.context
        if context is None:
            context = server_context(self_signed(self._now_ms()), ClientAuth.NONE, None)
            self._material = material._replace(context=context)
        check = PeerCheck(material.allowed, is_verified=material.is_verified)
        check.protocols = tuple(protocols)
        return TlsSession(context, check, connects=False)

    def _read(self) -> Material:
        options = TlsOptions(self._options, self._read_bytes)
        for key in options.unknown:
            self.log.warn("{file}: unknown key {key}", file=options.config_file, key=key)
        mode = TlsMode(options.text("tls.server.mode", TlsMode.PERMISSIVE.value))
        if mode is TlsMode.DISABLED:
            return Material(mode)
        if options.is_test_mode("server"):
            return Material(mode, is_test=True)
        files = TlsFiles(options, self._read_bytes)
        pair = files.key_pair("tls.server")
        if pair is None:
            if mode is TlsMode.ENFORCING:
                raise ConfigurationError(
                    "tls.server.mode=enforcing without a certificate lets nobody in: set "
                    "tls.server.keyPath and tls.server.certPath, or tls.test.mode.enable=true"
                )
            # The files that were read are watched, so a certificate that is configured later needs
            # no restart.
            return Material(mode, files=tuple(files.paths))
        auth = ClientAuth(options.text("tls.server.need.client.auth", "none"))
        trust = files.trust_root("tls.server")
        if options.is_set("tls.server.authClient") and not options.is_true("tls.server.authClient"):
            trust = None
        elif trust is None and options.is_true("tls.server.authClient"):
            raise ConfigurationError(
                "tls.server.authClient=true needs tls.server.trustCertPath: the file of the "
                "certificates that clients' certificates come from"
            )
        if trust is not None and auth is ClientAuth.NONE:
            self.log.warn(
                "clients are not asked for certificates, so tls.server.trustCertPath has no "
                "effect: set tls.server.need.client.auth=require"
            )
        context = server_context(pair, auth, trust)
        held = tell_expiry(self.log, pair, "tls.server", trust, self._now_ms())
        is_verified = trust is not None
        return Material(
            mode,
            context,
            is_verified=is_verified,
            files=tuple(files.paths),
            certificates=held,
        )


class AlpnTls:
    """The TLS settings of a port whose clients choose a protocol within TLS, such as `h2`."""

    def __init__(self, rules: ServerTls, protocols: Sequence[bytes]) -> None:
        self._rules = rules
        self._protocols = protocols
        self.title = rules.title
        self.judge = rules.judge
        self.refusal = rules.refusal

    def session(self) -> TlsSession:
        """Make the session of an accepted connection."""
        return self._rules.session(self._protocols)
