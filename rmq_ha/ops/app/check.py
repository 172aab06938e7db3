"""`--check`: reports what a start would do, without starting."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.load import render_changed
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.config.plans import controller_port_plan, namesrv_port_plan, port_plan
from rmq_ha.base.config.settings import Doubt, Notice
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.app.acl_check import check_acl
from rmq_ha.ops.app.tls_check import check_tls


def check_report(
    configuration: BrokerConfiguration | NamesrvConfiguration | ControllerConfiguration,
    notices: Sequence[Notice],
) -> list[str]:
    """
    Return the lines to print: notices, settings that differ from the defaults, and the ports.

    :raises ConfigurationError: a key, a certificate or an ACL file is missing, or of no use, or a
        plugin is not installed, or cannot be made.
    """
    known = [notice.text for notice in notices if not _fails(notice)]
    known += check_tls(configuration)
    if isinstance(configuration, ControllerConfiguration):
        known += check_acl(configuration)
        plan = controller_port_plan(configuration)
    elif isinstance(configuration, BrokerConfiguration):
        known += check_acl(configuration)
        known += _plugins(configuration)
        plan = port_plan(configuration)
    else:
        known += check_acl(configuration)
        plan = namesrv_port_plan(configuration)
    lines = [f"# {text}" for text in known]
    lines += render_changed(configuration)
    lines += [f"# port {item.port}: {item.purpose}" for item in plan]
    return lines


def _plugins(configuration: BrokerConfiguration) -> list[str]:
    from twisted.internet import reactor

    from rmq_ha.base.host.real import make_host
    from rmq_ha.ops.app.plugin_check import check_plugins

    return check_plugins(make_host(reactor), configuration)


def finish_check(
    configuration: BrokerConfiguration | NamesrvConfiguration | ControllerConfiguration,
    notices: Sequence[Notice],
    live: Callable[[], NoReturn] | None = None,
) -> NoReturn:
    """
    Print the report and leave: 1 when a key is unknown or a value is doubtful, else 0.

    :param live: continues the check and ends the process; called if nothing is wrong so far.

    :raises ConfigurationError: see `check_report`.
    """
    faults = [notice.text for notice in notices if _fails(notice)]
    try:
        report = "\n".join(check_report(configuration, notices))
    except ConfigurationError as error:  # one of the faults may be the reason
        raise ConfigurationError("\n".join([str(error), *faults])) from None
    try:
        print(report, flush=True)
    except BrokenPipeError:  # `--check | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if live is not None and not faults:
        live()
    raise SystemExit("\n".join(faults) if faults else 0)


def _fails(notice: Notice) -> bool:
    """Return whether `--check` fails for a notice, although a server would start."""
    return notice.is_unknown or isinstance(notice, Doubt)
