"""Names of slaves in the labels of metrics."""

from collections import Counter
from collections.abc import Iterable

from rmq_ha.base.model.host_port import host_of
from rmq_ha.server.replication.statistics import SlaveStatistics


def slave_names(slaves: Iterable[SlaveStatistics]) -> list[str]:
    """
    Return a name for each slave: its machine, which stays the same when it connects anew, while its
    port does not.

    The protocol has no other name for a slave. The second of several that connect from one machine
    is `machine#2`.

    :param slaves: slaves in the order in which they connected.
    """
    seen: Counter[str] = Counter()
    names = []
    for slave in slaves:
        machine = host_of(slave.address)
        seen[machine] += 1
        names.append(machine if seen[machine] == 1 else f"{machine}#{seen[machine]}")
    return names
