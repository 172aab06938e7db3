"""Checks whether a start would find its ACL files, and reports doubtful settings in them."""

import time

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.load import PLAIN_ACL
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.server.acl.files import AclFiles
from rmq_ha.server.acl.rules import Rules
from rmq_ha.server.plugins import split_names


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
