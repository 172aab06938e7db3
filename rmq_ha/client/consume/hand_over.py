"""`async for message in consumer`: listener calls on one side, loops that ask on the other."""

from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Sequence
from typing import Any

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.listening import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    NotTaken,
)
from rmq_ha.client.rules.messages import MessageExt


class _Call:
    """One call of the listener: a message, and whoever waits for what became of it."""

    __slots__ = ("answer", "context", "message")

    def __init__(self, message: MessageExt, context: Any, answer: "Future[Any]") -> None:
        self.message = message
        self.context = context
        self.answer = answer


class HandOver:
    """
    A listener whose messages are taken one by one.

    It keeps none back: what nobody takes holds its place among `consume_concurrency` calls, so the
    consumer stops pulling when the loops are slow.
    """

    def __init__(self, loop: AbstractEventLoop, *, orderly: bool) -> None:
        self._loop = loop
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
        if len(messages) != 1:
            raise ConfigurationError("`async for` needs consume_message_batch_max_size=1")
        (message,) = messages
        call = _Call(message, context, self._loop.create_future())
        self._waiting.append(call)
        self._wake()
        return call.answer

    async def take(self) -> MessageExt | None:
        """The next message, in hand until it is answered; None when the consumer stops."""
        while True:
            while self._waiting:
                call = self._waiting.popleft()
                if not call.answer.done():  # else nobody took it for `consume_timeout`
                    self._in_hand[id(call.message)] = call
                    return call.message
            if self._closed:
                return None
            asker = self._loop.create_future()
            self._askers.append(asker)
            try:
                await asker
            except BaseException:
                if asker.done() and not asker.cancelled():
                    self._wake()  # it was meant for us: the next one has it
                raise

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

    def close(self) -> None:
        """The consumer stops: loops end, what is in hand comes again, nobody has seen the rest."""
        self._closed = True
        for call in list(self._in_hand.values()):
            self._answer(call.message, self._later)
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


class Messages:
    """
    One loop over a consumer's messages.

    A message counts as consumed when the next one is asked for.
    """

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over
        self._last: MessageExt | None = None

    def __aiter__(self) -> "Messages":
        return self

    async def __anext__(self) -> MessageExt:
        last, self._last = self._last, None
        if last is not None:
            self._hand_over.consumed(last)
        message = self._last = await self._hand_over.take()
        if message is None:
            raise StopAsyncIteration
        return message
