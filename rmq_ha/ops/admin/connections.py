"""`rmqha-admin connections`: the clients that are connected to brokers."""

from collections import Counter
from typing import Any

import click

from rmq_ha.base.wire.stat_bodies import Connection
from rmq_ha.client.lookup.administration import members_of, producers_at
from rmq_ha.client.lookup.brokers import group_configs
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import Session, run
from rmq_ha.ops.admin.targets import targets

COLUMNS = ("kind", "group", "client_id", "address", "language", "version", "protocol", "broker")
COUNT_COLUMNS = ("protocol", "language", "version", "kind", "clients")


@click.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option("--group", "-g", default="", help="Show this group only.")
@click.option("--count", is_flag=True, help="Count the clients by SDK, language and version.")
@common_options
def connections(which: str, group: str, count: bool) -> None:
    """
    List the producers and the members of consumer groups that are connected to each broker.

    A client of gRPC is a producer of each topic that it names, because it has no producer group.
    """

    async def work(session: Session) -> None:
        await show_connections(session, which, group, count=count)

    run(work)


async def show_connections(
    session: Session, which: str = "", only: str = "", *, count: bool = False
) -> None:
    """
    Show a row for each client, group and broker.

    :param only: only this group; empty for all groups.
    :param count: show for each SDK, language and version how many clients use it instead.
    """
    asker, brokers = await targets(session, which)
    rows: list[list[Any]] = []
    with session.output.progress("asking brokers", None) as steps:
        for target in brokers:
            here = target.address
            producers = await asker.run(producers_at(here), steps.advance)
            for name, clients in producers.items():
                rows += [_row("producer", name, item, here) for item in clients]
            consumers = await asker.run(group_configs(here), steps.advance)
            for name in [only] if only else consumers:
                members = await asker.run(members_of(here, name), steps.advance)
                rows += [_row("consumer", name, item, here) for item in members.connections]
    rows = sorted(row for row in rows if only in ("", row[1]))
    if count:
        session.output.table("clients", COUNT_COLUMNS, _counts(rows))
    else:
        session.output.table("clients", COLUMNS, rows)


def _counts(rows: list[list[Any]]) -> list[list[Any]]:
    """Count the clients of each kind; a client with several groups or brokers counts once."""
    clients = {(row[0], *row[2:7]) for row in rows}
    kinds = Counter((item[5], item[3], item[4], item[0]) for item in clients)
    return [[*kind, number] for kind, number in sorted(kinds.items())]


def _row(kind: str, group: str, client: Connection, broker: str) -> list[Any]:
    language = client.language or ""
    own = [kind, group, client.client_id, client.client_address]
    return [*own, language, client.version_text, client.protocol, broker]
