"""Spark over stores and brokers: how fast, beside `cat` and a plain Python loop, and how large.

    python bench/spark.py [--parts parse,scan,replica,small,start,live,audit] [--mib 2048]

Writes a table with ratios. MB are 10^6 bytes of commit log. Processor seconds are those of all
processes (Java, Python workers), a GB: where others use the machine, they say more than the time.
Stores are made with `tests.sim_kit.big_store` below --work and deleted; their files are in the
machine's cache when they are read. `audit` makes --audit-gib of them.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from measure import part_names, scratch
from spark_parts import SETS, Failed, best, child, job, log_bytes

from tests.sim_kit.big_store import Shape, write_big_store

GIBIBYTE = 1 << 30
LOOP_BYTES = 48 << 20
SMALL = Shape(20 << 20, topics=20, queues=8, file_size=32 << 20)
PORT = 21_810
NOISE_S = 0.5
"""Two runs that differ by less say nothing about what more data costs."""


class Row(NamedTuple):
    """
    :ivar beside: what the figure is compared with, and that figure.
    :ivar processor: seconds a GB.
    """

    what: str
    unit: str
    figure: float
    beside: str = ""
    other: float | None = None
    processor: float | None = None


class Bench:
    """Stores are written when the first part wants them."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.rows: list[Row] = []
        self.plain: dict[str, float] = {}
        self.one_core: dict[str, float] = {}

    def add(self, *row: Any) -> None:
        self.rows.append(Row(*row))

    def job(self, *arguments: Any) -> tuple[dict[str, Any], Any]:
        """A job of ours on two cores with a heap of 1 GiB: its summary, and what it cost."""
        spark = () if "verify-offsets" in arguments else ("--master", "local[2]")
        local = f"spark.local.dir={self.directory}"
        return job(*arguments, *spark, "--driver-memory", "1g", "--conf", local, timeout=1200)

    @cached_property
    def pair(self) -> tuple[Path, Path]:
        """Two equal stores of `--mib`."""
        roots = (self.directory / "master", self.directory / "slave")
        file_size = min(GIBIBYTE, self.options.mib << 18)
        shape = Shape(self.options.mib << 20, body=self.options.body, file_size=file_size)
        began = time.monotonic()
        write_big_store(roots, shape)
        took = time.monotonic() - began
        self.add("big_store: writing", "MB/s", 2 * log_bytes(roots[0]) / took / 1e6)
        return roots

    @cached_property
    def small(self) -> tuple[Path, Path]:
        """Two small equal stores with 160 queues."""
        roots = (self.directory / "small-a", self.directory / "small-b")
        write_big_store(roots, SMALL)
        return roots


# ---------------------------------------------------------------- one process, no Spark


def parse_part(bench: Bench) -> None:
    """The parser alone, beside reading the files and beside the broker's codec in a loop."""
    from rmq_ha.lake.scan.store.directory import open_store
    from rmq_ha.lake.scan.store.directory import scan as scan_split

    store = bench.pair[0]
    size = log_bytes(store)
    files = sorted((store / "commitlog").iterdir())
    cat, _ = best(lambda: _cat(files), bench.options.repeats)
    bench.plain["cat"] = size / cat / 1e6
    bench.add("cat of the files", "MB/s", bench.plain["cat"])
    with files[0].open("rb") as file:
        head = file.read(LOOP_BYTES)
    loop, loop_processor = best(lambda: _loop(head), bench.options.repeats)
    bench.plain["loop"] = len(head) / loop / 1e6
    bench.add(
        "plain Python loop, everything, CRC checked",
        "MB/s",
        bench.plain["loop"],
        "cat",
        bench.plain["cat"],
        loop_processor / len(head) * 1e9,
    )
    opened = open_store(str(store))
    splits = opened.splits()[:8]
    part = sum(split.hi - split.lo for split in splits)

    def parse(columns: Sequence[str]) -> None:
        for split in splits:
            for records in scan_split(opened, split):
                for _ in records.batches(columns, None):
                    pass

    for name, columns in SETS.items():
        seconds, processor = best(lambda columns=columns: parse(columns), bench.options.repeats)
        speed = part / seconds / 1e6
        bench.add(
            f"our parser, one process: {name}",
            "MB/s",
            speed,
            "plain loop",
            bench.plain["loop"],
            processor / part * 1e9,
        )


def _cat(files: Sequence[Path]) -> None:
    with open(os.devnull, "wb") as nowhere:
        subprocess.run(["cat", *map(str, files)], stdout=nowhere, check=True)


def _loop(data: bytes) -> None:
    from rmq_ha.base.errors import CorruptRecord
    from rmq_ha.base.store_format.commitlog import decode_record

    at = 0
    try:
        while at < len(data):
            record = decode_record(data, at, check_crc=True)
            _ = record.properties
            at += record.size
    except CorruptRecord:
        pass  # the part ends inside a record


# ---------------------------------------------------------------- Spark


def scan_part(bench: Bench) -> None:
    """Each set of columns on one core and on two."""
    store = bench.pair[0]
    size = log_bytes(store)
    for cores in (1, 2):
        found = child("scan", store, cores, bench.options.repeats)
        for name in (*SETS, "count only"):
            seconds, processor = found[name]
            speed = size / seconds / 1e6
            beside: tuple[str, float | None] = ("plain loop", bench.plain.get("loop"))
            if cores == 1:
                bench.one_core[name] = speed
            else:
                beside = ("1 core", bench.one_core.get(name))
            what = f"Spark, {cores} core{'s'[: cores - 1]}: {name}"
            bench.add(what, "MB/s", speed, *beside, processor / size * 1e9)


def replica_part(bench: Bench) -> None:
    """Two equal stores: their logs compared, and everything checked."""
    bytes_of = {pair: log_bytes(pair[0]) for pair in (bench.small, bench.pair)}
    for name, more, aim in (
        ("bytes only", ("--check", "bytes"), 800.0),
        ("bytes, CRCs, queues", (), None),
    ):
        what = f"verify-replica, {name}"
        small, _ = bench.job("verify-replica", *bench.small, *more)
        large, load = bench.job("verify-replica", *bench.pair, *more)
        _phases(bench, f"{what}, a side", small, large, [*bytes_of.values()], aim)
        bench.add(f"{what}: from the command to the verdict", "s", load.seconds)
        _costs(bench, what, load, bytes_of[bench.pair])


def small_part(bench: Bench) -> None:
    """From the command to the verdict, 160 queues on each side."""
    master, slave = bench.small
    arguments = ("verify-offsets", "--master", master, "--slave", slave)
    out = bench.directory / "small-out"
    took = []
    for _ in range(bench.options.repeats):
        _, load = bench.job(*arguments, "--out", out)
        took.append((load.seconds, load.processor))
    bench.add("verify-offsets, small, first time", "s", took[0][0], "aim", 10.0)
    seconds, processor = min(took)
    bench.add("verify-offsets, small, best", "s", seconds, "aim", 10.0)
    bench.add("verify-offsets, small, processor time", "s", processor)


def start_part(bench: Bench) -> None:
    """A session, its first query, its first scan."""
    found = [child("start", bench.small[0]) for _ in range(bench.options.repeats)]
    for name, what in (
        ("session", "start of a session"),
        ("query", "its first query"),
        ("scan", "its first look into a store"),
    ):
        bench.add(what, "s", min(one[name] for one in found))


def live_part(bench: Bench) -> None:
    """Out of a running broker of ours, and into it."""
    store = bench.directory / "live"
    shape = Shape(256 << 20, file_size=128 << 20)
    write_big_store([store], shape)
    size = log_bytes(store)
    with broker(bench.directory, store, shape.file_size) as namesrv:
        found = child("live", namesrv, bench.options.repeats, 50_000)
    rows = found["rows"]
    read, read_processor = found["read"]
    bench.add("live read, all columns, 2 cores", "msgs/s", rows / read)
    bench.add(
        "live read, all columns, 2 cores", "MB/s", size / read / 1e6, "", None,
        read_processor / size * 1e9,
    )  # fmt: skip
    bench.add("sink, 1 KiB, 2 cores", "msgs/s", found["sent"] / found["sink"][0])


def audit_part(bench: Bench) -> None:
    """A large store with a heap of 1 GiB: how long, how large."""
    store = bench.directory / "large"
    shape = Shape(int(bench.options.audit_gib * GIBIBYTE), body=bench.options.body)
    began = time.monotonic()
    write_big_store([store], shape)
    name = f"{bench.options.audit_gib:g} GiB"
    size = log_bytes(store)
    bench.add(f"{name}: writing it", "MB/s", size / (time.monotonic() - began) / 1e6)
    small, _ = bench.job("audit-messages", bench.small[0])
    large, load = bench.job("audit-messages", store)
    what = f"{name}: audit-messages"
    bench.add(f"{what}, from the command to the verdict", "s", load.seconds)
    _phases(bench, what, small, large, [log_bytes(bench.small[0]), size], None)
    _costs(bench, what, load, size)


def _phases(
    bench: Bench, what: str, small: Any, large: Any, sizes: Sequence[int], aim: float | None
) -> None:
    """MB/s of the job without the start of Spark; and of what a large store has more."""
    runs = [summary["seconds"]["run"] for summary in (small, large)]
    bench.add(f"{what}: without Spark's start", "MB/s", sizes[1] / runs[1] / 1e6)
    if runs[1] - runs[0] > NOISE_S:
        further = (sizes[1] - sizes[0]) / (runs[1] - runs[0]) / 1e6
        bench.add(f"{what}: of each further GB", "MB/s", further, "aim" if aim else "", aim)


def _costs(bench: Bench, what: str, load: Any, size: int) -> None:
    bench.add(f"{what}: processor time", "s", load.processor, "", None, load.processor / size * 1e9)
    bench.add(f"{what}: Java at most", "MiB", load.java)
    bench.add(f"{what}: Python workers at most, all together", "MiB", load.workers)


@contextmanager
def broker(directory: Path, store: Path, file_size: int) -> Iterator[str]:
    """A broker of ours on a store that is there; the address of its name server."""
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": PORT,
        "embeddedNamesrvPort": PORT + 5,
        "storePathRootDir": store,
        "mappedFileSizeCommitLog": file_size,
        "waitTimeMillsInSendQueue": 10_000,
    }
    conf = directory / "broker.properties"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    output = directory / "broker.log"
    twistd = Path(sys.executable).parent / "twistd"
    with output.open("w") as sink:
        process = subprocess.Popen(
            [twistd, "-n", "--pidfile=", "rmqha", "--config", conf, "--ready"],
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
    try:
        deadline = time.monotonic() + 60
        while "READY {" not in output.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the broker does not start:\n{output.read_text()[-3000:]}")
            time.sleep(0.1)
        yield f"127.0.0.1:{PORT + 5}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


PARTS: dict[str, Callable[[Bench], None]] = {
    "parse": parse_part,
    "scan": scan_part,
    "replica": replica_part,
    "small": small_part,
    "start": start_part,
    "live": live_part,
    "audit": audit_part,
}


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        "| what | unit | figure | beside | ratio | processor s a GB |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        beside = f"{row.beside} {row.other:,.4g}" if row.other else ""
        ratio = f"{row.figure / row.other:.2f}" if row.other else ""
        processor = "" if row.processor is None else f"{row.processor:.2f}"
        figure = f"{row.figure:,.0f}" if row.figure >= 100 else f"{row.figure:.3g}"
        lines.append(f"| {row.what} | {row.unit} | {figure} | {beside} | {ratio} | {processor} |")
    return "\n".join(lines)


def machine() -> str:
    """What it was measured on."""
    import numpy
    import pyarrow
    import pyspark

    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{datetime.date.today()}, {platform.machine()} {model}, {os.cpu_count()} processors, "
        f"Python {platform.python_version()}, pyspark {pyspark.__version__}, "
        f"pyarrow {pyarrow.__version__}, numpy {numpy.__version__}, "
        f"load average {os.getloadavg()[0]:.1f}."
    )


def report(options: argparse.Namespace, head: str, rows: Sequence[Row]) -> None:
    """Write what was measured so far: a later part may fail."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(f"{head}\n\n{table(rows)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=part_names(PARTS), default=",".join(PARTS))
    parser.add_argument("--mib", type=int, default=2048, help="of each of the pair's logs")
    parser.add_argument("--body", type=int, default=1024, help="bytes, on average")
    parser.add_argument("--audit-gib", type=float, default=10)
    parser.add_argument("--repeats", type=int, default=3, help="the best counts")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "spark.md")
    options = parser.parse_args()
    # What is under way ends, and the stores are deleted, when somebody ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("spark: ended"))
    head = machine()
    failed = []
    with scratch(options.work) as directory:
        bench = Bench(options, directory)
        for part in options.parts:
            began = time.monotonic()
            try:
                PARTS[part](bench)
            except (Failed, subprocess.SubprocessError, OSError) as error:
                failed.append(part)
                print(f"spark: {part}: {error}", file=sys.stderr)
            print(f"spark: {part}: {time.monotonic() - began:.0f} s", file=sys.stderr)
            report(options, head, bench.rows)
    print(options.out.read_text())
    if failed:
        sys.exit(f"spark: not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
