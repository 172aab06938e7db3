"""`rmqha-admin route`: where a topic is."""

from typing import Any

import click

from rmq_ha.base.model.flags import PERM_READ, PERM_WRITE
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.lookups import topic_route
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import Session, run

COLUMNS = ("cluster", "broker", "read_queues", "write_queues", "perm", "addresses")


@click.command()
@click.argument("topic")
@common_options
def route(topic: str) -> None:
    """
    Where TOPIC is: its brokers, their addresses, and how many queues each has.

    Exit code 3: no name server knows it.
    """

    async def work(session: Session) -> None:
        rows = rows_of(await Asker(await session.client()).run(topic_route(topic)))
        session.output.table(topic, COLUMNS, rows, topic=topic)

    run(work)


def rows_of(route: TopicRoute) -> list[list[Any]]:
    """Return a row for each broker name."""
    brokers = {item.broker_name: item for item in route.brokers}
    rows: list[list[Any]] = []
    for queues in sorted(route.queues, key=lambda item: item.broker_name):
        broker = brokers.get(queues.broker_name)
        addresses = broker.addresses if broker else {}
        rows.append(
            [
                broker.cluster if broker else None,
                queues.broker_name,
                queues.read_queue_nums,
                queues.write_queue_nums,
                perm_text(queues.perm),
                " ".join(f"{number}={addresses[number]}" for number in sorted(addresses)),
            ]
        )
    return rows


def perm_text(perm: int) -> str:
    """Return a permission as `RW`, `R-`, `-W` or `--`."""
    return f"{'R' if perm & PERM_READ else '-'}{'W' if perm & PERM_WRITE else '-'}"
