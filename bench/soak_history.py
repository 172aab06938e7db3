"""The history of a soak, from the lines of its clients; `tests/sim_kit/promises.py` judges it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.sim_kit.promises import Promises, numbering_fault

STREAMS = ("normal", "delayed", "txn")
BACK_S = 20.0
"""A slave may have copied the offsets of groups so many seconds before a fail-over."""

Stored = tuple[int, int, str]
"""Queue id, queue offset and id of a message that can be read."""


class History:
    """
    Collects lines of `soak_load.py`; may be called from several threads, a line each.

    :ivar promises: by stream: what was sent and answered.
    :ivar skipped: messages at queue offsets where consumers had read another message before, in a
        tail of the log that was lost. Consumers do not look there again, with RocketMQ neither.
    :ivar consumed: by stream: how often each message was consumed.
    """

    def __init__(self) -> None:
        self.promises = {stream: Promises() for stream in STREAMS}
        self.statuses: Counter[str] = Counter()
        self.skipped: set[str] = set()
        self._read: dict[tuple[str, int, int], tuple[float, str]] = {}
        self._lost_tails: list[tuple[float, float]] = []
        self.consumed: dict[str, Counter[str]] = {stream: Counter() for stream in STREAMS}
        self.events: Counter[str] = Counter()

    def take(self, words: Sequence[str], now: float = 0.0) -> None:
        """
        Take one line, cut at its tabs.

        :param now: seconds, of the clock of `tail_was_lost`.
        """
        kind, *rest = words
        if kind == "A":
            promises = self.promises[rest[0].partition("-")[0]]
            promises.sent(rest[0])
            if rest[0].endswith("rollback"):
                promises.taken_back(rest[0])
        elif kind == "S":
            stream = rest[0].partition("-")[0]
            self.statuses[f"{stream} {rest[1]}"] += 1
            if rest[1] == "SEND_OK":
                self.promises[stream].acknowledged(rest[0], place=int(rest[3]))
        elif kind == "R":
            stream, id_, reconsumed, queue_id, offset = rest
            self.consumed[stream][id_] += 1
            if reconsumed == "0":
                self._read.setdefault((stream, int(queue_id), int(offset)), (now, id_))
        elif kind == "E":
            self.events[rest[0]] += 1

    def excuse_from(self, place: int) -> int:
        """
        Excuse the messages from a place on: a machine died that had not synced its log from there
        on, and goes on without it.

        :returns: how many messages.
        """
        count = 0
        for promises in self.promises.values():
            lost = [id_ for id_, where in list(promises.places.items()) if where >= place]
            promises.excuse(lost, "its machine lost power before it was synced")
            count += len(lost)
        return count

    def tail_was_lost(self, began: float, ended: float) -> None:
        """Note that a message which was read in this time may have gone with its master's tail."""
        self._lost_tails.append((began, ended))

    def look_for_skipped(self, stream: str, stored: Iterable[Stored]) -> None:
        """Find the stored messages at whose offset another message was read in a lost tail."""
        for queue_id, offset, id_ in stored:
            when, was = self._read.get((stream, queue_id, offset), (0.0, id_))
            if was != id_ and any(began <= when <= ended for began, ended in self._lost_tails):
                self.skipped.add(id_)

    # ------------------------------------------------------------ verdicts

    def faults_of_store(self, stream: str, stored: Iterable[Stored], where: str) -> list[str]:
        """Judge the messages of a stream that one member has; a transaction is there once."""
        stored = list(stored)
        where = f"{where}, {stream}"
        most = (lambda id_: 1) if stream == "txn" else None
        ids = [id_ for _, _, id_ in stored]
        faults = [str(breach) for breach in self.promises[stream].breaches(ids, where, most=most)]
        numbering = numbering_fault(
            (f"queue {queue}", offset, id_) for queue, offset, id_ in stored
        )
        return [*faults, f"{where}: {numbering}"] if numbering else faults

    def faults_of_groups(self) -> list[str]:
        """Judge the messages that consumers got; they may get a message again and again."""
        return [
            str(breach)
            for stream, promises in self.promises.items()
            for breach in promises.breaches(
                self.consumed[stream],
                f"consumers of {stream}",
                owed=promises.owed() - self.skipped,
                most=lambda id_: sys.maxsize,
            )
        ]

    def table(self) -> list[str]:
        """Numbers of each stream."""
        lines = [
            "| stream | attempts | SEND_OK | excused | passed | other answers | consumed | again |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for stream in STREAMS:
            promises = self.promises[stream]
            ok = promises.places
            others = ", ".join(
                f"{count} {name.partition(' ')[2]}"
                for name, count in sorted(self.statuses.items())
                if name.startswith(stream) and not name.endswith("SEND_OK")
            )
            tries = promises.attempts.total()
            consumed = self.consumed[stream]
            again = sum(consumed.values()) - len(consumed)
            excused = len(promises.excused)
            passed = len(self.skipped.intersection(ok) - self.consumed[stream].keys())
            lines.append(
                f"| {stream} | {tries} | {len(ok)} | {excused} | {passed} | {others or '-'} | "
                f"{len(consumed)} | {again} |"
            )
        return lines
