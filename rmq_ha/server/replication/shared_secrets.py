"""The secrets that master and slaves share; several are valid while they are being changed."""

from collections.abc import Callable

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.config.text_rules import LEAST_SECRET
from rmq_ha.base.errors import ConfigurationError

_MOST = 16


class SharedSecrets:
    """
    The secret in `haSecret`, or those in the lines of `haSecretFile`, which can be read again.

    :ivar all: the secrets that a slave may prove; as a slave, this broker proves the first. Empty:
        none.
    """

    subject = "haSecretFile"

    def __init__(self, own: RmqHaConfig, read_bytes: Callable[[str], bytes]) -> None:
        """
        :param read_bytes: reads a file.
        :raises ConfigurationError: the file cannot be used.
        """
        self._path = own.ha_secret_file
        self._read_bytes = read_bytes
        self.all: tuple[bytes, ...] = (own.ha_secret.encode(),) if own.ha_secret else ()
        self.reload()

    @property
    def files(self) -> tuple[str, ...]:
        """Return the file that was read; a change of it calls for a `reload`."""
        return (self._path,) if self._path else ()

    def reload(self) -> None:
        """
        Read the file again; its secrets apply to new connections.

        :raises ConfigurationError: the file cannot be used; the earlier secrets stay valid.
        """
        if self._path:
            self.all = self._read(self._path)

    def _read(self, path: str) -> tuple[bytes, ...]:
        try:
            lines = self._read_bytes(path).splitlines()
        except OSError as error:
            raise ConfigurationError(f"haSecretFile={path}: {error.strerror or error}") from None
        secrets = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
        for number, secret in secrets:
            if len(secret) < LEAST_SECRET:
                raise ConfigurationError(
                    f"haSecretFile={path}:{number}: needs at least {LEAST_SECRET} characters"
                )
        if not 1 <= len(secrets) <= _MOST:
            raise ConfigurationError(
                f"haSecretFile={path}: must have 1 to {_MOST} lines with a secret each, not "
                f"{len(secrets)}"
            )
        return tuple(secret for _, secret in secrets)
