"""What the defaults of a configuration are computed from."""

import os.path
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def _stands_for_nothing(name: str) -> str | None:
    return None


@dataclass(frozen=True)
class Surroundings:
    """
    The machine and process that a configuration is for, as values.

    :ivar environ: environment variables; `NAMESRV_ADDR` and `ROCKETMQ_HOME` count.
    :ivar home: the user's home directory.
    :ivar host_name: the default of brokerName.
    :ivar address: the first local address that is not the loopback, or `127.0.0.1`.
    :ivar directory: what relative paths start from; absolute.
    :ivar has_ipv6: it has addresses of IPv6.
    :ivar resolve: the address that a host name stands for; None: none.
    """

    environ: Mapping[str, str]
    home: str
    host_name: str
    address: str
    directory: str
    has_ipv6: bool = True
    resolve: Callable[[str], str | None] = field(default=_stands_for_nothing, compare=False)

    def absolute(self, path: str) -> str:
        """A path without `..` and `.`, from the root."""
        return os.path.normpath(os.path.join(self.directory, path))

    def below_home(self, *parts: str) -> str:
        """A path in the user's home directory."""
        return self.absolute(os.path.join(self.home, *parts))
