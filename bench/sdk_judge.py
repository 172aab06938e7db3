"""The programs of `bench/sdk_kills.py`, which use RocketMQ 5's SDKs, and their judge."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmq_ha.base.store_format.commitlog import decode_records
from tests.interop.wire import Wire

PEERG = Path(os.environ.get("RMQ_HA_SHARED", "/work/shared")) / "peerg" / "peerg"
SDKS = {"py": "Python", "java": "Java", "node": "Node", "rust": "Rust"}
GROUPS = 4
"""Message groups of the topic in order."""
INVISIBLE_S = 15
QUEUES = 4
_AGAIN_S = 0.3
_ROUND = {"rust": 10}
"""Messages of a run. Rust's driver makes no pauses, so it is started again and again."""
_EARLY_S = 1.0
_REQUEST_ID = re.compile(r"\[?request-id=\S+ ?")
HEAD = (
    "| brokers | SDK | kills | sent, answered OK | sends that failed | lost | acknowledged, "
    "and came again | out of order | came again too early | recalled, and came | "
    "acknowledgements that failed, and the message came again | programs that hung |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
)


class Got(NamedTuple):
    """
    A message that a consumer got.

    :ivar order: number of the run and of the message, which grow within a message group.
    :ivar at: time in s.
    """

    message_id: str
    order: tuple[int, int]
    group: str
    attempt: int
    at: float


class Diary:
    """What the programs of one SDK said; times are in s of `time.monotonic`."""

    def __init__(self) -> None:
        self.sent: dict[str, float] = {}
        self.failed = 0
        self.got: list[Got] = []
        self.acked: list[Got] = []
        self.unacked: list[Got] = []
        self.recalled: set[str] = set()
        self.faults: Counter[str] = Counter()
        self.sent_at = self.got_at = 0.0
        self.restarts = 0


class Program:
    """A driver that is started again whenever it ends, until `stop`."""

    def __init__(self, sdk: str, command: str, topic: str, endpoints: str, diary: Diary) -> None:
        self._sdk, self._command, self._diary = sdk, command, diary
        self._topic, self._endpoints = topic, endpoints
        self._process: subprocess.Popen[str] | None = None
        self._stops = False
        self._run = 0
        self._last: Got | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __str__(self) -> str:
        return f"{self._command} of {self._topic}"

    @property
    def recalls(self) -> bool:
        """Whether it recalls messages, which takes a driver some seconds, and then it ends."""
        return self._command == "recall"

    @property
    def worked_at(self) -> float:
        """When the last message was sent, or came."""
        return self._diary.sent_at if self._command == "produce" else self._diary.got_at

    def restart(self) -> None:
        """Have the driver started again, as an operator does with a program that hangs."""
        self._diary.restarts += 1
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """End the driver, and wait until all that it said is read."""
        self._stops = True
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
        self._thread.join(20)

    def _options(self) -> list[str]:
        options = ["--endpoints", self._endpoints, "--topic", self._topic, "--verbose"]
        options += ["--tag", f"{self._run}", "--request-timeout", "5"]
        if self._command != "produce":
            options += ["--group", f"g-{self._topic}", "--invisible", str(INVISIBLE_S)]
        if self._command == "simple" and "fifo" in self._topic:
            options += ["--batch", "1"]  # a driver goes on within a batch, also if an ack fails
        if self._command == "simple":
            return [*options, "--count", "100000000", "--timeout", "100000", "--await", "5"]
        if self._command == "recall":
            return [*options, "--count", "10", "--delay-ms", "6000"]
        if "fifo" in self._topic:
            options += ["--groups", str(GROUPS)]
        count = _ROUND.get(self._sdk, 100_000_000)
        return [*options, "--count", str(count), "--pause", "50"]

    def _work(self) -> None:
        while not self._stops:
            self._run += 1
            words = [str(PEERG), self._sdk, self._command, *self._options()]
            self._process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if line.startswith("{"):
                    self._read(json.loads(line))
            self._process.wait()
            self._last = None  # nobody knows whether it was acknowledged
            time.sleep(_AGAIN_S)

    def _read(self, row: dict[str, Any]) -> None:
        diary, event, now = self._diary, row["event"], time.monotonic()
        if event == "sent":
            diary.sent[row["messageId"]] = diary.sent_at = now
        elif event == "failed":
            diary.failed += 1
            text = _REQUEST_ID.sub("", " ".join(str(row.get("text")).split()))
            diary.faults[f"{row.get('error')}: {text[:90]}"] += 1
        elif event == "got":
            self._settle(was_acked=True)
            order = (int(row.get("tag") or 0), int(row["i"]))
            self._last = Got(row["messageId"], order, row.get("group") or "", row["attempt"], now)
            diary.got.append(self._last)
            diary.got_at = now
        elif event == "ackFailed":
            self._settle(was_acked=False)
        elif event == "recalled":
            diary.recalled.add(row["messageId"])

    def _settle(self, *, was_acked: bool) -> None:
        """Note the end of the last message: a driver says only which acknowledgement failed."""
        if self._last is not None:
            (self._diary.acked if was_acked else self._diary.unacked).append(self._last)
        self._last = None


class Verdict(NamedTuple):
    """A row of the table; `is_broken`: a promise was not kept."""

    row: str
    notes: list[str]
    is_broken: bool


def copies_of(address: str, topic: str) -> Counter[str]:
    """Count the stored copies of each message: an SDK sends again what was stored, too."""
    found: Counter[str] = Counter()
    with Wire(address, 60) as wire:
        for queue_id in range(QUEUES):
            data = wire.pull_bytes(topic, queue_id, wire.min_offset(topic, queue_id))
            found.update(record.properties["UNIQ_KEY"] for record in decode_records(data))
    return found


def judge(
    brokers: str, sdk: str, kills: int, diaries: dict[str, Diary], copies: Counter[str]
) -> Verdict:
    """
    Compare what the programs of one SDK said with each other.

    :param diaries: by kind of topic: `plain`, `fifo`, `recall`.
    :param copies: of each message in all topics of the SDK.

    A message whose acknowledgement failed need not come again: its answer may have been lost.
    """
    lost, again, early, undone, disordered = [], [], [], [], []
    tries = repeats = 0
    sent = failed = 0
    notes: list[str] = []
    for kind, diary in diaries.items():
        sent, failed = sent + len(diary.sent), failed + diary.failed
        came = {got.message_id for got in diary.got}
        acked = Counter(got.message_id for got in diary.acked)
        if kind != "recall":
            lost += [key for key in diary.sent if key not in came]
            again += [key for key, count in acked.items() if count > copies[key]]
        undone += [key for key in diary.recalled if key in came]
        last_at = {got.message_id: got.at for got in diary.got}
        tries += len(diary.unacked)
        repeats += sum(last_at[got.message_id] > got.at for got in diary.unacked)
        before: dict[str, float] = {}
        for got in diary.got:
            if got.attempt > 1 and got.at - before.get(got.message_id, 0) < INVISIBLE_S - _EARLY_S:
                early.append(got.message_id)
            before[got.message_id] = got.at
        if kind == "fifo":
            last: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
            for got in diary.got:
                if got.order < last[got.group]:
                    disordered.append(f"{got} after {last[got.group]}")
                last[got.group] = max(last[got.group], got.order)
        notes += [f"{sdk}, {kind}: {count} times {text}" for text, count in diary.faults.items()]
    faults = {"lost": lost, "again": again, "order": disordered, "early": early, "undone": undone}
    notes += [f"{sdk}: {name}: {items[:3]}" for name, items in faults.items() if items]
    recalled = sum(len(diary.recalled) for diary in diaries.values())
    cells = [
        brokers,
        SDKS[sdk],
        kills,
        f"{sent:,}",
        f"{failed:,}",
        len(lost),
        len(again),
        len(disordered),
        len(early),
        f"{len(undone)} of {recalled}" if recalled else "-",
        f"{repeats} of {tries}",
        sum(diary.restarts for diary in diaries.values()),
    ]
    row = f"| {' | '.join(map(str, cells))} |"
    return Verdict(row, notes, any(faults.values()))
