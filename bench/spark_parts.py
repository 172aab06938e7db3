"""What `bench/spark.py` runs in processes of its own, and how it watches them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

MEBIBYTE = 1 << 20
HEADER = [
    *("topic", "queueId", "queueOffset", "commitLogOffset", "flag", "sysFlag", "bodyCRC"),
    *("bornTimestamp", "storeTimestamp", "reconsumeTimes", "storeSize"),
]
KEYS = [*HEADER, "msgId", "keys", "tags", "crcOk"]
BODY = [*KEYS, "body"]
SETS = {
    "header": HEADER,
    "header, keys, CRC checked": KEYS,
    "header, keys, CRC checked, body": BODY,
    "everything": [*BODY, "properties", "bornHost", "storeHost"],
}


class Load(NamedTuple):
    """
    What a process and all below it cost.

    :ivar processor: seconds.
    :ivar java: MiB that Java had resident at most.
    :ivar workers: MiB of their own that all Python workers had at most; mapped files are not
        counted, they are the machine's cache.
    """

    seconds: float
    processor: float
    java: float
    workers: float


class Watch:
    """Looks at a process and all below it, ten times a second."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._spent: dict[tuple[int, float], float] = {}
        self._java = self._workers = 0
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._before = 0.0
        self._look()
        self._before = sum(self._spent.values())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> Load:
        """What it was from the start until now."""
        seconds = time.monotonic() - self._began
        self._ended.set()
        self._thread.join()
        self._look()
        processor = sum(self._spent.values()) - self._before
        return Load(seconds, processor, self._java / MEBIBYTE, self._workers / MEBIBYTE)

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self._look()

    def _look(self) -> None:
        java = workers = 0
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                times = process.cpu_times()
                self._spent[process.pid, process.create_time()] = times.user + times.system
                resident, own = memory_of(process.pid)
                if process.name() == "java":
                    java += resident
                elif process is not self._root:
                    workers += own
            except (psutil.Error, OSError):
                continue  # it ended meanwhile
        self._java, self._workers = max(self._java, java), max(self._workers, workers)


def memory_of(pid: int) -> tuple[int, int]:
    """Bytes that are resident, and those of them that are no file."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon"):
            found[name] = int(value.split()[0]) * 1024
    return found.get("VmRSS", 0), found.get("RssAnon", 0)


def log_bytes(store: Path) -> int:
    """Of a store's commit log, without the holes."""
    return sum(path.stat().st_blocks * 512 for path in (store / "commitlog").iterdir())


class Failed(Exception):
    """A process did not do what was wanted; says what it printed."""


def child(function: str, *arguments: Any, timeout: float = 600) -> Any:
    """Run a function of `TASKS` in a process of its own; what it returns."""
    command = [sys.executable, __file__, function, *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"{function}: not within {timeout} s: {expired.stderr!r:.3000}") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise Failed(f"{function}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(lines[-1])


def job(
    *arguments: Any, expected: Sequence[int] = (0,), timeout: float = 600
) -> tuple[dict[str, Any], Load]:
    """Run `rmqha-spark` with these arguments; its summary, and what it cost."""
    command = [
        sys.executable,
        "-m",
        "rmq_ha.lake.spark.cli",
        *map(str, arguments),
        "--json",
        "--quiet",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    watch = Watch(process.pid)
    try:
        out, error = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                one.kill()
        load = watch.end()
    if process.returncode not in expected:
        raise Failed(
            f"{' '.join(command)}: exit {process.returncode}\n{out[-2000:]}{error[-3000:]}"
        )
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1]), load


# ---------------------------------------------------------------- in a process of its own


def scan(store: str, cores: str, repeats: str) -> dict[str, Any]:
    """Each set of columns through Spark: best seconds and processor seconds of them, and rows."""
    from rmq_ha.lake.spark.host.session import start_session
    from rmq_ha.lake.spark.source.schema import COLUMNS, struct_of

    spark = start_session("rmq-ha bench", master=f"local[{cores}]")
    kinds = COLUMNS
    found: dict[str, Any] = {}
    for name, columns in SETS.items():
        schema = struct_of({column: kinds[column] for column in columns})
        frame = spark.read.format("rocketmq").schema(schema).option("path", store).load()

        def run(frame: Any = frame) -> None:
            frame.write.format("noop").mode("overwrite").save()

        if not found:
            run()  # Java's compiler, the workers' imports
            found["rows"] = frame.count()
        found[name] = best(run, int(repeats))
    found["count only"] = best(
        lambda: spark.read.format("rocketmq").option("path", store).load().count(), int(repeats)
    )
    spark.stop()
    return found


def start(store: str) -> dict[str, Any]:
    """Seconds until a session is there, until its first query, and until its first scan."""
    began = time.monotonic()
    from rmq_ha.lake.spark.host.session import start_session

    spark = start_session("rmq-ha bench", master="local[2]")
    found = {"session": time.monotonic() - began}
    began = time.monotonic()
    spark.range(1000).selectExpr("sum(id)").collect()
    found["query"] = time.monotonic() - began
    began = time.monotonic()
    spark.read.format("rocketmq").option("path", store).load().limit(1).collect()
    found["scan"] = time.monotonic() - began
    spark.stop()
    return found


def live(namesrv: str, repeats: str, count: str) -> dict[str, Any]:
    """Read all that a broker has, and send so many messages of 1 KiB to it."""
    from pyspark.sql import functions as F

    from rmq_ha.lake.spark.host.session import start_session

    spark = start_session("rmq-ha bench", master="local[2]")
    frame = (
        spark.read.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribePattern", "big-.*")
    )
    everything = frame.load()
    found: dict[str, Any] = {"rows": everything.count()}
    found["read"] = best(
        lambda: everything.write.format("noop").mode("overwrite").save(), int(repeats)
    )
    rows = spark.range(int(count), numPartitions=2).select(
        F.lit("bench-sink").alias("topic"),
        F.concat(F.lit("order-"), F.col("id")).alias("keys"),
        F.repeat(F.lit("x"), 1024).alias("body"),
    )
    sink = rows.write.format("rocketmq").option("namesrv", namesrv).mode("append")
    sink.save()
    found["sink"] = best(sink.save, int(repeats))
    found["sent"] = int(count)
    spark.stop()
    return found


def best(run: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Least seconds of some runs, and processor seconds of that one."""
    loads = []
    for _ in range(repeats):
        watch = Watch(os.getpid())
        run()
        loads.append(watch.end())
    least = min(loads, key=lambda load: load.seconds)
    return least.seconds, least.processor


TASKS: dict[str, Callable[..., dict[str, Any]]] = {"scan": scan, "start": start, "live": live}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
