"""Whether a slave gives its store up and fetches all of its master's log anew.

Spec: controller.md, chapter 14, hazard 14.
"""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import StrandedLog
from rmq_ha.base.seams import Disk


def why_not_anew(
    disk: Disk, configuration: BrokerConfiguration, directory: str, stranded: StrandedLog
) -> str:
    """
    The reason, with what a person can do; empty: the store may be given up.

    What is given up stays on the disk, in a folder: so there has to be room for the master's log.

    :param directory: where the files of the log are.
    """
    if not configuration.ours.ha_refetch_stranded_store:
        return (
            "Nothing is changed (haRefetchStrandedStore=false): to follow, move this broker's "
            "store away and start it again, or set haRefetchStrandedStore=true"
        )
    if stranded.length <= 0:
        return (
            "Nothing is changed, as the master's log holds no byte behind that: this broker may be "
            "the only one that has its messages. Look which of the two is right"
        )
    usage = disk.usage(directory)
    needed = stranded.length + configuration.store.mapped_file_size_commit_log
    if usage is not None and usage.usable < needed:
        return (
            f"To fetch all anew takes {needed} bytes, and {directory} has room for {usage.usable}: "
            "free some, for example old folders below setaside, or move this broker's store to "
            "another disk and start it again"
        )
    return ""
