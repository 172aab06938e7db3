"""`rmqha-admin dledger convert`: makes the store of a DLedger member into one without DLedger."""

import os.path
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import click

from rmq_ha.base.config import properties
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger import is_dledger
from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.config.load import load_broker
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topics import TIMER_TOPIC
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_files import Files
from rmq_ha.base.store_format.deleted_queues import NAME as DELETED
from rmq_ha.base.store_format.deleted_queues import decode_beginnings, encode_beginnings
from rmq_ha.ops.admin.options import broker_file_option, common_options
from rmq_ha.ops.admin.session import ChangeRefused, Session, run
from rmq_ha.ops.admin.store_access import locked
from rmq_ha.ops.offline.backup import LATE_TABLES, free_bytes
from rmq_ha.ops.offline.conversion import (
    ConversionState,
    convert,
    moved_offset,
    read_state,
    write_state,
)
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.ledger import (
    EntryPlace,
    LedgerPaths,
    checkpoint_of,
    end_of_ledger,
    member_log,
)
from rmq_ha.ops.offline.queue_check import QueueKey, compare_queues
from rmq_ha.server.store.log.layout import store_root
from rmq_ha.server.store.message_store import DefaultMessageStore

_MIB = 1 << 20
_PLACE = re.compile(r"\s*([a-zA-Z]\w*)=([0-9]{1,18})\.([0-9]{1,18})\s*")
_OF_A_BROKER = ("brokerIdentity", "epochFileCheckpoint")
_DELETED_FILE = f"{DELETED}.json"
COLUMNS = ("member", "ends", "converted", "written", "begin", "end", "final")


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """
    How a store is converted.

    :ivar is_final: convert the whole ledger of a stopped member, not only what is committed.
    :ivar others: by member, the end of its ledger.
    """

    surroundings: Surroundings
    is_final: bool = False
    others: dict[str, EntryPlace] = field(default_factory=dict)


def places_of(
    context: click.Context, parameter: click.Parameter, text: str
) -> dict[str, EntryPlace]:
    """
    Read the value of `--others`.

    :raises click.BadParameter: it has another form.
    """
    places: dict[str, EntryPlace] = {}
    for part in filter(None, text.split(",")):
        match = _PLACE.fullmatch(part)
        if match is None:
            raise click.BadParameter(f"{part!r} is not like n1=7.1234, as `ends` shows it")
        places[match[1]] = EntryPlace(int(match[2]), int(match[3]))
    return places


@click.command("convert")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False))
@broker_file_option("The DLedger member's properties file. It names the store and the group.")
@click.option(
    "--final", is_flag=True, help="The group is stopped: convert this member's whole ledger."
)
@click.option(
    "--others",
    metavar="n1=7.1234,...",
    default="",
    callback=places_of,
    help="With --final: what `ends` showed for the other members.",
)
@common_options
def convert_command(
    directory: str, config: str, *, final: bool, others: dict[str, EntryPlace]
) -> None:
    """
    Make a store without DLedger in DIR from a member's store, or go on with it.

    Without --final the member may run: what the group has committed is converted, and a later run
    converts the rest. The member's store is only read. A run that was killed is started again.
    docs/upgrade.md, "From DLedger to controller mode", has the steps.

    Exit code 1: it was refused, or the store is damaged.
    """

    async def work(session: Session) -> int | None:
        how = ConvertOptions(real_surroundings("."), final, others)
        try:
            await convert_store(session, config, os.path.abspath(directory), how)
        except OSError as error:
            raise ChangeRefused(f"{error.filename}: {error.strerror}; then run it again") from error
        return None

    run(work)


async def convert_store(session: Session, config: str, target: str, how: ConvertOptions) -> None:
    """
    Convert what is missing, build queues and index, and compare the queues with the member's.

    :raises ChangeRefused: the store cannot be converted, or this member may lack messages.
    :raises CannotDecide: the ledger is damaged.
    :raises StoreLocked: a broker has the new store open; with `--final`, also the member's.
    """
    disk, files = session.host.disk, LocalFiles()
    member = _configuration(disk, config, how.surroundings)
    paths = paths_of(member)
    if f"{target}/".startswith(f"{paths.root}/") or f"{paths.root}/".startswith(f"{target}/"):
        raise ChangeRefused(f"{target} is not apart from {paths.root}: name another directory")
    group = member.store.dleger_group or ""
    with ExitStack() as stack:
        if how.is_final:
            stack.enter_context(locked(disk, paths.root))
        row = member_log(files, paths)
        state = read_state(files, target, group, paths.file_size)
        _must_be_ours(disk, target, state)
        source = StoreFiles(paths.root, files, paths.root, ",".join(paths.data), damaged=True)
        if any(topic == TIMER_TOPIC for topic, _ in source.topics_on_disk()):
            raise ChangeRefused(
                f"the log has timer messages, and their records name physical offsets, which "
                f"change: stop sending them, and convert when {TIMER_TOPIC} is empty"
            )
        ends = end_of_ledger(files, row, state.source_end, state.last_entry)
        committed = checkpoint_of(files, paths).committed_index
        if how.is_final:
            _must_have_all(member, ends, how.others)
            if ends.index < committed:
                raise ChangeRefused(
                    f"entry {ends.index + 1} of the ledger is damaged or missing, and the group "
                    f"has committed {committed}: run --final at another member"
                )
        elif committed < 0:
            raise ChangeRefused("the group has committed nothing yet: run it again later")
        _must_have_room(disk, target, row[-1].end - max(row[0].base, state.source_end))
        with ExitStack() as of_target:
            disk.make_dirs(target)
            if disk.exists(f"{target}/lock"):
                of_target.enter_context(locked(disk, target))
            _early(files, disk, paths, target)
            with session.output.progress("log, MiB", None) as bar:
                written = convert(
                    files,
                    paths,
                    disk,
                    target,
                    state,
                    ends.index if how.is_final else committed,
                    lambda count: bar.advance(count / _MIB),
                )
            _late(files, disk, paths, target, state)
        configuration = _target_configuration(disk, config, how.surroundings, target)
        await _build(session, configuration, state, {})
        await _mend(session, configuration, source, state, paths)
        state.is_final = how.is_final
        write_state(disk, target, state)
    _show(session, target, member, state, ends, written)


def _show(
    session: Session,
    target: str,
    member: BrokerConfiguration,
    state: ConversionState,
    ends: EntryPlace,
    written: int,
) -> None:
    is_final = "yes" if state.is_final else "no"
    name = member.store.dleger_self_id
    row = [name, str(ends), str(state.last_entry), written, state.begin, state.end, is_final]
    session.output.table(f"Converted to {target}", COLUMNS, [row])
    if state.is_final:
        session.output.say(
            f"set storePathRootDir={target} in this broker's new file; start it first"
        )
    else:
        session.output.say(
            f"not final: {target} may serve a slave (brokerRole=SLAVE), but no first master"
        )


def _configuration(disk: Disk, path: str, surroundings: Surroundings) -> BrokerConfiguration:
    """
    Read the properties file of a member.

    :raises ConfigurationError: it cannot be read, or is not of a member.
    """
    text = properties.decode(disk.read_bytes(os.path.abspath(path)))
    configuration: BrokerConfiguration = load_broker(text, surroundings, name=path).configuration
    if not is_dledger(configuration):
        raise ConfigurationError(f"{path}: enableDLegerCommitLog is not true: nothing to convert")
    return configuration


def _target_configuration(
    disk: Disk, path: str, surroundings: Surroundings, target: str
) -> BrokerConfiguration:
    """Return the member's configuration for the new store, which delivers and deletes nothing."""
    configuration = _configuration(disk, path, surroundings)
    store = configuration.store
    store.enable_dleger_commit_log = False
    store.store_path_root_dir = target
    store.store_path_commit_log = f"{target}/commitlog"
    store.broker_role = BrokerRole.SLAVE
    return configuration


def paths_of(member: BrokerConfiguration) -> LedgerPaths:
    """Return the directories of a member's store."""
    store, root = member.store, store_root(member.store)
    own = f"{root}/dledger-{store.dleger_self_id}/data"
    return LedgerPaths(
        root,
        store.dleger_self_id or "",
        _split(store.store_path_dledger_commit_log) or (own,),
        _split(store.store_path_commit_log) or (f"{root}/commitlog",),
        store.mapped_file_size_commit_log,
    )


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(path.strip() for path in (text or "").split(",") if path.strip())


def _must_be_ours(disk: Disk, target: str, state: ConversionState) -> None:
    if state.is_final:
        raise ChangeRefused(f"{target} is final: a broker may be started on it")
    for name in _OF_A_BROKER:
        if disk.exists(f"{target}/{name}"):
            raise ChangeRefused(
                f"{target}/{name}: a broker was started on this store. Begin anew in another "
                "directory"
            )


def _must_have_all(
    member: BrokerConfiguration, ends: EntryPlace, others: dict[str, EntryPlace]
) -> None:
    """
    Check that this member has each entry that the group may have committed: its ledger is the
    newest of a majority.

    :raises ChangeRefused: another member's ledger is newer, or too few are known.
    """
    own, peers = member.store.dleger_self_id, parse_peers(member.store.dleger_peers or "")
    strangers = [name for name in others if name not in peers or name == own]
    if strangers:
        raise ChangeRefused(
            f"{', '.join(strangers)} is no other member of the group, which has {', '.join(peers)}"
        )
    for name, place in others.items():
        if place > ends:
            raise ChangeRefused(
                f"the ledger of {name} ends with {place}, and that of {own} with {ends}: run "
                f"--final at {name}"
            )
    needed = len(peers) // 2
    if len(others) < needed:
        raise ChangeRefused(
            f"{own} ends with {ends}, and may lack what the others have: give --others for "
            f"{needed} of them, from what `dledger convert` shows there when they have stopped"
        )


def _must_have_room(disk: Disk, target: str, needed: int) -> None:
    free = free_bytes(disk, target)
    if free is not None and free < needed:
        raise ChangeRefused(f"the new log needs up to {needed} bytes, and {target} has {free} free")


def _early(files: Files, disk: Disk, paths: LedgerPaths, target: str) -> None:
    """Copy the tables that may be older than the log."""
    _copy_tables(files, disk, paths, target, lambda name: name not in LATE_TABLES)


def _late(
    files: Files, disk: Disk, paths: LedgerPaths, target: str, state: ConversionState
) -> None:
    """Copy the tables that may be newer than the log, and move the offsets in one of them."""
    _copy_tables(files, disk, paths, target, lambda name: name in LATE_TABLES)
    try:
        beginnings = decode_beginnings(files.read(f"{paths.root}/config/{_DELETED_FILE}"))
    except FileNotFoundError:
        beginnings = {}
    row = member_log(files, paths)
    moved = {key: moved_offset(files, row, state, at) for key, at in beginnings.items()}
    for name, at in state.begun.items():
        topic, _, queue_id = name.rpartition("@")
        moved[topic, int(queue_id)] = max(at, moved.get((topic, int(queue_id)), 0))
    if moved:
        disk.replace(f"{target}/config/{_DELETED_FILE}", encode_beginnings(moved))


def _copy_tables(
    files: Files, disk: Disk, paths: LedgerPaths, target: str, is_wanted: Callable[[str], bool]
) -> None:
    for entry in files.list(f"{paths.root}/config"):
        name = entry.name
        if name.endswith(".json") and name != _DELETED_FILE and is_wanted(name):
            disk.replace(f"{target}/config/{name}", files.read(f"{paths.root}/config/{name}"))


async def _build(
    session: Session,
    configuration: BrokerConfiguration,
    state: ConversionState,
    ends: dict[QueueKey, int],
) -> None:
    """
    Build the missing part of queues and index, as a start after a crash does.

    :param ends: queues without messages, and their ends.
    :raises ChangeRefused: the store does not take over all of the log.
    """
    disk, root = session.host.disk, store_root(configuration.store)
    abort = disk.open(f"{root}/abort", 0)
    abort.sync()
    abort.close()
    store = DefaultMessageStore(session.host, configuration)
    store.journal.role.may_begin = False
    store.load()
    with session.output.progress("building queues and index", None):
        try:
            await store.start()
            end = store.log.max_offset
            for key, queue_end in ends.items():
                store.queues.queue(*key).leave_out(queue_end)
        finally:
            await store.stop()
    if end != state.end:
        raise ChangeRefused(
            f"the new log ends at {end}, and not at {state.end}: `rmqha-admin store verify "
            f"{root}` says why"
        )


async def _mend(
    session: Session,
    configuration: BrokerConfiguration,
    source: StoreFiles,
    state: ConversionState,
    paths: LedgerPaths,
) -> None:
    """
    Compare the queues with the member's. Build those anew that differ because their topic was
    deleted since, and set the ends of those whose messages have expired.

    :raises ChangeRefused: queues differ afterwards.
    """
    disk, target = session.host.disk, store_root(configuration.store)
    with_tags = not configuration.store.enable_consume_queue_ext
    row = member_log(source.files, paths)
    for _ in range(2):
        made = StoreFiles(target, source.files, target, damaged=True)
        differences = compare_queues(source, made, state, row[0].base, with_tags=with_tags)
        if not (differences.ends or differences.wrong):
            return
        for (topic, queue_id), first in differences.wrong.items():
            begin = state.source_end if first is None else first
            at = moved_offset(source.files, row, state, begin)
            state.begun[f"{topic}@{queue_id}"] = at
            disk.remove_tree(f"{target}/consumequeue/{topic}/{queue_id}")
        if differences.wrong:
            write_state(disk, target, state)
            _late(source.files, disk, paths, target, state)
            disk.remove(f"{target}/checkpoint")  # so all of the log is read
        await _build(session, configuration, state, differences.ends)
    names = ", ".join(
        f"{topic} {queue_id}" for topic, queue_id in [*differences.ends, *differences.wrong]
    )
    raise ChangeRefused(
        f"these queues differ from the member's: {names}. If the member was not stopped in order, "
        "start and stop it once, and run this again"
    )
