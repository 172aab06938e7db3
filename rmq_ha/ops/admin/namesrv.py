"""`rmqha-admin namesrv`: shows and changes the settings of running name servers."""

from collections.abc import Iterable
from typing import Any

import click

from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.kv_config import change_namesrv_config, namesrv_config
from rmq_ha.ops.admin.broker import SET_COLUMNS, assignments, tell_unchanged
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NothingFound, Session, run
from rmq_ha.ops.admin.targets import ask_name_servers


@click.group()
@common_options
def namesrv() -> None:
    """Show and change the settings of the name servers that --namesrv names."""


@namesrv.group()
@common_options
def config() -> None:
    """Show and change the settings of running name servers."""


@config.command(name="get")
@click.argument("keys", nargs=-1)
@common_options
def get(keys: tuple[str, ...]) -> None:
    """
    Show the settings with which each name server runs: all of them, or only KEYS.

    Exit code 3: no name server has any of the keys; 4: a name server does not answer.
    """

    async def work(session: Session) -> int | None:
        return await show_settings(session, keys)

    run(work)


async def show_settings(session: Session, keys: Iterable[str] = ()) -> int | None:
    """
    Show the settings of each name server.

    :returns: the exit code.
    :raises NothingFound: no name server has any of the keys.
    """
    tables, silent = await ask_name_servers(session, namesrv_config)
    only = set(keys)
    known = False
    for server, table in tables.items():
        shown = {key: value for key, value in table.items() if not only or key in only}
        known = known or bool(shown)
        session.output.fields({"name_server": server, **shown})
    if not known and not silent:
        raise NothingFound(f"no name server has {', '.join(sorted(only))}: `namesrv config get`")
    return NO_ANSWER if silent else None


@config.command(name="set")
@click.argument("changes", metavar="KEY=VALUE...", nargs=-1, required=True, callback=assignments)
@sure_options
@common_options
def set_(changes: dict[str, str], **sure: bool) -> None:
    """
    Change settings of all running name servers and in their files.

    Exit code 1: a name server does not have the new values afterwards; 4: a name server does not
    answer, so nothing was changed.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await change_settings(session, changes, **sure)

    run(work)


async def change_settings(session: Session, changes: dict[str, str], **sure: bool) -> int | None:
    """
    Change settings of all name servers: show the changes, ask, write, and check.

    :returns: the exit code.
    """
    tables, silent = await ask_name_servers(session, namesrv_config)
    if silent:
        text = "not all name servers answer: nothing was changed"
        session.output.error(text, exit_code=NO_ANSWER)
        return NO_ANSWER
    rows: list[list[Any]] = [
        [None, server, key, table.get(key), value]
        for server, table in tables.items()
        for key, value in changes.items()
    ]
    session.output.table("settings", SET_COLUMNS, rows, done=False)
    if not is_wanted(f"Change {len(rows)} settings of {len(tables)} name servers?", **sure):
        return None
    asker = Asker(await session.client())
    for server in tables:
        await asker.run(change_namesrv_config(server, changes))
    after, _ = await ask_name_servers(session, namesrv_config)
    advice = ": does it know this key?"
    wrong = sum(
        tell_unchanged(session, server, table, changes, advice) for server, table in after.items()
    )
    session.output.line(f"changed at {len(tables)} name servers", {"done": not wrong})
    return FAILED if wrong else None
