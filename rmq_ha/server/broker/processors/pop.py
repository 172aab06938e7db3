"""Answers POP_MESSAGE (200050): messages of one queue or of all queues, each with a lease.

Spec: pop.md, sections 2.1 to 2.4, 2.7 and 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.seams import Times
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_headers import PopHeader
from rmq_ha.server.broker.pop_hold import HeldPoll, PopHold, Release
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.processors.pop_answers import REFUSED, PopAnswers
from rmq_ha.server.broker.processors.pop_checks import PopChecks
from rmq_ha.server.broker.processors.pop_queues import PopQueues
from rmq_ha.server.broker.processors.pull import ConsumeHooks
from rmq_ha.server.door import Poller, PopOutcome
from rmq_ha.server.pop.face import PopAnswer, Pops, PopStatus, PopWish

EARLY_MS = 50
"""
How many ms before the end of its time a held request is answered, so that the answer comes while
the client still waits.
"""
_LATE_MS = 500
_AGAIN_SECONDS = 0.02
"""
Pause in seconds before a pop looks again, if its filter has passed nothing yet, and it is not at
the end of the queue.
"""
EMPTY = PopOutcome(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
_FROM_MAX = 1


class _PoppedQueue(NamedTuple):
    """Names the group and the queue of delivered messages to the hooks of plugins."""

    group: str
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PopParts:
    """
    The parts of a broker that pops use.

    :ivar hold: holds pops that found nothing.
    :ivar deliveries: called for every answer that carries messages.
    :ivar hurry: enters gathered records into their queues at once; see `Dispatcher.hurry`.
    """

    pops: Pops
    checks: PopChecks
    queues: PopQueues
    hold: PopHold
    deliveries: ConsumeHooks
    broker: BrokerConfig
    times: Times
    hurry: Callable[[], None]

    def now_ms(self) -> int:
        return self.times.now_ms()

    def seconds(self) -> float:
        return self.times.clock.seconds()


class PopMessageProcessor:
    """Answers pops, and holds those that found nothing."""

    def __init__(self, parts: PopParts) -> None:
        self._parts = parts
        self._answers = PopAnswers(parts.broker.broker_name or "")

    def routes(self) -> dict[int, Handler]:
        """Return handlers by request code; none while `popEnable` is false."""
        if not self._parts.pops.is_enabled:
            return {}
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer a pop when its messages are leased, or its time is over."""
        parts = self._parts
        try:
            header = PopHeader.read(request.ext)
            refuse_unless_leading(parts.pops)
            topic, message_filter = self._check(channel, header)
        except RequestRejected as error:
            return request.response(error.code, error.remark, REFUSED)
        # The fields are not needed any more; they would stay in memory while the pop is held.
        request.ext = request.body = None
        popped = PopRequest(parts, channel, channel.served_at, header, topic, message_filter)
        return popped.begin().addCallback(
            lambda outcome: self._answers.response(outcome, request, header, parts.now_ms())
        )

    def take(self, poller: Poller, header: PopHeader) -> "Deferred[PopOutcome]":
        """
        Pop for a client of the gRPC door.

        :returns: see `PopRequest.begin`.
        :raises RequestRejected: the pop is refused at once.
        """
        parts = self._parts
        refuse_unless_leading(parts.pops)
        topic, message_filter = self._check(poller, header)
        return PopRequest(parts, poller, parts.seconds(), header, topic, message_filter).begin()

    def _check(
        self, channel: Poller, header: PopHeader
    ) -> tuple[TopicConfig, IMessageFilter | None]:
        """
        Check a pop in RocketMQ's order; return its topic and its filter.

        :raises RequestRejected: with the code of the first check that fails.
        """
        parts, checks = self._parts, self._parts.checks
        born_ms = header.born_time or parts.now_ms()
        if parts.now_ms() - born_ms - header.poll_time > _LATE_MS:
            raise RequestRejected(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{parts.broker.broker_ip1}] pop message is timeout too much",
            )
        checks.broker_is_readable("pop message")
        checks.count(header.max_msg_nums)
        topic = checks.readable_topic(header.topic, header.queue_id, channel.remote_text)
        checks.group(header.consumer_group)
        checks.mode(header.consumer_group, header.topic)
        checks.invisible_time(header.invisible_time)
        if not header.order:
            checks.retry_name(header.consumer_group, header.topic)
        return topic, checks.filter_of(header.topic, header.exp_type, header.exp)


class PopRequest:
    """
    One pop, from its arrival to its outcome: it looks for messages, may be held, and looks again.

    :param began: when the request got its turn to be served, in seconds of the clock.
    """

    log = Logger()

    def __init__(
        self,
        parts: PopParts,
        channel: Poller,
        began: float,
        header: PopHeader,
        topic: TopicConfig,
        message_filter: IMessageFilter | None,
    ) -> None:
        self._parts = parts
        self._channel = channel
        self._header = header
        self._topic = topic
        self._filter = message_filter
        self._began = began
        self._answered: Deferred[PopOutcome] = Deferred()
        # The client's clock may be ahead of ours, which must not let the request wait longer.
        now_ms = parts.now_ms()
        born_ms = min(header.born_time or now_ms, now_ms)
        wait_ms = born_ms + header.poll_time - EARLY_MS - now_ms if header.max_msg_nums else 0
        self._poll: HeldPoll | None = None
        if header.poll_time > 0 and wait_ms > 0:
            self._poll = HeldPoll(
                channel,
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.max_msg_nums,
                parts.seconds() + wait_ms / 1000,
                self._resume,
                message_filter,
                (header.exp_type or "", header.exp or "") if message_filter else ("", ""),
            )

    def begin(self) -> "Deferred[PopOutcome]":
        """
        Look for messages.

        :returns: fires with the outcome; never, if the connection is lost while the pop is held.
        """
        self._look(is_last=self._poll is None)
        return self._answered

    def _resume(self, reason: Release) -> None:
        if reason is Release.END:
            self._answer(EMPTY)
        elif self._channel.is_full:
            # Many pops may be held for one client. Messages of each would wait in memory.
            self._answer(EMPTY._replace(remark="the client reads too slowly"))
        else:
            self._began = self._parts.seconds()
            self._look(is_last=reason is Release.TIME)

    def _look(self, *, is_last: bool) -> None:
        header = self._header
        if self._parts.checks.is_pulled(header.consumer_group, header.topic):
            self._answer(EMPTY)  # the mode has changed while the pop was held
            return
        wish = PopWish(
            header.consumer_group,
            self._parts.queues.queues_of(
                header.consumer_group,
                self._topic,
                header.queue_id,
                self._filter,
                is_orderly=header.order,
            ),
            header.max_msg_nums,
            header.invisible_time,
            header.init_mode == _FROM_MAX,
            header.order,
            header.attempt_id or "",
            self._channel.remote_text,
        )
        try:
            self._parts.hurry()
            answer = self._parts.pops.pop(wish)
        except Exception:
            self._failed(Failure())  # type: ignore[no-untyped-call]
            return
        is_immediate = answer.called
        answer.addCallback(self._ended, wish, is_last, is_immediate).addErrback(self._failed)

    def _ended(self, answer: PopAnswer, wish: PopWish, is_last: bool, is_immediate: bool) -> None:
        if answer.status is PopStatus.FOUND:
            self._count(answer)
            self._answer(PopOutcome(ResponseCode.SUCCESS, "FOUND", answer))
            if answer.rest > 0 and not wish.is_orderly:
                header = self._header
                self._parts.hold.wake(header.consumer_group, header.topic, header.queue_id, 1)
        elif answer.status is PopStatus.EMPTY and self._poll is not None and not is_last:
            if not is_immediate and self._has_something(wish):
                self._look(is_last=False)  # messages came while the journal was written
            elif answer.rest > 0 and not wish.is_orderly:
                self._parts.times.clock.callLater(_AGAIN_SECONDS, self._look_again)
            elif not self._parts.hold.hold(self._poll):
                self._answer(EMPTY._replace(code=ResponseCode.POLLING_FULL))
        elif answer.status is PopStatus.FULL:
            self._answer(
                PopOutcome(
                    ResponseCode.POLLING_FULL,
                    "too many messages are out: acknowledge some, or raise "
                    "popInflightMessageThreshold or popMaxInflight",
                )
            )
        elif answer.status is PopStatus.NOT_LEADING and self._poll is None:
            self._answer(PopOutcome(ResponseCode.SYSTEM_BUSY, NOT_LEADING))
        else:
            self._answer(EMPTY)

    def _look_again(self) -> None:
        poll = self._poll
        if poll is not None and self._channel.is_open:
            self._look(is_last=self._parts.seconds() >= poll.deadline)

    def _has_something(self, wish: PopWish) -> bool:
        has = self._parts.pops.has_something
        return any(has(wish.group, queue, is_orderly=wish.is_orderly) for queue in wish.queues)

    def _failed(self, failure: Failure) -> None:
        if not self._answered.called:
            self._answered.errback(failure)
        else:
            self.log.failure("after the answer to a pop", failure)

    def _answer(self, outcome: PopOutcome) -> None:
        self._answered.callback(outcome)

    def _count(self, answer: PopAnswer) -> None:
        for part in answer.parts:
            self._parts.deliveries.deliver(
                _PoppedQueue(self._header.consumer_group, part.topic, part.queue_id),
                self._channel.remote_text,
                list(part.records),
                sum(map(len, part.records)),
                self._began,
            )


NOT_LEADING = "this broker hands out no messages: it is not the master, or not ready yet"


def refuse_unless_leading(pops: Pops) -> None:
    """
    Refuse a request that only the leading broker serves; clients come again.

    :raises RequestRejected: this broker does not lead.
    """
    if not pops.is_leading:
        raise RequestRejected(ResponseCode.SYSTEM_BUSY, NOT_LEADING)
