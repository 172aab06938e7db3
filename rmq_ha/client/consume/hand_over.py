"""HandOver: the listener of a consumer whose messages the application takes in loops, as in
`async for message in consumer`.
"""

from asyncio import AbstractEventLoop, Future, Task, _get_running_loop, current_task, timeout
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import ref

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.listening import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    NotTaken,
)
from rmq_ha.client.rules.messages import Answerer, MessageExt


class _Call:
    """
    One call of the listener: a message, and the Future of its answer.

    :ivar owner: the task or thread that took the message.
    """

    __slots__ = ("answer", "context", "message", "owner")

    def __init__(self, message: MessageExt, context: Any, answer: "Future[Any]") -> None:
        self.message = message
        self.context = context
        self.answer = answer
        self.owner: object = None


class HandOver:
    """
    The listener of a consumer whose application takes the messages in loops. It keeps each message
    until a loop takes it, and passes the loop's answer to the consumer.

    A message that no loop takes occupies one of the `consume_concurrency` calls, so the consumer
    stops pulling when the loops are slow.

    :ivar loop: the event loop in which messages are taken and answered.
    """

    def __init__(
        self, loop: AbstractEventLoop, *, orderly: bool, answerer: Answerer | None = None
    ) -> None:
        """:param answerer: the consumer that `ack` and `nack` of a taken message call."""
        self.loop = loop
        self._answerer = answerer
        self._later: Any = ConsumeConcurrentlyStatus.RECONSUME_LATER
        if orderly:
            self._later = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        self._waiting: deque[_Call] = deque()
        self._askers: deque[Future[None]] = deque()
        self._in_hand: dict[int, _Call] = {}
        self._closed = False

    def listen(self, messages: Sequence[MessageExt], context: Any) -> "Future[Any]":
        """
        Take messages as the consumer's listener; the loop that takes a message gives the answer.
        """
        if self._closed:
            raise NotTaken
        (message,) = messages
        call = _Call(message, context, self.loop.create_future())
        self._waiting.append(call)
        self._wake()
        return call.answer

    async def take(self, owner: object = None) -> MessageExt | None:
        """
        Wait for the next message and take it, until it is answered.

        :param owner: the task or thread that takes the message; None for the current task.
        :returns: None when the consumer stops.
        """
        while True:
            message = self.take_now(owner)
            if message is not None or self._closed:
                return message
            asker = self.loop.create_future()
            self._askers.append(asker)
            try:
                await asker
            except BaseException:
                if asker.done() and not asker.cancelled():
                    self._wake()  # this task was woken for a message, which the next asker gets now
                raise

    def take_now(self, owner: object = None) -> MessageExt | None:
        """Take the next message, as `take` does, but return None at once when no message waits."""
        while self._waiting:
            call = self._waiting.popleft()
            if not call.answer.done():  # it is done if no loop took it within `consume_timeout_ms`
                call.owner = current_task() if owner is None else owner
                self._in_hand[id(call.message)] = call
                if self._answerer is not None:
                    call.message.set_answerer(self._answerer)
                return call.message
        return None

    async def take_many(
        self, most: int, wait_s: float = 0.0, owner: object = None
    ) -> list[MessageExt]:
        """
        Wait for the next messages and take them; the list is empty when the consumer stops.

        :param most: how many messages are taken at most.
        :param wait_s: how long the first message waits for the others, in seconds.
        """
        first = await self.take(owner)
        if first is None:
            return []
        taken = [first]
        try:
            with suppress(TimeoutError):
                async with timeout(wait_s):
                    while len(taken) < most:
                        message = self.take_now(owner)
                        if message is None and wait_s:
                            message = await self.take(owner)
                        if message is None:
                            break
                        taken.append(message)
        except BaseException:
            for message in reversed(taken):
                self.put_back(message)
            raise
        return taken

    def consumed(self, message: MessageExt) -> bool:
        """Answer that a message is consumed; return False if it was answered before."""
        return self._answer(message, None)

    def reconsume_later(self, message: MessageExt, delay_level: int) -> None:
        """
        Answer that a message is to come again.

        :param delay_level: how long until then, as a delay level; only for concurrent consuming.
        :raises MQClientError: the message was answered before, or was not taken here.
        """
        call = self._in_hand.get(id(message))
        if call is None:
            raise MQClientError("this message is answered already, or did not come from here")
        if isinstance(self._later, ConsumeConcurrentlyStatus):
            call.context.delay_level_when_next_consume = delay_level
        self._answer(message, self._later)

    def put_back(self, message: MessageExt) -> None:
        """
        Give a message whose handling was broken off to the next loop that asks. The broken handling
        does not count as an attempt.
        """
        call = self._in_hand.pop(id(message), None)
        if call is None or call.answer.done():
            return
        if self._closed:
            call.answer.set_exception(NotTaken())
            return
        self._waiting.appendleft(call)
        self._wake()

    def ended(self, message: MessageExt, error: BaseException | None) -> None:
        """
        Answer a message whose handling has ended, with or without an exception, if it was not
        answered before.

        :param error: the exception that ended the handling. After an `Exception` the message comes
            again later; after a cancellation or an interrupt the next loop that asks gets it.
        """
        if error is None:
            self.consumed(message)
        elif isinstance(error, Exception):
            self._answer(message, self._later)
        else:
            self.put_back(message)

    def leave_message(self, message: MessageExt) -> None:
        """
        Take back a message whose loop was left without an answer. It comes again later, or at once
        if the task of the loop is being cancelled.
        """
        call = self._in_hand.get(id(message))
        if call is None:
            return
        if isinstance(call.owner, Task) and call.owner.cancelling():
            self.put_back(message)
        else:
            self._answer(message, self._later)

    def close(self, is_gone: Callable[[object], bool] | None = None) -> None:
        """
        Give no further message to loops, since the consumer stops.

        Messages that were taken may still be answered, and the consumer waits for these answers.

        :param is_gone: says whether an owner will not answer any more, because it has ended or is
            itself stopping the consumer; None for `is_over`.
        """
        self._closed = True
        for call in list(self._in_hand.values()):
            if (is_gone or is_over)(call.owner):
                self.leave_message(call.message)
        for call in self._waiting:
            if not call.answer.done():
                call.answer.set_exception(NotTaken())
        while self._askers:
            self._wake()

    def _answer(self, message: MessageExt, status: Any) -> bool:
        call = self._in_hand.pop(id(message), None)
        if call is None:
            return False
        if not call.answer.done():
            call.answer.set_result(status)
        return True

    def _wake(self) -> None:
        while self._askers:
            asker = self._askers.popleft()
            if not asker.done():
                asker.set_result(None)
                return


def refuse_batches(config: PushConsumerConfig) -> None:
    """
    Refuse a consumer of loops that is set to batches for listeners: a loop takes single messages.

    :raises ConfigurationError: `consume_message_batch_max_size` is larger than 1.
    """
    size = config.consume_message_batch_max_size
    if size > 1:
        raise ConfigurationError(
            f"consume_message_batch_max_size={size} is for a listener, and a loop takes one message"
            f" at a time: leave it out, and loop over consumer.batches({size}) for several at once"
        )


def is_over(owner: object) -> bool:
    """
    Whether an owner will answer no further message: it is no task, has ended, or is the task that
    calls this function.
    """
    return not isinstance(owner, Task) or owner.done() or owner is current_task()


class _Loop:
    """
    The messages that one loop has taken and not answered. This object outlives the loop's iterator:
    the end of the iterator says that the loop was left.
    """

    def __init__(self, hand_over: HandOver, iterator: object) -> None:
        self.hand_over = hand_over
        self._iterator = ref(iterator)
        self._last: Sequence[MessageExt] = ()

    async def next(self, most: int, wait_s: float) -> list[MessageExt]:
        """Take the next messages; the messages of the call before count as consumed."""
        self._went_past()
        messages = await self.hand_over.take_many(most, wait_s)
        if not messages:
            raise StopAsyncIteration
        if self._iterator() is not None:  # it is None if a caller awaited one step and never loops
            self._last = messages
        return messages

    async def next_one(self) -> MessageExt:
        """Take the next message, as `next` does."""
        self._went_past()
        message = await self.hand_over.take()
        if message is None:
            raise StopAsyncIteration
        if self._iterator() is not None:
            self._last = (message,)
        return message

    def _went_past(self) -> None:
        last, self._last = self._last, ()
        for message in last:
            self.hand_over.consumed(message)

    def leave(self) -> None:
        """Let the messages that this loop has not answered come again."""
        last, self._last = self._last, ()
        for message in reversed(last):
            self.hand_over.leave_message(message)

    def leave_anywhere(self) -> None:
        """Call `leave` in the event loop; any thread may have found the iterator to be garbage."""
        if not self._last:
            return
        if _get_running_loop() is self.hand_over.loop:
            self.leave()
            return
        with suppress(RuntimeError):  # the event loop is closed, and the consumer gone with it
            self.hand_over.loop.call_soon_threadsafe(self.leave)


class Messages:
    """
    One loop over a consumer's messages.

    A message counts as consumed when the loop asks for the next one. When the loop is left, for
    example by an exception, its message comes again later.
    """

    def __init__(self, hand_over: HandOver) -> None:
        self._loop = _Loop(hand_over, self)

    def __aiter__(self) -> "Messages":
        return self

    def __anext__(self) -> Any:
        return self._loop.next_one()

    def __del__(self) -> None:
        self._loop.leave_anywhere()


class Batches:
    """
    One loop over batches of a consumer's messages; see `Messages`.

    :param most: how many messages a batch has at most.
    :param wait_s: how long a batch that is not full waits for more messages, in seconds.
    """

    def __init__(self, hand_over: HandOver, most: int, wait_s: float) -> None:
        self._loop = _Loop(hand_over, self)
        self._most = most
        self._wait_s = wait_s

    def __aiter__(self) -> "Batches":
        return self

    def __anext__(self) -> Any:
        return self._loop.next(self._most, self._wait_s)

    def __del__(self) -> None:
        self._loop.leave_anywhere()


class MessageBlock:
    """A context manager, for `with` and `async with`, that answers a message when its body ends."""

    def __init__(
        self, message: MessageExt, ended: Callable[[MessageExt, BaseException | None], object]
    ) -> None:
        """:param ended: called with the message and with the exception that ended the body."""
        self._message = message
        self._ended = ended

    async def __aenter__(self) -> MessageExt:
        return self._message

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._ended(self._message, error)

    def __enter__(self) -> MessageExt:
        return self._message

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._ended(self._message, error)
