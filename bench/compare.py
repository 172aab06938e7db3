"""Ours beside the Java broker, in one run on one machine, with the rig's neutral load generator.

    python bench/compare.py [--parts sync,async,pull,catchup,start,footprint,...] [--short]
                            [--maker pure,kernel] [--repeats 3] [--limit 3] [--out FILE.md]

Writes a table with ratios, and beside rates what a message costs master, slave and client in
processor time, so that they can be checked against each other. Java is warmed at each level, sides
take turns, and where others took more than `--limit` % of the machine there is no ratio. `--short`:
shorter windows, smaller stores. `--parts` runs them in the order given, and each writes the table
when it ends: where time is short, what matters most comes first.

`--maker pure,kernel` measures two brokers of ours beside Java, in one table: one in plain Python,
and one with the kernel (`pip install ./kernel`). The aims are those of the kernel. Without the
option ours is as it is installed.

Needs the peer rig (`../shared/peer`, or RMQ_HA_PEER) with Java; the part `controlled`, which runs
only when named, also 5.3.3's (`../shared/peer5`, or RMQ_HA_PEER5). Client, master and slave share
the machine's processors: the figures compare brokers, they do not size them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import (
    LIMIT,
    MAKERS,
    SIDES,
    Ends,
    Figures,
    Window,
    conf,
    part_names,
    rig_of,
    run_parts,
    scratch,
)
from sends import Bench, Kind, send_part

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compare_many import connections_part, queues_part, slaves_part
from compare_stores import catchup_part, pull_part, start_part
from dledger import group

from bench.controlled import controlled_pair
from tests.interop.rig import Rig, missing
from tests.interop.test_controller import missing as missing5

CONTROLLED = "controlled"
_FOOTPRINT = 200_000
_FULL = {"repeats": 3, "seconds": 6.0, "warm": 10.0, "mebibytes": 2048}
_SHORT = {"repeats": 3, "seconds": 2.0, "warm": 10.0, "mebibytes": 1024}


def pair(master_conf: str, rig: Rig, side: str, work: Path) -> Ends:
    """A master and its slave, in sync; the Java name server for both sides."""
    namesrv = rig.namesrv(java=True)
    java = side == "java"
    master = rig.broker(conf(work, master_conf), "m", java=java, namesrv=namesrv, heap="1g")
    slave = rig.broker(conf(work, "slave.conf"), "s", java=java, namesrv=namesrv, heap="1g")
    if "sync" in master_conf.removeprefix("master-a"):
        rig.wait_sync(master)
    else:
        rig.peer("load", "send", "--addr", master.address, "--create", "--count", 1)
        rig.wait_same(slave, master)
    return Ends(rig, master.address, {"master": master, "slave": slave})


SENDS = {
    "sync": Kind(
        "SYNC_MASTER", partial(pair, "master-sync.conf"), True, {1: 1.7, 16: 1.8, 64: 2.2, 256: 2.8}
    ),
    "async": Kind(
        "ASYNC_MASTER",
        partial(pair, "master-async.conf"),
        True,
        {1: 1.6, 16: 1.4, 64: 1.9, 256: 2.3},
    ),
    "dledger": Kind("DLedger", group, False, dict.fromkeys((1, 16, 64, 256), 4.0)),
    CONTROLLED: Kind("controller mode (Java 5.3.3), all in sync", controlled_pair, False, {}),
}


def footprint_part(bench: Bench) -> None:
    """Memory and idle processor time of a master with a slave, empty and after 200,000 messages."""
    add, idle = bench.figures.add, 2.5 * bench.seconds
    for number in range(bench.repeats):
        for side in bench.sides[:: -1 if number % 2 else 1]:
            with scratch(bench.work) as work, rig_of(side, work) as rig:
                ends = pair("master-sync.conf", rig, side, work)
                time.sleep(bench.seconds)
                with Window(ends.servers) as window:
                    time.sleep(idle)
                for who in ends.servers:
                    name = f"RSS idle, empty store, {who}"
                    add(name, "MiB", side, window.memory[who].rss / 2**20, window.others)
                    share = window.cpu[who] / idle * 100
                    add(f"idle processor time, {who}", "% of one", side, share, window.others)
                load = ("--create", "--conns", 4, "--inflight", 16, "--count", _FOOTPRINT)
                ends.load("send", *load, "--accept", "0,2")
                time.sleep(bench.seconds)
                with Window(ends.servers) as window:
                    pass
                memory, name = window.memory["master"], f"after {_FOOTPRINT:,} messages, master"
                add(f"RSS {name}", "MiB", side, memory.rss / 2**20, 0.0, aim=6.7)
                own = (memory.rss - memory.shared) / 2**20
                add(f"private memory {name}", "MiB", side, own, 0.0)


def main() -> None:
    parts: dict[str, Callable[[Bench], None]] = {
        name: partial(send_part, kind=kind) for name, kind in SENDS.items()
    }
    parts |= {
        "pull": pull_part,
        "catchup": catchup_part,
        "start": start_part,
        "footprint": footprint_part,
        "slaves": slaves_part,
        "connections": connections_part,
        "queues": queues_part,
    }
    usual = ",".join(name for name in parts if name != CONTROLLED)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", type=part_names(parts), default=usual, help=usual)
    parser.add_argument(
        "--maker", type=part_names(MAKERS), help=f"{' or '.join(MAKERS)}, or both with a comma"
    )
    parser.add_argument("--short", action="store_true", help=f"{_SHORT} instead of {_FULL}")
    parser.add_argument("--repeats", type=int, help="windows of each side at each level")
    parser.add_argument("--seconds", type=float, help="of a window")
    parser.add_argument("--warm", type=float, help="seconds that Java gets at each level before")
    parser.add_argument("--mebibytes", type=int, help="store size for pull, catch-up and start")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="%% of the machine that others may take"
    )
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "compare.md"
    )
    options = parser.parse_args()
    reason = missing() or (missing5() if CONTROLLED in options.parts else None)
    if reason:
        sys.exit(f"compare: {reason}")
    chosen = _SHORT if options.short else _FULL
    chosen |= {key: given for key in chosen if (given := getattr(options, key)) is not None}
    sides = (SIDES[0], *options.maker) if options.maker else SIDES
    figures = Figures(options.limit, sides)
    with scratch(options.work) as work:
        bench = Bench(figures, work, **chosen)
        run_parts(
            {name: partial(part, bench) for name, part in parts.items()},
            options.parts, figures, options.out,
        )  # fmt: skip


if __name__ == "__main__":
    main()
