"""
Finds places of two logs from which both continue alike, without aligning the logs.

The content of records decides which ones are chosen. So a reader of any part of one log chooses the
same records as a reader of any part of the other.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from rmq_ha.lake.scan.replica.aligning import Item

RUN = 16
"""How many equal records in a row are no coincidence; the anchor is the one in their middle."""
_WORD = 64


class Anchor(NamedTuple):
    """The hash of a run of `RUN` records, and the physical offset of the one in the middle."""

    run: int
    place: int


def anchors_in(items: Iterable[Item], stop: int, every: int) -> Iterator[Anchor]:
    """
    Yield the anchors of the runs that begin before `stop`.

    :param every: there is about one anchor for this many bytes, and fewer where messages are large.
    """
    run: deque[Item] = deque(maxlen=RUN)
    for item in items:
        run.append(item)
        if len(run) < RUN:
            continue
        if run[0].offset >= stop:
            return
        middle = run[RUN // 2]
        if int.from_bytes(middle.identity[:8]) * every < middle.size << _WORD:
            whole = blake2b(b"".join(record.identity for record in run), digest_size=8)
            yield Anchor(int.from_bytes(whole.digest()), middle.offset)


def in_both(master: Iterable[Anchor], slave: Iterable[Anchor]) -> list[tuple[int, int]]:
    """
    Return the pairs of places (master, slave) at which both logs have the same anchors, in log
    order.

    An anchor that one log has twice is ignored. If the logs have anchors in different orders, as
    few as possible are left out so that the order is the same: the longest increasing subsequence.
    """
    places = _unique_runs(slave)
    pairs = sorted((at, places[run]) for run, at in _unique_runs(master).items() if run in places)
    ends: list[int] = []  # for chains of each length: the slave's lowest last place
    last: list[int] = []  # for chains of each length: the number of the pair that ends it
    before: list[int] = []  # for each pair: the number of the pair before it in its chain; -1: none
    for number, (_, at) in enumerate(pairs):
        length = bisect_left(ends, at)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [at]
        last[length : length + 1] = [number]
    chain = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def _unique_runs(anchors: Iterable[Anchor]) -> dict[int, int]:
    """Return the place of each run that occurs once, by the hash of the run."""
    anchors = list(anchors)
    times = Counter(run for run, _ in anchors)
    return {run: at for run, at in anchors if times[run] == 1}


def cuts(pairs: Sequence[tuple[int, int]], start: int, step: int) -> Iterator[tuple[int, int]]:
    """
    Yield some of these pairs, so that between two of them one of the logs has at least `step`
    bytes.

    :param pairs: result of `in_both`.
    :param start: physical offset at which both logs begin.
    """
    at = other = start
    for mine, theirs in pairs:
        if max(mine - at, theirs - other) >= step:
            at, other = mine, theirs
            yield at, other
