"""
`rmqha-admin topic` and `route`: show and change topics, their brokers, their queues, and the shares
of a group's members.
"""

from typing import Any

import click
from msgspec.structs import replace

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.attributes import MESSAGE_TYPE, MESSAGE_TYPES
from rmq_ha.base.model.flags import PERM_READ, PERM_WRITE
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import DLQ_PREFIX, RETRY_PREFIX, is_system, topic_fault
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.administration import delete_topic, forget_topic, put_topic
from rmq_ha.client.lookup.brokers import topic_configs, topic_offsets
from rmq_ha.client.lookup.lookups import topic_route
from rmq_ha.client.rebalance.consistent_hash import AllocateConsistentHash
from rmq_ha.client.rebalance.strategies import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateStrategy,
)
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.client.rules.settings import name_servers
from rmq_ha.ops.admin.confirm import dry_run_option, is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.losses import refuse_or_tell, unread_messages, way_without_loss
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import combine_options, common_options, on_option
from rmq_ha.ops.admin.session import ChangeRefused, NothingFound, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, first_of_each, masters, targets

LIST_COLUMNS = ("topic", "broker", "read_queues", "write_queues", "perm", "type")
CHANGE_COLUMNS = (*LIST_COLUMNS, "before")
STATUS_COLUMNS = ("broker", "queue", "min", "max", "messages", "last")
QUEUES = 8
_PERMS = {"RW": PERM_READ | PERM_WRITE, "R": PERM_READ, "W": PERM_WRITE}
_QUEUES = click.IntRange(min=1, max=65536)


@click.group()
@common_options
def topic() -> None:
    """Show and change topics."""


@topic.command(name="list")
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="List RocketMQ's own topics, retry topics and dead letter topics, too.",
)
@common_options
def list_(which: str, every: bool) -> None:
    """List the topics of each broker."""

    async def work(session: Session) -> None:
        await show_topics(session, which, every=every)

    run(work)


async def show_topics(session: Session, which: str = "", *, every: bool = False) -> None:
    """Show a row for each topic and broker."""
    asker, brokers = await targets(session, which)
    rows = []
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        table = await asker.run(topic_configs(target.address))
        rows += [_row(target, item) for item in table.values() if every or not _is_own(item)]
    session.output.table("topics", LIST_COLUMNS, sorted(rows))


def _is_own(config: TopicConfig) -> bool:
    name = config.topic_name
    return is_system(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _row(target: BrokerTarget, config: TopicConfig) -> list[Any]:
    counts = [config.read_queue_nums, config.write_queue_nums]
    kind = config.attributes.get(MESSAGE_TYPE, "-")
    return [config.topic_name, target.name or target.address, *counts, perm_text(config.perm), kind]


_shape = combine_options(
    on_option,
    click.option("--queues", "-q", type=_QUEUES, help=f"On each broker; {QUEUES} at first."),
    click.option(
        "--read-queues",
        type=_QUEUES,
        help="The number of queues to read, if it differs from --queues.",
    ),
    click.option(
        "--write-queues",
        type=_QUEUES,
        help="The number of queues to write, if it differs from --queues.",
    ),
    click.option(
        "--perm", type=click.Choice(list(_PERMS)), help="Permissions. A new topic has RW."
    ),
    click.option(
        "--type",
        "kind",
        type=click.Choice(MESSAGE_TYPES),
        help="The messages that clients of RocketMQ 5 may send to it. Others do not look at it.",
    ),
)


@topic.command()
@click.argument("name", metavar="TOPIC")
@_shape
@dry_run_option
@common_options
def create(name: str, which: str, dry_run: bool, **shape: Any) -> None:
    """
    Create TOPIC on all masters, or on those of --on, without a question.

    Exit code 1: the topic exists already.
    """

    async def work(session: Session) -> None:
        await change_topic(session, name, which, shape, is_new=True, yes=True, dry_run=dry_run)

    run(work)


@topic.command()
@click.argument("name", metavar="TOPIC")
@_shape
@click.option(
    "--drop-unread",
    is_flag=True,
    help="Accept that messages which groups have not read become unreadable.",
)
@sure_options
@common_options
def update(
    name: str, which: str, drop_unread: bool, yes: bool, dry_run: bool, **shape: Any
) -> None:
    """
    Change TOPIC on the brokers that have it. Settings for which no option is given stay.

    With fewer read queues, consumers do not get the messages in the other queues any more. To lose
    none, first lower --write-queues, wait until the groups have read the other queues, and then
    lower --read-queues.

    Exit code 1: groups have not read messages that would become unreadable, and --drop-unread was
    not given; 3: no broker has the topic.
    """
    must_be_askable(yes=yes, dry_run=dry_run)

    async def work(session: Session) -> None:
        await change_topic(
            session,
            name,
            which,
            shape,
            is_new=False,
            drop_unread=drop_unread,
            yes=yes,
            dry_run=dry_run,
        )

    run(work)


async def change_topic(
    session: Session,
    name: str,
    which: str,
    shape: dict[str, Any],
    *,
    is_new: bool,
    drop_unread: bool = False,
    **sure: bool,
) -> None:
    """
    Create or change a topic on the chosen masters.

    :param drop_unread: agree that messages which groups have not read become unreadable.
    :raises ChangeRefused: the topic to be created exists already, or its name is not allowed.
    :raises WouldLose: groups have not read messages that would become unreadable.
    """
    fault = topic_fault(name)
    if fault is not None:
        raise ChangeRefused(fault)
    asker, brokers = await targets(session, which)
    plan: list[tuple[BrokerTarget, TopicConfig, TopicConfig | None]] = []
    for target in session.output.track("asking brokers", masters(brokers)):
        before = (await asker.run(topic_configs(target.address))).get(name)
        if is_new and before is not None:
            raise ChangeRefused(
                f"{target.name or target.address} has {name} already: use topic update"
            )
        if is_new or before is not None:
            plan.append((target, _with_shape(name, before, shape), before))
    if not plan:
        raise NothingFound(f"no broker has {name}: use topic create")
    rows = [
        [*_row(target, after), before and _text(before) if before != after else "the same"]
        for target, after, before in plan
    ]
    session.output.table("dry run" if sure["dry_run"] else name, CHANGE_COLUMNS, rows)
    # The plan is shown and losses are counted before the question, so that nobody agrees blindly.
    losses = [
        await unread_messages(asker, target, before, after)
        for target, after, before in plan
        if before is not None
    ]
    reads = min(after.read_queue_nums for _, after, _ in plan)
    refuse_or_tell(
        session,
        losses,
        "--drop-unread",
        is_agreed=drop_unread or sure["dry_run"],
        instead=way_without_loss(name, reads),
    )
    if is_wanted(f"Change {name} on {len(plan)} brokers?", **sure):
        for target, after, before in session.output.track("changing brokers", plan):
            await asker.run(put_topic(target.address, after, before))
            if shape.get("kind"):
                await _must_have_type(asker, target, after)


async def _must_have_type(asker: Asker, target: BrokerTarget, config: TopicConfig) -> None:
    """
    Check that a broker has kept the type of a topic; brokers of RocketMQ 4 drop it silently.

    :param config: the topic as it was sent to the broker.
    :raises ChangeRefused: the broker has not kept the type.
    """
    name = config.topic_name
    kept = (await asker.run(topic_configs(target.address))).get(name)
    if kept is None or kept.attributes.get(MESSAGE_TYPE) != config.attributes[MESSAGE_TYPE]:
        raise ChangeRefused(
            f"{target.name or target.address} has {name} now, but keeps no type of topics: "
            "its version is too old for --type"
        )


def _with_shape(name: str, before: TopicConfig | None, shape: dict[str, Any]) -> TopicConfig:
    known = before or TopicConfig(name, QUEUES, QUEUES)
    reads = shape["read_queues"] or shape["queues"] or known.read_queue_nums
    writes = shape["write_queues"] or shape["queues"] or known.write_queue_nums
    perm = _PERMS[shape["perm"]] if shape["perm"] else known.perm
    kind = shape.get("kind")
    return replace(
        known,
        read_queue_nums=reads,
        write_queue_nums=writes,
        perm=perm,
        attributes=known.attributes | ({MESSAGE_TYPE: kind} if kind else {}),
    )


def _text(config: TopicConfig) -> str:
    kind = config.attributes.get(MESSAGE_TYPE, "")
    shape = f"{config.read_queue_nums}/{config.write_queue_nums} {perm_text(config.perm)} {kind}"
    return shape.rstrip()


@topic.command()
@click.argument("name", metavar="TOPIC")
@sure_options
@common_options
def delete(name: str, **sure: bool) -> None:
    """
    Delete TOPIC with all its messages, on all masters and name servers.

    Exit code 3: no broker has the topic.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> None:
        await delete_everywhere(session, name, **sure)

    run(work)


async def delete_everywhere(session: Session, name: str, **sure: bool) -> None:
    """
    Delete a topic on all masters and name servers: show it, ask, and delete.

    :raises NothingFound: no broker has the topic.
    """
    asker, brokers = await targets(session)
    have = []
    for target in session.output.track("asking brokers", masters(brokers)):
        queues = await asker.run(topic_offsets(target.address, name))
        if queues:
            count = sum(item.max_offset - item.min_offset for item in queues.values())
            have.append((target, count))
    if not have:
        fault = topic_fault(name)
        why = f": {fault}; give one topic at a time" if fault else ""
        raise NothingFound(f"no broker has {name}{why}")
    rows = [[target.name, target.address, count] for target, count in have]
    session.output.table(name, ("broker", "address", "messages"), rows, deleted=False)
    total = sum(count for _, count in have)
    if not is_wanted(f"Delete {name} with {total} messages?", **sure):
        return
    for target, _ in session.output.track("deleting", have):
        await asker.run(delete_topic(target.address, name))
    await forget_everywhere(session, asker, name)
    session.output.line(f"{name} is deleted", {"topic": name, "deleted": True})


async def forget_everywhere(session: Session, asker: Asker, name: str) -> None:
    """
    Have every name server forget a topic. A server that does not answer learns of it from no other.
    """
    for server in session.output.track("name servers", name_servers(session.options.namesrv)):
        try:
            await asker.run(forget_topic(server, name))
        except RmqHaError as error:
            session.output.warn(f"the name server {server} still knows {name}: {error}")


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.option(
    "--on", "which", default="", metavar="BROKER|HOST:PORT", help="Show these brokers only."
)
@common_options
def status(name: str, which: str) -> None:
    """
    Show the first and last offset of each queue of TOPIC, and when its last message came.

    Exit code 3: no broker has the topic.
    """

    async def work(session: Session) -> None:
        await show_topic(session, name, which)

    run(work)


async def show_topic(session: Session, name: str, which: str = "") -> None:
    """
    Show where each queue of a topic begins and ends.

    :raises NothingFound: no broker has the topic.
    """
    asker, brokers = await targets(session, which)
    rows: list[list[Any]] = []
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        for queue, item in sorted((await asker.run(topic_offsets(target.address, name))).items()):
            last = time_text(item.last_update_timestamp) if item.last_update_timestamp > 0 else None
            ends = [item.min_offset, item.max_offset, item.max_offset - item.min_offset]
            rows.append([queue.broker_name, queue.queue_id, *ends, last])
    if not rows:
        raise NothingFound(f"no broker has {name}")
    session.output.table(name, STATUS_COLUMNS, rows, messages=sum(row[4] for row in rows))


ROUTE_COLUMNS = ("cluster", "broker", "read_queues", "write_queues", "perm", "addresses")


@click.command()
@click.argument("topic")
@common_options
def route(topic: str) -> None:
    """
    Show the brokers of TOPIC, their addresses, and how many queues each has.

    Exit code 3: no name server knows the topic.
    """

    async def work(session: Session) -> None:
        rows = route_rows(await Asker(await session.client()).run(topic_route(topic)))
        session.output.table(topic, ROUTE_COLUMNS, rows, topic=topic)

    run(work)


def route_rows(route: TopicRoute) -> list[list[Any]]:
    """Return a row for each broker name."""
    brokers = {item.broker_name: item for item in route.brokers}
    rows: list[list[Any]] = []
    for queues in sorted(route.queues, key=lambda item: item.broker_name):
        broker = brokers.get(queues.broker_name)
        addresses = broker.addresses if broker else {}
        rows.append(
            [
                broker.cluster if broker else None,
                queues.broker_name,
                queues.read_queue_nums,
                queues.write_queue_nums,
                perm_text(queues.perm),
                " ".join(f"{number}={addresses[number]}" for number in sorted(addresses)),
            ]
        )
    return rows


def perm_text(perm: int) -> str:
    """Return a permission as `RW`, `R-`, `-W` or `--`."""
    return f"{'R' if perm & PERM_READ else '-'}{'W' if perm & PERM_WRITE else '-'}"


SHARE_COLUMNS = ("member", "queues", "which")
STRATEGIES: dict[str, AllocateStrategy] = {
    item.name: item
    for item in (AllocateAveragely(), AllocateAveragelyByCircle(), AllocateConsistentHash())
}


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.argument("members", metavar="MEMBER...", nargs=-1, required=True)
@click.option(
    "--by",
    "strategy",
    type=click.Choice(sorted(STRATEGIES)),
    default=AllocateAveragely.name,
    show_default=True,
    help="The strategy that shares out the queues. Running clients use the one in their own "
    "settings.",
)
@common_options
def allocate(name: str, members: tuple[str, ...], strategy: str) -> None:
    """
    Show which queues of TOPIC each MEMBER would get, if a group had these members. MEMBERs are
    client ids. Nothing is changed; `group clients GROUP` shows which queues the members really
    have.

    Exit code 3: no name server knows the topic.
    """

    async def work(session: Session) -> None:
        await show_shares(session, name, members, STRATEGIES[strategy])

    run(work)


async def show_shares(
    session: Session, name: str, members: tuple[str, ...], strategy: AllocateStrategy
) -> None:
    """
    Show which queues of a topic each member would get.

    :raises NothingFound: the topic has no queue that may be read.
    """
    route = await Asker(await session.client()).run(topic_route(name))
    queues = sorted(subscribe_queues(name, route))
    if not queues:
        raise NothingFound(f"{name} has no queue that may be read: `route {name}` shows why")
    ids = sorted(set(members))
    rows = []
    for member in ids:
        mine = strategy.allocate("", member, queues, ids)
        rows.append([member, len(mine), " ".join(f"{q.broker_name}:{q.queue_id}" for q in mine)])
    session.output.table(f"{name} by {strategy.name}", SHARE_COLUMNS, rows)
