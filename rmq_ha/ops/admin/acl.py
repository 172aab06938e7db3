"""`rmqha-admin acl`: accounts of brokers with access control."""

from collections.abc import Iterable
from typing import Any

import click

from rmq_ha.base.errors import RemotingTimeout
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.accounts import (
    Account,
    AclRules,
    acl_rules,
    acl_versions,
    delete_account,
    put_account,
)
from rmq_ha.ops.admin.acl_auth import export, import_
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import combine_options, common_options, on_option
from rmq_ha.ops.admin.session import FAILED, ChangeRefused, NothingFound, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, targets
from rmq_ha.ops.admin.white_addresses import set_white_addresses

LIST_COLUMNS = (
    "account",
    "broker",
    "address",
    "admin",
    "from",
    "default_topic",
    "default_group",
    "topics",
    "groups",
    "secret",
)
CHANGE_COLUMNS = ("account", "broker", "address", "key", "before", "after")
DELETE_COLUMNS = ("account", "broker", "address")
VERSION_COLUMNS = ("broker", "address", "file", "changes", "last")
HIDDEN = "(hidden)"
_KEYS = {
    "secret_key": "secret",
    "white_remote_address": "from",
    "admin": "admin",
    "default_topic_perm": "default_topic",
    "default_group_perm": "default_group",
    "topic_perms": "topics",
    "group_perms": "groups",
}
_PERMS = ("DENY", "PUB", "SUB", "PUB|SUB")
_show_secrets = click.option(
    "--show-secrets", is_flag=True, help="Print secret keys instead of hiding them."
)


@click.group()
@common_options
def acl() -> None:
    """
    Show and change the accounts of brokers with access control. This needs an administrator's
    account.
    """


acl.add_command(set_white_addresses)
acl.add_command(export)
acl.add_command(import_)


@acl.command(name="list")
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@_show_secrets
@common_options
def list_(which: str, show_secrets: bool) -> None:
    """
    Show all accounts of each broker, and warn where the accounts of brokers differ.

    Exit code 3: no broker has accounts.
    """

    async def work(session: Session) -> None:
        await show_accounts(session, which, show_secrets=show_secrets)

    run(work)


@acl.command()
@click.argument("account", metavar="ACCESS_KEY")
@click.option(
    "--on",
    "which",
    default="",
    metavar="BROKER|CLUSTER|HOST:PORT",
    help="Show the account of these brokers only.",
)
@_show_secrets
@common_options
def show(account: str, which: str, show_secrets: bool) -> None:
    """
    Show one account with all its permissions.

    Exit code 3: no broker has it.
    """

    async def work(session: Session) -> None:
        await show_accounts(session, which, account, show_secrets=show_secrets)

    run(work)


async def show_accounts(
    session: Session, which: str, only: str = "", *, show_secrets: bool = False
) -> None:
    """
    Show the accounts of the chosen brokers, with a warning where the brokers differ.

    :param only: show this account alone; empty: all accounts.
    :raises NothingFound: no broker has such an account.
    """
    asker, brokers = await targets(session, which)
    rows: list[list[Any]] = []
    variants: dict[str, list[Account | None]] = {}
    known = [
        (target, await _rules(asker, target))
        for target in session.output.track("asking brokers", brokers)
    ]
    white: dict[str, list[str]] = {}
    for target, rules in known:
        white[target.address] = rules.white_addresses
        for name, item in sorted(rules.accounts.items()):
            if only in ("", name):
                variants[name] = [other.accounts.get(name) for _, other in known]
                rows.append(_row(target, item, show_secrets))
    if not rows:
        raise NothingFound(f"no broker has the account {only}" if only else "no accounts")
    session.output.table("accounts", LIST_COLUMNS, sorted(rows), white_addresses=white)
    for name, items in sorted(variants.items()):
        if len(set(items)) > 1:
            session.output.warn(f"{name} is not the same on all brokers: use acl set {name}")


def _row(target: BrokerTarget, item: Account, show_secrets: bool) -> list[Any]:
    secret = item.secret_key if show_secrets else item.secret_key and HIDDEN
    own = [item.access_key, target.name or target.address, target.address, item.admin]
    perms = [item.default_topic_perm, item.default_group_perm]
    entries = [" ".join(item.topic_perms) or None, " ".join(item.group_perms) or None]
    return [*own, item.white_remote_address, *perms, *entries, secret]


async def _rules(asker: Asker, target: BrokerTarget) -> AclRules:
    """
    Ask a broker for its accounts.

    :raises RemotingTimeout: the broker does not answer. The error adds that a 4.9.7 broker without
        access control never answers this request.
    """
    try:
        return await asker.run(acl_rules(target.address))
    except RemotingTimeout as error:
        raise _no_answer(error) from None


def _no_answer(error: RemotingTimeout) -> RemotingTimeout:
    return RemotingTimeout(f"{error} (a Java broker with aclEnable=false does not answer this)")


def _entries(_: Any, __: Any, values: Iterable[str]) -> dict[str, str]:
    entries = {}
    for value in values:
        name, _, perm = value.partition("=")
        if not name or "," in name or perm not in _PERMS:
            raise click.BadParameter(f"{value!r} is not NAME={'/'.join(_PERMS)}")
        entries[name] = perm
    return entries


_PERM = click.Choice(_PERMS)
_grants = combine_options(
    on_option,
    click.option(
        "--new-secret",
        envvar="RMQHA_NEW_SECRET",
        help="The account's secret key, more than 6 characters. Prefer the environment's "
        "RMQHA_NEW_SECRET, which `ps` does not show.",
    ),
    click.option(
        "--admin/--no-admin", default=None, help="Whether the account may change brokers."
    ),
    click.option(
        "--from",
        "white_remote_address",
        metavar="ADDRESSES",
        help="Addresses from which the account needs no signature, like 10.0.1.* "
        "(whiteRemoteAddress).",
    ),
    click.option(
        "--default-topic",
        "default_topic_perm",
        type=_PERM,
        help="Permission for every topic without one of its own. A new account has DENY.",
    ),
    click.option(
        "--default-group",
        "default_group_perm",
        type=_PERM,
        help="Permission for every group without one of its own. A new account has DENY.",
    ),
    click.option(
        "--topic",
        "topic_perms",
        multiple=True,
        callback=_entries,
        metavar="TOPIC=PERM",
        help="Permission for one topic; repeatable. Permissions that are not named stay.",
    ),
    click.option(
        "--group",
        "group_perms",
        multiple=True,
        callback=_entries,
        metavar="GROUP=PERM",
        help="Permission for one group; repeatable. Permissions that are not named stay.",
    ),
)


@acl.command(name="set")
@click.argument("account", metavar="ACCESS_KEY")
@_grants
@sure_options
@common_options
def set_(
    account: str, which: str, new_secret: str | None, yes: bool, dry_run: bool, **given: Any
) -> None:
    """
    Create or change an account on all brokers, including slaves, since each broker has files of its
    own.

    Values for which no option is given stay. Exit code 1: a broker refuses, or its account differs
    afterwards.
    """
    must_be_askable(yes=yes, dry_run=dry_run)
    changes = {**given, "secret_key": new_secret}

    async def work(session: Session) -> int | None:
        return await set_account(session, account, which, changes, yes=yes, dry_run=dry_run)

    run(work)


async def set_account(
    session: Session, name: str, which: str, given: dict[str, Any], **sure: bool
) -> int | None:
    """
    Create or change an account on the chosen brokers.

    :returns: the exit code.
    :raises ChangeRefused: a new account needs a secret.
    """
    asker, brokers = await targets(session, which)
    plan: list[tuple[BrokerTarget, Account]] = []
    rows: list[list[Any]] = []
    for target in session.output.track("asking brokers", brokers):
        before = (await _rules(asker, target)).accounts.get(name)
        if before is None and not given["secret_key"]:
            raise ChangeRefused(f"{target.address} has no {name}: give a new one --new-secret")
        after = _with_changes(before or Account(name), given)
        plan.append((target, after))
        rows += _differences(target, before or Account(name), after)
    session.output.table("accounts", CHANGE_COLUMNS, rows, done=False)
    if not rows or not is_wanted(f"Set {name} on {len(plan)} brokers?", **sure):
        return None
    if given["secret_key"] and not session.options.use_tls:
        session.output.warn("without --tls the new secret goes over the network as it is")
    for target, after in session.output.track("changing brokers", plan):
        await asker.run(put_account(target.address, after))
    own = session.options.credentials
    if own is not None and own.access_key == name and given["secret_key"]:
        session.output.line(f"{name} is set; it signed this, so look with its new secret", {})
        return None
    return await _verify(session, asker, name, plan)


def _with_changes(before: Account, given: dict[str, Any]) -> Account:
    after = before._replace(
        **{key: value for key, value in given.items() if value is not None and key in _PLAIN}
    )
    return after._replace(
        topic_perms=_merge_perms(before.topic_perms, given["topic_perms"]),
        group_perms=_merge_perms(before.group_perms, given["group_perms"]),
    )


_PLAIN = _KEYS.keys() - {"topic_perms", "group_perms"}


def _merge_perms(before: Iterable[str], given: dict[str, str]) -> tuple[str, ...]:
    known = dict(item.partition("=")[::2] for item in before)
    return tuple(f"{name}={perm}" for name, perm in {**known, **given}.items())


def _differences(target: BrokerTarget, before: Account, after: Account) -> list[list[Any]]:
    rows = []
    for member, key in _KEYS.items():
        old, new = getattr(before, member), getattr(after, member)
        if old == new:
            continue
        if member == "secret_key":
            old, new = old and HIDDEN, HIDDEN
        elif isinstance(new, tuple):
            old, new = " ".join(old) or None, " ".join(new)
        rows.append([after.access_key, target.name or None, target.address, key, old, new])
    return rows


async def _verify(
    session: Session, asker: Asker, name: str, plan: list[tuple[BrokerTarget, Account]]
) -> int | None:
    wrong = 0
    for target, planned in session.output.track("asking again", plan):
        account = (await _rules(asker, target)).accounts.get(name)
        for row in _differences(target, planned, account or Account(name)):
            wrong += 1
            text = f"{target.address} has {row[3]} {row[5]} of {name}, not {row[4]}"
            session.output.error(text, exit_code=FAILED)
    session.output.line(f"{name} is set on {len(plan)} brokers", {"done": not wrong})
    return FAILED if wrong else None


@acl.command()
@click.argument("account", metavar="ACCESS_KEY")
@on_option
@sure_options
@common_options
def delete(account: str, which: str, **sure: bool) -> None:
    """
    Delete an account on all brokers that have it.

    Exit code 3: no broker has the account.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> None:
        await remove_account(session, account, which, **sure)

    run(work)


async def remove_account(session: Session, name: str, which: str, **sure: bool) -> None:
    """
    Delete an account on the chosen brokers that have it.

    :raises NothingFound: no broker has the account.
    :raises ChangeRefused: the account is the one that this command itself asks with.
    """
    own = session.options.credentials
    if own is not None and own.access_key == name:
        raise ChangeRefused(
            f"{name} is the account of this command: delete it with another account"
        )
    asker, brokers = await targets(session, which)
    have = [
        target
        for target in session.output.track("asking brokers", brokers)
        if name in (await _rules(asker, target)).accounts
    ]
    if not have:
        raise NothingFound(f"no broker has the account {name}")
    rows = [[name, target.name, target.address] for target in have]
    session.output.table("accounts", DELETE_COLUMNS, rows, deleted=False)
    if is_wanted(f"Delete {name} on {len(have)} brokers?", **sure):
        for target in session.output.track("changing brokers", have):
            await asker.run(delete_account(target.address, name))
        session.output.line(f"{name} is deleted", {"account": name, "deleted": True})


@acl.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@common_options
def version(which: str) -> None:
    """Show how often each file of accounts was changed, and when last."""

    async def work(session: Session) -> None:
        await show_versions(session, which)

    run(work)


async def show_versions(session: Session, which: str) -> None:
    """Show a row for each file of accounts of each broker."""
    asker, brokers = await targets(session, which)
    rows: list[list[Any]] = []
    for target in session.output.track("asking brokers", brokers):
        try:
            versions = await asker.run(acl_versions(target.address))
        except RemotingTimeout as error:
            raise _no_answer(error) from None
        for item in versions:
            last = time_text(item.timestamp)
            rows.append([item.broker_name, target.address, item.path, item.counter, last])
    session.output.table("files of accounts", VERSION_COLUMNS, rows)
