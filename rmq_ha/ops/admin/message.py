"""`rmqha-admin message`: finds messages by id, key or place, and shows their traces."""

import click

from rmq_ha.base.model.topics import TRACE_TOPIC
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.lookups import (
    KeyQuery,
    PlaceId,
    messages_by_key,
    topic_route,
)
from rmq_ha.client.send.trace_lines import traces_of
from rmq_ha.ops.admin.message_lookup import Spot, SpotType, at_place, at_spot, by_key
from rmq_ha.ops.admin.message_resend import copy, resend
from rmq_ha.ops.admin.message_text import message_values, time_text
from rmq_ha.ops.admin.options import common_options, refuse_given
from rmq_ha.ops.admin.points_in_time import PointInTime, WhenType
from rmq_ha.ops.admin.session import NothingFound, Session, run


@click.group()
@common_options
def message() -> None:
    """Find messages, show their traces, and send them again."""


message.add_command(copy)
message.add_command(resend)


@message.command()
@click.argument("msg_id", metavar="ID", required=False)
@click.option(
    "--topic", "-t", default="", help="The message's topic. Unique ids, keys and places need it."
)
@click.option("--key", "-k", default="", help="Look for this key instead of an ID.")
@click.option(
    "--at",
    "spot",
    type=SpotType(),
    metavar="BROKER:QUEUE:OFFSET",
    help="Show the message at this place, as `tail` prints it.",
)
@click.option(
    "--max",
    "max_num",
    default=32,
    show_default=True,
    help="With --key: print at most this number of messages of each broker.",
)
@click.option(
    "--since",
    type=WhenType(),
    default="earliest",
    help="With --key: only messages that were stored since then.",
)
@common_options
def show(
    msg_id: str | None, topic: str, key: str, spot: Spot | None, max_num: int, since: PointInTime
) -> None:
    """
    Show a message by its ID, which is an offsetMsgId or the unique id that its producer gave it. Or
    show all messages with a key, or the message at a place, as `tail` shows places.

    An offsetMsgId contains the address that its broker had when it stored the message. If that
    broker has another address now, give --topic: then the topic's brokers are asked.

    Exit code 3: there is no such message.
    """
    if sum(map(bool, (msg_id, key, spot))) != 1:
        raise click.UsageError("give either an ID, or --key, or --at")
    if not key:
        refuse_given(("max_num", "since"), "goes with --key only. Leave it out")
    place = PlaceId.parse(msg_id) if msg_id else None
    if place is None and not topic:
        raise click.UsageError(
            "give --topic, too: only an offsetMsgId names the place of its message"
        )

    async def work(session: Session) -> None:
        if place is not None:
            messages = [await at_place(session, place, topic)]
        else:
            asker = Asker(await session.client())
            begin = max(0, since.to_ms(session.host.now_ms()))
            query = KeyQuery(topic, key or msg_id or "", not key, max_num, begin)
            asking = at_spot(topic, spot) if spot else by_key(query)
            with session.output.progress("asking brokers", None) as steps:
                messages = await asker.run(asking, steps.advance)
        messages = [item for item in messages if topic in ("", item.topic)]
        if not messages:
            what = f"the key {key}" if key else f"the id {msg_id}"
            raise NothingFound(f"no broker of the topic {topic} has a message with {what}")
        for item in messages:
            session.output.fields(message_values(item))

    run(work)


TRACE_COLUMNS = ("what", "at", "group", "client", "took_ms", "status")
_MOST_TRACES = 64


@message.command()
@click.argument("msg_id", metavar="ID")
@click.option(
    "--trace-topic", default=TRACE_TOPIC, show_default=True, help="The topic that holds the traces."
)
@common_options
def trace(msg_id: str, trace_topic: str) -> None:
    """
    Show which client sent the message with this unique ID, which clients consumed it, for how long,
    and with which result.

    Only clients that write traces are shown (Java's `enableMsgTrace`; for rmq-ha see
    docs/client.md).

    Exit code 3: no client has traced the message.
    """

    async def work(session: Session) -> None:
        await show_trace(session, msg_id, trace_topic)

    run(work)


async def show_trace(session: Session, msg_id: str, trace_topic: str = TRACE_TOPIC) -> None:
    """
    Show the trace of a message.

    :raises NothingFound: no client recorded a trace of it.
    """
    asker = Asker(await session.client())
    route = await asker.run(topic_route(trace_topic))
    with session.output.progress("asking brokers", None) as steps:
        query = KeyQuery(trace_topic, msg_id, max_num=_MOST_TRACES)
        messages = await asker.run(messages_by_key(query, route), steps.advance)
    rows = [
        [event.what, time_text(event.at_ms), event.by, event.client, event.took_ms, event.status]
        for event in traces_of(msg_id, messages)
    ]
    if not rows:
        raise NothingFound(
            f"{trace_topic} has no trace of {msg_id}: did its producer and consumers trace? "
            "`message"
            f" show {msg_id} -t TOPIC` shows the message itself"
        )
    session.output.table(msg_id, TRACE_COLUMNS, rows)
