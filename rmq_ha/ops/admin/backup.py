"""`rmqha-admin backup` and `restore`: a copy of a broker's store, made while it runs."""

import os.path
from typing import NoReturn

import click

from rmq_ha.base.config import properties
from rmq_ha.base.config.dledger import is_dledger
from rmq_ha.base.config.load import load_broker
from rmq_ha.base.errors import CannotDecide, ConfigurationError, StoreError
from rmq_ha.base.host.blocking import now_ms
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.host.plain import PlainDisk, PlainFiles
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.ops.admin.confirm import dry_run_option
from rmq_ha.ops.admin.file_errors import file_error_text
from rmq_ha.ops.admin.options import common_options, current_options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import FAILED
from rmq_ha.ops.offline.backup import StoreDirectories, back_up, restore, what_to_restore

_MIB = 1 << 20

config_option = click.option(
    "--config",
    "-c",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Properties file of the broker.",
)
_TARGET = click.Path(file_okay=False)


@click.command("backup")
@click.argument("directory", type=_TARGET)
@config_option
@common_options
def backup(directory: str, config: str) -> None:
    """
    Copy a broker's store into DIRECTORY; a second run copies only new messages.

    Run it on the broker's machine; the broker may run. The copied offsets of consumers are some
    seconds old at most. Messages that the broker deletes stay in the backup, so begin a new backup
    now and then.
    """
    output, target = Output(current_options().as_json), os.path.abspath(directory)
    try:
        store = _store_of(config)
        files, disk = PlainFiles(target, f"{store.root}/config"), PlainDisk(target)
        with output.progress("log, MiB", None) as bar:
            done = back_up(files, store, disk, target, now_ms(), lambda n: bar.advance(n / _MIB))
    except (CannotDecide, ConfigurationError, StoreError, OSError) as error:
        _fail(output, error)
    made = done.manifest
    output.table(
        f"Backup in {target}",
        ("run", "copied", "begin", "end"),
        [(made.runs, done.copied, made.begin, made.end)],
    )


@click.command("restore")
@click.argument("directory", type=_TARGET)
@config_option
@dry_run_option
@common_options
def restore_command(directory: str, config: str, dry_run: bool) -> None:
    """
    Make the store of a broker's properties file from the backup in DIRECTORY.

    The directories of the store must be empty. The next start of the broker reads every record and
    builds queues and index, which takes as long as reading the log.
    """
    output, target, disk = Output(current_options().as_json), os.path.abspath(directory), RealDisk()
    try:
        store = _store_of(config)
        files = PlainFiles(target)
        manifest, _ = what_to_restore(files, disk, target, store)
        if not dry_run:
            size = -(-(manifest.end - manifest.begin) // _MIB)
            with output.progress("log, MiB", size) as bar:
                restore(files, disk, target, store, lambda n: bar.advance(n / _MIB))
    except (CannotDecide, ConfigurationError, StoreError, OSError) as error:
        _fail(output, error)
    output.table(
        f"{'Would be restored' if dry_run else 'Restored'} to {store.root}",
        ("begin", "end", "madeMs"),
        [(manifest.begin, manifest.end, manifest.made_ms)],
    )


def _fail(output: Output, error: Exception) -> NoReturn:
    output.error(file_error_text(error) if isinstance(error, OSError) else str(error))
    raise click.exceptions.Exit(FAILED)


def _store_of(path: str) -> StoreDirectories:
    """
    Return the store that a broker's properties file describes.

    :raises ConfigurationError: the file does not fit, or the broker belongs to a DLedger group.
    """
    disk = RealDisk()
    text = properties.decode(disk.read_bytes(os.path.abspath(path)))
    own = load_broker(text, real_surroundings("."), name=path).configuration
    if is_dledger(own):
        raise ConfigurationError(
            f"{path}: a member of a DLedger group is not backed up: the other members have its log"
        )
    root, log = own.store.store_path_root_dir, own.store.store_path_commit_log
    assert root is not None
    assert log is not None
    return StoreDirectories(root, log, own.store.mapped_file_size_commit_log)
