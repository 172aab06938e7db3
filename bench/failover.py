"""How long a fail-over takes, as Java's clients see it: ours beside Java 5.3.3, real processes.

    python bench/failover.py --kills 50 --json failover.json     # some two hours
    python bench/failover.py --kills 3 --spread 2 --pairs ours   # a try

A controller, a pair and a name server of each make, on this machine. RocketMQ's 5.3.3 client (or
4.9.7's, `--client 4`) sends every 10 ms and consumes, twice at once: as it is, and with
pollNameServerInterval=1000. The master is killed with SIGKILL at a moment by chance; what counts is
the time until the end of the first send that began after that and got SEND_OK, and until the first
message that was sent after that is at the consumer. Then the killed one comes back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.interop.rig import PEER, REPO, Rig
from tests.interop.test_controller import PEER5, missing
from tests.interop.test_controller_pairs import Pair

PROGRAM = REPO / "bench" / "java" / "Failover.java"
POLLS = {"default": 0, "pollNameServerInterval=1000": 1000}
LIMIT_S = 180.0
KILLED = "the kill"


class PairsRig(Rig):
    """A pair of Java's has a name server of Java's, too."""

    def __init__(self, directory: Path, make: str) -> None:
        super().__init__(directory)
        self._make = make

    def namesrv(self, **settings: Any) -> str:
        """Its address."""
        if self._make == "ours":
            return super().namesrv(**settings)
        port, directory = self.ports(1), self.directory / "ns"
        directory.mkdir()
        command = [str(PEER5), "namesrv", "--port", str(port), "--dir", str(directory)]
        return self._start(command, f"127.0.0.1:{port}", directory, java=True).address


class Client:
    """A producer and a consumer of Java's in one process, and what they say."""

    def __init__(self, directory: Path, namesrv: str, number: int, poll: int, path: str) -> None:
        self._path = directory / f"client-{number}"
        command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx192m"]
        command += [f"-Drmq.logback.configurationFile={directory / 'logback.xml'}"]
        command += [f"-Duser.home={directory}", "-cp", path, str(PROGRAM)]
        with self._path.open("a") as out, self._path.with_suffix(".err").open("w") as err:
            self.process = subprocess.Popen(
                [*command, namesrv, f"Failover{number}", str(poll)], stdout=out, stderr=err
            )

    def first(self, kind: str, after_ms: float) -> int | None:
        """When the first one ended that began after that moment; ms since the epoch."""
        if self.process.poll() is not None:
            raise SystemExit(f"a Java client ended: {self._path.with_suffix('.err').read_text()}")
        with self._path.open() as lines:
            for line in lines:
                words = line.split()
                if words[:1] == [kind] and line.endswith("\n") and int(words[1]) >= after_ms:
                    return int(words[2])
        return None

    def wait(self, kind: str, after_ms: float, what: str) -> float:
        """Seconds from that moment until the first one."""
        limit = time.monotonic() + LIMIT_S
        while (found := self.first(kind, after_ms)) is None:
            if time.monotonic() > limit:
                raise SystemExit(f"no {kind} within {LIMIT_S:.0f} s after {what}")
            time.sleep(0.1)
        return (found - after_ms) / 1000

    def forget(self) -> None:
        """What was said so far: the file does not grow for two hours."""
        os.truncate(self._path, 0)


def class_path(client: str) -> str:
    """Of the client library."""
    rig = PEER5 if client == "5" else PEER
    done = subprocess.run([str(rig), "classpath"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextlib.contextmanager
def clients_of(pair: Pair, directory: Path, path: str) -> Iterator[dict[str, Client]]:
    """One for each setting; killed at the end."""
    (directory / "logback.xml").write_text("<configuration><root level='OFF'/></configuration>\n")
    made: dict[str, Client] = {}
    try:
        for number, (name, poll) in enumerate(POLLS.items()):
            made[name] = Client(directory, pair.namesrv, number, poll, path)
        yield made
    finally:
        for client in made.values():
            client.process.kill()
            client.process.wait()


def measure(
    make: str, kills: int, spread: float, path: str, console: Console
) -> list[dict[str, Any]]:
    """One pair; for each kill and setting how long both clients waited."""
    found: list[dict[str, Any]] = []
    random = Random(make)
    with tempfile.TemporaryDirectory(prefix="failover-") as name:
        rig = PairsRig(Path(name), make)
        try:
            pair = Pair(rig, make, make, make)
            pair.in_sync()
            with clients_of(pair, Path(name), path) as clients:
                for number in range(kills):
                    now = time.time() * 1000
                    for client in clients.values():
                        client.wait("SENT", now, "both are in sync")
                        client.wait("GOT", now, "both are in sync")
                    time.sleep(random.uniform(0.5, 0.5 + spread))
                    killed = pair.master()
                    for client in clients.values():
                        client.forget()
                    began = time.time() * 1000
                    pair.servers[killed].kill()
                    for setting, client in clients.items():
                        row = {
                            "pair": make,
                            "client": setting,
                            "sent_s": round(client.wait("SENT", began, KILLED), 3),
                            "got_s": round(client.wait("GOT", began, KILLED), 3),
                        }
                        found.append(row)
                    console.print(f"{make}, kill {number + 1} of {kills}: {found[-2:]}")
                    pair.boot(killed)
                    pair.in_sync()
        finally:
            rig.close()
    return found


def table(rows: list[dict[str, Any]]) -> Table:
    """Median and worst by pair and client."""
    shown = Table(title="From kill -9 of the master, seconds: median / worst")
    for column in ("pair", "client", "kills", "first SEND_OK", "first message at the consumer"):
        shown.add_column(column)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["pair"], row["client"]), []).append(row)
    for (make, client), each in groups.items():
        times = [[row[name] for row in each] for name in ("sent_s", "got_s")]
        cells = [f"{statistics.median(values):.2f} / {max(values):.2f}" for values in times]
        shown.add_row(make, client, str(len(each)), *cells)
    return shown


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=50, help="of each pair")
    parser.add_argument("--pairs", default="ours,java", help="ours, java, or both")
    parser.add_argument("--client", choices=("4", "5"), default="5", help="4.9.7's or 5.3.3's")
    parser.add_argument("--spread", type=float, default=30.0, help="seconds that a kill may wait")
    parser.add_argument("--json", type=Path, help="where the rows go, too")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        raise SystemExit(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    console, rows = Console(stderr=True), []
    path = class_path(options.client)
    for make in options.pairs.split(","):
        rows += measure(make.strip(), options.kills, options.spread, path, console)
        if options.json is not None:
            load = [round(value, 2) for value in os.getloadavg()]
            told = {"client": options.client, "load": load, "rows": rows}
            options.json.write_text(json.dumps(told, indent=1) + "\n")
    Console().print(table(rows))


if __name__ == "__main__":
    main()
