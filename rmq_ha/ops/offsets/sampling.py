"""Takes snapshots until each slave has all that its master had, or the time is over."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from rmq_ha.ops.offsets.model import Snapshot
from rmq_ha.ops.offsets.pairing import Pairing, caught_up, ends, is_right, pair

_MANY_FACTS = 300_000
"""From how many facts on only some of the master's samples are kept, to save memory."""
_LOOKS = 5
"""How many snapshots of a slave are kept."""


class Snapshots(Protocol):
    """A replica of which snapshots can be taken."""

    def snapshot(self, topics: Mapping[str, int] | None = None) -> Snapshot:
        """Take a snapshot now; `topics` are numbers of queues of the other side."""


class Patience(NamedTuple):
    """
    The times of a comparison.

    :ivar skew_ms: how old a slave's tables may be, in ms.
    :ivar wait_ms: longest time after the first sample, in ms; a time shorter than `skew_ms` proves
        nothing.
    :ivar step_ms: time between two looks, in ms.
    """

    skew_ms: int = 20_000
    wait_ms: int = 23_000
    step_ms: int = 1_500


def sample(
    master: Snapshots,
    slaves: Sequence[Snapshots],
    patience: Patience,
    now_ms: Callable[[], int],
    pause: Callable[[float], None],
    note: Callable[[str], None] = lambda _: None,
) -> list[Pairing]:
    """
    Look at the master, at the slaves, and at the master again.

    A slave that lacks something is looked at again until it has all that the master had in the
    first sample, which takes one round of its copying (10 s), or until `wait_ms` is over.

    :raises CannotDecide: a replica cannot be read.
    """
    masters = [master.snapshot()]
    deadline = now_ms() + patience.wait_ms
    looks: list[list[Snapshot]] = [[] for _ in slaves]
    noted = False
    while True:
        for look, slave in zip(looks, slaves, strict=True):
            look.insert(0, slave.snapshot({**ends(masters[0]), **ends(masters[-1])}))
            del look[_LOOKS:]
        masters = _thin_out([*masters, _next_snapshot(master, masters[-1])])
        is_over = all(look[0].is_resting or _right(masters, look, caught_up) for look in looks)
        if is_over or now_ms() >= deadline:
            return [
                _pair_samples(masters, look, patience.skew_ms, is_first=index == 0)
                for index, look in enumerate(looks)
            ]
        if not noted:
            noted = True
            note(
                "a slave lacks something that its master has: looking again until it has it, for"
                f" {patience.wait_ms / 1000:.0f} s at most (--wait)"
            )
        pause(min(patience.step_ms, deadline - now_ms()))


def _pair_samples(
    masters: Sequence[Snapshot], look: Sequence[Snapshot], skew_ms: int, *, is_first: bool
) -> Pairing:
    """Choose the slave's snapshot, of the newest first, and the master's samples to judge it by."""
    newest = look[0]
    if newest.is_resting:
        window = masters[-1:] if masters[-1].is_resting else masters
        return Pairing(window, newest, True, is_first)
    right = _right(masters, look, caught_up) or _right(masters, look, is_right)
    if right is not None:
        return Pairing(masters, right, True, is_first)
    return pair(masters, newest, skew_ms, is_first=is_first)


def _right(
    masters: Sequence[Snapshot],
    look: Sequence[Snapshot],
    is_right: Callable[[Sequence[Snapshot], Snapshot], bool],
) -> Snapshot | None:
    """
    Return the newest snapshot of the slave that is right; None: no snapshot is.

    The newest may be wrong where an older one is right: a running master writes its files every 5
    s, so a slave's copy may be younger than they are.
    """
    return next((slave for slave in look if is_right(masters, slave)), None)


def _next_snapshot(master: Snapshots, last: Snapshot) -> Snapshot:
    """Return the next snapshot; a broker that is off is not read again."""
    return last if last.is_resting else master.snapshot()


def _thin_out(masters: list[Snapshot]) -> list[Snapshot]:
    """Of very many facts keep only the first sample and the newest ones, which decide."""
    if sum(len(item.facts) for item in masters) <= _MANY_FACTS or len(masters) <= 4:
        return masters
    return [masters[0], *masters[-3:]]
