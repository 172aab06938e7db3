"""
What it costs to keep facts of a store, and to judge a fleet by them.

    python bench/fleet.py --store /data/store            scan one store, and scan it again
    python bench/fleet.py --scan-gib 10                  the same of a store that is made for it
    python bench/fleet.py --brokers 1000 --gib 1024      facts as of so many pairs, judged
    python bench/fleet.py --brokers 1000 --gib 1024 --spark

Facts of a fleet are made: two stores a broker with a digest for each window of so many GiB, tables
of a small store that Java wrote, one window that differs in every hundredth broker; what two stores
have alike is one file with two names. Without `--spark` brokers are judged one after the other in
this process, as a task of Spark judges them; with it `rmqha-spark verify-fleet` does, in a process
of its own, and all that it starts is counted.
"""

import argparse
import os
import resource
import shutil
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rmq_ha.lake.scan.fleet.facts import (
    SCHEMAS,
    SUMS,
    WINDOW,
    WINDOWS,
    State,
    keep,
    keep_state,
    replicas_in,
)
from rmq_ha.lake.scan.fleet.judging import JudgingLimits, judge
from rmq_ha.lake.scan.fleet.scanning import ScanRequest, scan
from rmq_ha.lake.scan.replica.settings import StoreAt
from rmq_ha.ops.offsets.verdict import Limits
from tests.sim_kit.big_records import Shape
from tests.sim_kit.big_store import write_big_store

FIXTURE = Path(__file__).parents[1] / "tests" / "fixtures" / "store" / "clean.tar.gz"
NOW = 1_800_000_000_000
TOPICS, QUEUES, HOURS = 20, 8, 72


def make(directory: Path, brokers: int, gib: int) -> int:
    """Facts of pairs; how many windows differ."""
    count = (gib << 30) // WINDOW
    random = np.random.default_rng(1)
    planted = 0
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(FIXTURE, scratch)
        shutil.copytree(next(Path(scratch).glob("*")), Path(scratch) / "store")
        sample = Path(scratch) / "facts"
        for number in (1, 0):
            asked = ScanRequest(StoreAt(f"{scratch}/store"), str(sample), "sample", number)
            scan(asked, lambda: NOW)
        for broker in range(brokers):
            digests = random.integers(0, 256, (count, 16), np.uint8)
            master, slave = (directory / f"broker{broker:04}-{number}" for number in (0, 1))
            files = _keep(master, digests)
            if broker % 100 == 7:
                planted += 1
                digests[count // 2] ^= 1
                _keep(slave, digests)
            else:
                shutil.copytree(master, slave, copy_function=os.link)
            for number, target in enumerate((master, slave)):
                shutil.copytree(sample / f"sample-{number}" / "snapshots", target / "snapshots")
                state = State(
                    f"broker{broker:04}", number, f"/nowhere/{broker}/{number}", "", WINDOW, 0,
                    count * WINDOW, count * WINDOW, NOW, files,
                )  # fmt: skip
                keep_state(str(target), state)
    return planted


def _keep(target: Path, digests: Any) -> Any:
    count = len(digests)
    lows = np.arange(count, dtype=np.int64) * WINDOW
    column = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), count, [None, pa.py_buffer(digests)]
    )
    windows = pa.table([lows, lows + WINDOW, column], SCHEMAS[WINDOWS])
    tables = [(WINDOWS, False, windows), (SUMS, False, _sums(count))]
    return keep(str(target), (), tables, "0")


def _sums(windows: int) -> Any:
    rows = TOPICS * QUEUES * HOURS
    at = np.arange(rows)
    each = np.full(rows, windows * WINDOW // 1024 // rows + 1)
    names = pa.array([f"Topic{number}" for number in range(TOPICS)]).take(pa.array(at % TOPICS))
    columns = [names, at // TOPICS % QUEUES, at // TOPICS // QUEUES * 3_600_000]
    filled = [*columns, each, each * 1024, at * 0, at, at]
    return pa.table(filled, SCHEMAS[SUMS].names).cast(SCHEMAS[SUMS])


def size_of(directory: Path) -> int:
    """Bytes; a file with two names counts twice, as on two machines."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def machine() -> str:
    return f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"


def measure_scan(store: str) -> None:
    with tempfile.TemporaryDirectory() as to:
        asked = ScanRequest(StoreAt(store), to, "b", 0)
        for what in ("whole", "again, from where it stopped"):
            began, used = time.monotonic(), time.process_time()
            state = scan(asked, lambda: NOW)
            wall, cpu = time.monotonic() - began, time.process_time() - used
            size = state.high - state.low
            print(
                f"{what}: {size / 1e6:,.0f} MB: {wall:.1f} s, {cpu:.1f} CPU s,"
                f" {size / max(cpu, 1e-6) / 1e6:,.0f} MB/CPU s"
            )
        facts = size_of(Path(to))
        print(f"facts {facts / 1e6:.2f} MB, {facts / size * 2**40 / 1e6:,.1f} MB a TiB")
        print(f"peak {peak_mib()} MiB (mapped files count)")


def measure_made(gib: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_big_store([f"{folder}/store"], Shape(gib << 30))
        measure_scan(f"{folder}/store")


def measure_fleet(brokers: int, gib: int, uses_spark: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        planted = make(Path(folder), brokers, gib)
        made = time.monotonic() - began
        facts = size_of(Path(folder))
        print(f"{brokers} brokers, {2 * brokers} stores of {gib} GiB: facts {facts / 1e6:,.1f} MB")
        print(f"made in {made:.1f} s; peak {peak_mib()} MiB")
        found, wall, cpu, memory = (_with_spark if uses_spark else _alone)(folder)
        assert found == planted, (found, planted)
        print(
            f"judged in {wall:.1f} s, {cpu:.1f} CPU s, {1000 * cpu / brokers:.1f} CPU ms a broker"
        )
        print(f"{found} windows differ, as planted; {memory}")


def _alone(folder: str) -> tuple[int, float, float, str]:
    began, used = time.monotonic(), time.process_time()
    by_name = groupby(replicas_in(folder), key=lambda one: one.state.broker)
    found = sum(judge(list(some), Limits(), JudgingLimits(0), NOW).differing for _, some in by_name)
    wall, cpu = time.monotonic() - began, time.process_time() - used
    return found, wall, cpu, f"peak {peak_mib()} MiB, with making them"


def _with_spark(folder: str) -> tuple[int, float, float, str]:
    from spark_parts import job

    given = ("verify-fleet", folder, "--max-skew", "0", "--max-age", "9999999h")
    summary, load = job(*given, expected=(0, 1), timeout=3600)
    print(summary["verdict"])
    memory = f"peak {load.java:.0f} MiB Java, {load.workers:.0f} MiB Python workers together"
    return int(summary["numbers"]["differing"]), load.seconds, load.processor, memory


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", help="scan this one")
    parser.add_argument("--scan-gib", type=int, help="make one of this size, and scan it")
    parser.add_argument("--brokers", type=int, default=20)
    parser.add_argument("--gib", type=int, default=1024)
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    print(machine())
    if given.store:
        measure_scan(given.store)
    elif given.scan_gib:
        measure_made(given.scan_gib)
    else:
        measure_fleet(given.brokers, given.gib, given.spark)


if __name__ == "__main__":
    main()
