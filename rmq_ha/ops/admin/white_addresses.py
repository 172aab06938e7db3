"""`rmqha-admin acl white`: addresses from which clients need no account."""

from typing import Any

import click

from rmq_ha.client.lookup.accounts import acl_rules, put_white_addresses
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import common_options, on_option
from rmq_ha.ops.admin.session import FAILED, Session, run
from rmq_ha.ops.admin.targets import targets

COLUMNS = ("broker", "address", "before", "after")


@click.command("white")
@click.argument("addresses", metavar="[ADDRESS...]", nargs=-1)
@on_option
@sure_options
@common_options
def set_white_addresses(addresses: tuple[str, ...], which: str, **sure: bool) -> None:
    """
    Replace the addresses that need no account (globalWhiteRemoteAddresses), on all brokers.

    ADDRESS is like 10.0.1.*. Without any ADDRESS every client needs an account. A client at one of
    these addresses may do everything. Exit code 1: a broker has other addresses afterwards.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await set_white(session, list(addresses), which, **sure)

    run(work)


async def set_white(
    session: Session, addresses: list[str], which: str = "", **sure: bool
) -> int | None:
    """
    Replace the addresses that need no account: show the change, ask, write, and check.

    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    rows: list[list[Any]] = []
    for target in session.output.track("asking brokers", brokers):
        before = (await asker.run(acl_rules(target.address))).white_addresses
        if before != addresses:
            rows.append([target.name, target.address, " ".join(before), " ".join(addresses)])
    session.output.table("white addresses", COLUMNS, rows, done=False)
    if not rows or not is_wanted(f"Change them on {len(rows)} brokers?", **sure):
        return None
    wrong = 0
    for _, address, *_ in session.output.track("changing brokers", rows):
        await asker.run(put_white_addresses(address, ",".join(addresses)))
        after = (await asker.run(acl_rules(address))).white_addresses
        if after != addresses:
            wrong += 1
            session.output.error(f"{address} has {' '.join(after)}", exit_code=FAILED)
    session.output.line(f"set on {len(rows)} brokers", {"done": not wrong})
    return FAILED if wrong else None
