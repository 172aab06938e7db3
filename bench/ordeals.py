"""The faults that `bench/timers.py` and `bench/pops.py` put a set of brokers through."""

from __future__ import annotations

import argparse
import sys
import time
from random import Random
from typing import Protocol

from timer_judge import Fault
from timer_sets import READY_S, TimerBrokers, TimerGroup, TimerPair, TimerRig, TimerSet

from tests.interop.wire import Refused

KINDS = {
    "pair": "a classic pair of ours",
    "set": "two brokers of ours, our controller",
    "group": "a DLedger group of ours",
    "java-set": "two brokers of Java 5.3.3, their controller",
    "mixed-set": "a broker of ours and one of Java 5.3.3, our controller",
}
OWN = ("pair", "set", "group")


def made(kind: str, rig: TimerRig, random: Random) -> TimerBrokers:
    """Start the brokers of a kind."""
    if kind == "pair":
        return TimerPair(rig, random)
    if kind == "group":
        return TimerGroup(rig, random)
    return TimerSet(
        rig,
        {
            "set": ("ours", "ours", "ours"),
            "java-set": ("java", "java", "java"),
            "mixed-set": ("ours", "java", "ours"),
        }[kind],
    )


class SendBook(Protocol):
    """
    What is known of the sends of a load.

    :ivar acknowledged_at: when the last send was acknowledged, seconds since the epoch.
    """

    acknowledged_at: float


class Ordeal:
    """
    One set of brokers, its load, and the faults.

    :ivar faults: those that were, in order.
    """

    def __init__(self, kind: str, options: argparse.Namespace, book: SendBook) -> None:
        self.kind, self._options, self._sends = kind, options, book
        self._random = Random(f"{options.seed}/{kind}")
        self.faults: list[Fault] = []

    def deal(self, brokers: TimerBrokers) -> None:
        """Kill and hand over, in an order by chance."""
        order = ["kill"] * self._options.kills + ["hand over"] * self._options.hand_overs
        self._random.shuffle(order)
        for number, name in enumerate(order, 1):
            time.sleep(self._random.uniform(1.0, self._options.pause))
            self.before_fault()
            began = time.time()
            words = brokers.kill() if name == "kill" else brokers.hand_over()
            if name == "kill":
                brokers.mend()
            else:
                self._until_mended(brokers)
            self._until_acknowledged(began)
            ended = self._sends.acknowledged_at
            self.faults.append(Fault(name == "kill", began * 1000, ended * 1000, words))
            self.say(f"{number} of {len(order)}: {words}; {time.time() - began:.1f} s")

    def _until_mended(self, brokers: TimerBrokers) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                brokers.mend()
                return
            except (OSError, Refused, StopIteration):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _until_acknowledged(self, began: float) -> None:
        """Wait until a send that was answered after the fault, and after all members are back."""
        mended, deadline = max(began, time.time()), time.monotonic() + READY_S
        while self._sends.acknowledged_at < mended:
            if time.monotonic() > deadline:
                raise RuntimeError("no message is acknowledged after a fault")
            time.sleep(0.05)

    def before_fault(self) -> None:
        """Called before each fault."""

    def say(self, text: str) -> None:
        print(f"{time.strftime('%X')} {self.kind}: {text}", file=sys.stderr, flush=True)
