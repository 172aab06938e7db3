"""Pops through `kill -9` and hand-overs of real brokers, and what came of them.

    python bench/pops.py --brokers pair,set,group               # ours; some 25 minutes
    python bench/pops.py --brokers java-set --kills 5 --hand-overs 2    # a pair of Java 5.3.3
    python bench/pops.py --brokers pair --short                 # two minutes

Consumers keep 10,000 messages out: they acknowledge most of them in time, give some another
invisible time, and leave the others alone. Meanwhile the master is killed and handed over, again
and again. At the end everything is acknowledged, and the judge (`pop_judge.py`) compares what the
consumers saw with the promises: a message that was acknowledged in time never comes again, and any
other one does, not before its lease ends.

`pair` is a SYNC_MASTER with its slave, `set` two brokers and a controller, and `group` three
brokers with DLedger. Exits with 1 if brokers of ours broke a promise; a late message is only
counted, as a busy machine is late, too.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ordeals import KINDS, OWN, Ordeal, made
from pop_judge import HEAD, PopVerdict, judge
from pop_load import GROUP, QUEUES, TOPIC, Acknowledger, Consumer, PopBook, PopSender
from timer_judge import machine
from timer_load import Route, Worker
from timer_sets import READY_S, TimerBrokers, TimerRig

from rmq_ha.base.store_format.commitlog import decode_records
from tests.interop.rig import missing
from tests.interop.test_controller import missing as missing_5
from tests.interop.wire import Wire

SHORT = {"out": 1000, "invisible": 20.0, "kills": 3, "hand_overs": 1}
POPS = {"popEnable": "true", "timerWheelEnable": "true", "autoCreateSubscriptionGroup": "true"}
_TABLES_S = 12.0
"""Slaves of all kinds copy topics and groups from their master every 10 s."""
_RETRIES = 100


class PopOrdeal(Ordeal):
    """One set of brokers whose messages are popped."""

    def __init__(self, kind: str, options: argparse.Namespace, directory: Path) -> None:
        first = options.ports
        self._rig = TimerRig(directory, POPS, range(first, first + 900, 8))
        self._book = PopBook(options.seed, int(options.invisible * 1000))
        self._out: list[int] = []
        super().__init__(kind, options, self._book)

    def run(self) -> PopVerdict:
        """From the start of the brokers to the verdict."""
        options, workers = self._options, list[Worker]()
        try:
            brokers = made(self.kind, self._rig, self._random)
            brokers.make_topic(TOPIC, QUEUES)
            with Wire(brokers.master().address) as wire:
                wire.create_group(GROUP, _RETRIES)
            time.sleep(_TABLES_S)
            route, invisible_ms = Route(brokers.namesrv, TOPIC), int(options.invisible * 1000)
            # A message is out for half its invisible time, give or take.
            sender = PopSender(self._book, route, options.out / (0.5 * options.invisible))
            workers += [Consumer(self._book, route, invisible_ms) for _ in range(2)]
            workers += [Acknowledger(self._book, route) for _ in range(2)]
            for worker in (sender, *workers):
                worker.start()
            self.say(f"messages go out: {options.invisible:.0f} s")
            time.sleep(options.invisible)
            self.deal(brokers)
            sender.stop()
            self._drain(brokers)
            for worker in workers:
                worker.stop()
            dead = self._dead(brokers)
            return judge(self.kind, self._book, self.faults, self._out, dead)
        finally:
            self._rig.close()

    def before_fault(self) -> None:
        self._out.append(self._book.out())

    def _drain(self, brokers: TimerBrokers) -> None:
        """Acknowledge all that still comes, until nothing can come any more."""
        brokers.mend()
        self._book.is_draining = True
        quiet_s = self._options.invisible + 25
        began = time.time()
        while time.time() < max(began, self._book.came_at) + quiet_s and self._book.open():
            if time.time() > began + READY_S:
                break
            time.sleep(0.5)
        self.say(f"{self._book.open()} messages have no acknowledgement, all others have")
        time.sleep(self._options.after)

    def _dead(self, brokers: TimerBrokers) -> set[int]:
        """Return the numbers of the messages in the DLQ."""
        topic = f"%DLQ%{GROUP}"
        with Wire(brokers.master().address, 60) as wire:
            if not wire.max_offset(topic, 0):
                return set()
            records = decode_records(wire.pull_bytes(topic, 0, wire.min_offset(topic, 0)))
            return {int(record.body[:8]) for record in records}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--brokers", default="pair,set,group", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--short", action="store_true", help="a try: few messages, few faults")
    parser.add_argument("--out", type=int, default=10_000, help="messages that are out")
    parser.add_argument("--invisible", type=float, default=60.0, help="invisible time, seconds")
    parser.add_argument("--kills", type=int, default=20, help="of the master")
    parser.add_argument("--hand-overs", type=int, default=5)
    parser.add_argument("--pause", type=float, default=8.0, help="most seconds between two faults")
    parser.add_argument("--after", type=float, default=8.0, help="seconds of watching at the end")
    parser.add_argument("--ports", type=int, default=47500, help="the first of 900")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "results" / "pops.md")
    options = parser.parse_args()
    kinds = options.brokers.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    if options.short:
        for name, value in SHORT.items():
            setattr(options, name, value)
    reason = missing() or (missing_5() if any("set" in kind for kind in kinds) else None)
    if reason:
        sys.exit(f"pops: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    verdicts: list[PopVerdict] = []
    options.table.parent.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix=f"pops-{kind}-", dir=options.work) as directory:
            verdicts.append(PopOrdeal(kind, options, Path(directory)).run())
        lines = [machine(), "", *HEAD, *(verdict.row for verdict in verdicts), ""]
        lines += [line for verdict in verdicts for line in verdict.notes]
        options.table.write_text("\n".join(lines) + "\n")
    print(options.table.read_text())
    if any(verdict.is_broken for verdict in verdicts if verdict.kind in OWN):
        sys.exit(1)


if __name__ == "__main__":
    main()
