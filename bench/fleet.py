"""
What it costs to keep facts of a store, and to judge a fleet by them.

    python bench/fleet.py --store /data/store            scan one store, MB/s and bytes of facts
    python bench/fleet.py --brokers 1000 --gib 1024      facts as of so many pairs, judged

Facts of a fleet are made: two stores a broker with a digest for each window of so many GiB, tables
of a small store that Java wrote, one window that differs in every hundredth broker. Without
`--spark` brokers are judged one after the other in this process, as a task of Spark judges them.
"""

import argparse
import resource
import shutil
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rmq_ha.offsets.verdict import Limits
from rmq_ha.scan.fleet.facts import (
    SCHEMAS,
    SUMS,
    WINDOW,
    WINDOWS,
    State,
    keep,
    keep_state,
    replicas_in,
)
from rmq_ha.scan.fleet.judging import Patience, judge
from rmq_ha.scan.fleet.scanning import Asked, scan
from rmq_ha.scan.replica.settings import StoreAt

FIXTURE = Path(__file__).parents[1] / "tests" / "fixtures" / "store" / "clean.tar.gz"
NOW = 1_800_000_000_000
TOPICS, QUEUES, HOURS = 20, 8, 72


def make(directory: Path, brokers: int, gib: int) -> int:
    """Facts of pairs; how many windows differ."""
    count = (gib << 30) // WINDOW
    lows = np.arange(count, dtype=np.int64) * WINDOW
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(FIXTURE, scratch)
        shutil.copytree(next(Path(scratch).glob("*")), Path(scratch) / "store")
        sample = Path(scratch) / "facts"
        for number in (1, 0):
            asked = Asked(StoreAt(f"{scratch}/store"), str(sample), "sample", number)
            scan(asked, lambda: NOW)
        for broker in range(brokers):
            digests = random.integers(0, 256, (count, 16), np.uint8)
            for number in (1, 0):
                if number and broker % 100 == 7:
                    digests = digests.copy()
                    digests[count // 2] ^= 1
                target = directory / f"broker{broker:04}-{number}"
                shutil.copytree(sample / f"sample-{number}" / "snapshots", target / "snapshots")
                data = pa.py_buffer(digests)
                column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, data])
                windows = pa.table([lows, lows + WINDOW, column], SCHEMAS[WINDOWS])
                tables = [(WINDOWS, False, windows), (SUMS, False, _sums(count))]
                files = keep(str(target), (), tables, "0")
                state = State(
                    f"broker{broker:04}", number, f"/nowhere/{broker}/{number}", "", WINDOW, 0,
                    count * WINDOW, count * WINDOW, NOW, files,
                )  # fmt: skip
                keep_state(str(target), state)
                if number and broker % 100 == 7:
                    digests[count // 2] ^= 1
    return len(range(7, brokers, 100))


def _sums(windows: int) -> Any:
    rows = TOPICS * QUEUES * HOURS
    at = np.arange(rows)
    each = np.full(rows, windows * WINDOW // 1024 // rows + 1)
    names = pa.array([f"Topic{number}" for number in range(TOPICS)]).take(pa.array(at % TOPICS))
    columns = [names, at // TOPICS % QUEUES, at // TOPICS // QUEUES * 3_600_000]
    filled = [*columns, each, each * 1024, at * 0, at, at]
    return pa.table(filled, SCHEMAS[SUMS].names).cast(SCHEMAS[SUMS])


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def measure_scan(store: str) -> None:
    with tempfile.TemporaryDirectory() as to:
        began, used = time.monotonic(), time.process_time()
        state = scan(Asked(StoreAt(store), to, "b", 0), lambda: NOW)
        wall, cpu = time.monotonic() - began, time.process_time() - used
        size = state.high - state.low
        facts = size_of(Path(to))
        print(
            f"{size / 1e6:,.0f} MB: {wall:.1f} s, {cpu:.1f} CPU s, {size / cpu / 1e6:,.0f} MB/CPU s"
        )
        print(f"facts {facts / 1e6:.2f} MB, {facts / size * 2**40 / 1e6:,.1f} MB a TiB")
        print(f"peak {peak_mib()} MiB (mapped files count)")


def measure_fleet(brokers: int, gib: int, uses_spark: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        planted = make(Path(folder), brokers, gib)
        made = time.monotonic() - began
        facts = size_of(Path(folder))
        print(f"{brokers} brokers, {2 * brokers} stores of {gib} GiB: facts {facts / 1e6:,.1f} MB")
        print(f"made in {made:.1f} s; peak {peak_mib()} MiB")
        began, used = time.monotonic(), time.process_time()
        if uses_spark:
            found = _with_spark(folder)
        else:
            by_name = groupby(replicas_in(folder), key=lambda one: one.state.broker)
            found = sum(
                judge(list(some), Limits(), Patience(0), NOW).differing for _, some in by_name
            )
        wall, cpu = time.monotonic() - began, time.process_time() - used
        assert found == planted, (found, planted)
        print(
            f"judged in {wall:.1f} s, {cpu:.1f} CPU s, {1000 * cpu / brokers:.1f} CPU ms a broker"
        )
        print(f"{found} windows differ, as planted; peak {peak_mib()} MiB")


def _with_spark(folder: str) -> int:
    from contextlib import nullcontext
    from types import SimpleNamespace

    from rmq_ha.spark.fleet import verify
    from rmq_ha.spark.host.session import start_session

    job = SimpleNamespace(spark=start_session(), progress=lambda _: nullcontext())
    result = verify(job, folder, Patience(0), NOW)
    assert result.frames["topics"].count() == TOPICS * HOURS
    print(result.verdict)
    return int(result.numbers["differing"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", help="scan this one")
    parser.add_argument("--brokers", type=int, default=20)
    parser.add_argument("--gib", type=int, default=1024)
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    if given.store:
        measure_scan(given.store)
    else:
        measure_fleet(given.brokers, given.gib, given.spark)


if __name__ == "__main__":
    main()
