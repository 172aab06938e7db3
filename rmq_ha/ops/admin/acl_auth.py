"""`rmqha-admin acl export` and `import`: accounts for RocketMQ 5 (ACL 2.0), and from there."""

import os.path
from collections.abc import Sequence
from typing import NamedTuple

import click

from rmq_ha.base.wire.auth_bodies import ENABLED, NORMAL, USER_PREFIX, AclInfo, UserInfo
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.accounts import acl_rules
from rmq_ha.client.lookup.auth import list_acls, list_users, put_acl, put_user
from rmq_ha.ops.admin.auth_document import (
    AnyAccount,
    AuthDocument,
    document_of,
    plain_acl_of,
    read_document,
)
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import common_options, on_option
from rmq_ha.ops.admin.session import FAILED, ChangeRefused, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, targets
from rmq_ha.server.acl.reading import read_file

COLUMNS = ("broker", "address", "kind", "name", "action")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--v2", "version", flag_value="v2", help="Write users and policies of RocketMQ 5.")
@click.option("--v1", "version", flag_value="v1", help="Write a plain_acl.yml.")
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="Read this file and ask no broker: a plain_acl.yml for --v2, for --v1 what --v2 wrote.",
)
@click.option("--cluster", default="", help="The name of the cluster, which replies need.")
@on_option
@common_options
def export(file: str, version: str | None, source: str, cluster: str, which: str) -> None:
    """
    Write the accounts of a broker into FILE, which must not exist. With --v2 the accounts of a
    broker with plain_acl.yml become a document for `acl import`. With --v1 the users of a broker of
    RocketMQ 5 become a plain_acl.yml.

    FILE has the secrets. The command warns of each rule that it could not carry over. If several
    brokers are asked, the first one's accounts are written, with a warning if others differ.
    """
    if version is None:
        raise click.UsageError("give --v2 for a cluster of RocketMQ 5, or --v1 for plain_acl.yml")
    path = os.path.abspath(file)

    async def work(session: Session) -> None:
        if session.host.disk.exists(path):
            raise ChangeRefused(f"{file} is there already: name another one")
        if version == "v2":
            await export_v2(session, path, source, cluster, which)
        else:
            await export_v1(session, path, source, which)

    run(work)


async def export_v2(session: Session, path: str, source: str, cluster: str, which: str) -> None:
    """
    Write users and policies.

    :param source: a `plain_acl.yml`; empty: ask brokers.
    """
    accounts: Sequence[AnyAccount]
    if source:
        content = read_file(source, session.host.disk.read_bytes(source))
        accounts, white = content.accounts, list(content.white_addresses)
    else:
        asker, brokers = await targets(session, which)
        told = [await asker.run(acl_rules(target.address)) for target in brokers]
        _warn_if_different(session, brokers, told)
        accounts, white = list(told[0].accounts.values()), told[0].white_addresses
        cluster = cluster or brokers[0].cluster
    document = document_of(accounts, white, cluster)
    session.host.disk.replace(path, encode(document.to_members()))
    for note in document.notes:
        session.output.warn(note)
    numbers = {"users": len(document.users), "acls": len(document.acls), "file": path}
    text = f"{len(document.users)} users, {len(document.acls)} of them with policies, in {path}"
    session.output.line(text, {**numbers, "notes": document.notes})


async def export_v1(session: Session, path: str, source: str, which: str) -> None:
    """
    Write a `plain_acl.yml`.

    :param source: a document of `export_v2`; empty: ask brokers.
    """
    if source:
        document = read_document(session.host.disk.read_bytes(source))
    else:
        asker, brokers = await targets(session, which)
        told = [await _document(asker, target) for target in brokers]
        _warn_if_different(session, brokers, told)
        document = told[0]
    made = plain_acl_of(document, session.host.now_ms())
    session.host.disk.replace(path, made.text)
    for note in made.notes:
        session.output.warn(note)
    numbers = {"accounts": made.accounts, "file": path, "notes": made.notes}
    session.output.line(f"{made.accounts} accounts in {path}", numbers)


async def _document(asker: Asker, target: BrokerTarget) -> AuthDocument:
    users = await asker.run(list_users(target.address))
    return AuthDocument(users, await asker.run(list_acls(target.address)), [])


def _warn_if_different(
    session: Session, brokers: Sequence[BrokerTarget], told: Sequence[object]
) -> None:
    others = [
        target.address for target, answer in zip(brokers, told, strict=True) if answer != told[0]
    ]
    if others:
        session.output.warn(
            f"the accounts of {brokers[0].address} are written; others differ: {', '.join(others)}"
        )


# ------------------------------------------------------------ import


class AuthStep(NamedTuple):
    """
    A user or its policies that a broker lacks, or has otherwise.

    :ivar is_new: whether the broker has none of this name.
    """

    target: BrokerTarget
    wish: UserInfo | AclInfo
    is_new: bool

    def row(self) -> list[str | None]:
        is_user = isinstance(self.wish, UserInfo)
        name = self.wish.username if isinstance(self.wish, UserInfo) else self.wish.subject
        action = "create" if self.is_new else "change"
        if isinstance(self.wish, AclInfo) and not self.wish.policies:
            action = "delete"
        kind = "user" if is_user else "policies"
        return [self.target.name or None, self.target.address, kind, name, action]


@click.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@on_option
@sure_options
@common_options
def import_(file: str, which: str, **sure: bool) -> None:
    """
    Give brokers the users and policies of FILE, a document of `acl export --v2`. The brokers are of
    RocketMQ 5 with ACL 2.0, or of rmq-ha.

    The command shows what the brokers lack, asks, and sets it on every broker, because each has
    accounts of its own. Users that FILE does not have stay. Policies that differ are deleted and
    made anew; in between, the user has none. Exit code 1: a broker has others afterwards.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        document = read_document(session.host.disk.read_bytes(file))
        return await import_document(session, document, which, **sure)

    run(work)


async def import_document(
    session: Session, document: AuthDocument, which: str = "", **sure: bool
) -> int | None:
    """
    Show what brokers lack of a document, ask, set it, and look whether they have it.

    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    steps = [step for target in brokers for step in await _steps(asker, target, document)]
    session.output.table("differences", COLUMNS, [step.row() for step in steps], done=not steps)
    if not steps or not is_wanted(f"Set {len(steps)} differences?", **sure):
        return None
    if not session.options.use_tls:
        session.output.warn("without --tls the passwords go over the network as they are")
    for target, wish, is_new in session.output.track("changing brokers", steps):
        if isinstance(wish, UserInfo):
            await asker.run(put_user(target.address, wish, is_new=is_new))
        else:
            await asker.run(put_acl(target.address, wish, is_new=is_new))
    left = [step for target in brokers for step in await _steps(asker, target, document)]
    for step in left:
        text = f"{step.target.address} has not taken {step.row()[2]} {step.row()[3]}"
        session.output.error(text, exit_code=FAILED)
    set_ = len(steps) - len(left)
    session.output.line(f"{set_} of {len(steps)} set", {"set": set_})
    return FAILED if left else None


async def _steps(asker: Asker, target: BrokerTarget, document: AuthDocument) -> list[AuthStep]:
    present = await _document(asker, target)
    users = {user.username: user for user in present.users}
    acls = {acl.subject: acl for acl in present.acls}
    steps = []
    for user in document.users:
        known = users.get(user.username)
        if known is None or _user_key(known) != _user_key(user):
            steps.append(AuthStep(target, user, known is None))
    given = {acl.subject: acl for acl in document.acls}
    subjects = [f"{USER_PREFIX}{user.username}" for user in document.users]
    wishes = [given.get(subject) or AclInfo([], subject) for subject in subjects]
    for acl in wishes:
        before = acls.get(acl.subject)
        if _acl_key(before or AclInfo()) != _acl_key(acl):
            steps.append(AuthStep(target, acl, before is None))
    return steps


def _user_key(user: UserInfo) -> tuple[str | None, str, str]:
    kind, status = user.user_type or NORMAL, user.user_status or ENABLED
    return user.password, kind.lower(), status.lower()


def _acl_key(acl: AclInfo) -> set[tuple[object, ...]]:
    """Return the rules of policies, without their order and without Get, which our brokers drop."""
    return {
        (
            policy.policy_type or "Custom",
            entry.resource,
            entry.decision,
            frozenset(entry.actions or ()) - {"Get"},
            tuple(entry.source_ips or ()),
        )
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    }
