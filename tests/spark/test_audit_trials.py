"""
Faults of logs and ledgers, none of which an audit may call right; and healthy ones, without errors.

The stores are written by `tests.kits.bare_stores`, which shares nothing with the readers.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmq_ha.lake.spark.audit.job import audit
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest
from rmq_ha.lake.spark.host.duck import DuckEngine
from rmq_ha.lake.spark.source.messages import messages
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.places import StorePlace
from tests.kits.bare_stores import START_MS, BareStore, Message, Placed, delayed, flip, ordinary
from tests.spark.jobs import FakeJob
from tests.spark.test_audit_sees import Row, given, sent

LOG = 1 << 14


@dataclass
class Trial:
    """A store with sixty messages or more, and what producers and consumers wrote down."""

    random: Random
    store: BareStore = field(default_factory=lambda: BareStore(log_size=LOG))
    plain: list[Placed] = field(default_factory=list)
    produced: list[Row] = field(default_factory=list)
    delivered: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        for message in ordinary(self.random.randrange(60, 120), step=1000):
            self.take(self.store.add(message))

    def take(self, placed: Placed) -> None:
        self.plain.append(placed)
        self.produced.append(sent(placed))
        self.delivered.append(given(placed))

    def add(self, queue_offset: int = -1, **fields: Any) -> Placed:
        stored = self.plain[-1].message.stored + 20
        message = Message("Topic0", 0, b"more", uniq=f"X{stored}", stored=stored)
        placed = self.store.add(message._replace(**fields), queue_offset)
        self.take(placed)
        return placed

    def any(self) -> int:
        return self.random.randrange(10, 40)

    def outcome(self, folder: Path) -> Any:
        root = self.store.save(folder / "store")
        self.after(root)
        ledgers = {}
        for name, rows in (("produced", self.produced), ("delivered", self.delivered)):
            ledgers[name] = str(folder / f"{name}.jsonl")
            Path(ledgers[name]).write_text("\n".join(map(json.dumps, rows)))
        job: Any = FakeJob(DuckEngine(messages), START_MS)
        return audit(job, AuditRequest(places=[StorePlace(str(root))], **ledgers))

    def after(self, root: Path) -> None:
        """Spoil some files of the store."""


Plant = Callable[[Trial], Any]


def bad_crc(trial: Trial) -> None:
    at = trial.plain[trial.any()].at + 90
    file = f"{at // LOG * LOG:020}"
    trial.after = lambda root: flip(root / "commitlog" / file, at % LOG)  # type: ignore[method-assign]


def retention(trial: Trial) -> None:
    trial.produced = [{**row, "sentAt": None} for row in trial.produced]
    trial.delivered = []
    trial.after = lambda root: (root / "commitlog" / f"{0:020}").unlink()  # type: ignore[method-assign]


def late(
    trial: Trial, level: int, *, copied_after: int | None, progress: int, topic: str = ""
) -> None:
    """:param topic: the topic in which the message is due; empty: that of the last message."""
    last = trial.plain[-1].message
    stored = last.stored + 1_000
    message = last._replace(uniq="LATE", key="", stored=stored, topic=topic or last.topic)
    trial.store.add(delayed(message, level))
    if copied_after is not None:
        trial.take(trial.store.add(message._replace(stored=stored + copied_after)))
    trial.store.delays = {level: progress}


FAULTS: dict[str, Plant] = {
    "lost": lambda t: t.produced.append({**t.produced[t.any()], "msgId": "GONE"}),
    "delivered_and_lost": lambda t: t.delivered.append({**t.delivered[t.any()], "msgId": "GONE"}),
    "gap": lambda t: t.add(t.plain[-1].queue_offset + 900),
    "offset_twice": lambda t: t.add(3),
    "bad_crc": bad_crc,
    "body_changed": lambda t: t.produced[t.any()].update(bodyCrc=77),
    "delivered_changed": lambda t: t.delivered[t.any()].update(bodyCrc=77),
    "keys_changed": lambda t: t.produced[t.any()].update(keys="others"),
    "not_compressed": lambda t: t.add(sys_flag=1),
    "rolled_back": lambda t: (
        t.add(sys_flag=8),
        t.produced[-1].update(transactionState="ROLLBACK_MESSAGE"),
    ),
    "never_delivered": lambda t: t.delivered.pop(t.any()),
    "delivered_early": lambda t: t.delivered[t.any()].update(deliveredAt=START_MS - 7_200_000),
    "delay_early": lambda t: late(t, 14, copied_after=50, progress=1),
    "delay_lost": lambda t: late(t, 2, copied_after=None, progress=1),
    "retry_lost": lambda t: late(t, 3, copied_after=None, progress=1, topic="%RETRY%CG"),
}
HEALTHY: dict[str, Plant] = {
    "plain": lambda _: None,
    "repeated_send": lambda t: t.add(uniq=t.plain[t.any() * 2 // 4 * 4].message.uniq),
    "stamp_of_tomorrow": lambda t: (t.add(stored=86_400_000), t.add(stored=130_000, uniq="Z")),
    "retention": retention,
    "delayed": lambda t: late(t, 2, copied_after=5_000, progress=1),
    "waiting": lambda t: late(t, 14, copied_after=None, progress=0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_no_fault_is_called_right(tmp_path: Path, name: str) -> None:
    trial = Trial(Random(name))
    FAULTS[name](trial)
    told = trial.outcome(tmp_path)
    assert told.outcome is Outcome.VIOLATED, told.verdict


@pytest.mark.parametrize("name", HEALTHY)
def test_no_healthy_log_is_called_wrong(tmp_path: Path, name: str) -> None:
    trial = Trial(Random(name))
    HEALTHY[name](trial)
    told = trial.outcome(tmp_path)
    assert told.outcome is Outcome.HOLDS, told.verdict
