"""
How a run becomes part of the archive: whole, once, whatever is killed when.

1. The data is written below `_rmqha/staging/<token>` and verified.
2. `_rmqha/pending.json` is made: from here on the run will be committed, by this process or by the
   next one.
3. Each file is moved to its place. That may be repeated: what is there in full size is done.
4. `_rmqha/run-<number>.json` is made: the run counts.
5. Pending and staging are deleted.

No step needs a rename to be atomic for readers: they see only files that a run names, and runs only
name what is in place.
"""

from collections.abc import Callable
from typing import Protocol

from rmq_ha.errors import CannotDecide
from rmq_ha.spark.archive.files import UNFINISHED, Found
from rmq_ha.spark.archive.manifest import (
    HOME,
    PENDING,
    STAGING,
    Manifest,
    Run,
    decode,
    encode,
    number_of,
)

STALE_MS = 3_600_000
"""Staged data of a run that was killed is deleted after so long: another run may still write it."""

Step = Callable[[str], None]
"""Told the name of each step when it is done, so that tests can end the process there."""


class Directory(Protocol):
    """What of `Files` is used."""

    def size(self, path: str) -> int | None: ...  # noqa: D102
    def read(self, path: str) -> str | None: ...  # noqa: D102
    def create(self, path: str, text: str, token: str) -> bool: ...  # noqa: D102
    def move(self, source: str, target: str) -> bool: ...  # noqa: D102
    def delete(self, path: str) -> None: ...  # noqa: D102
    def names(self, path: str) -> list[tuple[str, int]]: ...  # noqa: D102
    def below(self, path: str, suffix: str) -> list[Found]: ...  # noqa: D102


def load(files: Directory) -> Manifest:
    """
    All runs.

    :raises CannotDecide: the archive is damaged.
    """
    runs = []
    for name, _ in files.names(HOME):
        if number_of(name) is None:
            continue
        text = files.read(f"{HOME}/{name}")
        if text is None:
            raise CannotDecide(f"{HOME}/{name} vanished while it was read; run it again")
        runs.append(decode(text, name))
    return Manifest.of(runs)


def staging_of(token: str) -> str:
    """Where a run writes."""
    return f"{STAGING}/{token}"


def recover(files: Directory, now_ms: int, step: Step) -> int | None:
    """
    Finish what a run that was killed had begun, and delete what it left.

    :return: the number of the run that was finished; None: there was none.
    :raises CannotDecide: the archive is damaged.
    """
    text = files.read(PENDING)
    finished = None
    if text is not None:
        run = decode(text, PENDING)
        _roll_forward(files, run, step)
        finished = run.number
    for name, changed_ms in files.names(STAGING):
        if changed_ms < now_ms - STALE_MS:
            files.delete(staging_of(name))
    for name, changed_ms in files.names(HOME):
        if name.endswith(UNFINISHED) and changed_ms < now_ms - STALE_MS:
            files.delete(f"{HOME}/{name}")
    return finished


def commit(files: Directory, run: Run, step: Step) -> None:
    """
    Make a run that is staged and verified part of the archive.

    :raises CannotDecide: another run was quicker; nothing of this one counts.
    """
    if not files.create(PENDING, encode(run), run.token):
        raise _other()
    step("pending")
    if files.size(run.name) is not None:
        files.delete(PENDING)
        raise _other()
    _roll_forward(files, run, step)


def _roll_forward(files: Directory, run: Run, step: Step) -> None:
    there = files.read(run.name)
    if there is not None and decode(there, run.name).token != run.token:
        # It lost a race before anything of it was moved.
        _clean(files, run, step)
        return
    if there is None:
        _move(files, run, step)
        if not files.create(run.name, encode(run), run.token):
            there = files.read(run.name)
            if there is None or decode(there, run.name).token != run.token:
                raise CannotDecide(f"{run.name} cannot be written: look at the file system")
    step("committed")
    _clean(files, run, step)


def _move(files: Directory, run: Run, step: Step) -> None:
    waiting = [file for file in run.files if files.size(file.path) != file.size]
    # Another process may finish this run just now: a file leaves staging before it is looked for
    # in its place, never the other way round.
    lost = [
        file
        for file in waiting
        if files.size(file.staged) != file.size and files.size(file.path) != file.size
    ]
    if lost and len(waiting) == len(run.files):
        _clean(files, run, step)
        raise CannotDecide(
            f"what run {run.number} had written is gone before any of it was moved, so nothing of"
            " it counts: another run may have deleted it. Run it again"
        )
    if lost:
        raise CannotDecide(
            f"{lost[0].path} is neither in place nor in {STAGING}, of a run that was killed amid"
            f" {len(run.files)} files. If nothing is left of it: delete the {len(run.files)} files"
            f" that {PENDING} names and then {PENDING} itself, and run it again"
        )
    for number, file in enumerate(waiting):
        if files.size(file.path) not in (None, file.size):
            files.delete(file.path)  # a copy that was cut short, where moving means copying
        if not files.move(file.staged, file.path) and files.size(file.path) != file.size:
            raise CannotDecide(f"{file.staged} cannot be moved to {file.path}; run it again")
        step(f"moved {number}")


def _clean(files: Directory, run: Run, step: Step) -> None:
    text = files.read(PENDING)
    if text is not None and decode(text, PENDING).token == run.token:
        files.delete(PENDING)
    step("pending gone")
    files.delete(staging_of(run.token))
    step("clean")


def _other() -> CannotDecide:
    return CannotDecide(
        "another run archives into this directory, or was killed there: one at a time; run it again"
    )
