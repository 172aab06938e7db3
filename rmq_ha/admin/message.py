"""`rmqha-admin message show`: messages by id or key."""

import click

from rmq_ha.admin.options import common_options
from rmq_ha.admin.session import NothingFound, Session, run
from rmq_ha.admin.shown import message_values
from rmq_ha.admin.when import When, WhenType
from rmq_ha.client.asking import Asking
from rmq_ha.client.asks import Asker
from rmq_ha.client.errors import BrokerRefused
from rmq_ha.client.lookups import KeyQuery, PlaceId, message_at, messages_by_key, topic_route
from rmq_ha.client.messages import MessageExt


@click.group()
@common_options
def message() -> None:
    """Find messages."""


@message.command()
@click.argument("msg_id", metavar="ID", required=False)
@click.option("--topic", "-t", default="", help="Needed for unique ids and keys.")
@click.option("--key", "-k", default="", help="A key, instead of an id.")
@click.option("--max", "max_num", default=32, show_default=True, help="With a key, per broker.")
@click.option("--since", type=WhenType(), default="earliest", help="With a key: stored since.")
@common_options
def show(msg_id: str | None, topic: str, key: str, max_num: int, since: When) -> None:
    """
    Show the message with this ID: where it is stored (offsetMsgId), or the unique id that its
    producer gave it; or all that have a key.

    Exit code 3: there is none.
    """
    if bool(msg_id) == bool(key):
        raise click.UsageError("give either an ID or --key")
    place = PlaceId.parse(msg_id) if msg_id else None
    if place is None and not topic:
        raise click.UsageError("give --topic too: only an offsetMsgId says where it is")

    async def work(session: Session) -> None:
        asker = Asker(await session.direct() if place else await session.client())
        begin = max(0, since.at(session.host.now_ms()))
        query = KeyQuery(topic, key or msg_id or "", not key, max_num, begin)
        try:
            found = await asker.run(find(place, query))
        except BrokerRefused as error:
            if place is None:
                raise
            raise NothingFound(
                f"{error.address} has no message there: {error.remark} (deleted, or another store?)"
            ) from None
        if not found:
            what = f"the key {key}" if key else f"the id {msg_id}"
            raise NothingFound(f"no broker of the topic {topic} has a message with {what}")
        for item in found:
            session.output.fields(message_values(item))

    run(work)


def find(place: PlaceId | None, query: KeyQuery) -> Asking[list[MessageExt]]:
    """By place if it is known, else by unique id or key."""
    if place is not None:
        found = yield from message_at(place)
        return [found]
    route = yield from topic_route(query.topic)
    return (yield from messages_by_key(query, route))
