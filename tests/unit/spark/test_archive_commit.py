"""An archive whose process dies at any operation of the file system: every message once."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rmq_ha.errors import CannotDecide
from rmq_ha.spark.archive.commit import (
    STALE_MS,
    commit,
    load,
    recover,
    staging_of,
)
from rmq_ha.spark.archive.files import Found
from rmq_ha.spark.archive.manifest import PENDING, STAGING, DataFile, Kept, Run
from rmq_ha.spark.source.reading import QueueId

QUEUE = QueueId("t", "", 0)
FILES = 3
PER_RUN = 7


class Killed(Exception):
    pass


@dataclass
class Memory:
    """
    A file system that dies.

    :ivar left: operations until it does.
    :ivar copies: moving is copying and deleting, and dies half way too (an object store).
    :ivar guarded: a move refuses to replace a file (HDFS).
    """

    copies: bool = False
    guarded: bool = False
    left: int = 1 << 30
    content: dict[str, str] = field(default_factory=dict)

    def tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def size(self, path: str) -> int | None:
        text = self.content.get(path)
        return None if text is None else len(text)

    def read(self, path: str) -> str | None:
        return self.content.get(path)

    def create(self, path: str, text: str, token: str) -> bool:
        if path in self.content:
            return False
        self.tick()
        beside = f"{path}.{token}.{self.left}.tmp"
        self.content[beside] = text[: len(text) // 2]
        self.tick()
        self.content[beside] = text
        self.tick()
        del self.content[beside]
        return self.content.setdefault(path, text) is text

    def move(self, source: str, target: str) -> bool:
        self.tick()
        if source not in self.content or (self.guarded and target in self.content):
            return False
        if self.copies:
            self.content[target] = self.content[source][:1]
            self.tick()
            self.content[target] = self.content[source]
            self.tick()
            del self.content[source]
            self.tick()
            return True
        self.content[target] = self.content.pop(source)
        return True

    def delete(self, path: str) -> None:
        for each in sorted(self.content):
            if each == path or each.startswith(path + "/"):
                self.tick()
                self.content.pop(each, None)

    def names(self, path: str) -> list[tuple[str, int]]:
        found = {
            each[len(path) + 1 :].split("/")[0]
            for each in self.content
            if each.startswith(path + "/")
        }
        return [(name, 0) for name in sorted(found)]

    def below(self, path: str, suffix: str) -> list[Found]:
        return [
            Found(each, len(text))
            for each, text in sorted(self.content.items())
            if each.startswith(path + "/") and each.endswith(suffix)
        ]


def stage(files: Memory, number: int, start: int, token: str) -> Run:
    messages = [f"m{offset}," for offset in range(start, start + PER_RUN)]
    named = []
    for part in range(FILES):
        path = f"{staging_of(token)}/topic=t/day=d/part-{part}.parquet"
        files.tick()
        files.content[path] = "".join(messages[part::FILES])
        size = len(files.content[path])
        named.append(DataFile(f"topic=t/day=d/run-{number}-{token}-{part}.parquet", path, size))
    return Run(
        number=number, token=token, source="s", created_ms=0,
        ranges=[Kept(QUEUE, start, start + PER_RUN, PER_RUN)], files=named, rows=PER_RUN,
        bad_crc=0, digest=0,
    )  # fmt: skip


def job(files: Memory, token: str, goal: int = 2 * PER_RUN) -> None:
    """Archive up to `goal`."""
    recover(files, STALE_MS + 1, lambda _: None)
    while (start := load(files).ends().get(QUEUE, 0)) < goal:
        number = load(files).next_number
        run = stage(files, number, start, f"{token}{number}")
        commit(files, run, lambda _: None)


def archived(files: Memory) -> list[str]:
    text = "".join(files.content[path] for path in load(files).paths)
    return sorted(text.rstrip(",").split(","), key=lambda each: int(each[1:] or -1))


def visible(files: Memory) -> set[str]:
    """What a reader finds that knows nothing of runs."""
    return {path for path in files.content if not path.startswith("_")}


def operations(kind: dict[str, bool]) -> int:
    files = Memory(**kind)
    job(files, "x")
    return (1 << 30) - files.left


KINDS = [
    {"copies": False},
    {"copies": True},
    {"guarded": True},
    {"copies": True, "guarded": True},
]


@pytest.mark.parametrize("kind", KINDS, ids=["rename", "copy", "no replacing", "both"])
def test_killed_anywhere_and_again_anywhere_every_message_is_there_once(
    kind: dict[str, bool],
) -> None:
    total = operations(kind)
    assert total > 20
    for first in range(total):
        for second in (*range(0, total, 5), None):
            files = Memory(**kind, left=first)
            with pytest.raises(Killed):
                job(files, "a")
            # What counts is whole at every moment.
            files.left = 1 << 30
            assert len(archived(files)) in (1, PER_RUN, 2 * PER_RUN)
            if second is not None:
                files.left = second
                try:
                    job(files, "b")
                except Killed:
                    pass
            files.left = 1 << 30
            job(files, "c")
            assert archived(files) == [f"m{offset}" for offset in range(2 * PER_RUN)]
            assert visible(files) == set(load(files).paths)
            left = {path for path in files.content if not path.startswith("topic=")}
            assert left == {run.name for run in load(files).runs}


def test_two_at_a_time_one_of_them_wins() -> None:
    """The slower one is told, and nothing of it counts."""
    files = Memory()
    slow = stage(files, 1, 0, "slow")
    job(files, "quick", PER_RUN)
    # Its staging was deleted as stale, or not: either way nothing of it counts.
    with pytest.raises(CannotDecide, match="one at a time"):
        commit(files, slow, lambda _: None)
    assert PENDING not in files.content
    assert archived(files) == [f"m{offset}" for offset in range(PER_RUN)]
    assert visible(files) == set(load(files).paths)


def test_a_run_under_way_elsewhere_is_not_disturbed() -> None:
    files = Memory()
    first, second = stage(files, 1, 0, "a"), stage(files, 1, 0, "b")
    seen: list[str] = []

    def rival(step: str) -> None:
        if step == "pending" and not seen:
            seen.append(step)
            with pytest.raises(CannotDecide, match="one at a time"):
                commit(files, second, lambda _: None)

    commit(files, first, rival)
    assert seen
    assert archived(files) == [f"m{offset}" for offset in range(PER_RUN)]


@dataclass
class Shared(Memory):
    """A file system on which, once, another process does something between two operations."""

    then: Callable[[], None] | None = None

    def _meanwhile(self) -> None:
        self.left -= 1
        if self.left < 0 and self.then is not None:
            then, self.then = self.then, None
            then()

    def tick(self) -> None:
        self._meanwhile()

    def size(self, path: str) -> int | None:
        found = super().size(path)
        self._meanwhile()
        return found


@pytest.mark.parametrize("kind", [{"copies": False}, {"guarded": True}])
def test_a_second_job_that_finishes_a_run_under_way_takes_nothing_away(
    kind: dict[str, bool],
) -> None:
    """Both move the same files; whoever is late finds them in place."""
    for left in range(60):
        files = Shared(**kind)
        run = stage(files, 1, 0, "a")
        files.left = left
        files.then = lambda files=files: recover(files, 0, lambda _: None)  # type: ignore[misc]
        try:
            commit(files, run, lambda _: None)
        except CannotDecide:
            assert load(files).runs or PENDING not in files.content
        files.then = None
        job(files, "b", PER_RUN)
        assert archived(files) == [f"m{offset}" for offset in range(PER_RUN)], left


def test_what_was_staged_is_gone_before_anything_was_moved() -> None:
    """Nothing of the run counts, and the next one begins again."""
    files = Memory()
    run = stage(files, 1, 0, "a")
    files.content = {k: v for k, v in files.content.items() if not k.endswith("part-1.parquet")}
    with pytest.raises(CannotDecide, match="nothing of it counts"):
        commit(files, run, lambda _: None)
    job(files, "b", PER_RUN)
    assert archived(files) == [f"m{offset}" for offset in range(PER_RUN)]


def test_what_is_lost_amid_a_run_is_named() -> None:
    files = Memory()
    run = stage(files, 1, 0, "a")

    def lose(step: str) -> None:
        if step == "moved 0":
            files.content = {
                k: v for k, v in files.content.items() if not k.endswith("part-2.parquet")
            }
            raise Killed

    with pytest.raises(Killed):
        commit(files, run, lose)
    with pytest.raises(CannotDecide, match="neither in place nor"):
        recover(files, 0, lambda _: None)


def test_young_staging_is_left_alone() -> None:
    """Another process may be writing it."""
    files = Memory()
    stage(files, 1, 0, "a")
    recover(files, STALE_MS - 1, lambda _: None)
    assert files.names(STAGING) == [("a", 0)]
    assert load(files).runs == ()
