"""
`rmqha-admin store repair`: builds the queues, the index and the checkpoint of a store anew from its
log.
"""

from dataclasses import dataclass, field

from rmq_ha.base.config import properties
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger import is_dledger
from rmq_ha.base.config.load import load_broker
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError, RmqHaError
from rmq_ha.base.seams import Disk
from rmq_ha.ops.admin.confirm import is_wanted
from rmq_ha.ops.admin.session import FAILED, ChangeRefused, Session
from rmq_ha.ops.admin.store_files import locked, show_findings, verified
from rmq_ha.ops.offline.verify import CHECKPOINT, INDEX, QUEUES
from rmq_ha.server.store.log.layout import store_root
from rmq_ha.server.store.message_store import DefaultMessageStore

_PATHS = {
    QUEUES: ("consumequeue", "consumequeue_ext"),
    INDEX: ("index",),
    CHECKPOINT: ("checkpoint",),
}
_OF_LOG = ("log-hole", "log-damaged")


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
    configuration = _load(disk, config, how.surroundings)
    root, commit_log = store_root(configuration.store), configuration.store.store_path_commit_log
    with locked(disk, root):
        before = verified(session, root, commit_log)
        show_findings(session, root, before)
        lost = [item for item in before.findings if item.code in _OF_LOG]
        if lost:
            raise ChangeRefused(
                f"the log is damaged in {len(lost)} places, the first at {lost[0].place}: copy its"
                ' files from a replica first (docs/operations.md, "Damaged stores")'
            )
        parts = how.parts | {item.mend for item in before.findings if item.mend}
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
        after = verified(session, root, commit_log)
    show_findings(session, root, after)
    left = [item for item in after.findings if item.mend and item.is_fault]
    output.line(
        f"{what}: built from {after.records} messages",
        {"repaired": sorted(parts), "set_aside": aside, "faults_left": len(left)},
    )
    return FAILED if left else None


def _load(disk: Disk, path: str, surroundings: Surroundings) -> BrokerConfiguration:
    try:
        text = properties.decode(disk.read_bytes(path))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    configuration: BrokerConfiguration = load_broker(text, surroundings, name=path).configuration
    if is_dledger(configuration):
        raise ChangeRefused(
            f"{path} is of a member of a DLedger group, which mends itself: empty what is damaged,"
            " and it fetches that from the leader (docs/operations.md)"
        )
    return configuration


async def _built(session: Session, configuration: BrokerConfiguration) -> None:
    """
    Start the store as after a crash, so that it reads all of the log and builds the parts, and stop
    it.
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
