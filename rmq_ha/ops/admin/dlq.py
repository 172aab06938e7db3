"""`rmqha-admin dlq`: dead letters, the messages that a group gave up."""

from collections.abc import AsyncIterator

import click

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    TAGS,
    UNIQ_KEY,
    WAIT,
)
from rmq_ha.base.model.topics import DLQ_PREFIX, RETRY_PREFIX
from rmq_ha.base.model.unserved_properties import TIMERS
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.blocking import READER_GROUP
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import topic_configs, topic_offsets
from rmq_ha.client.lookup.groups import EARLIEST, offset_at
from rmq_ha.client.lookup.lookups import (
    PullTerms,
    addresses_in,
    commit_offset,
    committed_offset,
    pull,
    topic_route,
)
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import NoRoute
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.message_text import message_line, message_values, time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, NothingFound, Session, run
from rmq_ha.ops.admin.targets import first_of_each, targets

LIST_COLUMNS = ("group", "messages", "last")
_KEPT_OUT = frozenset({DELAY, REAL_TOPIC, REAL_QID, WAIT, RECONSUME_TIME, UNIQ_KEY, *TIMERS})
_PULLED = 32


@click.group()
@common_options
def dlq() -> None:
    """
    Show dead letters, and send them to their group again. A dead letter is a message that a group
    gave up after its last attempt.
    """


@dlq.command(name="list")
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option(
    "--fail-above",
    type=click.IntRange(min=0),
    metavar="N",
    help="Exit with 1 if there are more dead letters than this in all.",
)
@common_options
def list_(which: str, fail_above: int | None) -> None:
    """List the groups that have dead letters."""

    async def work(session: Session) -> int | None:
        total = await show_groups(session, which)
        return FAILED if fail_above is not None and total > fail_above else None

    run(work)


async def show_groups(session: Session, which: str = "") -> int:
    """
    Show the groups that have dead letters.

    :returns: how many dead letters all groups have together.
    """
    asker, brokers = await targets(session, which)
    messages: dict[str, int] = {}
    last: dict[str, int] = {}
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        for topic in await asker.run(topic_configs(target.address)):
            if not topic.startswith(DLQ_PREFIX):
                continue
            group = topic.removeprefix(DLQ_PREFIX)
            for item in (await asker.run(topic_offsets(target.address, topic))).values():
                count = item.max_offset - item.min_offset
                messages[group] = messages.get(group, 0) + count
                last[group] = max(last.get(group, 0), item.last_update_timestamp)
    rows = [
        [group, count, time_text(last[group]) if last[group] > 0 else None]
        for group, count in sorted(messages.items())
    ]
    session.output.table("dead letters", LIST_COLUMNS, rows, messages=sum(messages.values()))
    return sum(messages.values())


@dlq.command()
@click.argument("group")
@click.option("--max", "most", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--all", "every", is_flag=True, help="Show dead letters that were sent again, too.")
@common_options
def show(group: str, most: int, every: bool) -> None:
    """
    Show the dead letters of GROUP that were not sent again yet.

    Exit code 3: the group has no dead letters.
    """

    async def work(session: Session) -> None:
        shown = 0
        async for message, _ in DeadLetters(session, group).messages(every=every):
            session.output.line(message_line(message), message_values(message))
            shown += 1
            if shown == most:
                return
        if not shown:
            raise NothingFound(f"no dead letters of {group}")

    run(work)


@dlq.command()
@click.argument("group")
@click.option(
    "--max", "most", type=click.IntRange(min=1), help="Send at most this number, the oldest first."
)
@click.option(
    "--all", "every", is_flag=True, help="Send dead letters that were sent again before, too."
)
@sure_options
@common_options
def resend(group: str, most: int | None, every: bool, **sure: bool) -> None:
    """
    Send the dead letters of GROUP to it again, through its retry topic, so that no other group gets
    them.

    The broker keeps the progress, as an offset of the group TOOLS_CONSUMER, and the next call
    continues there. The dead letters themselves stay until they expire.

    Exit code 1: some dead letters could not be sent; 3: there are none.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> None:
        await resend_to(session, group, most=most, every=every, **sure)

    run(work)


async def resend_to(
    session: Session, group: str, *, most: int | None = None, every: bool = False, **sure: bool
) -> None:
    """
    Send the dead letters of a group to its retry topic again.

    :raises NothingFound: the group has no dead letters to send.
    :raises RmqHaError: a dead letter was not sent; the next call does not repeat those before it.
    """
    letters = DeadLetters(session, group)
    waiting = await letters.count(every=every)
    count = waiting if most is None else min(most, waiting)
    if not count:
        raise NothingFound(f"no dead letters of {group} to send again")
    if not is_wanted(f"Send {count} messages to {group} again?", **sure):
        session.output.line(f"{count} would be sent", {"would_send": count, "sent": 0})
        return
    config = ProducerConfig(send_msg_timeout_ms=session.options.timeout_ms, delivery_timeout_ms=0)
    producer = Producer(await session.client(), config)
    await producer.start()
    sent = 0
    try:
        with session.output.progress("sending", count) as steps:
            async for message, queue in letters.messages(every=every):
                if sent == count or session.interrupted.called:
                    break
                await producer.send(as_retry(message, group))
                await letters.done(queue, message.queue_offset + 1)
                sent += 1
                steps.advance()
    finally:
        await producer.stop()
        session.output.line(f"{sent} of {count} sent", {"would_send": count, "sent": sent})


def as_retry(message: MessageExt, group: str) -> Message:
    """
    Return the message as it goes to the group's retry topic. Members see the topic that it came
    from.
    """
    kept = {k: v for k, v in message.properties.items() if k not in _KEPT_OUT}
    kept.setdefault(ORIGIN_MESSAGE_ID, message.msg_id)
    return Message(
        RETRY_PREFIX + group,
        message.body,
        kept.pop(TAGS, ""),
        properties=kept,
        flag=message.flag,
    )


class DeadLetters:
    """The dead letters of one group, on all brokers."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._topic = DLQ_PREFIX + group
        self._choice = BrokerChoice(session.host.clock.seconds)

    async def count(self, *, every: bool) -> int:
        """Return how many messages `messages` would yield, unless new ones come."""
        asker, starts = await self._starts(every=every)
        messages = 0
        for queue, start in self._session.output.track("counting", list(starts.items())):
            route = await asker.run(topic_route(self._topic))
            addresses = addresses_in(route, queue.broker_name)
            for known, item in (
                await asker.run(topic_offsets(addresses[min(addresses)], self._topic))
            ).items():
                if known.queue_id == queue.queue_id:
                    messages += item.max_offset - start
        return messages

    async def messages(self, *, every: bool) -> AsyncIterator[tuple[MessageExt, MessageQueue]]:
        """
        Yield the dead letters of each queue in its order.

        :raises RmqHaError: a queue cannot be read.
        """
        asker, starts = await self._starts(every=every)
        terms = PullTerms(READER_GROUP, _PULLED)
        for queue, start in starts.items():
            offset = start
            while True:
                addresses = await self._addresses(asker, queue)
                result = await asker.run(pull(self._choice, addresses, queue, offset, terms))
                for message in result.msg_found_list:
                    yield message, queue
                if result.next_begin_offset == offset:
                    break
                offset = result.next_begin_offset

    async def done(self, queue: MessageQueue, offset: int) -> None:
        """Keep at the broker that the dead letters before `offset` were sent again."""
        asker = await self._asker()
        addresses = await self._addresses(asker, queue)
        await asker.run(commit_offset(addresses, READER_GROUP, queue, offset))

    async def _asker(self) -> Asker:
        return Asker(await self._session.client())

    async def _addresses(self, asker: Asker, queue: MessageQueue) -> dict[int, str]:
        return addresses_in(await asker.run(topic_route(self._topic)), queue.broker_name)

    async def _starts(self, *, every: bool) -> tuple[Asker, dict[MessageQueue, int]]:
        """
        Return the offset in each queue where reading begins.

        :raises NothingFound: no broker has the topic, as the group never gave up a message.
        :raises RmqHaError: the topic may not be read.
        """
        asker = await self._asker()
        try:
            route = await asker.run(topic_route(self._topic))
        except NoRoute:
            group = self._topic.removeprefix(DLQ_PREFIX)
            raise NothingFound(
                f"no dead letters of {group}: it never gave up a message here (`rmqha-admin group "
                "list` shows all groups, if its name may be wrong)"
            ) from None
        queues = subscribe_queues(self._topic, route)
        if not queues:
            raise RmqHaError(
                f"{self._topic} may not be read (brokers before 4.9 make it so): rmqha-admin topic"
                f" update '{self._topic}' --perm RW"
            )
        starts: dict[MessageQueue, int] = {}
        for queue in self._session.output.track("finding offsets", queues):
            addresses = addresses_in(route, queue.broker_name)
            first = await asker.run(offset_at(addresses, queue, EARLIEST))
            known = await asker.run(committed_offset(addresses, READER_GROUP, queue))
            starts[queue] = first if every else max(first, known)
        return asker, starts
