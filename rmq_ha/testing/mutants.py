"""
Faults that had been found in the field, planted back on purpose: does the simulator find them?

`python -m rmq_ha.testing.simulate --mutant all --seeds 2000` makes the table. Each mutant is found
by ordinary seeds: nothing is chosen for it but whether whole brokers are needed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rmq_ha.broker.transactions.lookup import HalfMessages
from rmq_ha.store import flush
from rmq_ha.store.flush import CommitLogFlusher
from rmq_ha.store.recovery import LogRecovery
from rmq_ha.testing.host import SimHost

PAIR, CLUSTER = "pair", "cluster"


class Patches:
    """What is replaced by something else, to be put back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> Any:
        """
        Replace an attribute of a class or module.

        :returns: what it was.
        """
        before = getattr(owner, name)
        self._before.append((owner, name, before))
        setattr(owner, name, value)
        return before

    def undo(self) -> None:
        """Put everything back."""
        for owner, name, before in reversed(self._before):
            setattr(owner, name, before)
        self._before.clear()


class Mutant(NamedTuple):
    """
    A fault that can be planted.

    :ivar what: what goes wrong.
    :ivar origin: where it was found.
    :ivar seed: one that finds it.
    :ivar plant: puts it in place.
    :ivar kind: of simulation that it takes.
    """

    name: str
    what: str
    origin: str
    seed: int
    plant: Callable[[Patches], None]
    kind: str = PAIR


# The disk


def _sync_first_file(patches: Patches) -> None:
    patches.put(flush, "_sync_all", lambda files: [file.sync() for file in list(files)[:1]])


def _vouch_for_page_cache(patches: Patches) -> None:
    cut = LogRecovery.cut
    patches.put(LogRecovery, "cut", lambda self, end, safe: cut(self, end, end))


def _checkpoint_ahead(patches: Patches) -> None:
    appended = CommitLogFlusher.appended

    def believe(self: Any) -> None:
        self._checkpoint.physic = self._log.last_store_timestamp + 60_000
        self._checkpoint.logics = self._log.last_store_timestamp + 60_000
        appended(self)

    patches.put(CommitLogFlusher, "appended", believe)


# Time


def _wall_clock(patches: Patches) -> None:
    """Timers wait for the wall clock, as Twisted's reactor does of itself."""
    step = SimHost.step_clock

    def step_timers(self: SimHost, ms: int) -> None:
        step(self, ms)
        for call in self.clock.getDelayedCalls():
            left = call.getTime() - self.clock.seconds()
            call.delay(max(-left, -ms / 1000))

    patches.put(SimHost, "step_clock", step_timers)


# Transactions


def _end_again(patches: Patches) -> None:
    async def believe(self: Any, half: Any) -> Any:
        return half

    patches.put(HalfMessages, "_successor", believe)


MUTANTS = (
    Mutant(
        "first-file-synced",
        "of all files of a flush only the first one is synced",
        "S1 of the mutation tests",
        0,
        _sync_first_file,
    ),
    Mutant(
        "page-cache-vouched-for",
        "after a kill all of the log counts as flushed",
        "S3 of the mutation tests",
        0,
        _vouch_for_page_cache,
    ),
    Mutant(
        "checkpoint-ahead",
        "the checkpoint vouches for what is not on the disk yet",
        "field problems, recovery",
        0,
        _checkpoint_ahead,
    ),
    Mutant("wall-clock", "timers wait for the wall clock", "F2", 0, _wall_clock),
    Mutant(
        "end-again",
        "the END of a transaction that was moved or ended is carried out again",
        "F4",
        0,
        _end_again,
        CLUSTER,
    ),
)


def mutant_named(name: str) -> Mutant:
    """
    A mutant.

    :raises KeyError: there is none of that name.
    """
    return {mutant.name: mutant for mutant in MUTANTS}[name]


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The fault is there as long as this is open; None: none is."""
    patches = Patches()
    if name is not None:
        mutant_named(name).plant(patches)
    try:
        yield
    finally:
        patches.undo()
