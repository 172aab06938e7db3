"""A soak with every kind of fault: deals them, lets the pair heal, and judges."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from soak_history import BACK_S, STREAMS, History
from soak_pair import FaultyPair, difference, is_unchecked, queue_files
from soak_victims import RealVictims

from rmq_ha.base.wire.codes import RequestCode
from tests.interop.wire import Refused, Wire
from tests.sim_kit.faults import LOSES_TAIL, SOAK_KINDS
from tests.sim_kit.promises import CommittedOffsets

REST_S = (2.0, 8.0)
DRAIN_S = 120.0
LOOK_S = 2.0
GROWTH = {"memory": (1.3, 24 << 20), "descriptors": (1.1, 40), "timers": (1.2, 40)}
LEFT_OUT = (
    "left out: a full disk, which tests/unit/server/store and tests/mistakes have, and faults of "
    "the name server, which runs throughout"
)


class Helper:
    """One process of the load; its lines go to the history."""

    def __init__(self, kind: str, namesrv: str, number: float, history: History, log: Path) -> None:
        self.kind, self._history = kind, history
        self._lines = log.with_suffix(".lines")
        self._events: Counter[str] = Counter()
        program = str(Path(__file__).with_name("soak_load.py"))
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, program, kind, namesrv, str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self._lines.open("w") as kept:
            for line in self.process.stdout:
                kept.write(f"{time.time():.3f}\t{line}")
                words = line.rstrip("\n").split("\t")
                if words[0] == "E":
                    self._events[words[1]] += 1
                self._history.take(words, time.monotonic())

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def wait_for(self, event: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._events[event]:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"soak_load.py {self.kind} did not say {event!r}")
            time.sleep(0.1)

    def quit(self) -> None:
        try:
            self.tell("quit")
            self.process.wait(30)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()


class Watch(threading.Thread):
    """Looks at figures and at the groups' offsets while faults happen."""

    def __init__(self, pair: FaultyPair, offsets: CommittedOffsets) -> None:
        super().__init__(daemon=True)
        self._pair, self._offsets = pair, offsets
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            for member in self._pair.members:
                member.scrape()
            self._look_at_groups()

    def _look_at_groups(self) -> None:
        master = self._pair.master
        try:
            with master.wire(3) as wire:
                for stream in STREAMS:
                    self._look_at(wire, stream)
        except (OSError, Refused, ValueError):
            return

    def _look_at(self, wire: Wire, stream: str) -> None:
        for queue_id in range(4):
            try:
                answer = wire.call(
                    RequestCode.QUERY_CONSUMER_OFFSET,
                    consumerGroup=f"own-g-{stream}",
                    topic=f"own-{stream}",
                    queueId=queue_id,
                )
            except Refused:
                continue  # it has none yet
            offset = int((answer.ext or {})["offset"])
            key = (f"own-g-{stream}", "queue", queue_id)
            self._offsets.look_at_master(time.monotonic(), key, offset)

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)


class Soak:
    """One run."""

    def __init__(self, options: argparse.Namespace, pair: FaultyPair) -> None:
        self._options, self._pair = options, pair
        self._history, self._offsets = History(), CommittedOffsets(BACK_S)
        self._random = Random(options.seed)
        self.violations: list[str] = []
        self._done: Counter[str] = Counter()
        self._healed: dict[str, float] = {}

    def run(self) -> list[str]:
        """Everything; the report."""
        pair, options = self._pair, self._options
        began = time.monotonic()
        if reason := pair.heals():
            raise RuntimeError(f"no pair to begin with: {reason}")
        directory = pair.rig.directory
        helpers = [
            Helper(kind, pair.namesrv, number, self._history, directory / f"{kind}.log")
            for kind, number in (("consume", options.churn), ("produce", options.rate))
        ]
        watch = Watch(pair, self._offsets)
        try:
            for helper in helpers:
                helper.wait_for("ready", 60)
            watch.start()
            time.sleep(3)
            self._deal(began + options.minutes * 60)
            helpers[1].tell("stop")
            helpers[1].wait_for("stopped", 120)
            self._settle()
        finally:
            watch.stop()
            for helper in helpers:
                helper.quit()
        self._judge()
        return self._report(time.monotonic() - began)

    def _deal(self, end: float) -> None:
        kinds = {kind: SOAK_KINDS[kind] for kind in self._options.only or SOAK_KINDS}
        victims = RealVictims(self._pair, self._history, self._offsets, self._random)
        while time.monotonic() < end:
            time.sleep(self._random.uniform(*REST_S))
            fault = victims.draw(kinds)
            began = time.monotonic()
            self._say(f"{fault} ...")
            try:
                found = victims.suffer(fault)
            except (OSError, Refused, AssertionError) as error:
                found = [*victims.found, f"{type(error).__name__}: {str(error)[:1500]}"]
            self._done[fault.kind] += 1
            after = time.monotonic()
            found += self._heal()
            if fault.kind in LOSES_TAIL:
                self._history.tail_was_lost(began, after)
            victims.remember()
            healed = time.monotonic() - after
            self._healed[fault.kind] = max(self._healed.get(fault.kind, 0), healed)
            self._say(f"{fault.kind}: {after - began:.1f} s, healed after {healed:.1f} s")
            for text in found:
                self._violated(f"{fault.kind}: {text}")

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def _violated(self, text: str) -> None:
        self.violations.append(text)
        self._say(f"VIOLATED {text}")

    def _heal(self) -> list[str]:
        """Until the pair is one again; by an operator's hand if it must be, which is a fault."""
        pair = self._pair
        faults = []
        pair.link.is_black, pair.link.delay = False, 0
        for member in pair.members:
            if not member.is_up:
                faults.append(f"{member.name} ({member.role}) has left: {member.last_words()}")
                pair.revive(member)
        reason = pair.heals()
        if reason:
            faults.append(f"not healed: {reason}; {self._voices()}")
            pair.seed_again()
            reason = pair.heals(180)
            if reason:
                raise RuntimeError(f"no pair any more, even with an empty slave: {reason}")
        return faults + self._same()

    def _voices(self) -> str:
        return "; ".join(
            f"{member.name} says {member.health()!r}, log: {member.last_words(2)}"
            for member in self._pair.members
        )

    def _same(self) -> list[str]:
        """Both logs are the same as far as both are known to go."""
        pair = self._pair
        end = min(member.log_end() for member in pair.members)
        stores = pair.master.store, pair.slave.store
        place = difference(*stores, end)
        if place is None:
            return []
        text = f"the commit logs differ from {place} on (both end at {end})"
        faults = [f"SILENT {text}; {self._voices()}"]
        if is_unchecked(*stores, place):
            pair.notes.append(f"{text}: one byte that no checksum covers; seeded again")
            faults = []
        pair.seed_again()
        if reason := pair.heals(180):
            faults.append(f"not healed with an empty slave: {reason}")
        return faults

    # ------------------------------------------------------------ the end

    def _settle(self) -> None:
        """Everything promised has arrived, or nothing comes any more."""
        self._say("the load has stopped; waiting for consumers and checks")
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and self._history.faults_of_groups():
            time.sleep(1)
        time.sleep(8)  # what must not come gets its chance
        if reason := self._pair.heals():
            self._violated(f"at the end: {reason}")

    def _judge(self) -> None:
        pair, history = self._pair, self._history
        for member in pair.members:
            for stream in STREAMS:
                stored = member.stored(stream)
                history.look_for_skipped(stream, stored)
                where = f"{member.name} ({member.role})"
                for text in history.faults_of_store(stream, stored, where):
                    self._violated(text)
        for text in [*history.faults_of_groups(), *self._offsets.faults]:
            self._violated(text)
        end = min(member.log_end() for member in pair.members)
        if len({member.log_end() for member in pair.members}) > 1:
            self._violated("the logs end at different places")
        place = difference(pair.master.store, pair.slave.store, end)
        if place is not None:
            self._violated(f"the commit logs differ from {place} on (both end at {end})")
        ours, theirs = (queue_files(member.store) for member in pair.members)
        for path in sorted(ours.keys() | theirs.keys()):
            if ours.get(path) != theirs.get(path):
                self._violated(f"{path} is not the same at both members")
        for member in pair.members:
            for path in member.outputs():
                text = path.read_text(errors="replace")
                if "Traceback (most recent call last)" in text or "Unhandled" in text:
                    self._violated(f"a traceback in {path}")

    def _growth(self) -> list[str]:
        lines = ["| member | figure | early | late | |", "|---|---|---|---|---|"]
        for member in self._pair.members:
            third = len(member.samples) // 3
            if third < 3:
                lines.append(f"| {member.name} | too short to tell | | | |")
                continue
            for name, (factor, slack) in GROWTH.items():
                early, late = (
                    mean([found[name] for _, found in part if name in found])
                    for part in (member.samples[:third], member.samples[-third:])
                )
                is_much = late > early * factor + slack
                if is_much:
                    self._violated(f"{name} of {member.name} grew from {early:,.0f} to {late:,.0f}")
                verdict = "GROWS" if is_much else "bounded"
                lines.append(f"| {member.name} | {name} | {early:,.0f} | {late:,.0f} | {verdict} |")
        return lines

    def _report(self, seconds: float) -> list[str]:
        growth = self._growth()
        faults = [
            f"| {name} | {count} | {self._healed[name]:.1f} |"
            for name, count in sorted(self._done.items())
        ]
        return [
            f"{platform.machine()}, {os.cpu_count()} processors, load average "
            f"{os.getloadavg()[0]:.1f}; {seconds / 60:.1f} minutes, seed {self._options.seed}, "
            f"{self._options.flush}; {sum(self._done.values())} faults of {len(self._done)} kinds",
            "",
            *self._history.table(),
            "",
            "| fault | times | slowest to heal, s |",
            "|---|---|---|",
            *faults,
            "",
            *growth,
            "",
            *[f"note: {note}" for note in self._pair.notes],
            LEFT_OUT,
            "",
            *([f"VIOLATED: {text}" for text in self.violations] or ["All rules hold."]),
        ]


def mean(values: list[float]) -> float:
    return sum(values) / max(1, len(values))
