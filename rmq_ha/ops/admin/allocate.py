"""`rmqha-admin topic allocate`: which member of a group would have which queues."""

import click

from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.lookups import topic_route
from rmq_ha.client.rebalance.consistent_hash import AllocateConsistentHash
from rmq_ha.client.rebalance.strategies import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateStrategy,
)
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import NothingFound, Session, run

COLUMNS = ("member", "queues", "which")
STRATEGIES: dict[str, AllocateStrategy] = {
    item.name: item
    for item in (AllocateAveragely(), AllocateAveragelyByCircle(), AllocateConsistentHash())
}


@click.command()
@click.argument("name", metavar="TOPIC")
@click.argument("members", metavar="MEMBER...", nargs=-1, required=True)
@click.option(
    "--by",
    "strategy",
    type=click.Choice(sorted(STRATEGIES)),
    default=AllocateAveragely.name,
    show_default=True,
    help="The strategy that shares out the queues. Running clients use the one in their own "
    "settings.",
)
@common_options
def allocate(name: str, members: tuple[str, ...], strategy: str) -> None:
    """
    Which queues of TOPIC each MEMBER would have, if a group had these members: client ids, whose
    order decides. Nobody is told; `group clients GROUP` shows what members really have.

    Exit code 3: no name server knows the topic.
    """

    async def work(session: Session) -> None:
        await show_shares(session, name, members, STRATEGIES[strategy])

    run(work)


async def show_shares(
    session: Session, name: str, members: tuple[str, ...], strategy: AllocateStrategy
) -> None:
    """
    Show which queues of a topic each member would get.

    :raises NothingFound: the topic has no queue that may be read.
    """
    route = await Asker(await session.client()).run(topic_route(name))
    queues = sorted(subscribe_queues(name, route))
    if not queues:
        raise NothingFound(f"{name} has no queue that may be read: `route {name}` shows why")
    ids = sorted(set(members))
    rows = []
    for member in ids:
        mine = strategy.allocate("", member, queues, ids)
        rows.append([member, len(mine), " ".join(f"{q.broker_name}:{q.queue_id}" for q in mine)])
    session.output.table(f"{name} by {strategy.name}", COLUMNS, rows)
