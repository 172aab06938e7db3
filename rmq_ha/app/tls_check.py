"""Whether a start would find its keys and certificates."""

import time

from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.tls.client import ClientTls
from rmq_ha.tls.ha import HaTls
from rmq_ha.tls.server import ServerTls


def check_tls(configuration: BrokerConfiguration | NamesrvConfiguration) -> None:
    """
    Read everything that the `tls.*` keys name.

    :raises ConfigurationError: a file is missing, or does not fit.
    """
    options = configuration.plugin_options
    ServerTls(options, _read, _now_ms)
    if isinstance(configuration, BrokerConfiguration):
        ClientTls(options, _read, _now_ms, enabled=configuration.client.use_tls)
        HaTls(options, _read, _now_ms)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
