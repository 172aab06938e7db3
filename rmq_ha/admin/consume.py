"""`rmqha-admin consume`: as a member of a group."""

from collections.abc import Sequence
from typing import Any

import click
from twisted.internet.defer import Deferred

from rmq_ha.admin.options import common_options
from rmq_ha.admin.session import Session, run
from rmq_ha.admin.shown import message_line, message_values
from rmq_ha.client.consumer_settings import ConsumeFromWhere, MessageModel, PushConsumerConfig
from rmq_ha.client.messages import MessageExt
from rmq_ha.client.push_consumer import PushConsumer
from rmq_ha.client.subscriptions import MessageSelector

_FROM = {
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}


def selector_of(tags: str, sql: str | None) -> MessageSelector:
    """:raises click.UsageError: both are given."""
    if sql is None:
        return MessageSelector.by_tag(tags)
    if tags != "*":
        raise click.UsageError("give either --tags or --sql")
    return MessageSelector.by_sql(sql)


@click.command()
@click.argument("topic")
@click.option("--group", "-g", required=True, help="The consumer group.")
@click.option("--tags", default="*", show_default=True, help="Like 'TagA || TagB'.")
@click.option("--sql", help="An SQL92 expression about properties.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many.")
@click.option(
    "--from",
    "where",
    type=click.Choice(sorted(_FROM)),
    default="first",
    show_default=True,
    help="Where a group without offsets begins.",
)
@click.option("--broadcast", is_flag=True, help="Every member gets everything.")
@click.option("--orderly", is_flag=True, help="One message of a queue after the other.")
@common_options
def consume(topic: str, group: str, tags: str, sql: str | None, **given: Any) -> None:
    """
    Consume TOPIC as a member of a group, until Ctrl-C; offsets are kept.

    Other members of the group share the queues with it.
    """
    selector = selector_of(tags, sql)

    async def work(session: Session) -> None:
        config = PushConsumerConfig(
            consume_from_where=_FROM[given["where"]],
            message_model=MessageModel.BROADCASTING
            if given["broadcast"]
            else MessageModel.CLUSTERING,
            consume_concurrency=1,
            await_termination_millis_when_shutdown=0,
        )
        consumer = PushConsumer(await session.client(), group, config)
        consumer.subscribe(topic, selector)
        printer = Printer(session, given["count"])
        consumer.register_message_listener(printer, orderly=given["orderly"])
        await consumer.start()
        session.output.note(f"consuming {topic} as {group}; Ctrl-C ends it")
        try:
            await printer.enough
        finally:
            await consumer.stop()
        session.output.note(f"{printer.shown} messages")

    run(work)


class Printer:
    """
    A listener that shows what it gets.

    :ivar enough: fires when the count is reached, or the user has had enough.
    """

    def __init__(self, session: Session, count: int | None) -> None:
        self.shown = 0
        self.enough: Deferred[None] = Deferred()
        self._output = session.output
        self._count = count
        session.interrupted.addCallback(lambda _: self._end())

    def __call__(self, messages: Sequence[MessageExt], context: object) -> Any:
        """What comes behind the last one waits, until `stop` gives it back to its queue."""
        for message in messages:
            if self.enough.called:
                return Deferred()
            self._output.line(message_line(message), message_values(message))
            self.shown += 1
            if self.shown == self._count:
                self._end()
        return None

    def _end(self) -> None:
        if not self.enough.called:
            self.enough.callback(None)
