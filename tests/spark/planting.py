"""Pairs with planted faults, and jobs that look for them in the session that is there."""

from pathlib import Path
from typing import Any, NamedTuple

from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.spark.offsets.job import verify as verify_offsets
from rmq_ha.lake.spark.replica.job import verify as verify_replica
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.offsets.findings import Finding
from rmq_ha.ops.offsets.opening import look_at_pair
from rmq_ha.ops.offsets.places import StorePlace
from rmq_ha.ops.offsets.sampling import Patience
from rmq_ha.ops.offsets.verdict import Limits
from tests.spark.jobs import FakeJob
from tests.unit.lake.spark.replica_kit import settings_of

NOW = 1_800_000_000_000


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
    rows = result.findings
    return Said(
        result, list(rows if isinstance(rows, list) else map(Finding._make, rows.collect()))
    )


def replica(engine: Any, master: Path, slave: Path, **given: Any) -> Said:
    """verify-replica."""
    return _said(verify_replica(FakeJob(engine, NOW), settings_of(master, slave, **given)))


def offsets(engine: Any, master: Path, slave: Path) -> Said:
    """verify-offsets, of stores at rest."""
    places = [StorePlace(str(one)) for one in (master, slave)]
    pairings = look_at_pair(ClientConfig(), places, Patience(0, 0))
    return _said(verify_offsets(lambda: engine, pairings, Limits()))


def messages(engine: Any, store: Path, **given: Any) -> Said:
    """audit-messages."""
    from rmq_ha.lake.spark.audit.job import audit
    from rmq_ha.lake.spark.audit.stored_rows import AuditRequest

    job: Any = FakeJob(engine, NOW)
    return _said(audit(job, AuditRequest(places=[StorePlace(str(store))], **given)))
