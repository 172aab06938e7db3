"""
Plants faults of controller mode: hazards of RocketMQ, and faults that the simulator's seeds found
in rmq-ha.

Spec: controller.md, chapter 14.
"""

from typing import Any

from twisted.internet.defer import succeed

from rmq_ha.server.replication.epochs.commit_log import ConfirmedTail, EpochCommitLog
from rmq_ha.server.replication.epochs.epochs import Epochs
from rmq_ha.server.replication.epochs.history import EpochFile
from rmq_ha.server.replication.epochs.journal import EpochJournal
from rmq_ha.server.replication.epochs.master import MasterRole
from rmq_ha.server.replication.epochs.replica import EpochReplica
from rmq_ha.server.replication.epochs.roles import lease
from rmq_ha.server.replication.epochs.roles.manager import ReplicasManager
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.shared_end import SharedEnd
from rmq_ha.server.replication.epochs.slave import SlaveRole
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.server.replication.epochs.tables import TableFeed
from rmq_ha.server.store.local.journal import LocalJournal
from rmq_ha.server.store.log.boot import LastExit
from rmq_ha.server.store.log.tail import LogTail
from tests.sim_kit.planting import CONTROLLED, Mutant, Patches


def _master_alone(patches: Patches) -> None:
    patches.put(SyncState, "is_kept", lambda *_: True)


def _confirm_end(patches: Patches) -> None:
    def confirm(state: Any) -> None:
        state.confirm_offset = max(state.confirm_offset, int(state._log.max_offset))

    patches.put(SyncState, "_confirm", confirm)


def _read_all(patches: Patches) -> None:
    patches.put(ConfirmedTail, "next_slice", LogTail.next_slice)
    patches.put(EpochCommitLog, "readable_end", property(lambda log: log.max_offset))


def _recover_all(patches: Patches) -> None:
    def recover(journal: Any, left: LastExit) -> None:
        LocalJournal.recover(journal, left)
        journal.log.confirm_offset = max(journal._store.queues.max_physical_offset, 0)

    patches.put(EpochJournal, "recover", recover)


def _rename_epoch(patches: Patches) -> None:
    def led(known: Epochs, epoch: int, end: int) -> Epochs:
        kept = Epochs(entry for entry in known.entries if entry.epoch < epoch)
        return kept.appended(epoch, end)

    patches.put(Epochs, "led", led)


def _trust_tail(patches: Patches) -> None:
    patches.put(EpochReplica, "_sure_until", lambda replica, point: point)


def _resume(patches: Patches) -> None:
    whole = property(lambda log: True, lambda log, value: None)
    patches.put(EpochCommitLog, "is_whole", whole)
    _trust_tail(patches)  # a slave that asks again sees that the bytes are other ones


def _count_cache(patches: Patches) -> None:
    patches.put(ReplicationSettings, "counted", lambda settings, log: int(log.max_offset))


def _ends_only(patches: Patches) -> None:
    patches.put(Epochs, "consistent_point", lambda own, end, other, other_end: min(end, other_end))
    _trust_tail(patches)  # as in `_resume`


def _no_epoch_file(patches: Patches) -> None:
    def write(file: Any, epochs: Epochs) -> None:
        file.epochs = epochs

    patches.put(EpochFile, "write", write)


def _keep_torn(patches: Patches) -> None:
    async def nothing(*_: Any) -> None:
        return None

    patches.put(MasterRole, "_drop_torn_record", nothing)


def _no_union(patches: Patches) -> None:
    patches.put(SyncState, "union", property(lambda state: frozenset(state.known.members)))


def _cut_confirmed(patches: Patches) -> None:
    """
    Let a slave cut confirmed bytes, as RocketMQ does. rmq-ha refuses this, and without it the fault
    would show no loss.
    """
    patches.put(SharedEnd, "check", lambda *_: None)


def _join_at_once(patches: Patches) -> None:
    _cut_confirmed(patches)
    patches.put(SyncState, "_may_join", lambda *_: True)
    patches.put(SyncState, "_has_all", lambda *_: True)


def _no_lease(patches: Patches) -> None:
    patches.put(ReplicasManager, "may_accept", lambda manager, now: True)


def _long_lease(patches: Patches) -> None:
    patches.put(lease, "SHARE", 30.0)


def _keep_tail(patches: Patches) -> None:
    patches.put(SlaveRole, "fulfil", lambda *_: succeed(None))


def _lose_changes(patches: Patches) -> None:
    patches.put(TableFeed, "changed", lambda feed, entry, now: False)


def _believe_reports(patches: Patches) -> None:
    def has_all(state: Any, broker_id: int, end: int) -> bool:
        return bool(state.sent_to(broker_id) >= end or broker_id == state._id)

    patches.put(SyncState, "_holds", has_all)


def _vouch_early(patches: Patches) -> None:
    recover = EpochJournal.recover

    def vouching(journal: Any, left: LastExit) -> None:
        recover(journal, left)
        if left is LastExit.CRASHED:
            journal._store.checkpoint.logics = journal.log.last_store_timestamp

    patches.put(EpochJournal, "recover", vouching)


def _planted(name: str, what: str, origin: str, seed: int, plant: Any) -> Mutant:
    return Mutant(name, what, origin, seed, plant, CONTROLLED)


OF_CONTROLLER_MODE = (
    _planted("master-alone", "a put is kept when the master has it", "14.2", 6, _master_alone),
    _planted("confirm-end", "what the master has is confirmed", "14.9", 6, _confirm_end),
    _planted("read-all", "consumers read past the confirm offset", "14.9", 6, _read_all),
    _planted("recover-all", "a start dispatches what was not confirmed", "seed", 8, _recover_all),
    _planted("rename-epoch", "a restart renames the epoch", "seed", 27, _rename_epoch),
    _planted("resume", "a master goes on in the epoch in which it crashed", "seed", 44, _resume),
    _planted("count-cache", "what is not on the disk counts", "seed", 29, _count_cache),
    _planted("ends-only", "logs are compared by their ends", "14.14", 43, _ends_only),
    _planted("no-epoch-file", "epochs are not on the disk", "14.13", 0, _no_epoch_file),
    _planted("keep-torn", "a torn record stays under a new master", "14.12", 139, _keep_torn),
    _planted("no-union", "who joins is not waited for", "14.5", 14, _no_union),
    _planted("join-at-once", "who joins need not have all", "14.6", 491, _join_at_once),
    _planted("no-lease", "a master needs no lease", "14.1", 12, _no_lease),
    _planted("long-lease", "the lease outlives the time-out", "14.2", 12, _long_lease),
    _planted("keep-tail", "a tail that the master does not have stays", "14.11", 0, _keep_tail),
    _planted("lose-changes", "tables go to slaves at the start only", "14.11", 1, _lose_changes),
    _planted("sent-is-kept", "what was sent counts as held", "14.6", 6, _believe_reports),
    _planted("vouch-early", "a start vouches for what it took back", "seed", 0, _vouch_early),
)
