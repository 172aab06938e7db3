"""Timer messages through `kill -9` and hand-overs of real brokers, and what came of them.

    python bench/timers.py --brokers pair,set,group                # ours; some 40 minutes
    python bench/timers.py --brokers java-set                      # Java 5.3.3's set, at its own
    python bench/timers.py --brokers mixed-set                     # ours and Java's in one set
    python bench/timers.py --brokers pair --short                  # three minutes

A client sends timer messages at a steady rate and recalls some. As many fall due each second, and
`--waiting` others wait. Meanwhile the master is killed and handed over, again and again. When the
last message is due, the judge (`timer_judge.py`) pulls the whole topic: an acknowledged message
that was not recalled has to be there once, and no message may come before it is due.

`pair` is a SYNC_MASTER with its slave, `set` two brokers and a controller, and `group` three
brokers with DLedger. Exits with 1 if brokers of ours lost, doubled or hurried a message.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ordeals import KINDS, OWN, Ordeal, made
from timer_judge import HEAD, Verdict, judge, machine
from timer_load import QUEUES, TOPIC, Book, Reader, Route, Sender, all_deliveries
from timer_sets import TimerBrokers, TimerRig

from tests.interop.rig import missing
from tests.interop.test_controller import missing as missing_5

CONNECTIONS = 2
SHORT = {"rate": 200.0, "waiting": 2000, "kills": 4, "hand_overs": 2}
_AFTER_S = 8.0
"""So long after the last due time the judge looks: Java is a second late, or more."""


class TimerOrdeal(Ordeal):
    """One set of brokers with timer messages."""

    def __init__(self, kind: str, options: argparse.Namespace, directory: Path) -> None:
        self._rig = TimerRig(directory)
        self._book = Book()
        super().__init__(kind, options, self._book)

    def run(self) -> Verdict:
        """From the start of the brokers to the verdict."""
        options = self._options
        try:
            brokers = made(self.kind, self._rig, self._random)
            brokers.make_topic(TOPIC, QUEUES)
            route, lead_s = Route(brokers.namesrv), options.waiting / options.rate
            senders = [
                Sender(
                    self._book,
                    route,
                    options.rate / CONNECTIONS,
                    lead_s,
                    options.recalls,
                    Random(f"{options.seed}/{number}"),
                )
                for number in range(CONNECTIONS)
            ]
            workers = [*senders, *(Reader(self._book, route, number) for number in range(QUEUES))]
            for worker in workers:
                worker.start()
            self.say(f"{options.waiting} messages begin to wait: {1.2 * lead_s:.0f} s")
            time.sleep(1.2 * lead_s)
            waiting = self._book.waiting()
            self.deal(brokers)
            for sender in senders:
                sender.stop()
            self._settle(brokers)
            for worker in workers[len(senders) :]:
                worker.stop()
            found = all_deliveries(brokers.master().address)
            return judge(self.kind, self._book, found, self.faults, waiting)
        finally:
            self._rig.close()

    def _settle(self, brokers: TimerBrokers) -> None:
        """Wait until the last message is due, and a while."""
        brokers.mend()
        last = max(self._book.dues) / 1000
        self.say(f"the last message is due in {max(0.0, last - time.time()):.0f} s")
        time.sleep(max(0.0, last - time.time()) + self._options.after)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--brokers", default="pair,set,group", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--short", action="store_true", help="a try: few messages, few faults")
    parser.add_argument("--rate", type=float, default=1000, help="messages sent, and due, a second")
    parser.add_argument("--waiting", type=int, default=100_000, help="messages that wait")
    parser.add_argument("--kills", type=int, default=20, help="of the master")
    parser.add_argument("--hand-overs", type=int, default=5)
    parser.add_argument("--recalls", type=float, default=0.02, help="share of the messages")
    parser.add_argument("--pause", type=float, default=8.0, help="most seconds between two faults")
    parser.add_argument(
        "--after", type=float, default=_AFTER_S, help="seconds until the judge looks"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "timers.md")
    options = parser.parse_args()
    kinds = options.brokers.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    if options.short:
        for name, value in SHORT.items():
            setattr(options, name, value)
    reason = missing() or (missing_5() if any("set" in kind for kind in kinds) else None)
    if reason:
        sys.exit(f"timers: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    verdicts: list[Verdict] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix=f"timers-{kind}-", dir=options.work) as directory:
            verdicts.append(TimerOrdeal(kind, options, Path(directory)).run())
        lines = [machine(), "", *HEAD, *(verdict.row for verdict in verdicts), ""]
        lines += [line for verdict in verdicts for line in verdict.notes]
        options.out.write_text("\n".join(lines) + "\n")
    print(options.out.read_text())
    if any(verdict.is_broken for verdict in verdicts if verdict.kind in OWN):
        sys.exit(1)


if __name__ == "__main__":
    main()
