"""
`rmqha-admin broker writes`: have name servers send producers to a broker, or stop sending them.
"""

from typing import Any

import click

from rmq_ha.base.errors import RmqHaError
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.kv_config import set_writes
from rmq_ha.client.lookup.lookups import cluster_info
from rmq_ha.client.rules.settings import name_servers
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import NO_ANSWER, NothingFound, Session, run

COLUMNS = ("name_server", "broker", "writes")
CHANGED_COLUMNS = (*COLUMNS, "topics")


@click.command()
@click.argument("name", metavar="BROKER")
@click.argument("what", type=click.Choice(["off", "on"]))
@sure_options
@common_options
def writes(name: str, what: str, **sure: bool) -> None:
    """
    Take BROKER out of the routes of producers, at every name server, or put it back; consumers go
    on. `off` before a planned stop: producers go to other brokers within 30 s.

    A broker that registers anew with other topics may be written to again. Exit code 4: a name
    server does not answer.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await change_writes(session, name, allowed=what == "on", **sure)

    run(work)


async def change_writes(session: Session, name: str, *, allowed: bool, **sure: bool) -> int | None:
    """
    Let producers write to a broker, or not.

    :returns: the exit code.
    :raises NothingFound: no broker has this name.
    """
    asker = Asker(await session.client())
    known = (await asker.run(cluster_info())).brokers
    if name not in known:
        raise NothingFound(
            f"no broker is called {name} (known: {', '.join(sorted(known)) or 'none'})"
        )
    if not allowed and len(known) == 1:
        session.output.warn(f"{name} is the only broker: no producer will find another one")
    servers = name_servers(session.options.namesrv)
    what = "on" if allowed else "off"
    session.output.table(
        "writes", COLUMNS, [[server, name, what] for server in servers], done=False
    )
    if not is_wanted(f"Turn writes to {name} {what}?", **sure):
        return None
    rows: list[list[Any]] = []
    for server in session.output.track("name servers", servers):
        try:
            count = await asker.run(set_writes(server, name, allowed=allowed))
        except RmqHaError as error:
            session.output.error(f"{server}: {error}", exit_code=NO_ANSWER)
            continue
        rows.append([server, name, what, count])
    session.output.table("writes", CHANGED_COLUMNS, rows, done=len(rows) == len(servers))
    return None if len(rows) == len(servers) else NO_ANSWER
