"""Our gRPC port beside Java's proxy 5.3.3: processor time of a message, and latency.

    python bench/grpc_compare.py                    # some 6 minutes, alone on the machine
    python bench/grpc_compare.py --rounds 1 --count 400 --warm 400      # a try: one minute

Both run at the same time, each with its broker in one process, and are measured in turns by
`peerg bench` of the rig `../shared/peerg`: sends of 1 KiB with 1 and with 64 in flight, then
receives of 32 with an acknowledgement for each message. Java is warmed first. Writes medians of all
rounds, and stops before the next round where `--minutes` are over.

The client, `peerg bench`, shares the machine's processors, and its own time is in every latency.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timer_judge import machine

from tests.interop.rig import Rig
from tests.interop.wire import Wire

PEERG = Path(os.environ.get("RMQ_HA_SHARED", "/work/shared")) / "peerg" / "peerg"
TOPIC, QUEUES = "Normal", 4
JAVA_PORT, FIRST_PORT = 48_540, 48_560
READY_S = 120.0
AIM_US = 300
ROWS = {
    "send, 1 in flight": ("send", 1),
    "send, 64 in flight": ("send", 64),
    "receive 32, and acknowledge each": ("receive+ack", None),
}


class Front(NamedTuple):
    """A server with a gRPC port."""

    endpoints: str
    pid: int


@contextmanager
def our_front(directory: Path) -> Iterator[Front]:
    """Start a broker of ours with a gRPC port; its files are as large as those of the proxy's."""
    rig = _Rig(directory)
    try:
        namesrv = rig.namesrv()
        port = FIRST_PORT + 8
        server = rig.broker(
            "master-async.conf",
            "ours",
            namesrv=namesrv,
            port=port,
            grpcServerPort=port + 4,
            popEnable="true",
            mappedFileSizeCommitLog=64 << 20,
            mappedFileSizeConsumeQueue=60_000,
            maxHashSlotNum=5000,
            maxIndexNum=20_000,
        )
        with Wire(server.address) as wire:
            wire.create_topic(TOPIC, QUEUES)
        yield Front(f"127.0.0.1:{port + 4}", server.process.pid)
    finally:
        rig.close()


class _Rig(Rig):
    def ports(self, count: int = 4) -> int:
        return FIRST_PORT


@contextmanager
def javas_proxy(directory: Path) -> Iterator[Front]:
    """Start Java's proxy with its broker, in one JVM."""
    words = [str(PEERG), "proxy", "--port", str(JAVA_PORT), "--dir", str(directory)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        if not any(line.startswith("READY") for line in process.stdout):
            raise RuntimeError("Java's proxy does not start")
        yield Front(f"127.0.0.1:{JAVA_PORT}", process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def measured(front: Front, count: int, warm: int, *more: str) -> list[dict[str, Any]]:
    """Run `peerg bench` against a front; return its rows."""
    words = [str(PEERG), "bench", "--endpoints", front.endpoints, "--pid", str(front.pid)]
    words += ["--count", str(count), "--warmup", str(warm), *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=READY_S * 3, check=False)
    if done.returncode:
        raise RuntimeError(f"peerg bench: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(found: dict[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    """Return the lines of the table: medians of all rounds."""
    lines = [
        "| what | CPU us a message: ours | Java | ratio | p50 ms: ours | Java | p99 ms: ours | "
        "Java | a second: ours | Java |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in ROWS:
        ours, java = found["ours", name], found["java", name]
        if not (ours and java):
            continue

        def middle(rows: list[dict[str, Any]], field: str) -> float:
            return statistics.median(row[field] for row in rows)

        cells: list[Any] = [name]
        used = [middle(rows, "serverCpuUs") for rows in (ours, java)]
        cells += [f"{used[0]:.0f}", f"{used[1]:.0f}", f"{used[0] / used[1]:.2f}"]
        for field in ("p50ms", "p99ms", "perSecond"):
            cells += [f"{middle(rows, field):g}" for rows in (ours, java)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=4000, help="messages of each measurement")
    parser.add_argument("--warm", type=int, default=40_000, help="sends that warm Java")
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "grpc_compare.md"
    )
    options = parser.parse_args()
    if not PEERG.exists() or shutil.which("java") is None:
        sys.exit(f"grpc_compare: no rig at {PEERG} (RMQ_HA_SHARED names the folder), or no Java")
    began = time.monotonic()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.work)))
        fronts = {
            "java": stack.enter_context(javas_proxy(work / "java")),
            "ours": stack.enter_context(our_front(work / "ours")),
        }
        warm = ("--inflight", "64", "--no-receive")
        measured(fronts["java"], options.count, options.warm, *warm)
        for number in range(options.rounds):
            if time.monotonic() - began > options.minutes * 60:
                break
            for side in list(fronts)[:: -1 if number % 2 else 1]:
                for row in measured(fronts[side], options.count, options.count // 4):
                    kind = (row["what"], row.get("inflight"))
                    name = next(name for name, wanted in ROWS.items() if wanted == kind)
                    found[side, name].append(row)
            rounds = f"{number + 1} rounds of {options.count} messages of 1 KiB"
            options.out.write_text("\n".join([machine(), rounds, "", *table(found)]) + "\n")
    print(options.out.read_text())
    print(f"aim: at most {AIM_US} us a send with 64 in flight, and p99 at most Java's")


if __name__ == "__main__":
    main()
