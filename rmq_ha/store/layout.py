"""Where a store's files are, and which settings it cannot serve.

Spec: store.md, sections 1 and 14.3.
"""

from rmq_ha.config.store import MessageStoreConfig
from rmq_ha.errors import ConfigurationError
from rmq_ha.seams import Disk
from rmq_ha.store.clean import FORCE_RATIO, disk_ratio
from rmq_ha.store.mapped_files import FileRow


def refuse_unsupported(config: MessageStoreConfig, has_own_log: bool) -> None:
    """
    Check the settings that this store does not serve.

    :param has_own_log: the commit log comes from a plugin.
    :raises ConfigurationError: with the key, the reason and what to do.
    """
    if config.duplication_enable:
        raise ConfigurationError(
            "duplicationEnable=true stops all delivery in RocketMQ 4.9; remove it"
        )
    if config.enable_dleger_commit_log and not has_own_log:
        raise ConfigurationError(
            "enableDLegerCommitLog=true needs a commitLogPlugIn that writes DLedger's files"
        )
    if config.enable_consume_queue_ext:
        raise ConfigurationError(
            "enableConsumeQueueExt=true is not supported: extension files are not written"
        )


def log_files(disk: Disk, config: MessageStoreConfig, root: str) -> FileRow:
    """
    The commit log's files, in one directory or several.

    :param root: of the store.

    Spec: store.md, section 1.
    """

    def has_room(directory: str) -> bool:
        return disk_ratio(disk, directory) <= FORCE_RATIO

    paths = _split(config.store_path_commit_log) or [f"{root}/commitlog"]
    read_only = _split(config.read_only_commit_log_store_paths)
    return FileRow(disk, paths, config.mapped_file_size_commit_log, read_only, has_room)


def _split(paths: str | None) -> list[str]:
    return [path.strip() for path in (paths or "").split(",") if path.strip()]
