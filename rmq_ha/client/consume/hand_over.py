"""`async for message in consumer`: listener calls on one side, loops that ask on the other."""

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
    One call of the listener: a message, and whoever waits for what became of it.

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
    A listener whose messages are taken one by one.

    It keeps none back: what nobody takes holds its place among `consume_concurrency` calls, so the
    consumer stops pulling when the loops are slow.

    :ivar loop: that answers are given in.
    """

    def __init__(
        self, loop: AbstractEventLoop, *, orderly: bool, answerer: Answerer | None = None
    ) -> None:
        """:param answerer: the consumer that a message's own `ack` and `nack` tell."""
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
        """The consumer's listener; its answer comes from the loop that takes the message."""
        if self._closed:
            raise NotTaken
        (message,) = messages
        call = _Call(message, context, self.loop.create_future())
        self._waiting.append(call)
        self._wake()
        return call.answer

    async def take(self, owner: object = None) -> MessageExt | None:
        """
        The next message, in hand until it is answered; None when the consumer stops.

        :param owner: who takes it; None: the task that asks.
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
                    self._wake()  # it was meant for us: the next one has it
                raise

    def take_now(self, owner: object = None) -> MessageExt | None:
        """As `take`; None when no message waits."""
        while self._waiting:
            call = self._waiting.popleft()
            if not call.answer.done():  # else nobody took it for `consume_timeout_ms`
                call.owner = current_task() if owner is None else owner
                self._in_hand[id(call.message)] = call
                if self._answerer is not None:
                    call.message.taken_by(self._answerer)
                return call.message
        return None

    async def take_many(
        self, most: int, wait_s: float = 0.0, owner: object = None
    ) -> list[MessageExt]:
        """
        The next messages; none when the consumer stops.

        :param wait_s: how long the first one waits for the others, seconds.
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
        """It is done with; False when it was answered before."""
        return self._answer(message, None)

    def reconsume_later(self, message: MessageExt, delay_level: int) -> None:
        """
        It is to come again.

        :raises MQClientError: it is not in hand.
        """
        call = self._in_hand.get(id(message))
        if call is None:
            raise MQClientError("this message is answered already, or did not come from here")
        if isinstance(self._later, ConsumeConcurrentlyStatus):
            call.context.delay_level_when_next_consume = delay_level
        self._answer(message, self._later)

    def put_back(self, message: MessageExt) -> None:
        """Its handling was broken off: the next loop that asks has it; this was no attempt."""
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
        Its handling has ended; if it was not answered before, this is its answer.

        :param error: what it raised: after an `Exception` the message comes again later, and after
            a cancellation or an interrupt to the next who asks.
        """
        if error is None:
            self.consumed(message)
        elif isinstance(error, Exception):
            self._answer(message, self._later)
        else:
            self.put_back(message)

    def leave_message(self, message: MessageExt) -> None:
        """The loop that has it was left without an answer: it comes again later, or at once."""
        call = self._in_hand.get(id(message))
        if call is None:
            return
        if isinstance(call.owner, Task) and call.owner.cancelling():
            self.put_back(message)
        else:
            self._answer(message, self._later)

    def close(self, is_gone: Callable[[object], bool] | None = None) -> None:
        """
        The consumer stops: nobody is given a message any more.

        What is in hand may still be answered, and the consumer waits for that.

        :param is_gone: whether an owner will not answer: it has ended, or is the one who stops;
            None: as `is_over`.
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
    A loop is handed one message at a time, so a listener's batches have no meaning for it.

    :raises ConfigurationError: the consumer is to hand over batches.
    """
    size = config.consume_message_batch_max_size
    if size > 1:
        raise ConfigurationError(
            f"consume_message_batch_max_size={size} is for a listener, and a loop takes one message"
            f" at a time: leave it out, and loop over consumer.batches({size}) for several at once"
        )


def is_over(owner: object) -> bool:
    """It is a task that will answer no message: it has ended, or it is the one that asks this."""
    return not isinstance(owner, Task) or owner.done() or owner is current_task()


class _Loop:
    """What a loop has in hand. It outlives the iterator, whose end says that the loop was left."""

    def __init__(self, hand_over: HandOver, iterator: object) -> None:
        self.hand_over = hand_over
        self._iterator = ref(iterator)
        self._last: Sequence[MessageExt] = ()

    async def next(self, most: int, wait_s: float) -> list[MessageExt]:
        """The next messages; those before count as consumed."""
        self._went_past()
        messages = await self.hand_over.take_many(most, wait_s)
        if not messages:
            raise StopAsyncIteration
        if self._iterator() is not None:  # else somebody wanted messages, and no loop
            self._last = messages
        return messages

    async def next_one(self) -> MessageExt:
        """As `next`, of one."""
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
        """Messages that have no answer come again."""
        last, self._last = self._last, ()
        for message in reversed(last):
            self.hand_over.leave_message(message)

    def leave_anywhere(self) -> None:
        """As `left`, in whatever thread the iterator was found to be garbage."""
        if not self._last:
            return
        if _get_running_loop() is self.hand_over.loop:
            self.leave()
            return
        with suppress(RuntimeError):  # the loop is closed: its consumer is gone
            self.hand_over.loop.call_soon_threadsafe(self.leave)


class Messages:
    """
    One loop over a consumer's messages.

    A message counts as consumed when the next one is asked for. When the loop is left, by an
    exception say, its message comes again later.
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

    :param most: messages of a batch.
    :param wait_s: how long a batch that is not full waits for more, seconds.
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
    """`with`, or `async with`: answers for a message by how its handling ends."""

    def __init__(
        self, message: MessageExt, ended: Callable[[MessageExt, BaseException | None], object]
    ) -> None:
        """:param ended: told of the message, and of what its handling raised."""
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
