"""What a disk may do to the files of a member that is down."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soak_faults import Scene

_PAGE = 4096
_NEVER_MS = 600_000


def lose_tail(scene: Scene) -> int:
    """
    Take the power from the master's machine: what was not synced is gone.

    Its flushes are put off first, so that what comes then is surely not on the disk; the slave
    has it.

    :returns: where its log ends now.
    """
    master = scene.pair.master
    scene.pair.update(
        flushIntervalCommitLog=_NEVER_MS,
        flushCommitLogThoroughInterval=_NEVER_MS,
        flushIntervalConsumeQueue=_NEVER_MS,
        flushConsumeQueueThoroughInterval=_NEVER_MS,
    )
    time.sleep(2.0)  # timers that run already end
    place = master.log_end()
    time.sleep(scene.random.uniform(0.5, 3.0))
    master.kill()
    for path in master.store.glob("commitlog/*[0-9]"):
        start = int(path.name)
        size = path.stat().st_size
        if start + size > place:
            wipe(path, max(place - start, 0), size)
    time.sleep(1.0)  # what clients were answered is on its way to the history
    return place


def wipe(path: Path, start: int, end: int) -> None:
    """Zeros, without making a sparse file a large one."""
    with path.open("r+b") as file:
        file.truncate(start)
        file.truncate(end)


def damage(random: Random, store: Path, kind: str, log_end: int) -> str:
    """
    Damage one file.

    :param log_end: of the commit log.
    :returns: what was done, in words.
    """
    thing, _, how = kind.partition("-")
    if thing == "log":
        return _damage_log(random, store, how, log_end)
    if thing == "checkpoint":
        path = store / "checkpoint"
        path.write_bytes(random.randbytes(random.choice([10, _PAGE])))
        return "garbage in the checkpoint"
    if thing == "index":
        files = sorted(store.glob("index/*[0-9]"))
        if not files:
            return "nothing in the index"
        with files[-1].open("r+b") as file:
            file.seek(random.randrange(40, 4000))
            file.write(random.randbytes(400))
        return "garbage in the index"
    return _damage_queue(random, store, how)


def _used(path: Path) -> int:
    """Bytes up to the last one that is not zero, by the file's blocks and then its bytes."""
    data = path.read_bytes()
    return len(data.rstrip(b"\0"))


def _damage_log(random: Random, store: Path, how: str, log_end: int) -> str:
    files = [path for path in store.glob("commitlog/*[0-9]") if int(path.name) < log_end]
    path = max(files, key=lambda path: path.name)
    used = log_end - int(path.name)
    place = random.randrange(max(0, used - 2_000_000), used) if used else 0
    with path.open("r+b") as file:
        file.seek(place)
        old = file.read(_PAGE)
        file.seek(place)
        if how == "bit":
            file.write(bytes([old[0] ^ (1 << random.randrange(8))]))
        elif how == "zeros":
            file.write(bytes(min(_PAGE, used - place)))
        else:
            file.write(random.randbytes(min(_PAGE, used - place)))
    return f"{how} in the commit log at {int(path.name) + place}"


def _damage_queue(random: Random, store: Path, how: str) -> str:
    queue = random.choice(sorted(store.glob("consumequeue/own-normal/*")))
    path = max(queue.glob("*[0-9]"), key=lambda path: path.name)
    name = f"consumequeue/own-normal/{queue.name}"
    if how == "gone":
        shutil.rmtree(queue)
        return f"{name} is gone"
    used = _used(path) // 20 * 20
    if how == "short":
        with path.open("r+b") as file:
            file.truncate(random.randrange(0, used or 1))
        return f"{name} is cut short"
    units = used // 20
    first = random.randrange(max(1, units // 2), units) if units > 2 else 0
    with path.open("r+b") as file:
        file.seek(first * 20)
        file.write(bytes(used - first * 20))
    return f"{name} lost its end from {first} of {units} on"
