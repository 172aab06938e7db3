"""The `tls.*` settings: those of the server's own file and those of `tls.config.file`, which win.

Spec: remoting.md, section 1.10.
"""

from collections.abc import Callable, Mapping

from rmq_ha.base.config.properties import decode, parse
from rmq_ha.base.config.tls_keys import TLS_KEYS
from rmq_ha.base.config.values import check_tls
from rmq_ha.base.errors import ConfigurationError

CONFIG_FILE_KEY = "tls.config.file"
DEFAULT_CONFIG_FILE = "/etc/rocketmq/tls.properties"
ReadBytes = Callable[[str], bytes]

# RocketMQ ignores these keys in `tls.config.file`, so there they would mislead an operator.
_NOT_FROM_FILE = frozenset({"tls.server.mode", "tls.enable", CONFIG_FILE_KEY})


class TlsOptions:
    """
    The `tls.*` settings in force, from both files.

    :ivar config_file: the `tls.config.file` that was read; None if none was.
    :ivar unknown: unknown keys in that file.
    """

    def __init__(self, options: Mapping[str, str], read_bytes: ReadBytes) -> None:
        """
        :param options: keys and values of the properties file; keys without `tls.` are ignored.
        :param read_bytes: reads a file.
        :raises ConfigurationError: `tls.config.file` cannot be read, or a value is not valid.
        """
        self._values = {key: value for key, value in options.items() if key in TLS_KEYS}
        self.unknown: list[str] = []
        self.config_file: str | None = None
        self._read_config_file(read_bytes)
        for key, value in self._values.items():
            try:
                check_tls(key, value)
            except ValueError as error:
                raise ConfigurationError(f"{key}={value}: {error}") from None

    def text(self, key: str, default: str = "") -> str:
        """Return a setting; a blank value counts as not set."""
        return self._values.get(key, "").strip() or default

    def is_true(self, key: str, default: bool = False) -> bool:
        return self.text(key, "true" if default else "false").lower() == "true"

    def is_set(self, key: str) -> bool:
        return bool(self.text(key))

    def is_test_mode(self, side: str) -> bool:
        """
        Whether a side works without certificates.

        :param side: `server` or `client`.
        :raises ConfigurationError: files are named which RocketMQ's default would ignore.
        """
        if self.is_set("tls.test.mode.enable"):
            return self.is_true("tls.test.mode.enable")
        for name in ("keyPath", "certPath", "trustCertPath"):
            key = f"tls.{side}.{name}"
            if self.is_set(key):
                raise ConfigurationError(
                    f"{key}={self.text(key)} would have no effect, because tls.test.mode.enable is "
                    f"true unless you say otherwise: set tls.test.mode.enable=false"
                )
        return True

    def _read_config_file(self, read_bytes: ReadBytes) -> None:
        path = self.text(CONFIG_FILE_KEY, DEFAULT_CONFIG_FILE)
        try:
            text = decode(read_bytes(path))
        except FileNotFoundError:
            if not self.is_set(CONFIG_FILE_KEY):
                return
            raise ConfigurationError(
                f"{CONFIG_FILE_KEY}={path}: there is no such file; name another or remove the key"
            ) from None
        except OSError as error:
            raise ConfigurationError(
                f"{CONFIG_FILE_KEY}={path}: {error.strerror or error}; make it readable for this "
                f"user, or set {CONFIG_FILE_KEY} to another file"
            ) from None
        self.config_file = path
        for item in parse(text, path):
            if item.key in _NOT_FROM_FILE:
                raise ConfigurationError(
                    f"{path}:{item.line}: {item.key} has no effect in this file, as in RocketMQ: "
                    f"put it into the properties file of the server"
                )
            if item.key in TLS_KEYS:
                self._values[item.key] = item.value.strip()
            else:
                self.unknown.append(item.key)


def check_proof(demanded_by: str, options: TlsOptions, *, is_tls: bool) -> None:
    """
    Check that signed requests go only to verified servers, over TLS.

    :param demanded_by: the setting that demands this.
    :raises ConfigurationError: connections are plain, or servers are not verified.
    """
    if not is_tls:
        raise ConfigurationError(
            f"{demanded_by}: requests would be signed over plain TCP, where others can record "
            "them: use TLS (a client: use_tls=True; a broker: useTLS=true) with "
            "tls.client.trustCertPath"
        )
    trust = options.text("tls.client.trustCertPath")
    is_checked = bool(trust) and options.is_true("tls.client.authServer", True)
    if options.is_test_mode("client") or not is_checked:
        raise ConfigurationError(
            f"{demanded_by}: nobody would check who gets the signed requests: set "
            "tls.client.trustCertPath (and tls.test.mode.enable=false)"
        )
