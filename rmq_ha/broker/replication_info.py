"""How the pair of a broker is, as GET_BROKER_RUNTIME_INFO tells it to `rmqha-admin`."""

from typing import TYPE_CHECKING, Any

from rmq_ha.ha.service import HAService

if TYPE_CHECKING:
    from rmq_ha.broker.controller import BrokerController

_MOST_SLAVES = 100
_OF_SLAVE = ("address", "stage", "acked", "lag", "lag_seconds")
_OF_MASTER = ("address", "state", "fault", "silent_ms", "set_aside")


def replication_info(broker: "BrokerController") -> dict[str, Any]:
    """
    `role`; of a master `slaves`, of a slave `master` and the age of its copies of the master's
    tables (`tables_seconds`: of the oldest; None: one was never copied).
    """
    found: dict[str, Any] = {"role": broker.configuration.store.broker_role.name}
    if isinstance(broker.replication, HAService):
        told = broker.replication.statistics()
        found["slaves"] = [
            {name: slave[name] for name in _OF_SLAVE}
            for slave in told["slaves"][:_MOST_SLAVES]
            if slave["requested"] is not None
        ]
        if told["master"] is not None:
            found["master"] = {name: told["master"][name] for name in _OF_MASTER}
    if broker.is_slave:
        copies = broker.slave_synchronize.statistics()
        ages = [item["age_seconds"] for item in copies.values() if isinstance(item, dict)]
        found["tables_seconds"] = None if None in ages else round(max(ages), 1)
    return found
