"""`rmqha-admin message trace`: what clients recorded about one message."""

import click

from rmq_ha.base.model.topics import TRACE_TOPIC
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.lookups import KeyQuery, messages_by_key, topic_route
from rmq_ha.client.send.trace_lines import traces_of
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import NothingFound, Session, run

COLUMNS = ("what", "at", "group", "client", "took_ms", "status")
_MOST = 64


@click.command()
@click.argument("msg_id", metavar="ID")
@click.option(
    "--trace-topic", default=TRACE_TOPIC, show_default=True, help="The topic that holds the traces."
)
@common_options
def trace(msg_id: str, trace_topic: str) -> None:
    """
    Who sent the message with this unique ID, who consumed it, how long that took, how it ended.

    Only clients that trace write it down (Java's `enableMsgTrace`, ours: docs/client.md).

    Exit code 3: nobody did.
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
        query = KeyQuery(trace_topic, msg_id, max_num=_MOST)
        messages = await asker.run(messages_by_key(query, route), steps.advance)
    rows = [
        [event.what, time_text(event.at_ms), event.by, event.client, event.took_ms, event.status]
        for event in traces_of(msg_id, messages)
    ]
    if not rows:
        raise NothingFound(
            f"{trace_topic} has nothing of {msg_id}: did its producer and consumers trace? `message"
            f" show {msg_id} -t TOPIC` shows the message itself"
        )
    session.output.table(msg_id, COLUMNS, rows)
