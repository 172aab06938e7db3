"""Where the commit log lies, and the log made from a configuration.

Spec: store.md, section 1.
"""

from rmq_ha.config.store import MessageStoreConfig
from rmq_ha.seams import Disk
from rmq_ha.store.clean import FORCE_RATIO, disk_ratio
from rmq_ha.store.commitlog import CommitLog
from rmq_ha.store.format.commitlog import parse_delay_levels
from rmq_ha.store.mapped_files import FileRow


def make_commit_log(disk: Disk, config: MessageStoreConfig) -> CommitLog:
    """
    The log in the configured directories; nothing is read before the store loads.

    :raises ConfigurationError: the delay levels cannot be read.
    """
    return CommitLog(
        config, _log_files(disk, config), parse_delay_levels(config.message_delay_level)
    )


def _log_files(disk: Disk, config: MessageStoreConfig) -> FileRow:
    def has_room(directory: str) -> bool:
        return disk_ratio(disk, directory) <= FORCE_RATIO

    paths = _split(config.store_path_commit_log) or [f"{config.store_path_root_dir}/commitlog"]
    read_only = _split(config.read_only_commit_log_store_paths)
    return FileRow(disk, paths, config.mapped_file_size_commit_log, read_only, has_room)


def _split(paths: str | None) -> list[str]:
    return [path.strip() for path in (paths or "").split(",") if path.strip()]
