"""The arguments and answers of a push consumer's listener.

A listener is a plain function or `async def listener(messages, context)`. If it returns None or the
success status of its kind, all messages are consumed. If it raises an exception, they are to be
consumed again later.

Spec: remoting.md, section 11.5.
"""

from asyncio import isfuture
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from inspect import isawaitable, iscoroutine
from typing import Any, TypeAlias
from warnings import warn

from twisted.internet.defer import Deferred

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.messages import MessageExt

Listener = Callable[[Sequence[MessageExt], Any], Any]
"""A `ConcurrentListener` or an `OrderlyListener`."""
MAX_INT = 0x7FFFFFFF


class ConsumeConcurrentlyStatus(Enum):
    """The answer of a concurrent listener."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """The answer of an orderly listener; COMMIT and ROLLBACK are for `auto_commit=False` only."""

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """
    The context of one call of a concurrent listener. The listener may change its fields.

    :ivar delay_level_when_next_consume: the delay level after which failed messages come again. 0
        lets the broker decide, longer each time; -1 sends them to the dead-letter queue.
    :ivar ack_index: position of the last consumed message; messages after it come again.
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int = MAX_INT


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """
    The context of one call of an orderly listener. The listener may change its fields.

    :ivar auto_commit: whether SUCCESS commits the messages; else only COMMIT does.
    :ivar suspend_current_queue_time_ms: how long the queue rests after SUSPEND or ROLLBACK, in ms;
        -1 for the consumer's setting.
    """

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_ms: int = -1

    @property
    def suspend_current_queue_time_millis(self) -> int:
        """The old name of `suspend_current_queue_time_ms`."""
        _warn_of_old_name()
        return self.suspend_current_queue_time_ms

    @suspend_current_queue_time_millis.setter
    def suspend_current_queue_time_millis(self, time_ms: int) -> None:
        _warn_of_old_name()
        self.suspend_current_queue_time_ms = time_ms


ConcurrentAnswer: TypeAlias = ConsumeConcurrentlyStatus | None
OrderlyAnswer: TypeAlias = ConsumeOrderlyStatus | None
ConcurrentListener = Callable[
    [Sequence[MessageExt], ConsumeConcurrentlyContext],
    ConcurrentAnswer | Awaitable[ConcurrentAnswer],
]
OrderlyListener = Callable[
    [Sequence[MessageExt], ConsumeOrderlyContext], OrderlyAnswer | Awaitable[OrderlyAnswer]
]


def _warn_of_old_name() -> None:
    text = "suspend_current_queue_time_millis: write suspend_current_queue_time_ms"
    warn(text, DeprecationWarning, stacklevel=3)


class NotTaken(Exception):
    """
    The outcome of a call whose messages no listener got. They count as neither consumed nor failed,
    and the next owner of their queue gets them.
    """


def as_deferred(outcome: Any) -> "Deferred[Any] | None":
    """
    Return a coroutine, Deferred or other awaitable as a Deferred; None if `outcome` is itself the
    answer.
    """
    if isinstance(outcome, Enum):
        return None
    if isinstance(outcome, Deferred):
        return outcome
    if iscoroutine(outcome):
        return Deferred.fromCoroutine(outcome)
    if isfuture(outcome):
        return Deferred.fromFuture(outcome)
    if isawaitable(outcome):
        return Deferred.fromCoroutine(_await(outcome))
    return None


async def _await(outcome: Any) -> Any:
    return await outcome
