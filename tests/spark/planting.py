"""Pairs with planted faults, and jobs that look for them in the session that is there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rmq_ha.client.settings import ClientConfig
from rmq_ha.spark.findings import Finding
from rmq_ha.spark.offsets.job import Limits
from rmq_ha.spark.offsets.job import verify as verify_offsets
from rmq_ha.spark.offsets.opening import seen
from rmq_ha.spark.offsets.sampling import Patience
from rmq_ha.spark.places import Place, StorePlace, parse_place
from rmq_ha.spark.replica.job import verify as verify_replica
from rmq_ha.spark.result import JobResult

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "spark"))

from replica_kit import settings_of

NOW = 1_800_000_000_000


class Job:
    """As `rmq_ha.spark.running.Job`, for a session that goes on."""

    name = "test"

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.client = ClientConfig()
        self.notes: list[str] = []

    def now_ms(self) -> int:
        return NOW

    def place(self, text: str) -> Place:
        return parse_place(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    @contextmanager
    def progress(self, label: str) -> Iterator[None]:
        yield


class Said(NamedTuple):
    """What a job answered, with its findings here."""

    result: JobResult
    findings: list[Finding]

    @property
    def codes(self) -> set[str]:
        return {one.code for one in self.findings}

    @property
    def errors(self) -> list[Finding]:
        return [one for one in self.findings if one.severity == "ERROR"]


def _said(result: JobResult) -> Said:
    return Said(result, [Finding(*row) for row in result.findings.collect()])


def replica(spark: Any, master: Path, slave: Path, **given: Any) -> Said:
    """verify-replica."""
    return _said(verify_replica(Job(spark), settings_of(master, slave, **given)))


def offsets(spark: Any, master: Path, slave: Path) -> Said:
    """verify-offsets, of stores at rest."""
    job: Any = Job(spark)
    pairings = seen(job, str(master), [str(slave)], Patience(0, 0))
    return _said(verify_offsets(spark, pairings, Limits()))


def messages(spark: Any, store: Path) -> Said:
    """audit-messages."""
    from rmq_ha.spark.audit.job import Asked, audit

    job: Any = Job(spark)
    return _said(audit(job, Asked(places=[StorePlace(str(store))])))
