"""What the series of a slave are called."""

from collections import Counter
from collections.abc import Iterable

from rmq_ha.base.model.host_port import host_of
from rmq_ha.server.replication.statistics import SlaveStatistics


def slave_names(slaves: Iterable[SlaveStatistics]) -> list[str]:
    """
    Its machine, which stays the same when it connects anew; its port does not.

    The protocol names no slave otherwise. Of several from one machine, the second one to connect
    is `machine#2`.

    :param slaves: in the order in which they connected.
    """
    seen: Counter[str] = Counter()
    names = []
    for slave in slaves:
        machine = host_of(slave.address)
        seen[machine] += 1
        names.append(machine if seen[machine] == 1 else f"{machine}#{seen[machine]}")
    return names
