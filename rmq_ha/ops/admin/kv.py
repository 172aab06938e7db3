"""`rmqha-admin kv`: shows and changes the keys and values that name servers keep."""

from typing import Any

import click

from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.kv_config import delete_kv, kv_of, put_kv
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import combine_options, common_options
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NothingFound, Session, run
from rmq_ha.ops.admin.targets import ask_name_servers

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
LIST_COLUMNS = ("namespace", "key", "value", "name_server")
CHANGE_COLUMNS = ("name_server", "key", "before", "after")
namespace_option = combine_options(
    click.option(
        "--namespace",
        default=ORDER_TOPICS,
        show_default=True,
        help="The namespace. Default: the one in which RocketMQ keeps the queues of ordered "
        "topics.",
    )
)


@click.group()
@common_options
def kv() -> None:
    """
    Show and change the keys and values that name servers keep for clients. Each name server keeps
    its own.
    """


@kv.command(name="list")
@namespace_option
@common_options
def list_(namespace: str) -> None:
    """
    Show all keys of a namespace at every name server, and warn where name servers differ.

    Exit code 3: no name server has keys there; 4: a name server does not answer.
    """

    async def work(session: Session) -> int | None:
        return await show_keys(session, namespace)

    run(work)


async def show_keys(session: Session, namespace: str) -> int | None:
    """
    Show all keys of a namespace at every name server.

    :returns: the exit code.
    :raises NothingFound: no name server has keys in the namespace.
    """
    tables, silent = await _tables(session, namespace)
    rows = [
        [namespace, key, value, server]
        for server, table in tables.items()
        for key, value in sorted(table.items())
    ]
    if not rows and not silent:
        raise NothingFound(f"no name server has keys in {namespace}")
    session.output.table("keys", LIST_COLUMNS, sorted(rows))
    if len({tuple(sorted(table.items())) for table in tables.values()}) > 1:
        session.output.warn(
            "name servers differ: set the key again; the command writes it to all of them"
        )
    return NO_ANSWER if silent else None


async def _tables(session: Session, namespace: str) -> tuple[dict[str, dict[str, str]], bool]:
    return await ask_name_servers(session, lambda server: kv_of(server, namespace))


@kv.command(name="set")
@click.argument("key")
@click.argument("value")
@namespace_option
@sure_options
@common_options
def set_(key: str, value: str, namespace: str, **sure: bool) -> None:
    """
    Set KEY at every name server (mqadmin updateKvConfig).

    Exit code 1: a name server has another value afterwards; 4: a name server does not answer.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await change_key(session, namespace, key, value, **sure)

    run(work)


@kv.command()
@click.argument("key")
@namespace_option
@sure_options
@common_options
def delete(key: str, namespace: str, **sure: bool) -> None:
    """
    Delete KEY at every name server.

    Exit code 3: no name server has the key.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await change_key(session, namespace, key, None, **sure)

    run(work)


async def change_key(
    session: Session, namespace: str, key: str, value: str | None, **sure: bool
) -> int | None:
    """
    Set or delete a key at every name server: show the change, ask, write, and check.

    :param value: the new value; None: the key is deleted.
    :returns: the exit code.
    :raises NothingFound: no name server has the key that is to be deleted.
    """
    tables, silent = await _tables(session, namespace)
    if silent:
        session.output.error(
            "not all name servers answer: nothing was changed", exit_code=NO_ANSWER
        )
        return NO_ANSWER
    rows: list[list[Any]] = [
        [server, key, table.get(key), value]
        for server, table in tables.items()
        if table.get(key) != value
    ]
    if value is None and not rows:
        raise NothingFound(f"no name server has {key} in {namespace}")
    session.output.table("keys", CHANGE_COLUMNS, rows, done=False)
    if not rows or not is_wanted(f"Change {key} at {len(rows)} name servers?", **sure):
        return None
    asker = Asker(await session.client())
    for server, *_ in session.output.track("changing", rows):
        await asker.run(
            delete_kv(server, namespace, key)
            if value is None
            else put_kv(server, namespace, key, value)
        )
    tables, _ = await _tables(session, namespace)
    wrong = [server for server, table in tables.items() if table.get(key) != value]
    for server in wrong:
        text = f"has {key}={tables[server][key]}" if key in tables[server] else f"has no {key}"
        session.output.error(f"{server} {text}", exit_code=FAILED)
    session.output.line(f"{key} is changed at {len(rows)} name servers", {"done": not wrong})
    return FAILED if wrong else None
