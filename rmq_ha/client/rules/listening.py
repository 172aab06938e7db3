"""What a push consumer's listener is told and what it may answer.

A listener is a plain function or `async def listener(messages, context)`. What it returns decides:
None and the SUCCESS of its kind mean that all messages are consumed. An exception means that they
are to be consumed again later.

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
"""Either of the two below."""
MAX_INT = 0x7FFFFFFF


class ConsumeConcurrentlyStatus(Enum):
    """What a concurrent listener answers."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """What an orderly listener answers; COMMIT and ROLLBACK without `auto_commit` only."""

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """
    Of one call of a concurrent listener, which may change it.

    :ivar delay_level_when_next_consume: -1: no more, to the dead-letter queue; 0: the broker
        decides, longer each time; else the delay level.
    :ivar ack_index: position of the last message that is consumed; those behind it come again.
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int = MAX_INT


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """
    Of one call of an orderly listener, which may change it.

    :ivar auto_commit: SUCCESS commits; else only COMMIT does.
    :ivar suspend_current_queue_time_ms: how long the queue rests after SUSPEND or ROLLBACK;
        -1: the consumer's setting.
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
    """Nobody has seen these messages: they stay where they are, for who has their queue next."""


def as_deferred(outcome: Any) -> "Deferred[Any] | None":
    """What a coroutine, a Deferred or asyncio's Future will say; None: `outcome` is the answer."""
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
