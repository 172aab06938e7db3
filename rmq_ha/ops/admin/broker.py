"""
`rmqha-admin broker`: lists brokers, shows their state, changes their settings, and cleans their
disks.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from rmq_ha.base.config.remote_change import refusal
from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.stat_bodies import REPLICATION_KEY
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.administration import change_config
from rmq_ha.client.lookup.administration import clean as have_cleaned
from rmq_ha.client.lookup.brokers import broker_config, runtime_info, topic_configs
from rmq_ha.client.lookup.kv_config import set_writes
from rmq_ha.client.lookup.lookups import cluster_info
from rmq_ha.client.rules.settings import name_servers
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.losses import deleted_by_retention, refuse_or_tell
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.pair import fullness, look_at
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NothingFound, Session, run
from rmq_ha.ops.admin.targets import masters, targets

LIST_COLUMNS = (
    "cluster",
    "broker",
    "id",
    "address",
    "role",
    "version",
    "in_tps",
    "out_tps",
    "disk",
    "log_end",
)
SET_COLUMNS = ("broker", "address", "key", "before", "after")


@click.group()
@common_options
def broker() -> None:
    """List brokers, and show their state and settings."""


@broker.command(name="list")
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@common_options
def list_(which: str) -> None:
    """
    List all brokers with role, rates and disk.

    Exit code 4: a broker does not answer.
    """

    async def work(session: Session) -> int | None:
        return await show_brokers(session, which)

    run(work)


async def show_brokers(session: Session, which: str) -> int | None:
    """
    Show every chosen broker with its role, rates and disk.

    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    rows: list[list[Any]] = []
    problems = []
    for target in session.output.track("asking brokers", brokers):
        member = await look_at(asker, target.address)
        row: list[Any] = [target.cluster, target.name or member.broker_name]
        number = member.broker_id if target.broker_id is None else target.broker_id
        row += [number, target.address, member.role]
        if member.problem is not None:
            problems.append(f"{target.name} {target.address}: {member.problem}")
            rows.append([*row, *[None] * (len(LIST_COLUMNS) - len(row))])
            continue
        info = member.info
        rates = [rate(info.get("putTps", "")), rate(info.get("getTransferedTps", ""))]
        disk = fullness(info)
        rows.append([*row, info.get("brokerVersionDesc"), *rates, disk, member.end])
    session.output.table("brokers", LIST_COLUMNS, rows)
    for problem in problems:
        session.output.warn(problem)
    return NO_ANSWER if problems else None


def rate(text: str) -> float | None:
    """
    Return the first rate of a broker's list, which is that of the last 10 seconds; None: no rate.
    """
    first = text.split(" ")[0]
    return round(float(first), 1) if first else None


@broker.command()
@click.argument("which", metavar="BROKER|HOST:PORT")
@common_options
def status(which: str) -> None:
    """Show all values in which brokers report their own state (mqadmin brokerStatus)."""

    async def work(session: Session) -> None:
        asker, brokers = await targets(session, which)
        for target in session.output.track("asking brokers", brokers):
            info = await asker.run(runtime_info(target.address))
            info.pop(REPLICATION_KEY, None)  # `ha status` shows it
            own = {"broker": target.name, "id": target.broker_id, "address": target.address}
            session.output.fields({**own, **dict(sorted(info.items()))})

    run(work)


@broker.group()
@common_options
def config() -> None:
    """Show and change the settings of running brokers."""


@config.command(name="get")
@click.argument("which", metavar="BROKER|HOST:PORT")
@click.argument("keys", nargs=-1)
@common_options
def get(which: str, keys: tuple[str, ...]) -> None:
    """
    Show the settings with which brokers run: all of them, or only KEYS.

    Exit code 3: no broker has any of the keys.
    """

    async def work(session: Session) -> None:
        await show_config(session, which, keys)

    run(work)


async def show_config(session: Session, which: str, keys: Iterable[str]) -> None:
    """
    Show the settings of the chosen brokers.

    :param keys: show these alone; empty: all settings.
    :raises NothingFound: no chosen broker has any of the keys.
    """
    asker, brokers = await targets(session, which)
    only = set(keys)
    has_found = False
    for target in session.output.track("asking brokers", brokers):
        config = await asker.run(broker_config(target.address))
        shown = {key: value for key, value in config.items() if not only or key in only}
        has_found = has_found or bool(shown)
        session.output.fields({"address": target.address, **shown})
    if not has_found:
        names = ", ".join(sorted(only)) or "settings"
        raise NothingFound(f"the chosen brokers ({which}) have no {names}")


def assignments(_: Any, __: Any, values: Iterable[str]) -> dict[str, str]:
    """
    Read the `KEY=VALUE` arguments of a command that changes settings.

    :raises click.BadParameter: an argument is not KEY=VALUE, or its key may be changed only in the
        properties file.
    """
    pairs = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        pairs[key] = text
    refused = refusal(list(pairs))
    if refused is not None:
        raise click.BadParameter(refused)
    return pairs


@config.command(name="set")
@click.argument("which", metavar="BROKER|CLUSTER|HOST:PORT")
@click.argument("changes", metavar="KEY=VALUE...", nargs=-1, required=True, callback=assignments)
@click.option(
    "--drop-old", is_flag=True, help="With --yes: let a shorter fileReservedTime delete messages."
)
@sure_options
@common_options
def set_(which: str, changes: dict[str, str], drop_old: bool, **sure: bool) -> None:
    """
    Change settings of running brokers and in their files. A broker's name stands for its master and
    its slaves.

    If fileReservedTime gets shorter, the command first says which messages that deletes.

    Exit code 1: a broker does not have the new values afterwards. Java ignores unknown keys without
    a word; rmq-ha names the keys that need a restart.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await set_config(session, which, changes, drop_old=drop_old, **sure)

    run(work)


async def set_config(
    session: Session,
    which: str,
    changes: dict[str, str],
    *,
    drop_old: bool = False,
    **sure: bool,
) -> int | None:
    """
    Change settings of running brokers: show the changes, ask, write, and check.

    :param drop_old: agree that a shorter retention deletes messages.
    :returns: the exit code.
    :raises WouldLose: messages would be deleted, and nobody can be asked for agreement.
    """
    asker, brokers = await targets(session, which)
    if ":" not in which:
        masters(brokers)  # without a master among them, only the slaves would change
    rows, losses, now_ms = [], [], session.host.now_ms()
    for target in session.output.track("asking brokers", brokers):
        before = await asker.run(broker_config(target.address))
        losses.append(await deleted_by_retention(asker, target.address, before, changes, now_ms))
        rows += [
            [target.name, target.address, key, before.get(key), value]
            for key, value in changes.items()
        ]
    session.output.table("settings", SET_COLUMNS, rows, done=False)
    refuse_or_tell(session, losses, "--drop-old", is_agreed=drop_old or not sure["yes"])
    if not is_wanted(f"Change {len(rows)} settings of {len(brokers)} brokers?", **sure):
        return None
    for target in session.output.track("changing brokers", brokers):
        await asker.run(change_config(target.address, changes))
    wrong = 0
    for target in session.output.track("asking again", brokers):
        wrong += tell_unchanged(
            session, target.address, await asker.run(broker_config(target.address)), changes
        )
    session.output.line(f"changed on {len(brokers)} brokers", {"done": not wrong})
    return FAILED if wrong else None


def tell_unchanged(
    session: Session,
    address: str,
    after: Mapping[str, str],
    changes: Mapping[str, str],
    advice: str = "",
) -> int:
    """
    Report each setting of a server that does not have the value that was sent to it.

    :param after: all settings of the server, read after the change.
    :param advice: text that is appended to each report.
    :returns: how many settings were reported.
    """
    wrong = {
        key: text for key, text in changes.items() if after.get(key, "").strip() != text.strip()
    }
    for key, value in wrong.items():
        present = f"{key}={after[key]}" if key in after else f"no {key}"
        text = f"{address} has {present}, not {value}{advice}"
        session.output.error(text, exit_code=FAILED)
    return len(wrong)


WRITES_COLUMNS = ("name_server", "broker", "writes")
WRITES_CHANGED_COLUMNS = (*WRITES_COLUMNS, "topics")


@broker.command()
@click.argument("name", metavar="BROKER")
@click.argument("what", type=click.Choice(["off", "on"]))
@sure_options
@common_options
def writes(name: str, what: str, **sure: bool) -> None:
    """
    Take BROKER out of the routes of producers at every name server (`off`), or put it back (`on`).
    Consumers go on reading. With `off` before a planned stop, producers use other brokers within 30
    s.

    If the broker registers with other topics afterwards, producers may write to it again. Exit code
    4: a name server does not answer.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await change_writes(session, name, allowed=what == "on", **sure)

    run(work)


async def change_writes(session: Session, name: str, *, allowed: bool, **sure: bool) -> int | None:
    """
    Allow or forbid producers to write to a broker.

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
        "writes", WRITES_COLUMNS, [[server, name, what] for server in servers], done=False
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
    session.output.table("writes", WRITES_CHANGED_COLUMNS, rows, done=len(rows) == len(servers))
    return None if len(rows) == len(servers) else NO_ANSWER


CLEAN_COLUMNS = ("broker", "address", "log_begin", "log_end", "disk", "hours", "topics")
CLEAN_KINDS = {
    "files": RequestCode.DELETE_EXPIRED_COMMITLOG,
    "queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "topics": RequestCode.CLEAN_UNUSED_TOPIC,
}
CLEAN_MEANINGS = {
    "files": "files of the log older than fileReservedTime are deleted with their messages",
    "queues": "files of queues whose messages the log no longer has are deleted",
    "topics": "queues of topics that the broker does not have (any more) are deleted",
}


@broker.command()
@click.argument("which", metavar="BROKER|CLUSTER|HOST:PORT")
@click.argument("what", type=click.Choice(sorted(CLEAN_KINDS)))
@sure_options
@common_options
def clean(which: str, what: str, **sure: bool) -> None:
    """
    Have brokers clean up now instead of at their usual time. `files` deletes expired files of the
    log, which happens at the hour of deleteWhen otherwise. `queues` deletes the files of queues
    whose messages are deleted, and `topics` the queues of deleted topics.

    Nothing is deleted that the broker would not delete by itself. Brokers begin after they have
    answered; `broker list` and `topic status` show the result.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> None:
        await clean_brokers(session, which, what, **sure)

    run(work)


async def clean_brokers(session: Session, which: str, what: str, **sure: bool) -> None:
    """Show the disk and log of the brokers, ask, and have them clean up."""
    asker, brokers = await targets(session, which)
    rows: list[list[Any]] = []
    for target in session.output.track("asking brokers", brokers):
        info = await asker.run(runtime_info(target.address))
        config = await asker.run(broker_config(target.address))
        topics = await asker.run(topic_configs(target.address))
        disk = fullness(info)
        ends = [int(info.get(key, "0")) for key in ("commitLogMinOffset", "commitLogMaxOffset")]
        hours = config.get("fileReservedTime")
        rows.append([target.name or None, target.address, *ends, disk, hours, len(topics)])
    session.output.table(CLEAN_MEANINGS[what], CLEAN_COLUMNS, rows, done=False)
    if not is_wanted(f"Have {len(brokers)} brokers do this now?", **sure):
        return
    for target in session.output.track("telling brokers", brokers):
        await asker.run(have_cleaned(target.address, CLEAN_KINDS[what]))
    session.output.line(f"{len(brokers)} brokers were told", {"done": True})
