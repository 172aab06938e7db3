"""A long mixed load over a SYNC_MASTER pair of ours, and what must be true of it.

    python bench/soak.py [--minutes 10] [--rate 40] [--churn 10] [--kill-every MINUTES]
    python bench/soak.py --faults [--minutes 60] [--seed N] [--flush SYNC_FLUSH] [--only KIND ...]

The first one: Java clients (`bench/java/Soak.java`) send normal, ordered, delayed, transactional,
filtered and failing messages, each at `--rate` a second; members of three groups come and go every
`--churn` seconds. With `--kill-every` the slave and the master are killed (-9) and restarted in
turn.

Prints a table; exits with 1 when a rule is violated:

- what was answered SEND_OK is consumed (of transactions: what was committed; of filtered ones: what
  the filter wants), and what must not be consumed is not;
- a shard's messages are seen in order;
- nothing is stored twice, but at the kill of a master;
- a message comes again only when it was given back, or soon after a member came or went or a broker
  was killed, and then only what the clients had not committed yet (they do every 5 s);
- memory, descriptors and timers of the brokers do not grow.

It needs the peer rig (`../shared/peer`, or RMQ_HA_PEER) with Java.

With `--faults` every kind of `soak_faults.py` happens in an order that `--seed` decides: kills and
stops of both, freezes, a bad line between them, fail-overs with a tail that nobody else has, power
lost with what was not synced, clocks an hour off, topics made again, damage at rest. Our own
clients (`soak_load.py`, no Java) send, delay, end transactions late, and consume; with `--load
java` the Java clients come beside them, judged as above. The rules:

- what was answered SEND_OK can be read at both members at the end, and at once at a slave that was
  made master (with ASYNC_FLUSH not what a master lost that lost power and went on as master);
- nothing is stored more often than it was sent; transactions that were committed are there once;
- no group goes back by more than it committed in the last 20 s before a change;
- after each fault SEND_OK comes again without a hand, and both logs are the same byte for byte; a
  damaged slave may instead refuse to start and say why;
- memory, descriptors and timers do not grow; there is no traceback.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from soak_java import TOPICS, Clients, compiled
from soak_rules import Judge

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.interop.rig import Rig, Server, missing, rig_in
from tests.interop.wire import Wire

WATCHED = {
    "process_resident_memory_bytes": ("memory", 1 << 20, "MiB"),
    "process_open_fds": ("descriptors", 1, ""),
    "rmqha_reactor_delayed_calls": ("timers", 1, ""),
}
# How much the last third of a run may be above the first third behind the warm-up.
GROWTH = {"memory": (1.25, 24), "descriptors": (1.1, 40), "timers": (1.2, 40)}
SCRAPE_S = 2.0
DRAIN_S = 90.0
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 64 << 20,
    "registerNameServerPeriod": 10_000,
    "haSendHeartbeatInterval": 1000,
    "autoCreateTopicEnable": "false",
}


class Watched:
    """A broker of the pair, its restarts, and what its /metrics said."""

    def __init__(self, rig: Rig, name: str, settings: str, namesrv: str) -> None:
        self.name = name
        base = rig.ports(5)
        self.port, self.metrics_port = base + 2, base + 4
        self._rig, self._settings, self._namesrv = rig, settings, namesrv
        self.lives: list[list[dict[str, float]]] = []
        self.worst_lag = 0.0
        self.server: Server
        self.start()

    def start(self) -> None:
        self.lives.append([])
        self.server = self._rig.broker(
            self._settings,
            self.name,
            namesrv=self._namesrv,
            port=self.port,
            metricsPort=self.metrics_port,
            **SETTINGS,
        )

    def kill_and_restart(self, down_s: float) -> None:
        self.server.kill()
        time.sleep(down_s)
        self.start()

    def scrape(self) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
        except OSError:
            return  # it is down just now
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in WATCHED:
                    found[WATCHED[sample.name][0]] = sample.value / WATCHED[sample.name][1]
                elif sample.name == "rmqha_reactor_lag_max_seconds":
                    self.worst_lag = max(self.worst_lag, sample.value)
        self.lives[-1].append(found)

    def growth(self) -> list[tuple[str, float, float, bool]]:
        """Of the longest life: name, early mean, late mean, and whether that is too much."""
        life = max(self.lives, key=len)
        third = len(life) // 3
        if third < 3:
            return []
        rows = []
        for name, (factor, slack) in GROWTH.items():
            # The first sixth is warming up: tables, buffers and pools that are made once.
            early = mean([item[name] for item in life[third // 2 : third + third // 2]])
            late = mean([item[name] for item in life[-third:]])
            rows.append((name, early, late, late > early * factor + slack))
        return rows


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def run(options: argparse.Namespace, rig: Rig) -> int:
    """The whole soak; the exit code."""
    namesrv = rig.namesrv()
    master = Watched(rig, "m", "master-sync.conf", namesrv)
    slave = Watched(rig, "s", "slave.conf", namesrv)
    with Wire(master.server.address) as wire:
        for topic in TOPICS:
            wire.create_topic(f"soak-{topic}", 4)
    wait_ok(master, slave, rig)
    judge = Judge(options.rate)
    arguments = [namesrv, str(options.rate), str(options.churn)]
    command = [*compiled(rig.directory), *arguments]
    clients = Clients(command, judge, rig.directory / "clients.log")
    clients.wait_for("ready", 60)
    began = time.monotonic()
    endure(options, began, master, slave, judge)
    clients.tell("stop")
    clients.wait_for("stopped", 60)
    sent_for = time.monotonic() - began
    drain(judge)
    clients.tell("quit")
    clients.process.wait(30)
    return report(options, judge, [master, slave], sent_for, clients)


def wait_ok(master: Watched, slave: Watched, rig: Rig) -> None:
    """Until the slave acknowledges."""
    from rmq_ha.client.lookup.requests import send_request

    def is_ok() -> bool:
        with Wire(master.server.address) as wire:
            (answer,) = wire.exchange([send_request("w", "soak-warm", 0, b"x", "", 1)])
            return answer.code == 0

    with Wire(master.server.address) as wire:
        wire.create_topic("soak-warm", 1)
    rig.until(is_ok, 40, "a first SEND_OK", master.server, slave.server)


def endure(
    options: argparse.Namespace, began: float, master: Watched, slave: Watched, judge: Judge
) -> None:
    """Scrape, and kill in turn, until the time is over."""
    end = began + options.minutes * 60
    next_kill = began + options.kill_every * 60 if options.kill_every else float("inf")
    victims = [slave, master]
    while (now := time.monotonic()) < end:
        if now >= next_kill and now < end - 20:
            victim = victims[0]
            victims.reverse()
            judge.disturbed(now, "all", is_master=victim is master)
            victim.kill_and_restart(2.0)
            judge.disturbed(time.monotonic(), "all", is_master=victim is master)
            next_kill = time.monotonic() + options.kill_every * 60
        for broker in (master, slave):
            broker.scrape()
        time.sleep(SCRAPE_S)


def drain(judge: Judge) -> None:
    """Until everything that must arrive has, or nothing has come for long."""
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline and judge.missing_count():
        time.sleep(0.5)
    time.sleep(3)  # what must not come gets its chance


def report(
    options: argparse.Namespace,
    judge: Judge,
    brokers: list[Watched],
    sent_for: float,
    clients: Clients,
) -> int:
    """Print the tables; the exit code."""
    faults = judge.faults()
    lines = [
        f"{platform.machine()}, {os.cpu_count()} processors, load average "
        f"{os.getloadavg()[0]:.1f}; {sent_for / 60:.1f} minutes at {options.rate:g}/s a stream; "
        f"members came or went {sum(clients.events.values()) - 3} times, brokers were killed "
        f"{sum(len(broker.lives) - 1 for broker in brokers)} times",
        "",
        *judge.table(),
        "",
        "| broker | figure | early | late | |",
        "|---|---|---|---|---|",
    ]
    for broker in brokers:
        for name, early, late, is_much in broker.growth():
            unit = next(item[2] for item in WATCHED.values() if item[0] == name)
            verdict = "GROWS" if is_much else "bounded"
            lines.append(
                f"| {broker.name} | {name} {unit} | {early:,.1f} | {late:,.1f} | {verdict} |"
            )
            if is_much:
                faults.append(f"{name} of {broker.name} grew from {early:,.1f} to {late:,.1f}")
        lines.append(f"| {broker.name} | worst reactor lag, s | | {broker.worst_lag:.3f} | |")
    lines.append("")
    lines += [f"VIOLATED: {fault}" for fault in faults] or ["All rules hold."]
    publish(lines, options.out)
    return 1 if faults else 0


def run_faults(options: argparse.Namespace, rig: Rig) -> int:
    """The soak with all faults; the exit code."""
    from soak_faulty import Soak
    from soak_pair import FaultyPair

    pair = FaultyPair(rig, options.flush)
    try:
        soak = Soak(options, pair)
        publish(soak.run(), options.out)
    finally:
        pair.close()
    return 1 if soak.violations else 0


def publish(lines: list[str], out: Path) -> None:
    """Print the report, and keep it."""
    text = "\n".join(lines)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n")
    print(text)


def main() -> None:
    from soak_faults import FAULTS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=40, help="messages a second of each stream")
    parser.add_argument("--churn", type=float, default=10, help="seconds between joins and leaves")
    parser.add_argument("--kill-every", type=float, default=0, help="minutes; 0: never")
    parser.add_argument("--faults", action="store_true", help="every kind of fault, our own load")
    parser.add_argument(
        "--load", choices=["ours", "java"], help="java without --faults, ours with them"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--only", nargs="+", choices=sorted(FAULTS), help="kinds of faults")
    parser.add_argument(
        "--flush",
        default="ASYNC_FLUSH",
        choices=["ASYNC_FLUSH", "SYNC_FLUSH"],
        help="with --faults",
    )
    parser.add_argument("--keep", action="store_true", help="keep stores and logs")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "soak.md")
    options = parser.parse_args()
    options.load = options.load or ("ours" if options.faults else "java")
    if options.load == "ours" and not options.faults:
        parser.error("--load ours is the load of --faults; --only names the kinds that may happen")
    reason = missing() if options.load == "java" else None
    if reason:
        sys.exit(f"soak: {reason}; --faults --load ours needs no Java")
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=options.work))
    code = 1
    try:
        with rig_in(directory) as rig:
            code = (run_faults if options.faults else run)(options, rig)
    finally:
        if options.keep or code:
            print(f"stores and logs: {directory}", file=sys.stderr)
        else:
            subprocess.run(["rm", "-rf", str(directory)], check=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
