"""RocketMQ 5's SDKs while the master is killed: which promises of spec/grpc.md, 14.4, were kept.

    python bench/sdk_kills.py --brokers pair,set --kills 100 --sdks py,java,node,rust
    python bench/sdk_kills.py --brokers set --kills 3 --sdks py        # a try: three minutes

For each SDK, programs of the rig `../shared/peerg` send to a topic without order, and to one with
message groups; others receive and acknowledge; Python, Java and Node also recall every second of
some delayed messages (`--recalls`). Python's and Java's programs name both brokers
(`a:port;b:port`). Node's SDK 1.0.8 and Rust's 5.0.0 take one address: that of a relay, which
connects to the first broker that runs, as an address of a load balancer does. Then the master is
killed by `kill -9`, again and again. After each kill every SDK has to send and receive once more.

`pair` is a SYNC_MASTER with its slave; after each second kill the slave is started as the master,
after the others the killed master starts again. `set` is two brokers and a controller; after each
kill the other broker is elected. `--hand-overs` asks the controller for another master instead.
Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sdk_judge import HEAD, PEERG, QUEUES, SDKS, Diary, Program, Verdict, copies_of, judge
from timer_judge import machine
from timer_sets import READY_S, TIMERS, TimerPair, TimerRig, TimerSet

from tests.interop.rig import Server

GRPC_PORT = 2
"""A broker's gRPC port is so far above its `listenPort`."""
ONE_ADDRESS = ("node", "rust")
"""SDKs that cannot be given two addresses."""
ADMIN = str(Path(sys.executable).with_name("rmqha-admin"))
CALM_S = 45.0
"""A message that was not acknowledged comes again within 20 s, on a busy machine later."""
SETTLE_S = 180.0
STUCK_S = 90.0
"""A program that has done nothing for so long after a kill is started again."""


class KillRig(TimerRig):
    """Its brokers serve pops and gRPC, and use none of the ports of other benchmarks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {**TIMERS, "popEnable": "true"}, range(48_600, 49_400, 8))

    def ports(self, count: int = 4) -> int:
        return super().ports(max(count, 4 + GRPC_PORT))

    def broker(self, conf: str, name: str, **options: Any) -> Server:
        port = options.pop("port", None) or self.ports() + 2
        options["grpcServerPort"] = port + GRPC_PORT
        return super().broker(conf, name, port=port, **options)


class Relay(threading.Thread):
    """Passes connections on to the first of some addresses that accepts."""

    def __init__(self, targets: list[int]) -> None:
        super().__init__(daemon=True)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._targets = targets

    def run(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = self._connected()
            if server is None:
                client.close()
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _connected(self) -> socket.socket | None:
        for port in self._targets:
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", port), 2)
        return None

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept no more."""
        self._listening.close()


class KillPair(TimerPair):
    """A pair whose slave is promoted after each second kill."""

    def __init__(self, rig: KillRig, random: Random) -> None:
        super().__init__(rig, random)
        self._kills = 0

    def kill(self) -> str:
        self._kills += 1
        if self._kills % 2:
            return super().kill()
        self._pair.master.kill()
        self._pair.slave.stop()
        self._pair.swap()
        return "kill -9 of the master, whose slave is promoted"


class Ordeal:
    """One set of brokers, and the programs of all SDKs."""

    def __init__(self, kind: str, options: argparse.Namespace, directory: Path) -> None:
        self.kind, self._options = kind, options
        self._rig = KillRig(directory)
        random = Random(f"{options.seed}/{kind}")
        self._brokers: TimerPair | TimerSet
        if kind == "pair":
            self._brokers = KillPair(self._rig, random)
        else:
            self._brokers = TimerSet(self._rig, ("ours",) * 3)
        self._random = random
        self._diaries: dict[str, dict[str, Diary]] = {}
        self._producers: list[Program] = []
        self._consumers: list[Program] = []
        self._relay: Relay | None = None
        self._kills = 0
        self._waits: list[float] = []

    def run(self) -> list[Verdict]:
        """From the start of the programs to the verdicts."""
        try:
            self._begin()
            self._until_all_work(time.monotonic())
            end = time.monotonic() + self._options.minutes * 60
            while self._kills < self._options.kills and time.monotonic() < end:
                self._fault()
            return self._verdicts()
        finally:
            for program in [*self._producers, *self._consumers]:
                program.stop()
            if self._relay is not None:
                self._relay.close()
            self._rig.close()

    def _begin(self) -> None:
        namesrv, ports = self._brokers.namesrv, self._ports()
        both = ";".join(f"127.0.0.1:{port}" for port in ports)
        self._relay = Relay(ports)
        self._relay.start()
        for sdk in self._options.sdks.split(","):
            topics = {"plain": "NORMAL", "fifo": "FIFO", "recall": "DELAY"}
            if sdk == "rust" or not self._options.recalls:
                del topics["recall"]
            self._diaries[sdk] = {kind: Diary() for kind in topics}
            for kind, type_ in topics.items():
                topic, diary = f"{sdk}-{kind}", self._diaries[sdk][kind]
                words = ["topic", "create", topic, "--type", type_, "--queues", str(QUEUES)]
                self._admin(*words, "-n", namesrv)
                is_orderly = "--orderly" if kind == "fifo" else "--no-orderly"
                self._admin("group", "create", f"g-{topic}", is_orderly, "-n", namesrv)
        time.sleep(3.0)  # the slave has the tables
        for sdk, diaries in self._diaries.items():
            endpoints = self._relay.address if sdk in ONE_ADDRESS else both
            for kind, diary in diaries.items():
                works = [("simple", self._consumers), ("produce", self._producers)]
                if kind == "recall":
                    works = [("recall", self._producers)]
                for command, programs in works:
                    topic = f"{sdk}-{kind}"
                    programs.append(Program(sdk, command, topic, endpoints, diary))

    def _admin(self, *words: str) -> None:
        subprocess.run([ADMIN, *words], check=True, capture_output=True, timeout=60)

    def _ports(self) -> list[int]:
        addresses = [item.address for item in self._brokers.servers()]
        return [int(address.rpartition(":")[2]) + GRPC_PORT for address in addresses]

    def _fault(self) -> None:
        time.sleep(self._random.uniform(0.5, self._options.pause))
        began = time.monotonic()
        brokers = self._brokers
        words = brokers.hand_over() if self._options.hand_overs else brokers.kill()
        self._kills += 1
        self._brokers.mend()
        mended = time.monotonic()
        self._until_all_work(began)
        self._waits.append(time.monotonic() - began)
        self._say(
            f"{self._kills}: {words}; mended after {mended - began:.1f} s, "
            f"all SDKs work after {self._waits[-1]:.1f} s"
        )

    def _until_all_work(self, since: float) -> None:
        """
        Wait until each SDK has sent and received in each topic, after a fault.

        :raises RuntimeError: a program that was started again does not work either.
        """
        began, stuck = time.monotonic(), set[Program]()
        while idle := [item for item in self._programs() if item.worked_at < since]:
            now = time.monotonic()
            if now > began + READY_S:
                raise RuntimeError(f"do not work: {', '.join(map(str, idle))}")
            for program in idle:
                if now > began + STUCK_S and program not in stuck:
                    self._say(f"{program} does nothing for {now - since:.0f} s: it starts again")
                    stuck.add(program)
                    program.restart()
            time.sleep(0.1)

    def _programs(self) -> list[Program]:
        programs = [*self._producers, *self._consumers]
        return [item for item in programs if not item.recalls]

    def _verdicts(self) -> list[Verdict]:
        for program in self._producers:
            program.stop()
        deadline, quiet = time.monotonic() + SETTLE_S, time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - quiet < CALM_S:
            newest = max(d.got_at for diaries in self._diaries.values() for d in diaries.values())
            quiet = max(quiet, newest)
            time.sleep(0.2)
        for program in self._consumers:
            program.stop()
        address = self._brokers.master().address
        verdicts = []
        for sdk, diaries in self._diaries.items():
            copies = sum(
                (copies_of(address, f"{sdk}-{kind}") for kind in diaries if kind != "recall"),
                start=type(copies_of(address, f"{sdk}-plain"))(),
            )
            verdicts.append(judge(self.kind, sdk, self._kills, diaries, copies))
        waits = sorted(self._waits)
        if waits:
            self._say(
                f"all SDKs worked again after {waits[len(waits) // 2]:.1f} s (median), "
                f"{waits[-1]:.1f} s (longest)"
            )
        return verdicts

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%X')} {self.kind}: {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--brokers", default="pair,set", help="of pair, set")
    parser.add_argument("--sdks", default=",".join(SDKS), help=f"of {', '.join(SDKS)}")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=600, help="for each kind, at most")
    parser.add_argument("--recalls", action="store_true", help="recall delayed messages, too")
    parser.add_argument("--hand-overs", action="store_true", help="elections instead of kills")
    parser.add_argument("--pause", type=float, default=5.0, help="most seconds between two faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/sdk_kills.md")
    options = parser.parse_args()
    if not PEERG.exists():
        sys.exit(f"sdk_kills: no rig at {PEERG} (RMQ_HA_SHARED names the folder with peerg)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    verdicts: list[Verdict] = []
    for kind in options.brokers.split(","):
        with tempfile.TemporaryDirectory(prefix=f"sdk-{kind}-", dir=options.work) as directory:
            verdicts += Ordeal(kind, options, Path(directory)).run()
        lines = [machine(), "", *HEAD, *(verdict.row for verdict in verdicts), ""]
        lines += [note for verdict in verdicts for note in verdict.notes]
        options.out.write_text("\n".join(lines) + "\n")
    print(options.out.read_text())
    sys.exit(any(verdict.is_broken for verdict in verdicts))


if __name__ == "__main__":
    main()
