"""PullLoop: asks for the messages of one queue, again and again, as fast as they are consumed.

Spec: remoting.md, section 11.4.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.consume.pull_api import PullAnswer, PullApi
from rmq_ha.client.lookup.pulls import Pull
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import MessageExt, PullStatus
from rmq_ha.client.rules.process_queue import FlowLimits, ProcessQueue

FULL_SECONDS = 0.05
PAUSED_SECONDS = 1.0
FLOW_CONTROL_SECONDS = 0.02
NOT_HELD_MS = 1000
"""
Time in ms. If an answer without messages comes sooner than this, the broker did not hold the pull.
A loop that pulled again at once would then send pulls without a pause.
"""
NOT_HELD_SECONDS = 0.1
WARN_AFTER_FAILURES = 3


class PullOwner(Protocol):
    """The consumer that a pull loop works for."""

    @property
    def clock(self) -> IReactorTime:
        """The clock of the loop's timers."""

    @property
    def steady_ms(self) -> Callable[[], int]:
        """Return the time of a steady clock, in ms."""

    @property
    def pull_api(self) -> PullApi:
        """The `PullApi` by which the loop asks brokers for messages."""

    @property
    def error_seconds(self) -> float:
        """How long the loop waits after an error, in seconds."""

    def may_pull(self, queue: MessageQueue, process_queue: ProcessQueue) -> float:
        """
        Return 0 if the queue may be pulled now. If it is paused or not locked, return how many
        seconds the loop has to wait before it asks again.
        """

    def limits(self, queue: MessageQueue) -> FlowLimits:
        """Return how much the cache of the queue may hold."""

    def next_pull(self, queue: MessageQueue, offset: int) -> Pull | None:
        """Return the next pull; None if the topic is not subscribed any more."""

    def found(
        self, queue: MessageQueue, process_queue: ProcessQueue, messages: list[MessageExt]
    ) -> float:
        """Take messages that were pulled; return in how many seconds to pull again."""

    def nothing_below(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        """
        Note that the broker has no wanted message below this offset. The cache is empty, so this
        offset may be committed.
        """

    def offset_moved(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        """
        Go on at this offset, in a new loop: the queue does not have the offset that was asked for,
        and the loop that calls this has ended.
        """

    def unknown_subscription(self) -> None:
        """
        Tell brokers the subscriptions, since a broker answered that it does not know them: it was
        restarted, or no heartbeat has reached it yet.
        """

    def pulled(self, topic: str, count: int, took_ms: int) -> None:
        """Count pulled messages in the statistics."""


class PullLoop:
    """
    A loop that pulls one queue; it ends when the `ProcessQueue` is dropped.

    :param offset: the offset of the first message to pull.
    :ivar offset: the offset of the next message to pull.
    :ivar full: how many times the loop found the cache full.
    """

    log = Logger()

    def __init__(
        self, owner: PullOwner, queue: MessageQueue, process_queue: ProcessQueue, offset: int
    ) -> None:
        self.queue = queue
        self.process_queue = process_queue
        self.offset = offset
        self.full = 0
        self._owner = owner
        self._timer: IDelayedCall | None = None
        self._asked_ms = 0
        self._failures = 0
        self._halted = False

    def start(self) -> None:
        """Pull for the first time."""
        self._pull()

    def stop(self) -> None:
        """Stop pulling, and drop the process queue: results for its messages are ignored."""
        self.process_queue.dropped = True
        self.halt()

    def halt(self) -> None:
        """Stop pulling; an answer that is still under way is thrown away."""
        self._halted = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def poke(self) -> None:
        """Look at once whether the loop may pull, if it waits for a timer."""
        if self._timer is not None:
            self._timer.reset(0)

    def _pull(self) -> None:
        self._timer = None
        owner, process_queue = self._owner, self.process_queue
        if process_queue.dropped or self._halted:
            return
        self._asked_ms = process_queue.last_pull_ms = owner.steady_ms()
        wait = owner.may_pull(self.queue, process_queue)
        if wait:
            self._pull_later(wait)
            return
        reason = process_queue.is_full(owner.limits(self.queue))
        if reason is not None:
            self.full += 1
            if self.full % 1000 == 1:
                self.log.info("{queue} rests: {reason}", queue=self.queue, reason=reason)
            self._pull_later(FULL_SECONDS)
            return
        pull = owner.next_pull(self.queue, self.offset)
        if pull is None:
            self._pull_later(owner.error_seconds)
            return
        owner.pull_api.pull(pull).addCallback(self._pulled).addErrback(self._failed)

    def _pulled(self, pulled: PullAnswer) -> None:
        process_queue, owner, result = self.process_queue, self._owner, pulled.result
        if process_queue.dropped or self._halted:
            return
        self._failures = 0
        following = result.next_begin_offset
        process_queue.max_offset = result.max_offset
        if pulled.from_slave and following < self.offset:
            # The slave has not got these messages yet. Going back to its offset would consume
            # messages again.
            self._pull_later(owner.error_seconds)
            return
        if result.pull_status is PullStatus.OFFSET_ILLEGAL:
            self.log.warn(
                "{queue} does not have the offset {offset} ({least} to {most}): going on at {next}",
                queue=self.queue,
                offset=self.offset,
                least=result.min_offset,
                most=result.max_offset,
                next=following,
            )
            owner.offset_moved(self.queue, process_queue, following)
            return
        wait = 0.0
        if following == self.offset and owner.steady_ms() - self._asked_ms < NOT_HELD_MS:
            wait = owner.error_seconds if pulled.from_slave else NOT_HELD_SECONDS
        self.offset = following
        if result.msg_found_list:
            took = owner.steady_ms() - self._asked_ms
            owner.pulled(self.queue.topic, len(result.msg_found_list), took)
            wait = owner.found(self.queue, process_queue, result.msg_found_list)
        elif not process_queue.count:
            owner.nothing_below(self.queue, process_queue, following)
        if wait:
            self._pull_later(wait)
        else:
            self._pull()

    def _failed(self, failure: Failure) -> None:
        if self.process_queue.dropped or self._halted:
            return
        error, owner = failure.value, self._owner
        self._failures += 1
        if not isinstance(error, RmqHaError):
            self.log.failure("a pull of {queue} failed", failure, queue=self.queue)
        elif self._failures % 10 == (WARN_AFTER_FAILURES if _is_normal(error) else 1):
            self.log.warn("{queue} is not pulled: {reason}", queue=self.queue, reason=error)
        if _is_normal(error) and self._failures % 10 == 1:
            owner.unknown_subscription()
        busy = isinstance(error, BrokerRefused) and error.code == ResponseCode.FLOW_CONTROL
        self._pull_later(FLOW_CONTROL_SECONDS if busy else owner.error_seconds)

    def _pull_later(self, seconds: float) -> None:
        self._timer = self._owner.clock.callLater(seconds, self._pull)


def _is_normal(error: BaseException | None) -> bool:
    """Whether an error is normal after a subscription changed: a broker does not know it yet."""
    return isinstance(error, BrokerRefused) and error.code in (
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    )
