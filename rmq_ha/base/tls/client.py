"""What connections that we make do about TLS.

Spec: remoting.md, section 1.10.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.tls.options import ReadBytes, TlsOptions, check_proof

if TYPE_CHECKING:  # OpenSSL is loaded for those who use it
    from rmq_ha.base.tls.client_material import ClientMaterial
    from rmq_ha.base.tls.notices import Held
    from rmq_ha.base.tls.session import TlsSession


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
        return self._material is not None

    @property
    def files(self) -> tuple[str, ...]:
        """What was read: a change of one of them is worth a `reload`."""
        return () if self._material is None else self._material.files

    @property
    def certificates(self) -> "tuple[Held, ...]":
        return () if self._material is None else self._material.certificates

    def reload(self) -> None:
        """
        Read everything again, for connections to come.

        :raises ConfigurationError: something does not fit; what there was stays.
        """
        self._material = self._read()

    def session(self, host: str) -> "TlsSession":
        """
        For a connection to this host; with a trust root the server has to prove that it is it.

        :param host: name or IP address, as it is connected to.
        """
        assert self._material is not None
        return self._material.session(host)

    def _read(self) -> "ClientMaterial | None":
        """None: connections are plain, and nothing of OpenSSL is loaded."""
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
