"""Entries of the POP journal for tests: one of each kind, and random histories."""

from random import Random

from rmq_ha.server.pop.entries import (
    AckEntry,
    ChangeEntry,
    DropEntry,
    Entry,
    ImageEntry,
    ImageRun,
    ImagesEntry,
    MoveEntry,
    MoveReason,
    NameEntry,
    NumbersEntry,
    PopEntry,
    ResetEntry,
    SkipEntry,
)

NOW = 1_795_883_444_356

ONE_OF_EACH: list[Entry] = [
    NameEntry(1, "G", "T"),
    ResetEntry(1, 3, 7),
    PopEntry(1, 3, 7, 12, [7, 9, 11], NOW, 60_000),
    PopEntry(1, 3, 7, 8, [7], NOW + 9, 0, True, True, "attempt ä"),
    AckEntry(1, 3, NOW, [7, 9]),
    ChangeEntry(1, 3, 11, NOW, NOW + 5, NOW + 1005),
    MoveEntry(1, 3, MoveReason.DEAD, [(11, NOW + 5), (12, NOW - 5)]),
    SkipEntry(1, 3, 12, 500),
    ImageEntry(
        1,
        3,
        "G",
        "T",
        7,
        NOW,
        True,
        NOW - 1,
        "a",
        [NOW - 3],
        {7: 2, 9: 1},
        [5, 6],
        3,
        [ImageRun(2, NOW, NOW + 1), ImageRun(4, 0, 0), ImageRun(1, NOW - 1, NOW - 1)],
    ),
    NumbersEntry(5, NOW),
    NumbersEntry(5, NOW, 1 << 40, NOW + 3),
    ImagesEntry(17),
    DropEntry(1),
]


class RandomJournal:
    """Makes entries of which most fit, as a master would write them, and some do not."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._now = NOW
        self._names = 0
        self._next: dict[tuple[int, int], int] = {}
        self._pops: list[PopEntry] = []

    def entry(self) -> Entry:
        random = self.random
        self._now += random.choice((0, 1, 700))
        if not self._next or random.random() < 0.02:
            self._names += 1
            self._next[self._names, 0] = 0
            return NameEntry(self._names, f"G{self._names}", "T")
        key = random.choice(list(self._next))
        name, queue_id = key
        choice = random.random()
        if choice < 0.05:
            offset = random.randrange(50)
            self._next[name, random.randrange(2)] = offset
            return ResetEntry(*random.choice(list(self._next)), offset)
        if choice < 0.35 or not self._pops:
            return self._pop(key)
        pop = random.choice(self._pops[-40:])
        pop_ms = pop.pop_ms if random.random() < 0.9 else self._now
        if choice < 0.7:
            offsets = sorted(random.sample(list(pop.offsets), random.randint(1, len(pop.offsets))))
            return AckEntry(pop.name, pop.queue_id, pop_ms, offsets)
        offset = random.choice(list(pop.offsets))
        if choice < 0.8:
            self._now += 1
            return ChangeEntry(pop.name, pop.queue_id, offset, pop_ms, self._now, self._now + 900)
        if choice < 0.94:
            leases = [(offset, pop_ms)]
            return MoveEntry(pop.name, pop.queue_id, random.choice(list(MoveReason)), leases)
        if choice < 0.99:
            start = self._next[key]
            self._next[key] += random.randint(1, 9)
            return SkipEntry(name, queue_id, start, self._next[key])
        return DropEntry(random.randint(1, self._names))

    def _pop(self, key: tuple[int, int]) -> PopEntry:
        random = self.random
        start = max(0, self._next[key] + random.choice((0, 0, 0, 0, 3, -2)))
        end = start + random.randint(1, 40)
        offsets = sorted(random.sample(range(start, end), random.randint(1, end - start)))
        self._next[key] = max(self._next[key], end)
        self._now += random.choice((1, 1, 1, 0))
        orderly = random.random() < 0.3
        again, attempt = (random.random() < 0.3, "a") if orderly else (False, "")
        made = PopEntry(*key, start, end, offsets, self._now, 5000, orderly, again, attempt)
        self._pops.append(made)
        return made
