"""All rules, in the order of docs/doctor.md."""

from rmq_ha.ops.admin.doctor import (
    before_start,
    consumers,
    controllers,
    counters,
    doors,
    files,
    halves,
    identity,
    ledgers,
    pops,
    reach,
    replication,
    resources,
    timers,
)
from rmq_ha.ops.admin.doctor.findings import Rule

RULES: tuple[Rule, ...] = (
    *reach.RULES,
    *identity.RULES,
    *replication.RULES,
    *ledgers.RULES,
    *controllers.RULES,
    *resources.RULES,
    *timers.RULES,
    *halves.RULES,
    *pops.RULES,
    *doors.RULES,
    *consumers.RULES,
    *counters.RULES,
    *files.RULES,
    *before_start.RULES,
)
