"""
Judges histories: compares the messages and answers of clients with the messages that are found at
the end.

The simulator's pairs, storms, chaos of DLedger groups, delayed and transactional messages feed it,
and so does `bench/soak.py` with real processes. It has no clock, store or network: its callers pass
ids, times and numbers. It judges these promises:

- An acknowledged message is there, unless the documentation says that this loss may happen.
- A message that was refused or taken back is missing.
- No message is there more often than it was sent.
- Messages stand in the order in which they were sent, as far as a client waited for the answer.
- The numbers of a queue have no gap and no repetition.
- The offset that a group committed does not go back.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

Queue = TypeVar("Queue", bound=Hashable)
LOST = "lost"
REFUSED_AND_STORED = "stored-after-refusal"
COPIES = "copies"
TAKEN_BACK = "visible-after-rollback"
ORDER = "order"
EXAMPLES, LONGEST = 4, 40


class Breach(NamedTuple):
    """
    A promise that was broken.

    :ivar kind: a short name; equal promises have equal names.
    :ivar ids: the messages.
    """

    kind: str
    text: str
    ids: tuple[str, ...]

    def __str__(self) -> str:
        return self.text


class Promises:
    """
    The messages that the clients of one cluster sent, and the answers that they got.

    :ivar attempts: how often each message was sent.
    :ivar places: by id of each acknowledged message, the offset in the log that its answer named.
    :ivar excused: acknowledged messages whose loss is allowed, with the reason.
    """

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.places: dict[str, int] = {}
        self.excused: dict[str, str] = {}
        self._sent_at: dict[str, float] = {}
        self._acknowledged_at: dict[str, float] = {}
        self._refused: set[str] = set()
        self._taken_back: set[str] = set()

    def sent(self, unique_id: str, now: float = 0.0) -> None:
        """Note an attempt to send a message; clients may try again with the same id."""
        self.attempts[unique_id] += 1
        self._sent_at.setdefault(unique_id, now)

    def acknowledged(self, unique_id: str, now: float = 0.0, place: int = -1) -> None:
        """Note the answer that the message is stored."""
        self.places[unique_id] = place
        self._acknowledged_at.setdefault(unique_id, now)

    def refused(self, unique_id: str) -> None:
        """Note the answer that the message is not stored. A timeout is no such answer."""
        self._refused.add(unique_id)

    def taken_back(self, unique_id: str) -> None:
        """Note that the producer rolled the message back: no consumer may get it."""
        self._taken_back.add(unique_id)

    def excuse(self, unique_ids: Iterable[str], reason: str) -> None:
        """Allow that these messages are lost."""
        for unique_id in unique_ids:
            self.excused.setdefault(unique_id, reason)

    def owed(self) -> set[str]:
        """Return the messages that consumers have to find."""
        answered = list(self.places)  # a copy, as other threads of a soak add to it
        return {i for i in answered if i not in self.excused and i not in self._taken_back}

    # Verdicts

    def breaches(
        self,
        present: Iterable[str],
        where: str,
        *,
        owed: Iterable[str] | None = None,
        most: Callable[[str], int] | None = None,
    ) -> list[Breach]:
        """
        Compare the promises with the messages that are found at one place.

        :param present: the id of each message there; a message that is there twice comes twice.
        :param where: the name of the place, for the text.
        :param owed: the messages that this place has to have; None: all that are owed.
        :param most: returns how many copies of a message are allowed; None: as many as were sent.
        """
        copies = Counter(present)
        allowed = self.attempts.__getitem__ if most is None else most
        must = self.owed() if owed is None else set(owed)
        taken_back = sorted(copies.keys() & self._taken_back)
        many = [i for i, count in copies.items() if count > allowed(i) and i not in taken_back]
        groups = (
            (LOST, "acknowledged and missing", sorted(must - copies.keys())),
            (REFUSED_AND_STORED, "refused and stored", sorted(copies.keys() & self._refused)),
            (TAKEN_BACK, "rolled back and visible", taken_back),
            (COPIES, "there more often than sent", sorted(many)),
        )
        return [
            Breach(kind, f"{where}: {len(ids)} {what}: {some(ids)}", tuple(ids))
            for kind, what, ids in groups
            if ids
        ]

    def order_breaches(self, present: Sequence[str], where: str) -> list[Breach]:
        """
        Check the order of one queue: a message whose answer came before another one was sent stands
        before that one.

        :param present: the ids in the order of the queue.
        """
        newest = 0.0
        for unique_id in present:
            if self._acknowledged_at.get(unique_id, newest) < newest:
                behind = f"{where}: {unique_id[:LONGEST]} stands behind a message"
                text = f"{behind} that was sent after it was acknowledged"
                return [Breach(ORDER, text, (unique_id,))]
            newest = max(newest, self._sent_at[unique_id])
        return []


class CommittedOffsets:
    """
    The offsets that consumer groups committed, and whether brokers still know them.

    :param back_s: a broker may have copied the table so many seconds before the last commit that
        was seen; 0: only the last commit may be unknown to it.
    :ivar faults: a text for each offset that went back further.
    """

    MOST = 600
    """How many commits of one queue are remembered."""

    def __init__(self, back_s: float = 0.0) -> None:
        self.faults: list[str] = []
        self._back_s = back_s
        self._commits: dict[Hashable, list[tuple[float, int]]] = defaultdict(list)

    def commit(self, now: float, key: Hashable, offset: int) -> None:
        """Note a commit that was answered."""
        commits = self._commits[key]
        commits.append((now, offset))
        del commits[: -self.MOST]

    def count(self, key: Hashable) -> int:
        """Return how many commits of a queue are remembered."""
        return len(self._commits[key])

    def look_at_copy(self, key: Hashable, offset: int) -> None:
        """Judge the offset that a slave knows, which has to catch up with all commits."""
        commits = self._commits[key]
        copied_at = commits[-1][0] - self._back_s if commits else 0.0
        floor = max((value for when, value in commits if when < copied_at), default=-1)
        if offset < floor:
            name = " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
            self.faults.append(f"{name} went back from {floor} to {offset}")

    def look_at_master(self, now: float, key: Hashable, offset: int) -> None:
        """
        Judge the offset that a master knows, from which the group goes on.

        The commits above it are forgotten, so that each fault is told once.
        """
        self.look_at_copy(key, offset)
        commits = self._commits[key]
        commits[:] = [(when, value) for when, value in commits if value <= offset]
        self.commit(now, key, offset)

    def forget(self, key: Hashable = None) -> None:
        """Forget the commits of one queue; None: of all, because a log lost its end."""
        if key is None:
            self._commits.clear()
        else:
            self._commits.pop(key, None)


def numbering_fault(
    entries: Iterable[tuple[Queue, int, object]],
    may_restart: Callable[[Queue], bool] = lambda queue: False,
) -> str | None:
    """
    Check that the offsets of each queue are consecutive.

    :param entries: queue, queue offset and place of each message, in the order of the log.
    :param may_restart: tells whether a queue may begin at 0 again, because its topic was deleted.
    :returns: the first fault as a text, or None.
    """
    due: dict[Queue, int] = {}
    for queue, offset, place in entries:
        expected = due.get(queue, offset)
        if offset != expected and (offset or not may_restart(queue)):
            return f"{queue} has {offset} after {expected - 1} at {place}"
        due[queue] = offset + 1
    return None


def some(ids: Sequence[str]) -> str:
    """Return a few of the ids as text; the id of a simulated message may be its whole body."""
    more = ", ..." if len(ids) > EXAMPLES else ""
    return ", ".join(unique_id[:LONGEST] for unique_id in ids[:EXAMPLES]) + more
