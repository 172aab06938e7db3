"""`rmqha-admin consume`: read a topic as a member of a group."""

from collections.abc import Sequence
from typing import Any

import click
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from rmq_ha.base.errors import RemotingError, RmqHaError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.groups import LATEST, offset_at
from rmq_ha.client.lookup.lookups import (
    PullTerms,
    addresses_in,
    committed_offset,
    pull,
    topic_route,
)
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, MessageModel, PushConsumerConfig
from rmq_ha.client.rules.errors import BrokerRefused, NoRoute
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.client.rules.subscriptions import MessageSelector
from rmq_ha.ops.admin.message_text import message_line, message_values
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import Session, run

_LOOK_S = 1.0
_FROM = {
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}


def selector_of(tags: str, sql: str | None) -> MessageSelector:
    """
    Return the filter that `--tags` or `--sql` asks for.

    :raises click.UsageError: both options are given.
    """
    if sql is None:
        return MessageSelector.by_tag(tags)
    if tags != "*":
        raise click.UsageError("give either --tags or --sql")
    return MessageSelector.by_sql(sql)


@click.command()
@click.argument("topic")
@click.option("--group", "-g", required=True, help="The consumer group.")
@click.option(
    "--tags",
    default="*",
    show_default=True,
    help="Only messages with these tags, like 'TagA || TagB'.",
)
@click.option("--sql", help="Only messages whose properties match this SQL92 expression.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this number of messages.")
@click.option(
    "--from",
    "where",
    type=click.Choice(sorted(_FROM)),
    default="first",
    show_default=True,
    help="Where a group without offsets begins.",
)
@click.option(
    "--until-end",
    is_flag=True,
    help="Stop when the group has consumed every message that was there at the start, no matter "
    "by which member.",
)
@click.option("--broadcast", is_flag=True, help="Every member gets every message.")
@click.option(
    "--orderly", is_flag=True, help="Consume the messages of each queue one after the other."
)
@common_options
def consume(topic: str, group: str, tags: str, sql: str | None, **given: Any) -> None:
    """
    Consume TOPIC as a member of a group, until Ctrl-C; offsets are kept.

    Other members of the group share the queues with it.
    """
    selector = selector_of(tags, sql)
    if given["until_end"] and given["broadcast"]:
        raise click.UsageError(
            "--until-end asks brokers how far the group is: not with --broadcast"
        )

    async def work(session: Session) -> None:
        await consume_as(session, topic, group, selector, **given)

    run(work)


async def consume_as(
    session: Session, topic: str, group: str, selector: MessageSelector, **given: Any
) -> None:
    """
    Show messages until the count is reached, the end is reached or the user interrupts. Offsets are
    committed.

    :raises RmqHaError: a broker of the topic does not have the group, and does not create groups by
        itself.
    """
    asker = Asker(await session.client())
    await check_group(session, asker, topic, group)
    config = PushConsumerConfig(
        consume_from_where=_FROM[given["where"]],
        message_model=MessageModel.BROADCASTING if given["broadcast"] else MessageModel.CLUSTERING,
        consume_concurrency=1,
        await_termination_when_shutdown_ms=0,
    )
    consumer = PushConsumer(await session.client(), group, config)
    consumer.subscribe(topic, selector)
    printer = Printer(session, given["count"])
    consumer.register_message_listener(printer, orderly=given["orderly"])
    end = await TopicEnds.read_now(asker, topic) if given["until_end"] else None
    await consumer.start()
    session.output.note(f"consuming {topic} as {group}; Ctrl-C ends it")
    if end is not None:
        ends = Deferred.fromCoroutine(_stop_at(session, end, consumer, printer))
        ends.addErrback(printer.fail)
    try:
        await printer.enough
    finally:
        await consumer.stop()
    session.output.note(f"{printer.shown} messages")


async def check_group(session: Session, asker: Asker, topic: str, group: str) -> None:
    """
    Check that each broker of the topic has the group: ask for no messages in the group's name.

    A consumer whose group a broker does not have would wait there for ever.

    :raises RmqHaError: a broker does not have the group, and does not create groups by itself.
    """
    try:
        route = await asker.run(topic_route(topic))
    except NoRoute:
        return  # the topic may be created yet: the consumer waits for it
    first = {queue.broker_name: queue for queue in reversed(subscribe_queues(topic, route))}
    choice = BrokerChoice(session.host.clock.seconds)
    for queue in first.values():
        addresses = addresses_in(route, queue.broker_name)
        try:
            end = await asker.run(offset_at(addresses, queue, LATEST))
            await asker.run(pull(choice, addresses, queue, end, PullTerms(group, 1)))
        except BrokerRefused as error:
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise RmqHaError(
                    f"the broker {queue.broker_name} does not have the group {group}, and makes "
                    f"none by itself (autoCreateSubscriptionGroup=false): rmqha-admin group create "
                    f"{group}"
                ) from None
        except RmqHaError:
            continue  # the consumer logs this failure itself, and tries again


class Printer:
    """
    A listener that prints the messages it gets.

    :ivar enough: fires when the count is reached, or the user interrupts.
    """

    def __init__(self, session: Session, count: int | None) -> None:
        self.shown = 0
        self.enough: Deferred[None] = Deferred()
        self._output = session.output
        self._count = count
        session.interrupted.addCallback(lambda _: self.end())

    def __call__(self, messages: Sequence[MessageExt], context: object) -> Any:
        """
        Print messages. A message after the last wanted one stays unanswered, until `stop` gives it
        back to its queue.
        """
        for message in messages:
            if self.enough.called:
                return Deferred()
            self._output.line(message_line(message), message_values(message))
            self.shown += 1
            if self.shown == self._count:
                self.end()
        return None

    def end(self) -> None:
        if not self.enough.called:
            self.enough.callback(None)

    def fail(self, failure: Failure) -> None:
        """Make the command fail, because the check that should end it failed."""
        if not self.enough.called:
            self.enough.errback(failure)


class TopicEnds:
    """
    The ends of a topic's queues at one moment.

    :param ends: end by queue; queues without messages are left out.
    """

    def __init__(self, asker: Asker, topic: str, ends: dict[MessageQueue, int]) -> None:
        self._asker = asker
        self._topic = topic
        self._ends = ends

    @classmethod
    async def read_now(cls, asker: Asker, topic: str) -> "TopicEnds":
        """
        Ask the brokers for the ends of the topic's queues now.

        :raises RmqHaError: a broker or the name servers do not answer.
        """
        route = await asker.run(topic_route(topic))
        ends = {}
        for queue in subscribe_queues(topic, route):
            addresses = addresses_in(route, queue.broker_name)
            ends[queue] = await asker.run(offset_at(addresses, queue, LATEST))
        return cls(asker, topic, {queue: end for queue, end in ends.items() if end > 0})

    async def is_reached(self, group: str) -> bool:
        """
        Return whether the group has committed all offsets up to these ends. A queue whose end was
        reached is not asked again.

        :raises RmqHaError: a broker or the name servers do not answer.
        """
        route = await self._asker.run(topic_route(self._topic))
        for queue, end in list(self._ends.items()):
            addresses = addresses_in(route, queue.broker_name)
            if await self._asker.run(committed_offset(addresses, group, queue)) >= end:
                del self._ends[queue]
        return not self._ends


async def _stop_at(
    session: Session, end: TopicEnds, consumer: PushConsumer, printer: Printer
) -> None:
    clock: Any = session.host.clock
    while not printer.enough.called:
        await consumer.offset_store.persist_all(consumer.assignment())
        try:
            if await end.is_reached(consumer.consumer_group):
                printer.end()
                return
        except RemotingError as error:  # the consumer goes on by itself when brokers are back
            session.output.warn(f"{error}; asking again")
        await deferLater(clock, _LOOK_S)
