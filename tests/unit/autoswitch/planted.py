"""
One-line faults of controller mode, planted one at a time: do the simulated brokers find each?

`python -m tests.unit.autoswitch.planted [MOST]` says at which seed, of 2,000 at most.

Spec: controller.md, chapter 14.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from tests.unit.autoswitch.test_simulated_brokers import run
from twisted.internet.defer import succeed

from rmq_ha.autoswitch import lease
from rmq_ha.autoswitch.commit_log import ConfirmedTail, EpochCommitLog
from rmq_ha.autoswitch.epochs import Epochs
from rmq_ha.autoswitch.feed import EpochFeed
from rmq_ha.autoswitch.files import EpochFile
from rmq_ha.autoswitch.ha_service import AutoSwitchHAService
from rmq_ha.autoswitch.journal import EpochJournal
from rmq_ha.autoswitch.manager import ReplicasManager
from rmq_ha.autoswitch.sync_state import SyncState
from rmq_ha.store.classic import LocalJournal
from rmq_ha.store.tail import LogTail

MOST = 2000
Plant = tuple[Any, str, Any]


def _recover(journal: Any, left: Any) -> None:
    LocalJournal.recover(journal, left)
    journal.log.confirm_offset = max(journal._store.queues.max_physical_offset, 0)


def _confirm(state: Any) -> None:
    state.confirm_offset = max(state.confirm_offset, int(state._log.max_offset))


def _led(known: Epochs, epoch: int, end: int) -> Epochs:
    return Epochs(entry for entry in known.entries if entry.epoch < epoch).appended(epoch, end)


def _write(file: Any, epochs: Epochs) -> None:
    file.epochs = epochs


async def _nothing(*_: Any) -> None:
    return None


PLANTED: dict[str, list[Plant]] = {
    "a put is kept when the master has it (4)": [(SyncState, "is_kept", lambda *_: True)],
    "the confirm offset is the end of the log (3)": [(SyncState, "_confirm", _confirm)],
    "consumers read past the confirm offset": [
        (ConfirmedTail, "next_slice", LogTail.next_slice),
        (EpochCommitLog, "readable_end", property(lambda log: log.max_offset)),
    ],
    "recovery dispatches what was not confirmed": [(EpochJournal, "recover", _recover)],
    "a restart renames the epoch": [(Epochs, "led", _led)],
    "the newest epoch ends where the master's log does": [
        (EpochFeed, "_known_to", lambda feed, _: int(feed._log.max_offset))
    ],
    "epochs are compared by their ends alone (14)": [
        (Epochs, "consistent_point", lambda own, end, other, other_end: min(end, other_end))
    ],
    "epochs are not on the disk (13)": [(EpochFile, "write", _write)],
    "a torn record stays at the end of a new master's log (12)": [
        (AutoSwitchHAService, "_drop_torn_record", _nothing)
    ],
    "who joins is not waited for": [
        (SyncState, "union", property(lambda state: frozenset(state.known.members)))
    ],
    "who joins need not have what was acknowledged": [
        (SyncState, "_may_join", lambda *_: True),
        (SyncState, "_has_all", lambda *_: True),
    ],
    "a master needs no lease (1, 2)": [
        (ReplicasManager, "may_accept", lambda manager, now: True),
    ],
    "the lease outlives the time-out (2)": [(lease, "SHARE", 30.0)],
    "a new master takes puts before all is confirmed": [
        (AutoSwitchHAService, "is_settled", lambda service: True)
    ],
    "a tail that the master does not have stays": [
        (AutoSwitchHAService, "fulfil", lambda *_: succeed(None))
    ],
}


def found_at(plants: list[Plant], most: int) -> int | None:
    """The first seed that fails with them."""
    for seed in range(1, most + 1):
        with contextlib.ExitStack() as stack:
            for plant in plants:
                stack.enter_context(patch.object(*plant))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            try:
                run(seed)
            except Exception:
                return seed
    return None


def main(most: int, say: Callable[[str], None] = print) -> int:
    """How many were not found."""
    missed = 0
    for name, plants in PLANTED.items():
        seed = found_at(plants, most)
        missed += seed is None
        say(f"{name}: {'NOT FOUND' if seed is None else f'seed {seed}'}")
    return missed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else MOST))
