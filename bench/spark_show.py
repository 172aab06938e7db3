"""What operators wait for, each below five minutes on a quiet machine.

    python bench/spark_show.py offsets          rmqha-admin verify-offsets, 160 queues: below 1 s
    python bench/spark_show.py ledgers          a million messages, two ledgers of a million lines
    python bench/spark_show.py install [DIR]    size and set-up time of the extra `spark` of a tree

For `install` before and after give two trees: `git worktree add /tmp/old 7fe1764`. It takes what
pip has in its cache, where there is any; `--no-cache` leaves that out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_parts import MEBIBYTE, job

from rmq_ha.lake.scan.store.directory import open_store, scan
from tests.sim_kit.big_records import Shape
from tests.sim_kit.big_store import write_big_store

MESSAGES = 1_000_000
_COLUMNS = ["topic", "queueId", "queueOffset", "msgId", "storeTimestamp", "bodyCRC"]


def offsets(directory: Path, given: argparse.Namespace) -> None:
    roots = directory / "m", directory / "s"
    write_big_store(roots, Shape(20 << 20, topics=20, queues=8, file_size=32 << 20))
    admin = str(Path(sys.executable).with_name("rmqha-admin"))
    pair = ["--master", str(roots[0]), "--slave", str(roots[1])]
    command = [admin, "verify-offsets", *pair]
    took = []
    for _ in range(given.repeats):
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        took.append(time.monotonic() - began)
        assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.splitlines()[-1])
    print(f"first {took[0]:.2f} s, best {min(took):.2f} s; aim: below 1 s")


def ledgers(directory: Path, given: argparse.Namespace) -> None:
    store, each = directory / "store", given.messages
    write_big_store([store], Shape(each * 1_300, file_size=1 << 30))
    files = directory / "sent.jsonl", directory / "given.jsonl"
    lines = 0
    with files[0].open("w") as sent, files[1].open("w") as taken:
        for row in _rows(store):
            place = {"queueId": row["queueId"], "queueOffset": row["queueOffset"]}
            common = {"topic": row["topic"], "msgId": row["msgId"], "bodyCrc": row["bodyCRC"]}
            ms = int(row["storeTimestamp"].timestamp() * 1000)
            sent.write(json.dumps(common | place | {"sentAt": ms, "status": "SEND_OK"}) + "\n")
            more = {"group": "billing", "deliveredAt": ms + 20, "reconsumeTimes": 0}
            taken.write(json.dumps(common | place | more) + "\n")
            lines += 1
            if lines == each:
                break
    print(f"{lines:,} lines in each ledger, {files[0].stat().st_size / 1e6:,.0f} MB one of them")
    arguments = ("audit-messages", store, "--produced", files[0], "--delivered", files[1])
    local = ("--master", "local[2]", "--conf", f"spark.local.dir={directory}")
    summary, load = job(*arguments, *local, expected=(0, 1), timeout=1200)
    print(summary["verdict"])
    print(
        f"from the command to the verdict {load.seconds:.1f} s (aim: below 60 s),"
        f" {load.processor:.1f} CPU s; Java {load.java:.0f} MiB, workers {load.workers:.0f} MiB"
    )


def _rows(store: Path) -> Iterator[dict[str, Any]]:
    opened = open_store(str(store))
    for split in opened.splits():
        for records in scan(opened, split):
            yield from records.batch(_COLUMNS).to_pylist()


def install(directory: Path, given: argparse.Namespace) -> None:
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", directory / "env"], check=True)
    made = time.monotonic() - began
    pip = [str(directory / "env" / "bin" / "pip"), "install", "-q", f"{given.tree}[spark]"]
    began = time.monotonic()
    subprocess.run(pip + ["--no-cache-dir"] * given.no_cache, check=True)
    took = time.monotonic() - began
    found = [path.stat() for path in (directory / "env").rglob("*") if path.is_file()]
    size = sum(one.st_blocks * 512 for one in found) / MEBIBYTE
    print(f"venv {made:.1f} s, pip install '.[spark]' {took:.1f} s, {size:,.0f} MiB on disk")


PARTS = {"offsets": offsets, "ledgers": ledgers, "install": install}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("tree", nargs="?", default=str(Path(__file__).parents[1]))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--work", default=None)
    given = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=given.work) as scratch:
        PARTS[given.part](Path(scratch), given)


if __name__ == "__main__":
    main()
