"""The state of a broker's pair, as GET_BROKER_RUNTIME_INFO reports it to `rmqha-admin`."""

from typing import Any

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.wire.stat_bodies import ASIDE
from rmq_ha.server.broker.slave import SlaveSynchronize
from rmq_ha.server.broker.standing import Standing
from rmq_ha.server.store.journal import Journal


def replication_info(
    configuration: BrokerConfiguration,
    journal: Journal,
    slave_synchronize: SlaveSynchronize,
    standing: Standing,
) -> dict[str, Any]:
    """
    Return `role`, and the facts of the journal: `slaves` of a master, `master` of a slave.

    A slave also has `tables_seconds`: the age in seconds of its oldest copy of a master's table;
    None if a table was never copied. A broker that stands aside also has `ASIDE`.
    """
    info: dict[str, Any] = {"role": configuration.store.broker_role.name, **journal.info()}
    if standing.successor:
        info[ASIDE] = standing.successor
    if journal.role.is_slave:
        copies = slave_synchronize.statistics().tables.values()
        ages = [copy.age_seconds for copy in copies if copy.age_seconds is not None]
        info["tables_seconds"] = round(max(ages), 1) if len(ages) == len(copies) else None
    return info
