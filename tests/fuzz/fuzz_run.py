"""
Fuzz the readers in this process: `tox -e fuzz`, or `python -m tests.fuzz.fuzz_run --inputs 100000`.

Each target gets its share of the inputs. What raises something else than a refusal is a fault, and
what takes much longer than the others of its size is worth a look: both are written to a folder,
and what is worth keeping belongs into `tests/fuzz/corpus/<target>/`, which CI replays.

With `--atheris` the inputs are guided by coverage, one target a process.
"""

import argparse
import hashlib
import heapq
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz.mutate import Mutator
from tests.fuzz.target import Target, all_targets

CORPUS = Path(__file__).parent / "corpus"
SLOWEST = 3
SLOW = 0.002
"""Seconds after which an input is tried once more."""


def corpus_of(name: str) -> list[Path]:
    """What was kept for a target."""
    return sorted((CORPUS / name).glob("*"))


def mutator_of(name: str, target: Target, seed: int) -> Mutator:
    """Inputs for a target, from its seeds and what was kept for it."""
    seeds = [*target.seeds, *(path.read_bytes() for path in corpus_of(name))]
    return Mutator(Random(f"{seed}/{name}"), seeds, is_framed=name.startswith(("port.", "frames")))


class Outcome(NamedTuple):
    """What a target's inputs came to; seconds are of the processor."""

    inputs: int
    taken: int
    seconds: float
    faults: list[tuple[bytes, str]]
    slowest: list[tuple[float, bytes]]


def again(target: Target, data: bytes) -> float:
    """Seconds of the processor; the first time it may have been the garbage collector's."""
    start = time.process_time()
    with suppress(Exception):
        target.reads(data)
    return time.process_time() - start


def fuzz(target: Target, mutator: Mutator, inputs: int, until: float = 0.0) -> Outcome:
    """
    :param until: stop at that `time.monotonic()`; 0: when all were given.
    """
    faults: dict[str, tuple[bytes, str]] = {}
    slowest: list[tuple[float, bytes]] = []
    taken = done = 0
    began = time.process_time()
    for done in range(1, inputs + 1):
        data = mutator.next()
        start = time.process_time()
        try:
            taken += target.reads(data)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            faults.setdefault(
                f"{type(error)}{place.filename}{place.lineno}", (data, traceback.format_exc())
            )
        took = time.process_time() - start
        if took > SLOW:
            took = min(took, again(target, data))
        if len(slowest) < SLOWEST:
            heapq.heappush(slowest, (took, data))
        elif took > slowest[0][0]:
            heapq.heapreplace(slowest, (took, data))
        if until and not done % 256 and time.monotonic() > until:
            break
    seconds = time.process_time() - began
    return Outcome(done, taken, seconds, list(faults.values()), sorted(slowest, reverse=True))


def keep(folder: Path, name: str, data: bytes, text: str = "") -> Path:
    """Write an input, and what is to be said of it."""
    path = folder / name / hashlib.sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if text:
        path.with_suffix(".txt").write_text(text)
    return path


def run(names: list[str], inputs: int, seed: int, found: Path, minutes: float) -> int:
    """All of them in this process; how many faults there were."""
    targets = all_targets()
    share = max(1, inputs // len(names))
    end = time.monotonic() + 60 * minutes if minutes else 0.0
    total = faults = 0
    print(f"{'target':<40} {'inputs':>9} {'taken':>7} {'us each':>8} {'worst ms':>9}  worst input")
    for at, name in enumerate(names):
        until = time.monotonic() + (end - time.monotonic()) / (len(names) - at) if end else 0.0
        outcome = fuzz(targets[name], mutator_of(name, targets[name], seed), share, until)
        total += outcome.inputs
        faults += len(outcome.faults)
        worst, data = outcome.slowest[0]
        print(
            f"{name:<40} {outcome.inputs:>9} {outcome.taken / outcome.inputs:>7.1%} "
            f"{1e6 * outcome.seconds / outcome.inputs:>8.0f} {1e3 * worst:>9.2f}  {len(data)} B",
            flush=True,
        )
        for _, data in outcome.slowest:
            keep(found / "slow", name, data)
        for data, text in outcome.faults:
            print(f"  FAULT: {text.splitlines()[-1]}\n  {keep(found / 'faults', name, data, text)}")
    print(f"{total} inputs, {faults} faults; slowest and faults are in {found}")
    return faults


def guided(name: str, inputs: int, seed: int, found: Path) -> None:
    """One target under atheris; it never returns."""
    import atheris

    with atheris.instrument_imports(include=["rmq_ha"]):
        target = all_targets()[name]
    mutator = mutator_of(name, target, seed)
    live = found / "guided" / name
    live.mkdir(parents=True, exist_ok=True)
    for data in target.seeds:
        keep(live.parent, name, data)

    def other(data: bytes, most: int, chance: int) -> bytes:
        """Ours knows formats, libFuzzer's what it has reached."""
        return mutator.changed(data)[:most] if chance % 2 else atheris.Mutate(data, most)

    def one(data: bytes) -> None:
        target.reads(data)

    options = [sys.argv[0], f"-runs={inputs}", f"-seed={seed}", "-max_len=4096", "-timeout=10"]
    options += [f"-artifact_prefix={found}/faults-", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([*options, str(live)], one, custom_mutator=other)
    atheris.Fuzz()


def run_guided(names: list[str], inputs: int, seed: int, found: Path) -> int:
    """A process for each; how many ended badly."""
    failed = 0
    for name in names:
        command = [sys.executable, __file__, "--atheris", "--one", "--target", name]
        command += [
            "--inputs",
            str(inputs // len(names)),
            "--seed",
            str(seed),
            "--found",
            str(found),
        ]
        code = subprocess.run(command, check=False).returncode
        failed += code != 0
        print(f"{name}: {'passed' if code == 0 else f'exit code {code}'}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--target", action="append", help="only these; a prefix will do")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all targets together")
    parser.add_argument(
        "--minutes", type=float, default=0, help="stop then; 0: with the last input"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--found", type=Path, default=Path("fuzz-found"), help="folder for what it finds"
    )
    parser.add_argument(
        "--atheris", action="store_true", help="guided by coverage (Linux, CPython)"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="names of the targets, and no more")
    options = parser.parse_args()
    if options.one:
        guided(options.target[0], options.inputs, options.seed, options.found.absolute())
    wanted = options.target or [""]
    names = [name for name in all_targets() if any(name.startswith(start) for start in wanted)]
    if options.list:
        print("\n".join(names))
        return 0
    found = options.found.absolute()
    found.mkdir(parents=True, exist_ok=True)
    if options.atheris:
        return min(1, run_guided(names, options.inputs, options.seed, found))
    return min(1, run(names, options.inputs, options.seed, found, options.minutes))


if __name__ == "__main__":
    sys.exit(main())
