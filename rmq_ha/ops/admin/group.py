"""`rmqha-admin group`: shows and changes consumer groups, their members, and their progress."""

from collections import Counter, defaultdict
from typing import Any

import click
from msgspec.structs import replace

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import (
    BUILT_IN_GROUPS,
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    group_fault,
)
from rmq_ha.base.wire.members import to_members
from rmq_ha.base.wire.stat_bodies import Connection
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.administration import (
    ConnectedMembers,
    delete_group,
    delete_topic,
    lag_by_group,
    members_of,
    put_group,
)
from rmq_ha.client.lookup.brokers import group_configs, topic_offsets
from rmq_ha.client.lookup.groups import consume_stats
from rmq_ha.client.lookup.running_info import RunningInfo, running_info
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.clone import clone
from rmq_ha.ops.admin.confirm import dry_run_option, is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.inflight import inflight
from rmq_ha.ops.admin.options import combine_options, common_options, on_option
from rmq_ha.ops.admin.retry_policy import POLICY, RetryBackoff, RetryPauses
from rmq_ha.ops.admin.session import NO_ANSWER, ChangeRefused, NothingFound, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, first_of_each, masters, targets
from rmq_ha.ops.admin.topic import forget_everywhere

LIST_COLUMNS = ("group", "brokers", "members", "lag", "consume")
MEMBER_COLUMNS = ("client_id", "address", "language", "version", "protocol")


@click.group()
@common_options
def group() -> None:
    """Show and change consumer groups."""


@group.command(name="list")
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option("--all", "every", is_flag=True, help="List RocketMQ's own groups, too.")
@common_options
def list_(which: str, every: bool) -> None:
    """
    List consumer groups with the number of their members and of messages that they have not
    consumed.
    """

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
    Show the settings of GROUP, its members, their subscriptions, and its progress.

    Exit code 3: no broker knows the group.
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
    rows = [_shown_member(item) for item in sorted(members.connections)]
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
    session: Session, asker: Asker, brokers: list[BrokerTarget], name: str
) -> tuple[dict[str, dict[str, Any]], ConnectedMembers]:
    """Return the settings of a group by broker address, and its members at all brokers together."""
    settings = {}
    steps = session.output.track("asking brokers", brokers)
    everybody = ConnectedMembers([], {}, {})
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


group.add_command(clone)
group.add_command(inflight)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option(
    "--keep-offsets",
    is_flag=True,
    help="Keep the offsets, so that a new group of this name goes on where this group was.",
)
@sure_options
@common_options
def delete(name: str, keep_offsets: bool, **sure: bool) -> None:
    """
    Delete GROUP, its retries and its dead letters, on all masters. The command refuses while the
    group has members.

    Exit code 3: no broker has the group.
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
            f"{name} has members, which would create the group again: stop them first ({who})"
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


SETTINGS_COLUMNS = ("group", "broker", "key", "before", "after")


_settings = combine_options(
    on_option,
    click.option(
        "--retries",
        "retry_max_times",
        type=click.IntRange(min=-1),
        help="Attempts before a message goes to the dead letters; 16 at first.",
    ),
    click.option("--retry-queues", "retry_queue_nums", type=click.IntRange(min=1)),
    click.option(
        "--consume/--no-consume",
        "consume_enable",
        default=None,
        help="Whether brokers give messages to the group.",
    ),
    click.option(
        "--broadcast/--no-broadcast",
        "consume_broadcast_enable",
        default=None,
        help="Whether members may consume in broadcasting mode.",
    ),
    click.option(
        "--orderly/--no-orderly",
        "consume_message_orderly",
        default=None,
        help="Clients of RocketMQ 5 get the messages of a queue one after another.",
    ),
    click.option(
        "--retry-pauses",
        type=RetryPauses(),
        help="Pauses before the retries of push consumers of gRPC, like '1s 10s 1m'.",
    ),
    click.option(
        "--retry-backoff",
        type=RetryBackoff(),
        help="The same as pauses that grow: the first, the longest and a factor, like '5s 2h 2'.",
    ),
    click.option(
        "--notify/--no-notify",
        "notify_consumer_ids_changed_enable",
        default=None,
        help="Tell members at once when others come or go.",
    ),
)


@group.command()
@click.argument("name", metavar="GROUP")
@_settings
@dry_run_option
@common_options
def create(name: str, which: str, dry_run: bool, **given: Any) -> None:
    """
    Create GROUP on all masters, or on those of --on, without a question.

    Exit code 1: the group exists already.
    """

    async def work(session: Session) -> None:
        await change_group(session, name, which, given, is_new=True, yes=True, dry_run=dry_run)

    run(work)


@group.command()
@click.argument("name", metavar="GROUP")
@_settings
@sure_options
@common_options
def update(name: str, which: str, yes: bool, dry_run: bool, **given: Any) -> None:
    """
    Change GROUP on the brokers that have it. Settings for which no option is given stay.

    Exit code 3: no broker has the group.
    """
    must_be_askable(yes=yes, dry_run=dry_run)

    async def work(session: Session) -> None:
        await change_group(session, name, which, given, is_new=False, yes=yes, dry_run=dry_run)

    run(work)


async def change_group(
    session: Session, name: str, which: str, given: dict[str, Any], *, is_new: bool, **sure: bool
) -> None:
    """
    Create or change a group on the chosen masters.

    :raises NothingFound: no broker has the group that is to be changed.
    :raises ChangeRefused: the group to be created exists already, or its name is not allowed.
    """
    fault = group_fault(name)
    if fault is not None:
        raise ChangeRefused(fault)
    changes = {key: value for key, value in given.items() if value is not None}
    policies = [changes.pop(key) for key in ("retry_pauses", "retry_backoff") if key in changes]
    if len(policies) > 1:
        raise click.UsageError("give either --retry-pauses or --retry-backoff")
    asker, brokers = await targets(session, which)
    plan: list[tuple[BrokerTarget, SubscriptionGroupConfig]] = []
    rows: list[list[Any]] = []
    for target in session.output.track("asking brokers", masters(brokers)):
        before = (await asker.run(group_configs(target.address))).get(name)
        if is_new and before is not None:
            raise ChangeRefused(
                f"{target.name or target.address} has {name} already: use group update"
            )
        if not is_new and before is None:
            continue
        config = replace(before or SubscriptionGroupConfig(name), **changes)
        for policy in policies:
            rows.append([name, target.name, POLICY, config.foreign.get(POLICY), policy])
            config.foreign = {**config.foreign, POLICY: policy}
        plan.append((target, config))
        for key, value in changes.items():
            old = getattr(before, key, None)
            rows.append([name, target.name or target.address, key, old, value])
    if not plan:
        raise NothingFound(f"no broker has the group {name}: use group create")
    session.output.table(f"{name} on {len(plan)} brokers", SETTINGS_COLUMNS, rows)
    if is_wanted(f"Change {name} on {len(plan)} brokers?", **sure):
        for target, config in session.output.track("changing brokers", plan):
            await asker.run(put_group(target.address, config))


CLIENTS_COLUMNS = (
    "client_id",
    "address",
    "language",
    "version",
    "protocol",
    "topic",
    "queues",
    "cached",
    "consumed_s",
    "failed_s",
    "takes_ms",
)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option(
    "--stacks",
    is_flag=True,
    help="Print the stacks of the members' threads. Only Java clients have any.",
)
@common_options
def clients(name: str, stacks: bool) -> None:
    """
    Show for each member of GROUP its queues, the messages that wait in it, its messages a second
    over the last minute, and its time for one message. The command asks the members themselves,
    through their brokers. Members that came by gRPC cannot be asked; `group inflight` shows what
    they have.

    Exit code 3: the group has no members; 4: a member does not answer.
    """

    async def work(session: Session) -> int | None:
        return await show_clients(session, name, stacks=stacks)

    run(work)


async def show_clients(session: Session, name: str, *, stacks: bool = False) -> int | None:
    """
    Show what each member of a group has and how fast it is.

    :returns: the exit code.
    :raises NothingFound: the group has no members.
    """
    asker, brokers = await targets(session)
    where: dict[str, tuple[Connection, str]] = {}
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        members = await asker.run(members_of(target.address, name))
        for item in members.connections:
            where.setdefault(item.client_id, (item, target.address))
    if not where:
        raise NothingFound(f"{name} has no members: `group show {name}` shows what is known of it")
    rows: list[list[Any]] = []
    problems: list[str] = []
    shown: dict[str, str] = {}
    for client_id in session.output.track("asking members", sorted(where)):
        member, address = where[client_id]
        if member.sdk is not None:
            rows.append([*_shown_member(member), *[None] * 6])
            continue
        try:
            info = await asker.run(running_info(address, name, client_id, stacks=stacks))
        except (BrokerRefused, RemotingError, ProtocolViolation) as error:
            problems.append(f"{client_id}: {error}")
            rows.append([*_shown_member(member), *[None] * 6])
            continue
        rows += _rows(member, info)
        shown[client_id] = info.stacks
    more = {"stacks": shown} if stacks and session.output.as_json else {}
    session.output.table(name, CLIENTS_COLUMNS, rows, **more)
    if stacks:
        for client_id, text in shown.items():
            for line in ("", client_id, *text.expandtabs().splitlines()):
                session.output.say(line)
    for problem in problems:
        session.output.warn(problem)
    return NO_ANSWER if problems else None


def _shown_member(member: Connection) -> list[Any]:
    """Return the first five values of a row: the member, and the client that it runs."""
    own = [member.client_id, member.client_address, member.language]
    return [*own, member.version_text, member.protocol]


def _rows(member: Connection, info: RunningInfo) -> list[list[Any]]:
    """
    Return a row for each topic of a member, or one row without a topic if the member has none.
    """
    names: dict[str, list[str]] = defaultdict(list)
    cached: dict[str, int] = defaultdict(int)
    for item in info.queues:
        names[item.queue.topic].append(f"{item.queue.broker_name}:{item.queue.queue_id}")
        cached[item.queue.topic] += item.cached
    pace = {item.topic: item for item in info.pace}
    rows: list[list[Any]] = []
    for topic in sorted({*names, *pace}) or [""]:
        row: list[Any] = [*_shown_member(member), topic or None]
        row += [" ".join(names[topic]) or None, cached[topic]] if topic else [None, None]
        own = pace.get(topic)
        row += [None] * 3 if own is None else [round(value, 2) for value in own[1:]]
        rows.append(row)
    return rows
