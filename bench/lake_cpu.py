"""Processor seconds of the commands that judge stores: a small store and 1 GiB, plain and by Spark.

    python bench/lake_cpu.py [--mib 1024] [--minutes 10] [--only verify-replica]

Writes a table in Markdown. A figure is user and system time of the command and all below it, Java
and Python workers included, so it tells more than the time on a machine that others use. The small
store has 80 messages. The large ones are two equal stores of --mib each, made by
`tests.sim_kit.big_store` below --work and deleted. A command that does not fit into --minutes is
not run, and its row says so. Exit codes 0 and 1 are verdicts, others are failures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from measure import scratch
from spark_parts import Watch

from tests.kits.bare_stores import ordinary, store_of
from tests.sim_kit.big_store import Shape, write_big_store

ADMIN = "from rmq_ha.ops.admin.main import main; main()"
SCAN = "from rmq_ha.lake.scan.command import main; main()"
SPARK = "from rmq_ha.lake.spark.cli import main; main()"
VERDICTS = (0, 1)


class Command(NamedTuple):
    """
    :ivar program: what Python runs.
    :ivar arguments: of a directory with the stores `master` and `slave`, and with `facts` of them.
    """

    name: str
    program: str
    arguments: tuple[str, ...]

    @property
    def label(self) -> str:
        by = {ADMIN: "rmqha-admin", SCAN: "rmqha-scan", SPARK: "rmqha-spark"}[self.program]
        return f"{by} {self.name}".strip()


def scan_of(side: str, broker_id: str, facts: str = "facts") -> tuple[str, ...]:
    return (side, "--to", facts, "--broker", "b", "--id", broker_id, "--rate", "0")


LOCAL = ("--master", "local[2]", "--driver-memory", "1g")
PAIR = ("master", "slave")
OFFSETS = ("--master", "master", "--slave", "slave")
COMMANDS = [
    Command("", SCAN, scan_of("master", "0")),
    Command("of the slave", SCAN, scan_of("slave", "1")),
    Command("--check queues", SCAN, (*scan_of("master", "0", "checked"), "--check", "queues")),
    Command("store verify", ADMIN, ("store", "verify", "master")),
    Command("verify-offsets", ADMIN, ("verify-offsets", *OFFSETS)),
    Command("verify-replica", ADMIN, ("verify-replica", *PAIR)),
    Command("verify-fleet", ADMIN, ("verify-fleet", "facts")),
    Command("audit-messages", ADMIN, ("audit-messages", "master")),
    Command("verify-offsets", SPARK, ("verify-offsets", *OFFSETS)),
    Command("verify-replica", SPARK, ("verify-replica", *PAIR, *LOCAL)),
    Command("verify-fleet", SPARK, ("verify-fleet", "facts", *LOCAL)),
    Command("audit-messages", SPARK, ("audit-messages", "master", *LOCAL)),
    Command("archive", SPARK, ("archive", "master", "--to", "archive", *LOCAL)),
]  # fmt: skip


def cost(command: Command, where: Path, seconds: float) -> str:
    """Run a command in a directory; its processor seconds, or why there are none."""
    if seconds < 5:
        return "no time left"
    process = subprocess.Popen(
        [sys.executable, "-c", command.program, *command.arguments],
        cwd=where,
        stdout=subprocess.DEVNULL,
        stderr=(where / "stderr").open("wb"),
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    watch = Watch(process.pid)
    began = time.monotonic()
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() - began > seconds:
            process.kill()
            os.wait4(process.pid, 0)
            watch.end()
            return f"not within {seconds:.0f} s"
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    seen = watch.end().processor
    if process.returncode not in VERDICTS:
        last = (where / "stderr").read_text(errors="replace").strip().splitlines()[-1:]
        return f"exit code {process.returncode}: {' '.join(last)[:120]}"
    # Java is nobody's child any more when it ends, so only the watch sees it; what ends within
    # a tenth of a second only the system counts.
    return f"{max(usage.ru_utime + usage.ru_stime, seen):.2f}"


def rows_of(where: Path, commands: Sequence[Command], deadline: float) -> list[str]:
    figures = []
    for command in commands:
        figures.append(cost(command, where, deadline - time.monotonic()))
        print(f"{where.name}: {command.label}: {figures[-1]}", file=sys.stderr, flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="of each large store")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", default="", help="commands whose name has this in it")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    wanted = [one for one in COMMANDS if options.only in one.label or one.program == SCAN]
    with scratch(options.work) as directory:
        small, large = directory / "small", directory / "large"
        for side in PAIR:
            store_of(ordinary(80), log_size=1 << 16).save(small / side)
        file_size = min(1 << 30, options.mib << 18)
        write_big_store(
            [large / side for side in PAIR], Shape(options.mib << 20, file_size=file_size)
        )
        columns = [rows_of(where, wanted, deadline) for where in (small, large)]
    print(f"| command | 80 messages, CPU s | {options.mib} MiB a store, CPU s |\n|---|---|---|")
    for command, *figures in zip(wanted, *columns, strict=True):
        print(f"| `{command.label}` | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
