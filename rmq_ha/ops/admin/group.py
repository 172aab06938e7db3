"""`rmqha-admin group`: consumer groups, their members, and how far they have consumed."""

from collections import Counter
from typing import Any

import click

from rmq_ha.base.model.topics import (
    BUILT_IN_GROUPS,
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
)
from rmq_ha.base.wire.members import to_members
from rmq_ha.base.wire.versions import version_name
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.administration import (
    Members,
    delete_group,
    delete_topic,
    lag_by_group,
    members_of,
)
from rmq_ha.client.lookup.brokers import group_configs, topic_offsets
from rmq_ha.client.lookup.groups import consume_stats
from rmq_ha.ops.admin.clients import clients
from rmq_ha.ops.admin.clone import clone
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.group_settings import create, update
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import ChangeRefused, NothingFound, Session, run
from rmq_ha.ops.admin.targets import Target, first_of_each, masters, targets
from rmq_ha.ops.admin.topic import forget_everywhere

LIST_COLUMNS = ("group", "brokers", "members", "lag", "consume")
MEMBER_COLUMNS = ("client_id", "address", "language", "version")


@click.group()
@common_options
def group() -> None:
    """Consumer groups."""


@group.command(name="list")
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option("--all", "every", is_flag=True, help="RocketMQ's own, too.")
@common_options
def list_(which: str, every: bool) -> None:
    """Groups, how many members each has, and how many messages it is behind."""

    async def work(session: Session) -> None:
        await show_groups(session, which, every=every)

    run(work)


async def show_groups(session: Session, which: str = "", *, every: bool = False) -> None:
    asker, brokers = await targets(session, which)
    broker_counts: Counter[str] = Counter()
    lag: Counter[str] = Counter()
    clients: dict[str, set[str]] = {}
    is_on: dict[str, bool] = {}
    with session.output.progress("asking brokers", None) as steps:
        for target in first_of_each(brokers):
            lag.update(await asker.run(lag_by_group(target.address), steps.advance))
            table = await asker.run(group_configs(target.address), steps.advance)
            for name, config in table.items():
                if not every and _is_own(name):
                    continue
                broker_counts[name] += 1
                is_on[name] = is_on.get(name, False) or config.consume_enable
                members = await asker.run(members_of(target.address, name), steps.advance)
                clients.setdefault(name, set()).update(m.client_id for m in members.connections)
    rows = [
        [name, broker_counts[name], len(clients[name]), lag[name], is_on[name]]
        for name in sorted(broker_counts)
    ]
    session.output.table("groups", LIST_COLUMNS, rows)


def _is_own(name: str) -> bool:
    return name in BUILT_IN_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


@group.command()
@click.argument("name", metavar="GROUP")
@common_options
def show(name: str) -> None:
    """
    The settings of GROUP, its members, what they subscribe, and how far it is.

    Exit code 3: no broker knows it.
    """

    async def work(session: Session) -> None:
        await show_group(session, name)

    run(work)


async def show_group(session: Session, name: str) -> None:
    """
    Show the settings, members, subscriptions and lag of a group.

    :raises NothingFound: no broker knows the group.
    """
    asker, brokers = await targets(session)
    settings, members = await _settings_and_members(session, asker, first_of_each(brokers), name)
    if not settings and not members.connections:
        raise NothingFound(f"no broker knows the group {name}")
    lags = await asker.run(consume_stats(name))
    by_topic: Counter[str] = Counter()
    for item in lags.queues:
        by_topic[item.queue.topic] += item.lag
    rows = [
        [item.client_id, item.client_address, item.language, version_name(item.version)]
        for item in sorted(members.connections)
    ]
    subscribed = {topic: item.sub_string for topic, item in sorted(members.subscriptions.items())}
    output = session.output
    if output.as_json:
        shown = [dict(zip(MEMBER_COLUMNS, row, strict=True)) for row in rows]
        more = {"subscriptions": subscribed, "lag": dict(by_topic), "settings": settings}
        output.fields({"group": name, **members.how, "members": shown, **more})
        return
    for address, config in settings.items():
        output.say(address)
        output.fields({f"  {key}": value for key, value in config.items() if key != "groupName"})
    output.table("members", MEMBER_COLUMNS, rows, **members.how)
    topics = sorted({*subscribed, *by_topic})
    output.table(
        "topics",
        ("topic", "subscription", "lag"),
        [[topic, subscribed.get(topic), by_topic.get(topic)] for topic in topics],
    )


async def _settings_and_members(
    session: Session, asker: Asker, brokers: list[Target], name: str
) -> tuple[dict[str, dict[str, Any]], Members]:
    """Return the settings of a group by broker address, and its members at all brokers together."""
    settings = {}
    steps = session.output.track("asking brokers", brokers)
    everybody = Members([], {}, {})
    for target in steps:
        config = (await asker.run(group_configs(target.address))).get(name)
        if config is not None:
            settings[target.address] = to_members(config)
        members = await asker.run(members_of(target.address, name))
        known = {item.client_id for item in everybody.connections}
        everybody.connections.extend(m for m in members.connections if m.client_id not in known)
        everybody.subscriptions.update(members.subscriptions)
        everybody.how.update(members.how)
    return settings, everybody


group.add_command(clients)
group.add_command(clone)
group.add_command(create)
group.add_command(update)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option("--keep-offsets", is_flag=True, help="A group of this name goes on where it was.")
@sure_options
@common_options
def delete(name: str, keep_offsets: bool, **sure: bool) -> None:
    """
    Delete GROUP, its retries and its dead letters, on all masters; refused while it has members.

    Exit code 3: no broker has it.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> None:
        await delete_everywhere(session, name, keep_offsets=keep_offsets, **sure)

    run(work)


async def delete_everywhere(
    session: Session, name: str, *, keep_offsets: bool, **sure: bool
) -> None:
    """
    Delete a group on all masters: show it, ask, and delete.

    :raises NothingFound: no broker has the group.
    :raises ChangeRefused: the group has members.
    """
    asker, brokers = await targets(session)
    chosen = masters(brokers)
    settings, members = await _settings_and_members(session, asker, chosen, name)
    if not settings:
        raise NothingFound(f"no broker has the group {name}")
    if members.connections:
        who = ", ".join(item.client_id for item in members.connections)
        raise ChangeRefused(
            f"{name} has members, which would make it again: stop them first ({who})"
        )
    topics: Counter[str] = Counter()
    for target in session.output.track("asking brokers", chosen):
        for topic in (RETRY_PREFIX + name, DLQ_PREFIX + name):
            queues = await asker.run(topic_offsets(target.address, topic))
            if queues:
                topics[topic] += sum(item.max_offset - item.min_offset for item in queues.values())
    rows = [[topic, count] for topic, count in topics.items()]
    title = f"{name} on {len(settings)} brokers"
    session.output.table(title, ("topic", "messages"), rows, deleted=False)
    if not is_wanted(f"Delete {name} and these topics?", **sure):
        return
    for target in session.output.track("deleting", chosen):
        if target.address in settings:
            await asker.run(delete_group(target.address, name, offsets=not keep_offsets))
        for topic in topics:
            await asker.run(delete_topic(target.address, topic))
    for topic in topics:
        await forget_everywhere(session, asker, topic)
    session.output.line(f"{name} is deleted", {"group": name, "deleted": True})
