"""Makes a service from twistd's options, in the same way for all servers."""

import os
from collections.abc import Callable
from typing import Any, NoReturn

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.settings import ConfigNotice
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.host_port import host_of
from rmq_ha.ops.app.build import build_text
from rmq_ha.ops.app.check import finish_check
from rmq_ha.ops.app.descriptors import allow_descriptors, complaint
from rmq_ha.ops.app.exposure import readable_secrets
from rmq_ha.ops.app.log import LogStyle, server_observer
from rmq_ha.ops.app.notify import of_this_process
from rmq_ha.ops.app.process import ProcessEnd
from rmq_ha.ops.app.service import LogBeginning, ServerService


def make_service(
    program: str,
    options: Any,
    load: Callable[..., Any],
    make_server: Callable[[Any, Any], Any],
) -> ServerService:
    """
    Read the configuration and build the service.

    :param program: the server's name in twistd, for messages.
    :param load: reads the configuration: `load_broker`, `load_namesrv` or `load_controller`.
    :param make_server: makes the server from host and configuration; it may import large modules.
    :raises SystemExit: the configuration does not fit (1), or `--check` was asked for.
    """
    try:
        configuration, notices = load(
            options.text(),
            options.surroundings(),
            name=options["config"] or "",
            overrides=options.overrides,
        )
        notices = [*notices, *map(ConfigNotice, readable_secrets(configuration, options["config"]))]
        if options["check"]:
            finish_check(configuration, notices, _live_check(options))
    except ConfigurationError as error:
        raise SystemExit(f"{program}: {error}") from None
    descriptors = allow_descriptors()
    few = complaint(descriptors)
    if few is not None:
        notices = [*notices, ConfigNotice(few)]
    # Importing the reactor installs it. So `--check` and a configuration that does not fit end
    # before.
    from twisted.internet import reactor

    from rmq_ha.base.host.admission import Admission
    from rmq_ha.base.host.clock import make_steady
    from rmq_ha.base.host.real import make_host
    from rmq_ha.base.host.turns import make_lean

    make_steady(reactor)
    make_lean(reactor)
    try:
        admission = Admission(configuration.server, descriptors, known_brokers(configuration))
        is_private = _own_settings(configuration).private_files
        host = make_host(reactor, admission, are_files_private=is_private)
        server = make_server(host, configuration)
    except ConfigurationError as error:  # raised for files that the configuration names
        raise SystemExit(f"{program}: {error}") from None
    return ServerService(
        reactor,
        server,
        ProcessEnd(reactor),
        notices,
        options.wants_ready,
        LogBeginning(
            server_observer(options.parent, _log_style(program, configuration)),
            f"{program}: {build_text()}",
        ),
        of_this_process(reactor),
    )


def _live_check(options: Any) -> Callable[[], NoReturn] | None:
    """Return the function that continues `--check` if `--live` was given; None: it was not."""
    if not options.get("live"):
        return None
    if not options["config"]:
        raise SystemExit("--live looks at a broker's properties file: give --config")
    path = os.path.abspath(options["config"])

    def live() -> NoReturn:
        from rmq_ha.ops.app.live_check import finish_live_check

        finish_live_check(path, options.surroundings(), options.overrides)

    return live


def known_brokers(configuration: Any) -> list[str]:
    """
    Return the hosts that a configuration names: name servers, controllers, the master, the group's
    members.
    """
    peers = configuration.controller.controller_dleger_peers.split(";")
    addresses = [peer.partition("-")[2] for peer in peers]
    if isinstance(configuration, BrokerConfiguration):
        broker, store = configuration.broker, configuration.store
        addresses += [
            *(broker.namesrv_addr or "").split(";"),
            *configuration.controlled.controllers,
            store.ha_master_address or "",
            *(peer.partition("-")[2] for peer in (store.dleger_peers or "").split(";")),
        ]
    return [host_of(address) for address in addresses if address]


def _own_settings(configuration: Any) -> Any:
    """Return the settings that only rmq-ha has."""
    if isinstance(configuration, ControllerConfiguration):
        return configuration.controller
    is_broker = isinstance(configuration, BrokerConfiguration)
    return configuration.ours if is_broker else configuration.namesrv


def _log_style(program: str, configuration: Any) -> LogStyle:
    own = _own_settings(configuration)
    if not isinstance(configuration, BrokerConfiguration):
        return LogStyle(own.log_format, {"server": program}, own.log_max_files, own.log_level)
    broker = configuration.broker
    return LogStyle(
        own.log_format,
        {
            "server": program,
            "broker": broker.broker_name,
            "broker_id": broker.broker_id,
            "role": configuration.store.broker_role.name,
        },
        own.log_max_files,
        own.log_level,
    )
