"""`rmqha-admin store`: verifies, shows and repairs a store that no broker has open."""

from dataclasses import dataclass, field
from typing import Any

import click

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.host.files import files_of
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.client.rules.messages import message_of
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.message_text import message_line, message_values
from rmq_ha.ops.admin.options import broker_file_option, common_options
from rmq_ha.ops.admin.session import FAILED, ChangeRefused, Session, run
from rmq_ha.ops.admin.store_access import load_configuration, locked
from rmq_ha.ops.admin.store_export import export_timer
from rmq_ha.ops.admin.store_fetch import fetch
from rmq_ha.ops.checks.options import index_sizes_option
from rmq_ha.ops.checks.verify import StoreVerdict
from rmq_ha.ops.checks.verify import verify as verify_store
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.records import Damage, records
from rmq_ha.ops.offsets.findings import Finding, Severity
from rmq_ha.server.store.log.layout import store_root
from rmq_ha.server.store.message_store import DefaultMessageStore

COLUMNS = ("severity", "code", "place", "expected", "found", "meaning", "repair")
QUEUES, INDEX, CHECKPOINT = "queues", "index", "checkpoint"


def opened(
    root: str, commit_log: str | None = None, index_sizes: tuple[int, int] | None = None
) -> StoreFiles:
    """
    Open the files of a store.

    :raises CannotDecide: the directory has no commit log.
    """
    files, path = files_of(root)
    store = StoreFiles(root, files, path, commit_log, True, index_sizes)
    store.log_files()
    return store


def verify_with_progress(
    session: Session,
    root: str,
    commit_log: str | None,
    index_sizes: tuple[int, int] | None,
) -> StoreVerdict:
    """
    Verify a store, with a progress bar.

    :raises CannotDecide: the store cannot be read.
    """
    with session.output.progress("thousand messages", None) as steps:
        return verify_store(opened(root, commit_log, index_sizes), steps.advance)


def show_findings(session: Session, root: str, report: StoreVerdict) -> None:
    """Show a row for each finding, and the number of messages."""
    session.output.table(root, COLUMNS, map(_row, report.findings), messages=report.records)


def _row(item: Finding) -> list[Any]:
    place = [] if item.topic is None else [f"{item.topic}, queue {item.queue_id}"]
    if item.queue_offset is not None:
        place.append(str(item.queue_offset))
    if item.physical_offset is not None:
        place.append(f"at {item.physical_offset}")
    where = ", ".join(place) or None
    mend = part_to_build(item)
    return [item.severity, item.code, where, item.expected, item.actual, item.detail, mend]


def is_fault(item: Finding) -> bool:
    """Return whether messages are or will be lost; otherwise the next start mends the finding."""
    return item.severity == Severity.ERROR


def part_to_build(item: Finding) -> str | None:
    """Return the part that can be built anew from the log; None: no part has to be, or can be."""
    if item.code.startswith("CHECKPOINT_"):
        return CHECKPOINT
    if item.code in ("RESTORED", "TORN_TAIL") or (is_fault(item) and item.code.startswith("CQ_")):
        return QUEUES
    return INDEX if is_fault(item) and item.code.startswith("INDEX_") else None


_DIRECTORY = click.Path(exists=True, file_okay=False, resolve_path=True)
_commit_log = click.option(
    "--commit-log", metavar="DIR[,DIR]", help="The storePathCommitLog of the broker, if it is set."
)


@click.group()
@common_options
def store() -> None:
    """
    Verify, show and repair a store. Each command refuses while a broker has the store open.

    DIR is what storePathRootDir names.
    """


store.add_command(export_timer)
store.add_command(fetch)


@store.command()
@click.argument("root", metavar="DIR", type=_DIRECTORY)
@_commit_log
@index_sizes_option
@common_options
def verify(root: str, commit_log: str | None, index_sizes: tuple[int, int] | None) -> None:
    """
    Read all of the log, and compare queues, index, checkpoint and tables with it.

    The findings are those of `verify-replica DIR`, which also reads the store of a broker that
    runs. The command changes nothing. Exit code 0: no finding of severity ERROR; 1: such findings,
    or a broker has the store open.
    """

    async def work(session: Session) -> int | None:
        return show_faults(session, root, commit_log, index_sizes)

    run(work)


def show_faults(
    session: Session,
    root: str,
    commit_log: str | None = None,
    index_sizes: tuple[int, int] | None = None,
) -> int | None:
    """
    Show the faults of a store.

    :returns: the exit code.
    """
    with locked(session.host.disk, root):
        report = verify_with_progress(session, root, commit_log, index_sizes)
    show_findings(session, root, report)
    return FAILED if any(map(is_fault, report.findings)) else None


@store.command()
@click.argument("root", metavar="DIR", type=_DIRECTORY)
@_commit_log
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    default=0,
    metavar="OFFSET",
    help="Begin with the first message at or after this physical offset of the log.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this number of messages.")
@click.option("--topic", "-t", help="Print messages of this topic only.")
@common_options
def dump(root: str, commit_log: str | None, start: int, count: int | None, topic: str) -> None:
    """
    Print each message of the log as a line of JSON. A damaged place is printed as a line with the
    member `damage`.

    Exit code 1: the log is damaged, or a broker has the store open.
    """

    async def work(session: Session) -> int | None:
        session.output.as_json = True
        return dump_records(session, root, commit_log, start, count, topic)

    run(work)


def dump_records(
    session: Session,
    root: str,
    commit_log: str | None = None,
    start: int = 0,
    count: int | None = None,
    topic: str | None = None,
) -> int | None:
    """
    Print the messages of a log as JSON.

    :returns: the exit code.
    """
    output, code, shown = session.output, None, 0
    with locked(session.host.disk, root):
        for piece in records(opened(root, commit_log), start):
            if session.interrupted.called:
                break
            if isinstance(piece, Damage):
                code = FAILED
                output.line("", {"damage": piece._asdict()})
            elif topic in (None, piece.request.topic):
                message = message_of(decode_record(piece.data))
                where = {"physical_offset": piece.request.physical_offset}
                output.line(message_line(message), {**where, **message_values(message)})
                shown += 1
                if shown == count:
                    break
    return code


@store.command()
@broker_file_option("The broker's properties file. It names the store and the sizes of its files.")
@click.option(
    "--part",
    "parts",
    type=click.Choice([QUEUES, INDEX]),
    multiple=True,
    help="Rebuild this part even if it agrees with the log; repeatable.",
)
@sure_options
@common_options
def repair(config: str, parts: tuple[str, ...], **sure: bool) -> None:
    """
    Build queues, index and checkpoint anew from the log, as far as `verify` finds faults in them.

    The old files are kept in `setaside`. The log and the tables are never changed: if they are
    damaged, copy them from a replica.

    Exit code 1: the repair was refused, or the store has faults afterwards.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        how = RepairOptions(real_surroundings("."), frozenset(parts), **sure)
        return await repair_store(session, config, how)

    run(work)


_PATHS = {
    QUEUES: ("consumequeue", "consumequeue_ext"),
    INDEX: ("index",),
    CHECKPOINT: ("checkpoint",),
}
_OF_LOG = ("LOG_HOLE", "RECORD_UNREADABLE", "BODY_CRC")


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """
    How a store is repaired.

    :ivar parts: parts that are built anew even if they are sound.
    """

    surroundings: Surroundings
    parts: frozenset[str] = field(default_factory=frozenset)
    yes: bool = False
    dry_run: bool = False


async def repair_store(session: Session, config: str, how: RepairOptions) -> int | None:
    """
    Verify the store, show what will be done, ask, repair, and verify again.

    :returns: the exit code.
    :raises ChangeRefused: the log itself is damaged, or the broker belongs to a DLedger group.
    :raises StoreLocked: a broker has the store open.
    """
    disk, output = session.host.disk, session.output
    configuration = load_configuration(disk, config, how.surroundings)
    root, commit_log = store_root(configuration.store), configuration.store.store_path_commit_log
    sizes = configuration.store.max_hash_slot_num, configuration.store.max_index_num
    with locked(disk, root):
        before = verify_with_progress(session, root, commit_log, sizes)
        show_findings(session, root, before)
        lost = [item for item in before.findings if item.code in _OF_LOG]
        if lost:
            raise ChangeRefused(
                f"the log is damaged in {len(lost)} places, the first at {lost[0].physical_offset},"
                f" in {_log_file_at(opened(root, commit_log), lost[0].physical_offset or 0)}:"
                ' copy its files from a replica first (docs/operations.md, "Damaged stores")'
            )
        wrong = {part for item in before.findings if (part := part_to_build(item)) is not None}
        parts = how.parts | wrong
        if not parts:
            output.line("nothing to repair", {"repaired": []})
            return None
        aside = f"{root}/setaside/repair-{session.host.now_ms()}"
        names = [name for part in sorted(parts | {CHECKPOINT}) for name in _PATHS[part]]
        names = [name for name in names if disk.exists(f"{root}/{name}")]
        what = ", ".join(sorted(parts))
        output.say(f"{', '.join(names)} go to {aside}; {what} are built anew from the log")
        if not is_wanted(f"Build {what} of {root} anew?", yes=how.yes, dry_run=how.dry_run):
            output.line(f"dry run: {what}", {"would_repair": sorted(parts), "set_aside": aside})
            return None
        # `abort` is written before the first file is moved. After a kill in between, the next start
        # counts as one after a crash, and builds what is missing.
        was_clean = not disk.exists(f"{root}/abort")
        abort = disk.open(f"{root}/abort", 0)  # the next start reads all of the log
        abort.sync()
        abort.close()
        for name in names:
            disk.move(f"{root}/{name}", f"{aside}/{name}")
    try:
        await _built(session, configuration)
    except (RmqHaError, OSError) as error:
        _put_back(disk, root, aside, names, was_clean=was_clean)
        raise ChangeRefused(f"{error}; everything is as it was") from error
    with locked(disk, root):
        after = verify_with_progress(session, root, commit_log, sizes)
    show_findings(session, root, after)
    left = [item for item in after.findings if part_to_build(item) and is_fault(item)]
    output.line(
        f"{what}: built from {after.records} messages",
        {"repaired": sorted(parts), "set_aside": aside, "faults_left": len(left)},
    )
    return FAILED if left else None


def _log_file_at(store: StoreFiles, offset: int) -> str:
    """Return the path of the last log file that begins at or before an offset."""
    paths = [file.path for file in store.log_files() if file.base <= offset]
    return paths[-1] if paths else store.root


async def _built(session: Session, configuration: BrokerConfiguration) -> None:
    """
    Start and stop the store as after a crash: it then reads the whole log and builds the missing
    parts.
    """
    store = DefaultMessageStore(session.host, configuration)
    store.journal.role.may_begin = False  # no delayed message is delivered
    store.load()
    with session.output.progress("building", None):
        try:
            await store.start()
        finally:
            await store.stop()


def _put_back(disk: Disk, root: str, aside: str, names: list[str], *, was_clean: bool) -> None:
    for name in names:
        if disk.is_dir(f"{root}/{name}"):
            disk.remove_tree(f"{root}/{name}")
        elif disk.exists(f"{root}/{name}"):
            disk.remove(f"{root}/{name}")
        disk.move(f"{aside}/{name}", f"{root}/{name}")
    disk.remove_tree(aside)
    if was_clean:
        disk.remove(f"{root}/abort")
