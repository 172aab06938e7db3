"""Lists of pairs: those of a file, or all of a cluster."""

from collections.abc import Sequence

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.wire.route_bodies import ClusterInfo
from rmq_ha.ops.offsets.places import NamesrvPlace, addresses_of

Pair = Sequence[str]
"""The places of a master and of its slaves, as users write them."""


def pairs_in(text: str) -> list[Pair]:
    """
    Return the pairs of a file: a line for each pair, blanks between the places, the master's first.

    :raises WrongUsage: a line has no slave, or the file has no pair.
    """
    pairs: list[Pair] = []
    for number, line in enumerate(text.splitlines(), 1):
        places = line.partition("#")[0].split()
        if len(places) == 1:
            raise WrongUsage(f"line {number}: write a master and its slaves, blanks between them")
        if places:
            pairs.append(places)
    if not pairs:
        raise WrongUsage("there is no pair in it: write a master and its slaves on each line")
    return pairs


def addresses_and_cluster(text: str) -> tuple[str, str]:
    """
    Split `namesrv://host:port[;host:port][/cluster]`; the cluster may be empty.

    :raises WrongUsage: the text has another form.
    """
    servers, _, cluster = text.removeprefix("namesrv://").partition("/")
    return addresses_of(servers, text), cluster


def pairs_of(servers: str, known: ClusterInfo, cluster: str = "") -> list[Pair]:
    """
    Return a pair for every broker name. A name without a slave gets a place for any slave that
    registers later.

    :param cluster: only brokers of this cluster; empty: all.
    :raises CannotDecide: there are no brokers.
    """
    names = known.clusters.get(cluster, ()) if cluster else known.brokers
    pairs: list[Pair] = []
    for name in sorted(set(names) & known.brokers.keys()):
        slaves = sorted(set(known.brokers[name].addresses) - {MASTER_ID})
        ids: list[int | None] = [MASTER_ID]
        ids += slaves or [None]
        pairs.append([str(NamesrvPlace(servers, name, number)) for number in ids])
    if not pairs:
        clusters = ", ".join(sorted(known.clusters)) or "none"
        raise CannotDecide(f"{servers} knows no broker of cluster {cluster!r}, only of: {clusters}")
    return pairs
