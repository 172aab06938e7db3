"""`rmqha-admin cluster`: clusters as a whole."""

from collections import Counter
from typing import Any

import click

from rmq_ha.client.lookup.brokers import topic_configs
from rmq_ha.ops.admin.broker import rate
from rmq_ha.ops.admin.export import export
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.pair import look_at
from rmq_ha.ops.admin.ping import ping
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, Session, run
from rmq_ha.ops.admin.targets import targets

COLUMNS = ("cluster", "names", "masters", "slaves", "silent", "topics", "in_tps", "out_tps")


@click.group()
@common_options
def cluster() -> None:
    """Clusters as a whole."""


cluster.add_command(ping)
cluster.add_command(export)


@cluster.command(name="list")
@click.argument("which", metavar="[CLUSTER]", default="")
@common_options
def list_(which: str) -> None:
    """
    Clusters: how many broker names, masters and slaves they have, topics, messages a second.

    Exit code 1: a broker name has no master; 4: a broker does not answer. `ha status` says more.
    """

    async def work(session: Session) -> int | None:
        return await show_clusters(session, which)

    run(work)


async def show_clusters(session: Session, which: str = "") -> int | None:
    """
    Show a row for each cluster.

    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    counts: dict[str, Counter[str]] = {}
    rates: dict[str, Counter[str]] = {}
    names: dict[str, dict[str, bool]] = {}
    topics: dict[str, set[str]] = {}
    for target in session.output.track("asking brokers", brokers):
        member = await look_at(asker, target.address)
        count = counts.setdefault(target.cluster, Counter())
        led = names.setdefault(target.cluster, {})
        led[target.name] = led.get(target.name, False) or member.is_master
        if member.role is None:
            count["silent"] += 1
            session.output.warn(f"{target.name} {target.address}: {member.problem}")
            continue
        count["masters" if member.is_master else "slaves"] += 1
        if member.is_master:
            paces = rates.setdefault(target.cluster, Counter())
            for key in ("putTps", "getTransferedTps"):
                paces[key] += rate(member.info.get(key, "")) or 0.0  # type: ignore[assignment]
        known = await asker.run(topic_configs(target.address))
        topics.setdefault(target.cluster, set()).update(known)
    rows: list[list[Any]] = []
    for name, count in sorted(counts.items()):
        pace = rates.get(name, Counter())
        row = [name, len(names[name]), count["masters"], count["slaves"], count["silent"]]
        paced = [round(pace["putTps"], 1), round(pace["getTransferedTps"], 1)]
        rows.append([*row, len(topics.get(name, ())), *paced])
    session.output.table("clusters", COLUMNS, rows)
    if any(count["silent"] for count in counts.values()):
        return NO_ANSWER
    return None if all(led for own in names.values() for led in own.values()) else FAILED
