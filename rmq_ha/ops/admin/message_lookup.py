"""Finds messages for commands: by their ids, by keys, and at their places."""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmq_ha.base.errors import RemotingError
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
from rmq_ha.ops.admin.session import NothingFound, Session


class Spot(NamedTuple):
    """The place of a message, in the form in which `tail` and `consume` show it."""

    broker: str
    queue: int
    offset: int


class SpotType(click.ParamType[Spot] if TYPE_CHECKING else click.ParamType):  # type: ignore[misc]
    name = "place"

    def convert(self, value: Any, param: Any, ctx: Any) -> Spot:
        """Convert BROKER:QUEUE:OFFSET; for any other text the error shows this form."""
        broker, _, rest = str(value).partition(":")
        queue, _, offset = rest.partition(":")
        if not (broker and queue.isdecimal() and offset.isdecimal()):
            self.fail(f"{value!r} is not BROKER:QUEUE:OFFSET, like broker-a:3:1200", param, ctx)
        return Spot(broker, int(queue), int(offset))


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


async def one_message(
    session: Session, msg_id: str | None, topic: str, spot: Spot | None
) -> MessageExt:
    """
    Find one message by its id or its place.

    :param topic: its topic; empty only for an offsetMsgId.
    :raises click.UsageError: neither or both of id and place are given, or the topic is missing.
    :raises NothingFound: there is no such message, or several have the id.
    """
    must_name_one(msg_id, topic, spot)
    place = PlaceId.parse(msg_id) if msg_id else None
    if place is not None:
        return await at_place(session, place, topic)
    asker = Asker(await session.client())
    if spot is not None:
        (message,) = await asker.run(at_spot(topic, spot))
        return message
    messages = await asker.run(by_key(KeyQuery(topic, msg_id or "", True, 32, 0)))
    if not messages:
        raise NothingFound(f"no broker of the topic {topic} has a message with the id {msg_id}")
    if len(messages) > 1:
        places = ", ".join(
            f"{item.broker_name}:{item.queue_id}:{item.queue_offset}" for item in messages
        )
        raise NothingFound(
            f"{len(messages)} messages of {topic} have the id {msg_id}: give --at with the place of"
            f" one of them ({places})"
        )
    return messages[0]


def must_name_one(msg_id: str | None, topic: str, spot: Spot | None) -> None:
    """
    Refuse a line that does not name one message.

    :raises click.UsageError: neither or both of id and place are given, or the topic is missing.
    """
    if bool(msg_id) == bool(spot):
        raise click.UsageError("give either an ID or --at")
    if not topic and (spot is not None or PlaceId.parse(msg_id or "") is None):
        raise click.UsageError(
            "give --topic, too: only an offsetMsgId names the place of its message"
        )
