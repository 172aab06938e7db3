"""How the pair of a broker is, as GET_BROKER_RUNTIME_INFO tells it to `rmqha-admin`."""

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
    `role`; of a master `slaves`, of a slave `master` and the age of its copies of the master's
    tables (`tables_seconds`: of the oldest; None: one was never copied). Of a broker that stands
    aside `ASIDE`, too.
    """
    info: dict[str, Any] = {"role": configuration.store.broker_role.name, **journal.info()}
    if standing.successor:
        info[ASIDE] = standing.successor
    if journal.role.is_slave:
        copies = slave_synchronize.statistics().tables.values()
        ages = [copy.age_seconds for copy in copies if copy.age_seconds is not None]
        info["tables_seconds"] = round(max(ages), 1) if len(ages) == len(copies) else None
    return info
