"""Decides whether a slave may give its store up and copy its master's whole log.

Spec: ha.md, section 9; controller.md, chapter 14, hazard 14.
"""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import StrandedLog
from rmq_ha.base.seams import Disk


def refetch_refusal(
    disk: Disk,
    configuration: BrokerConfiguration,
    directory: str,
    stranded: StrandedLog,
    *,
    is_elected: bool,
) -> str:
    """
    Return why the store may not be given up, and what a person can do; empty: it may be given up.

    The given-up store stays on the disk, in a folder, so the disk must have room for the master's
    log besides.

    :param directory: directory with the files of the log.
    :param is_elected: whether controllers name the master; otherwise only the configuration names
        it.
    """
    own = configuration.ours
    key = "haRefetchStrandedStore" if is_elected else "haRefetchStrandedPair"
    if not (own.ha_refetch_stranded_store if is_elected else own.ha_refetch_stranded_pair):
        return (
            f"Nothing is changed ({key}=false): to follow, move this broker's store away and start "
            f"it again, or set {key}=true"
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
