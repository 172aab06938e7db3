"""The paths of a store's files.

Spec: store.md, sections 1 and 14.3.
"""

import os

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.server.store.log.clean import FORCE_RATIO, disk_ratio
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.files import FileRow


def store_root(config: MessageStoreConfig) -> str:
    return config.store_path_root_dir or os.path.join(os.path.expanduser("~"), "store")


def make_commit_log(disk: Disk, config: MessageStoreConfig) -> CommitLog:
    """
    Make the log in the configured directories, one or several; no file is read before the store
    loads.

    :raises ConfigurationError: the delay levels cannot be read, or a DLedger log is configured.
    """
    if config.enable_dleger_commit_log:
        raise ConfigurationError(
            "enableDLegerCommitLog=true: this is not the log of a DLedger group"
        )
    return CommitLog(*log_files(disk, config))


def classic_commit_log(disk: Disk, config: MessageStoreConfig) -> CommitLog:
    """Return the log of a broker outside a DLedger group, for a caller whose broker is in one."""
    return CommitLog(*log_files(disk, config))


def log_files(
    disk: Disk, config: MessageStoreConfig
) -> tuple[MessageStoreConfig, FileRow, list[int]]:
    """
    Return the constructor parameters of a commit log.

    :raises ConfigurationError: the delay levels cannot be read.
    """

    def has_room(directory: str) -> bool:
        return disk_ratio(disk, directory) <= FORCE_RATIO

    paths = _split(config.store_path_commit_log) or [f"{store_root(config)}/commitlog"]
    files = FileRow(disk, paths, config.mapped_file_size_commit_log, has_room=has_room)
    return config, files, parse_delay_levels(config.message_delay_level)


def _split(paths: str | None) -> list[str]:
    return [path.strip() for path in (paths or "").split(",") if path.strip()]
