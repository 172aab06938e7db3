"""
`rmqha-admin tail`: shows messages as they come, without joining a group or committing offsets.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.task import deferLater

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.blocking import READER_GROUP
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.groups import offset_at
from rmq_ha.client.lookup.lookups import PullTerms, addresses_in, pull, topic_route
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.messages import MessageExt, PullStatus
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.ops.admin.consume import selector_of
from rmq_ha.ops.admin.message_text import message_line, message_values
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.points_in_time import PointInTime, WhenType
from rmq_ha.ops.admin.session import NothingFound, Session, run

_HOLD_MS = 5_000
_REST_S = 1.0


class QueueFilter(NamedTuple):
    """
    A queue, or all queues of a broker, that `--queue` names.

    :ivar broker: the broker's name; empty: all brokers.
    """

    broker: str
    queue_id: int


def _queues(_: Any, __: Any, values: Iterable[str]) -> list[QueueFilter]:
    only = []
    for value in values:
        broker, _, number = value.rpartition(":")
        if not (number.isascii() and number.isdecimal()):
            raise click.BadParameter(f"{value!r} is not N or BROKER:N, like 3 or broker-a:3")
        only.append(QueueFilter(broker, int(number)))
    return only


@click.command()
@click.argument("topic")
@click.option(
    "--tags",
    default="*",
    show_default=True,
    help="Only messages with these tags, like 'TagA || TagB'.",
)
@click.option("--sql", help="Only messages whose properties match this SQL92 expression.")
@click.option("--since", type=WhenType(), default="latest", show_default=True)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this number of messages.")
@click.option(
    "--queue",
    "only",
    multiple=True,
    metavar="[BROKER:]N",
    callback=_queues,
    help="Read this queue only; repeatable.",
)
@click.option("--no-follow", is_flag=True, help="Stop at the end of the queues.")
@click.option(
    "--group",
    "-g",
    default=READER_GROUP,
    show_default=True,
    help="The group in whose name messages are pulled. Brokers with ACL may require one.",
)
@common_options
def tail(topic: str, tags: str, sql: str | None, group: str, **given: Any) -> None:
    """
    Show the messages that are sent to TOPIC, until Ctrl-C.

    No group's offsets change. If a master does not answer, its slave is read.
    """
    selector = selector_of(tags, sql)

    async def work(session: Session) -> None:
        terms = PullTerms(group, 32, selector, 0 if given["no_follow"] else _HOLD_MS)
        await TopicTail(session, Asker(await session.client()), topic, terms, given["count"]).run(
            given["since"], given["only"], follow=not given["no_follow"]
        )

    run(work)


def _is_meant(queue: MessageQueue, only: Sequence[QueueFilter]) -> bool:
    return any(
        queue.queue_id == item.queue_id and item.broker in ("", queue.broker_name) for item in only
    )


class TopicTail:
    """Reads all queues of a topic, and prints their messages."""

    def __init__(
        self, session: Session, asker: Asker, topic: str, terms: PullTerms, count: int | None
    ) -> None:
        self._session = session
        self._asker = asker
        self._topic = topic
        self._terms = terms
        self._left = count
        self._choice = BrokerChoice(session.host.clock.seconds)
        self._readers: list[Deferred[None]] = []

    async def run(
        self, since: PointInTime, only: Sequence[QueueFilter] = (), *, follow: bool
    ) -> None:
        """
        Show messages until the count is reached, the end is reached or the user interrupts.

        :param only: the queues to read; empty: all.
        :raises NothingFound: the topic has none of these queues.
        :raises RmqHaError: the topic cannot be read at the start.
        """
        route = await self._asker.run(topic_route(self._topic))
        known = subscribe_queues(self._topic, route)
        queues = [queue for queue in known if not only or _is_meant(queue, only)]
        if not queues:
            names = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in known) or "none"
            raise NothingFound(f"{self._topic} has no such queue that may be read (it has {names})")
        timestamp = since.to_ms(self._session.host.now_ms())
        starts = {}
        with self._session.output.progress("finding offsets", len(queues)) as steps:
            for queue in queues:
                addresses = addresses_in(route, queue.broker_name)
                starts[queue] = await self._asker.run(offset_at(addresses, queue, timestamp))
                steps.advance()
        if follow:
            self._session.output.note(f"following {len(queues)} queues; Ctrl-C ends it")
        self._session.interrupted.addCallback(lambda _: self._end())
        self._readers = [
            Deferred.fromCoroutine(self._read(queue, start, follow))
            for queue, start in starts.items()
        ]
        outcomes: list[tuple[bool, Any]] = await DeferredList(self._readers, consumeErrors=True)
        for is_good, failure in outcomes:
            if not is_good and failure.check(CancelledError) is None:
                failure.raiseException()

    async def _read(self, queue: MessageQueue, offset: int, follow: bool) -> None:
        clock: Any = self._session.host.clock
        complained = False
        while True:
            try:
                route = await self._asker.instance.route(self._topic)
                addresses = addresses_in(route, queue.broker_name)
                result = await self._asker.run(
                    pull(self._choice, addresses, queue, offset, self._terms)
                )
            except RmqHaError as error:
                if not follow:
                    raise
                if not complained:
                    complained = True
                    self._session.output.warn(f"{error}; trying again")
                await deferLater(clock, _REST_S)
                continue
            complained = False
            for message in result.msg_found_list:
                self._show(message)
            if result.pull_status is PullStatus.OFFSET_ILLEGAL and offset < result.min_offset:
                gone = result.min_offset - offset
                self._session.output.warn(f"{gone} messages of {queue} are deleted already")
            if result.next_begin_offset == offset:
                if not follow:
                    return
                if result.pull_status is not PullStatus.NO_NEW_MSG:
                    await deferLater(clock, _REST_S)
            offset = result.next_begin_offset

    def _show(self, message: MessageExt) -> None:
        if self._left == 0:
            return
        self._session.output.line(message_line(message), message_values(message))
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._session.host.clock.callLater(0, self._end)

    def _end(self) -> None:
        for reader in self._readers:
            reader.cancel()
