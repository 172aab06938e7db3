"""ClientTls: TLS settings of the connections that a client makes.

Spec: remoting.md, section 1.10.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.tls.options import ReadBytes, TlsOptions, check_proof

if TYPE_CHECKING:  # OpenSSL is imported only if TLS is used
    from rmq_ha.base.tls.client_material import ClientMaterial
    from rmq_ha.base.tls.notices import Held
    from rmq_ha.base.tls.session import TlsSession


class ClientTls:
    """Decides for all remoting connections of one client whether and how they use TLS."""

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
        :param enabled: the value of `useTLS`. As in RocketMQ, `tls.enable` or an enforcing
            `tls.server.mode` switches TLS on too.
        :param demanded_by: the setting that demands TLS with verified servers, as other servers
            could record signed requests; empty if no setting demands it.
        :raises ConfigurationError: a value or a file is not valid.
        """
        self._options = options
        self._read_bytes = read_bytes
        self._now_ms = now_ms
        self._enabled = enabled
        self._demanded_by = demanded_by
        self._material = self._read()

    @property
    def enabled(self) -> bool:
        return self._material is not None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read; after a change of one of them call `reload`."""
        return () if self._material is None else self._material.files

    @property
    def certificates(self) -> "tuple[Held, ...]":
        return () if self._material is None else self._material.certificates

    def reload(self) -> None:
        """
        Read all files again, for later connections.

        :raises ConfigurationError: a value or a file is not valid; the old ones stay in use.
        """
        self._material = self._read()

    def session(self, host: str) -> "TlsSession":
        """
        Make the session of a connection to a host. With a trust root the server's certificate has
        to carry the host's name.

        :param host: the name or IP address that is connected to.
        """
        assert self._material is not None
        return self._material.session(host)

    def _read(self) -> "ClientMaterial | None":
        """Read the files; None if connections are plain. OpenSSL is then not imported."""
        options = TlsOptions(self._options, self._read_bytes)
        default = options.text("tls.server.mode") == "enforcing"
        enabled = self._enabled or options.is_true("tls.enable", default)
        if self._demanded_by:
            check_proof(self._demanded_by, options, is_tls=enabled)
        if not enabled:
            return None
        try:
            from rmq_ha.base.tls.client_material import read_material
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"TLS by tls.* keys needs {missing.name}: pip install 'rmq-ha-client[tls]', or give"
                " ssl_context=ssl.create_default_context(cafile=...)"
            ) from None
        return read_material(options, self._read_bytes, self._now_ms, self.log)
