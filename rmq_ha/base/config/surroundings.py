"""The values of the machine from which defaults of a configuration are computed."""

import os.path
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def _stands_for_nothing(name: str) -> str | None:
    return None


@dataclass(frozen=True)
class Surroundings:
    """
    The machine and process of a configuration, as values.

    :ivar environ: environment variables, of which `NAMESRV_ADDR` and `ROCKETMQ_HOME` count.
    :ivar home: the user's home directory.
    :ivar host_name: the default of brokerName.
    :ivar address: the first local address that is not the loopback, or `127.0.0.1`.
    :ivar directory: absolute path where relative paths start.
    :ivar has_ipv6: whether a port can listen on IPv6.
    :ivar resolve: returns the address of a host name; None if the name is not known.
    """

    environ: Mapping[str, str]
    home: str
    host_name: str
    address: str
    directory: str
    has_ipv6: bool = True
    resolve: Callable[[str], str | None] = field(default=_stands_for_nothing, compare=False)

    def absolute(self, path: str) -> str:
        """Return an absolute path without `..` and `.`."""
        return os.path.normpath(os.path.join(self.directory, path))

    def below_home(self, *parts: str) -> str:
        """Return a path in the user's home directory."""
        return self.absolute(os.path.join(self.home, *parts))
