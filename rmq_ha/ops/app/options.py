"""The command lines of `twistd rmqha`, `twistd rmqnamesrv` and `twistd rmqcontroller`."""

import os
from typing import Any, NoReturn

from twisted.python import usage

from rmq_ha.base.config.properties import decode
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.ops.app.build import build_text

READY_VARIABLE = "RMQHA_READY"


class ServerOptions(usage.Options):
    # Names as RocketMQ's own commands have them, -c and -p included.
    optParameters = [["config", "c", None, "Properties file; without it, RocketMQ's defaults."]]
    optFlags = [
        ["check", None, "Check the configuration, print what differs from the defaults, and exit."],
        ["ready", None, f"Print a line READY {{json}} once it serves (also: {READY_VARIABLE}=1)."],
    ]

    def __init__(self) -> None:
        usage.Options.__init__(self)  # type: ignore[no-untyped-call]
        self.overrides: list[tuple[str, str]] = []

    def parseArgs(self, *words: str) -> None:
        """:raises usage.UsageError: there are words without an option."""
        if words:
            raise usage.UsageError(f"{words[0]}: a properties file is given with --config (-c)")

    def opt_version(self) -> NoReturn:
        """Show the version of rmq-ha and exit."""
        print(build_text())
        raise SystemExit(0)

    def opt_set(self, setting: str) -> None:
        """Set one key, key=value; wins over the file. May be given several times."""
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise usage.UsageError(f"--set {setting}: must be key=value")
        self.overrides.append((key, value))

    def opt_log_format(self, name: str) -> None:
        """text, or json: one object a line (logFormat); wins over the file."""
        self.overrides.append(("logFormat", name))

    def opt_log_level(self, name: str) -> None:
        """debug, info, warn, error or critical: what is logged (logLevel); wins over the file."""
        self.overrides.append(("logLevel", name))

    def surroundings(self) -> Surroundings:
        """Return the surroundings of this process; store paths start from twistd's `--rundir`."""
        parent: Any = self.parent
        return real_surroundings(parent["rundir"] if parent is not None else ".")

    def text(self) -> str:
        """
        Return the text of the properties file; empty without one.

        :raises ConfigurationError: the file cannot be read.
        """
        if self["config"] is None:
            return ""
        try:
            with open(self["config"], "rb") as file:
                return decode(file.read())
        except OSError as error:
            advice = "--config (-c) names a properties file that this user may read"
            raise ConfigurationError(
                f"{self['config']}: {os.strerror(error.errno or 0)}; {advice}"
            ) from None

    @property
    def wants_ready(self) -> bool:
        """Whether the READY line is to be printed."""
        return bool(self["ready"]) or os.environ.get(READY_VARIABLE, "") not in ("", "0")


class BrokerOptions(ServerOptions):
    """Options of `twistd rmqha`, which runs a broker: those of all servers, and its own."""

    longdesc = (
        "A RocketMQ 4.9 broker. Without namesrvAddr (file, option, or NAMESRV_ADDR in the "
        "environment) a master runs a name server of its own."
    )
    optFlags = [
        [
            "live",
            None,
            "With --check: also ask name servers, and look at ports, store and certificates.",
        ]
    ]

    def opt_namesrvAddr(self, addresses: str) -> None:
        """Name servers, host:port;host:port; wins over the file."""
        self.overrides.append(("namesrvAddr", addresses))

    opt_n = opt_namesrvAddr

    def opt_namesrvPort(self, port: str) -> None:
        """Port of the embedded name server (embeddedNamesrvPort)."""
        self.overrides.append(("embeddedNamesrvPort", port))


class NamesrvOptions(ServerOptions):
    """Options of `twistd rmqnamesrv`: those of all servers, and the port."""

    longdesc = "A RocketMQ 4.9 name server."

    def opt_listenPort(self, port: str) -> None:
        """Port to listen on; wins over the file; 9876 without either."""
        self.overrides.append(("listenPort", port))


class ControllerOptions(ServerOptions):
    """Options of `twistd rmqcontroller`: those of all servers, and no others."""

    longdesc = (
        "A controller for brokers of RocketMQ 5 in controller mode: says who of a set is its "
        "master, and elects another one when that dies."
    )
