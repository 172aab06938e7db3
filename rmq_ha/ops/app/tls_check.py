"""Checks whether a start would find its keys and certificates."""

import time

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.tls.files import expiry_notices
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.server.broker.own_calls import own_tls


def check_tls(
    configuration: BrokerConfiguration | NamesrvConfiguration | ControllerConfiguration,
) -> list[str]:
    """
    Read everything that the `tls.*` keys name.

    :returns: remarks about certificates that end soon.
    :raises ConfigurationError: a file is missing, does not fit, or holds a certificate that has
        ended or not begun.
    """
    options = configuration.plugin_options
    server = ServerTls(options, _read, _now_ms)
    held = list(server.certificates)
    if isinstance(configuration, BrokerConfiguration):
        requires_tls = configuration.ours.acl_requires_tls
    elif isinstance(configuration, ControllerConfiguration):
        requires_tls = False
    else:
        requires_tls = configuration.namesrv.acl_requires_tls
    if requires_tls:
        server.must_be_possible("aclRequiresTls=true")
    if isinstance(configuration, BrokerConfiguration):
        held += own_tls(configuration, _read, _now_ms).certificates
        held += HaTls(options, _read, _now_ms).certificates
    notices = expiry_notices(held, _now_ms())
    for notice in notices:
        if notice.is_error:
            raise ConfigurationError(notice.text)
    return list(dict.fromkeys(notice.text for notice in notices))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
