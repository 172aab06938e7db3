"""`rmqha-admin connections`: the clients that are connected to brokers."""

from typing import Any

import click

from rmq_ha.base.wire.stat_bodies import Connection
from rmq_ha.base.wire.versions import version_name
from rmq_ha.client.lookup.administration import members_of, producers_at
from rmq_ha.client.lookup.brokers import group_configs
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import Session, run
from rmq_ha.ops.admin.targets import targets

COLUMNS = ("kind", "group", "client_id", "address", "language", "version", "broker")


@click.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option("--group", "-g", default="", help="Show this group only.")
@common_options
def connections(which: str, group: str) -> None:
    """List the producers and the members of consumer groups that are connected to each broker."""

    async def work(session: Session) -> None:
        await show_connections(session, which, group)

    run(work)


async def show_connections(session: Session, which: str = "", only: str = "") -> None:
    """Show a row for each client, group and broker."""
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
    session.output.table("clients", COLUMNS, sorted(r for r in rows if only in ("", r[1])))


def _row(kind: str, group: str, client: Connection, broker: str) -> list[Any]:
    language = client.language or ""
    version = version_name(client.version)
    return [kind, group, client.client_id, client.client_address, language, version, broker]
