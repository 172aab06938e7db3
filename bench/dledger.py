"""A DLedger group of ours beside one of Java brokers, in one run on one machine.

    python bench/dledger.py [--parts failover,idle,catchup] [--repeats 3] [--out FILE.md]

Writes a table with ratios; sends are the part `dledger` of `compare.py`. Needs the peer rig
(`../shared/peer`, or RMQ_HA_PEER) with Java. Load generator and three members share the machine's
processors: the figures compare groups, they do not size them. Fail-over is from kill -9 of the
leader to the first SEND_OK of the next; 6 s of it are the protocol's silence, less what had passed
since the last heartbeat.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from measure import (
    MEBIBYTE,
    SIDES,
    Ends,
    Figures,
    Window,
    conf,
    part_names,
    run_parts,
    scratch,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.interop.groups import OK, TOPIC, Group, Member
from tests.interop.rig import SMALL, Rig, missing, rig_in
from tests.interop.wire import log_end

MEMBERS = 3
IDLE_S = 15


def stock_conf(directory: Path) -> Path:
    """The rig's files of DLedger nodes with stock file sizes."""
    folder = directory / "conf"
    folder.mkdir()
    for path in SMALL.glob("dledger-*.conf"):
        conf(folder, path.name)
    return folder


def group(rig: Rig, side: str, work: Path) -> Ends:
    """Three members, whose leader serves."""
    group, leader = led_group(rig, side, work)
    names = {"leader": leader.server}
    others = [member.server for member in group.members.values() if member != leader]
    return Ends(
        rig, leader.server.address, names | dict(zip(("follower", "other"), others, strict=True))
    )


def led_group(rig: Rig, side: str, work: Path) -> tuple[Group, Member]:
    group = Group(rig, [side == "java"] * MEMBERS, conf=stock_conf(work), heap="1g")
    return group, group.wait_leader(seconds=60)


@contextmanager
def group_of(side: str, work: Path) -> Iterator[tuple[Group, Member]]:
    """A group of one side, with a leader that serves."""
    with scratch(work) as directory, rig_in(directory) as rig:
        yield led_group(rig, side, directory)


def send(group: Group, leader: Member, *options: Any) -> None:
    """Have the load generator send."""
    command = ["load", "send", "--addr", leader.server.address, "--topic", TOPIC, "--size", 1024]
    group.rig.peer(*command, *options, check=False, timeout=600)


def failover_part(figures: Figures, options: argparse.Namespace) -> None:
    """Without sends from kill -9 of the leader; and over a transfer."""
    killed, handed = (
        f"{what} to the next SEND_OK" for what in ("kill -9 of the leader", "leadership transfer")
    )
    for side in SIDES:
        with group_of(side, options.work) as (group, leader):
            for _ in range(options.repeats):
                with Window() as window:
                    leader.server.kill()
                    new_leader = group.wait_leader(leader.name)
                figures.add(killed, "s", side, window.seconds, window.others)
                group.restart(leader.name)
                group.wait_same()
                with Window() as window:
                    is_handed = group.transfer(leader.name) == OK
                    leader = group.wait_leader(*(new_leader.name,) if is_handed else ())
                if is_handed:
                    figures.add(handed, "s", side, window.seconds, window.others)


def idle_part(figures: Figures, options: argparse.Namespace) -> None:
    """Processor time and memory of a group to which nobody sends."""
    for _ in range(options.repeats):
        for side in SIDES:
            with group_of(side, options.work) as (group, leader):
                send(group, leader, "--conns", 4, "--inflight", 16, "--count", 20_000)
                follower = next(one for one in group.members.values() if one != leader)
                time.sleep(5)
                with Window({"leader": leader.server, "follower": follower.server}) as window:
                    time.sleep(IDLE_S)
                for name, memory in window.memory.items():
                    share = window.cpu[name] / IDLE_S * 100
                    idle = f"idle processor time, {name}"
                    figures.add(idle, "% of one", side, share, window.others)
                    after = f"RSS after 20,000 messages, {name}"
                    figures.add(after, "MiB", side, memory.rss / MEBIBYTE, window.others)


def catchup_part(figures: Figures, options: argparse.Namespace) -> None:
    """A follower whose store is gone gets everything again; its start is part of the time."""
    what = f"catch-up of a wiped follower, {options.mebibytes} MiB, from process start"
    for _ in range(options.repeats):
        for side in SIDES:
            with group_of(side, options.work) as (group, leader):
                count = options.mebibytes * 1024
                load = ("--conns", 4, "--inflight", 64, "--count", count, "--accept", "0,1")
                send(group, leader, *load)
                end = group.wait_same()
                follower = next(one for one in group.members.values() if one != leader)
                follower.server.kill()
                shutil.rmtree(follower.server.store)
                with Window() as window:
                    group.restart(follower.name)
                    fill(group, leader, follower, end)
                speed = end / 1e6 / window.seconds
                figures.add(what, "MB/s", side, speed, window.others, more_is_better=True)


def fill(group: Group, leader: Member, follower: Member, end: int) -> None:
    """
    Until the follower has the log up to `end`.

    Something is sent now and then: an idle Java leader never finds out that it has lost it.
    """
    deadline = time.monotonic() + 120
    while log_end(follower.server.address) < end:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{follower.name} did not catch up in 120 s")
        group.is_serving(leader)
        time.sleep(0.2)


PARTS = {"failover": failover_part, "idle": idle_part, "catchup": catchup_part}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", type=part_names(PARTS), default=",".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mebibytes", type=int, default=256, help="log size for catch-up")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "dledger.md"
    )
    options = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(f"dledger: {reason}")
    figures = Figures()
    parts = {name: partial(part, figures, options) for name, part in PARTS.items()}
    run_parts(parts, options.parts, figures, options.out)


if __name__ == "__main__":
    main()
