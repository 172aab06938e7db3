"""`--check`: reports what a start would do, without starting."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.load import PLAIN_ACL, render_changed
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.config.plans import controller_port_plan, namesrv_port_plan, port_plan
from rmq_ha.base.config.settings import ConfigNotice, DoubtfulValue
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.runs.maker import CHOICE
from rmq_ha.base.tls.files import expiry_notices
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.server.acl.files import AclFiles
from rmq_ha.server.acl.rules import Rules
from rmq_ha.server.broker.own_calls import own_tls
from rmq_ha.server.plugins import split_names


def check_report(
    configuration: BrokerConfiguration | NamesrvConfiguration | ControllerConfiguration,
    notices: Sequence[ConfigNotice],
) -> list[str]:
    """
    Return the lines to print: notices, settings that differ from the defaults, and the ports.

    :raises ConfigurationError: a key, a certificate or an ACL file is missing or not valid, or a
        plugin is not installed or cannot be made.
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
    if isinstance(configuration, BrokerConfiguration):
        lines.append(f"# {CHOICE.text()}")
    return lines


def _plugins(configuration: BrokerConfiguration) -> list[str]:
    from twisted.internet import reactor

    from rmq_ha.base.host.real import make_host
    from rmq_ha.ops.app.plugin_check import check_plugins

    return check_plugins(make_host(reactor), configuration)


def finish_check(
    configuration: BrokerConfiguration | NamesrvConfiguration | ControllerConfiguration,
    notices: Sequence[ConfigNotice],
    live: Callable[[], NoReturn] | None = None,
) -> NoReturn:
    """
    Print the report, and end the process with exit code 1 if a key is unknown or a value is
    doubtful, else with 0.

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


def _fails(notice: ConfigNotice) -> bool:
    """Return whether `--check` fails for a notice, although a server would start."""
    return notice.is_unknown or isinstance(notice, DoubtfulValue)


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


def check_acl(
    configuration: BrokerConfiguration | NamesrvConfiguration | ControllerConfiguration,
) -> list[str]:
    """
    Read the files of the built-in access control, if it is chosen.

    :returns: remarks about the files, for the operator.
    :raises ConfigurationError: a file cannot be used, or no file exists.
    """
    strict = True
    if isinstance(configuration, BrokerConfiguration):
        own = configuration.ours
        strict, directory = own.acl_strict, own.acl_directory
        is_wanted = PLAIN_ACL in split_names(own.acl_plug_in)
    elif isinstance(configuration, ControllerConfiguration):
        directory = configuration.controller.acl_directory
        is_wanted = configuration.controller.acl_enable
    else:
        directory = configuration.namesrv.acl_directory
        is_wanted = configuration.namesrv.acl_enable
    if not is_wanted or directory is None:
        return []
    files = AclFiles(RealDisk(), directory)
    files.load(time.time_ns() // 1_000_000)
    return Rules(files.current(), strict=strict).every_notice()
