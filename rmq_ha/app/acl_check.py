"""Whether a start would find its ACL files, and what is odd about them."""

import time

from rmq_ha.acl.files import AclFiles
from rmq_ha.acl.rules import Rules
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.config.load import PLAIN_ACL
from rmq_ha.host.disk import RealDisk
from rmq_ha.plugins import split_names


def check_acl(configuration: BrokerConfiguration) -> list[str]:
    """
    Read the files of the built-in access control, if it is chosen.

    :returns: what a person should know of them.
    :raises ConfigurationError: one of them cannot be used, or there is none.
    """
    own = configuration.ours
    if PLAIN_ACL not in split_names(own.acl_plug_in) or own.acl_directory is None:
        return []
    files = AclFiles(RealDisk(), own.acl_directory)
    files.load(time.time_ns() // 1_000_000)
    return Rules(files.current(), strict=own.acl_strict).every_notice()
