"""`rmqha-admin message`: finds messages by id, key or place, and shows their traces."""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.topics import TRACE_TOPIC
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.blocking import READER_GROUP
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Asking
from rmq_ha.client.lookup.lookups import (
    KeyQuery,
    PlaceId,
    PullTerms,
    addresses_in,
    in_order,
    message_at,
    messages_by_key,
    pull,
    topic_route,
)
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.send.trace_lines import traces_of
from rmq_ha.ops.admin.message_text import message_values, time_text
from rmq_ha.ops.admin.options import common_options, refuse_given
from rmq_ha.ops.admin.points_in_time import PointInTime, WhenType
from rmq_ha.ops.admin.session import NothingFound, Session, run


@click.group()
@common_options
def message() -> None:
    """Find messages, and show their traces."""


class Spot(NamedTuple):
    """The place of a message, in the form in which `tail` and `consume` show it."""

    broker: str
    queue: int
    offset: int


class _SpotType(click.ParamType[Spot] if TYPE_CHECKING else click.ParamType):  # type: ignore[misc]
    name = "place"

    def convert(self, value: Any, param: Any, ctx: Any) -> Spot:
        """Convert BROKER:QUEUE:OFFSET; for any other text the error shows this form."""
        broker, _, rest = str(value).partition(":")
        queue, _, offset = rest.partition(":")
        if not (broker and queue.isdecimal() and offset.isdecimal()):
            self.fail(f"{value!r} is not BROKER:QUEUE:OFFSET, like broker-a:3:1200", param, ctx)
        return Spot(broker, int(queue), int(offset))


@message.command()
@click.argument("msg_id", metavar="ID", required=False)
@click.option(
    "--topic", "-t", default="", help="The message's topic. Unique ids, keys and places need it."
)
@click.option("--key", "-k", default="", help="Look for this key instead of an ID.")
@click.option(
    "--at",
    "spot",
    type=_SpotType(),
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


def at_spot(topic: str, spot: Spot) -> Asking[list[MessageExt]]:
    """
    Return the message at an offset of a queue.

    :raises NothingFound: no message is stored there.
    """
    route = yield from topic_route(topic)
    counts = {item.broker_name: item.read_queue_nums for item in route.queues}
    if spot.broker not in counts:
        names = ", ".join(sorted(counts))
        raise NothingFound(f"the broker {spot.broker} does not have {topic}; it is at {names}")
    if spot.queue >= counts[spot.broker]:
        raise NothingFound(
            f"{topic} has {counts[spot.broker]} queues to read at {spot.broker}, from 0 on: there "
            f"is no queue {spot.queue}"
        )
    queue = MessageQueue(topic, spot.broker, spot.queue)
    choice = BrokerChoice(lambda: 0.0)
    addresses = addresses_in(route, spot.broker)
    terms = PullTerms(READER_GROUP, 1)
    result = yield from pull(choice, addresses, queue, spot.offset, terms)
    messages = [item for item in result.msg_found_list if item.queue_offset == spot.offset]
    if not messages:
        raise NothingFound(
            f"queue {spot.queue} of {topic} at {spot.broker} has no message {spot.offset}: it goes"
            f" from {result.min_offset} to {result.max_offset}"
        )
    return messages


async def at_place(session: Session, place: PlaceId, topic: str) -> MessageExt:
    """
    Return the message of an offsetMsgId. Ask the address in the id, and then the brokers of the
    topic.

    :param topic: empty: only the address in the id is asked.
    :raises NothingFound: there is no such message.
    :raises RemotingError: nobody answers at the address, and no topic was given.
    """
    try:
        return await Asker(await session.direct()).run(message_at(place))
    except (RemotingError, BrokerRefused) as error:
        reason = error
    if topic:
        asker = Asker(await session.client())
        message = await asker.run(_at_any_broker(place, await asker.run(topic_route(topic))))
        if message is None:
            raise NothingFound(
                f"no broker of {topic} has a message with this id, and {place.address}, which is "
                f"in the id, does not, either: {reason}"
            )
        session.output.warn(f"the id has the former address of its broker, {place.address}")
        return message
    hint = (
        f"The id has the address that its broker had when the message was stored, {place.address}. "
        "If the broker has another one now, give --topic: then the topic's brokers are asked"
    )
    if isinstance(reason, BrokerRefused):
        raise NothingFound(
            f"{reason.address} has no message there: {reason.remark} (deleted, or another store?). "
            f"{hint}"
        )
    raise RemotingError(f"{reason}. {hint}")


def _at_any_broker(place: PlaceId, route: TopicRoute) -> Asking[MessageExt | None]:
    """
    Return the message at that offset of a broker, if the broker had the id's address when it stored
    the message; None: no broker has it.
    """
    for broker in route.brokers:
        for address in in_order(broker.addresses):
            try:
                message = yield from message_at(PlaceId(address, place.offset))
            except (RemotingError, BrokerRefused):
                continue
            if PlaceId.parse(message.offset_msg_id) == place:
                return message
    return None


def by_key(query: KeyQuery) -> Asking[list[MessageExt]]:
    """Return the messages with a unique id or key."""
    route = yield from topic_route(query.topic)
    return (yield from messages_by_key(query, route))


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
