"""`rmqha-admin lag` and `reset-offset`: show how far a group is behind, and move its offsets."""

import click

from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.groups import GroupLag, Reset, consume_stats
from rmq_ha.client.lookup.groups import reset_offset as reset
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.losses import must_exist
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.points_in_time import PointInTime, WhenType
from rmq_ha.ops.admin.session import FAILED, NothingFound, Session, run
from rmq_ha.ops.admin.targets import first_of_each, targets

LAG_COLUMNS = (
    "topic",
    "broker",
    "queue",
    "broker_offset",
    "consumer_offset",
    "lag",
    "in_flight",
    "last",
)
MOVED_COLUMNS = ("broker", "queue", "before", "after")


@click.command()
@click.argument("group")
@click.option("--topic", "-t", default="", help="Show this topic only.")
@click.option(
    "--fail-above",
    type=click.IntRange(min=0),
    metavar="N",
    help="Exit with 1 if more messages than this wait for the group.",
)
@common_options
def lag(group: str, topic: str, fail_above: int | None) -> None:
    """
    Show how many messages of each queue GROUP has not consumed yet.

    If the group pops, `in_flight` is the number of those that consumers have now; `group inflight`
    shows more of them.

    Exit code 3: the group has no offsets at any broker.
    """

    async def work(session: Session) -> int | None:
        asker = Asker(await session.client())
        with session.output.progress("asking brokers", None) as steps:
            group_lag = await asker.run(consume_stats(group, topic), steps.advance)
        if not group_lag.queues:
            about = f" of the topic {topic}" if topic else ""
            raise NothingFound(
                f"the group {group} has no offsets{about}: is its name right (`group list` shows"
                " all), has it consumed?"
            )
        show_lag(session, group, group_lag)
        if fail_above is not None and group_lag.lag > fail_above:
            session.output.error(f"{group} is {group_lag.lag} messages behind", exit_code=FAILED)
            return FAILED
        return None

    run(work)


def show_lag(session: Session, group: str, group_lag: GroupLag) -> None:
    """Show a row for each queue."""
    rows = [
        [
            item.queue.topic,
            item.queue.broker_name,
            item.queue.queue_id,
            item.broker_offset,
            item.consumer_offset,
            item.lag,
            item.in_flight,
            time_text(item.last_timestamp) if item.last_timestamp else None,
        ]
        for item in group_lag.queues
    ]
    more = {"group": group, "lag": group_lag.lag, "consume_tps": round(group_lag.consume_tps, 2)}
    session.output.table(group, LAG_COLUMNS, rows, **more)


@click.command()
@click.argument("topic")
@click.option("--group", "-g", required=True, help="The consumer group.")
@click.option(
    "--to", type=WhenType(), required=True, help="The place from which the group goes on."
)
@click.option("--new", "is_new", is_flag=True, help="Accept a group that does not exist yet.")
@sure_options
@common_options
def reset_offset(
    topic: str, group: str, to: PointInTime, is_new: bool, dry_run: bool, yes: bool
) -> None:
    """
    Move the offsets of a group in TOPIC to another time.

    Running consumers are told through their brokers; if there are none, the offsets at the brokers
    are set. The messages between the old and the new offsets are consumed again, or skipped.

    Exit code 3: no broker knows the group, and --new was not given.
    """
    must_be_askable(yes=yes, dry_run=dry_run)

    async def work(session: Session) -> None:
        timestamp = to.to_ms(session.host.now_ms())
        await move_offsets(
            session, topic, group, timestamp, is_new=is_new, yes=yes, dry_run=dry_run
        )

    run(work)


async def move_offsets(
    session: Session,
    topic: str,
    group: str,
    timestamp: int,
    *,
    is_new: bool = False,
    **sure: bool,
) -> None:
    """
    Show the offsets at which the group would continue, ask, move its offsets, and show the new
    ones.

    :param is_new: the group need not exist.
    :raises NothingFound: no broker knows the group.
    """
    asker = Asker(await session.client())
    if not is_new:
        _, brokers = await targets(session)
        await must_exist(asker, first_of_each(brokers), group)
    if sure["dry_run"] or not sure["yes"]:
        with session.output.progress("asking brokers", None) as steps:
            planned = await asker.run(reset(group, topic, timestamp, apply=False), steps.advance)
        show_reset(session, group, topic, planned, is_done=False)
    if not is_wanted(f"Reset {group} in {topic}?", **sure):
        return
    with session.output.progress("setting offsets", None) as steps:
        done = await asker.run(reset(group, topic, timestamp), steps.advance)
    show_reset(session, group, topic, done, is_done=True)


def show_reset(session: Session, group: str, topic: str, outcome: Reset, *, is_done: bool) -> None:
    """
    Show a row for each queue, and whether consumers were told or the brokers' offsets were set.
    """
    rows = [
        [item.queue.broker_name, item.queue.queue_id, item.before, item.after]
        for item in outcome.moved
    ]
    how = "consumers were told" if outcome.told else "no consumer is there: offsets were set"
    if not is_done:
        how = "nothing was changed"
    session.output.table(f"{group} in {topic}", MOVED_COLUMNS, rows, group=group, done=how)
