"""Transactions for programs without an event loop: Django, Celery, scripts, threads.

with BlockingTransactionProducer(listener, "a:9876;b:9876") as producer:
    producer.send_in_transaction(Message("Orders", body), order)
"""

from asyncio import FIRST_COMPLETED, AbstractEventLoop, Future, ensure_future, to_thread, wait
from collections.abc import Sequence
from typing import Any, Protocol, Unpack

from rmq_ha.base.host.loop_thread import ThreadStopped
from rmq_ha.client.aio import Client, TransactionProducer
from rmq_ha.client.blocking_part import BlockingPart
from rmq_ha.client.connection.hooks import DeliveryHook, SendHook
from rmq_ha.client.rules.errors import NotStarted
from rmq_ha.client.rules.messages import Message, MessageExt, MessageQueue, SendResult
from rmq_ha.client.rules.options import ProducerOptions, settings_of
from rmq_ha.client.rules.queue_choice import Selector
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.client.send.transactions import LocalTransactionState, TransactionSendResult


class BlockingTransactionListener(Protocol):
    """The sender's own work, in plain functions that may block."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        """
        Do the work, as the half message is stored. Called in the thread that sends.

        :returns: how the work ended; after UNKNOW or an exception the broker will ask.
        """

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """
        Return how the work ended; the broker asks because it was not told or the answer was lost.
        Called in another thread.

        :returns: how the work ended; after UNKNOW or an exception the broker will ask again.
        """


class _TransactionWork:
    """
    The work of one transaction, as event loop and sending thread tell each other.

    :ivar begun: fires when the half message is stored, so that the sending thread does the work.
    :ivar state: fires when the work has ended; the event loop tells the broker.
    :ivar sending: the result of the whole send.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.begun: Future[None] = loop.create_future()
        self.state: Future[LocalTransactionState] = loop.create_future()
        self.sending: Future[TransactionSendResult] = loop.create_future()


class _Listener:
    """
    The listener that the event loop calls. It has the sending thread do the work, and passes
    questions of brokers to the application's listener, in another thread.
    """

    def __init__(self, inner: BlockingTransactionListener) -> None:
        self._inner = inner

    async def execute_local_transaction(
        self, message: Message, work: _TransactionWork
    ) -> LocalTransactionState:
        work.begun.set_result(None)
        return await work.state

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return await to_thread(self._inner.check_local_transaction, message)


class BlockingTransactionProducer(BlockingPart):
    """
    A producer of messages in transactions, for any number of threads.

    The sender's own work is done in the thread that calls `send_in_transaction`, so that it can use
    this thread's database connection. A broker's question is answered in another thread.
    """

    def __init__(
        self,
        listener: BlockingTransactionListener,
        settings: ClientConfig | str = "",
        config: ProducerConfig | None = None,
        *,
        hooks: Sequence[SendHook | DeliveryHook] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """
        :param settings: settings, or only the name servers as `host:port;host:port`.
        :param hooks: hooks of attempts or deliveries, called in the producer's own thread.
        :param options: settings of `ProducerConfig`; they override those of `config`.
        """
        self._config = settings_of(ProducerConfig, config, options).checked()
        super().__init__(self._config.producer_group, settings)
        self._listener = listener
        self._hooks = hooks
        self._producer: TransactionProducer | None = None

    def send_in_transaction(
        self, message: Message, arg: Any = None, *, timeout_ms: float | None = None
    ) -> TransactionSendResult:
        """
        Send a half message, do the listener's work here, and tell the broker how that ended.

        :param arg: passed to `execute_local_transaction`.
        :param timeout_ms: time for sending the half message, in ms.
        :returns: the result, with the exception of the work if it raised one; the broker will then
            ask.
        :raises MQClientError: the half message was not sent; the work was not begun.
        """
        work = self._run(self._half(message, timeout_ms))
        state: LocalTransactionState | BaseException = LocalTransactionState.UNKNOW
        try:
            if work.begun.done():
                state = self._listener.execute_local_transaction(message, arg)
        except Exception as error:
            state = error
        finally:
            result = self._tell(work, state)
        return result

    def _tell(
        self, work: _TransactionWork, state: LocalTransactionState | BaseException
    ) -> TransactionSendResult:
        try:
            return self._run(self._decide(work, state))
        except (NotStarted, ThreadStopped) as error:
            raise NotStarted(
                f"{self.group} was stopped before the broker was told how the transaction ended:"
                " it will ask a producer of this group"
            ) from error

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send a message that belongs to no transaction, and wait until it is stored."""
        return self._run(self._send(message, queue, selector, arg, timeout_ms))

    async def _make(self, client: Client) -> None:
        self._producer = await client.transaction_producer(
            _Listener(self._listener), self._config, hooks=self._hooks
        )

    async def _half(self, message: Message, timeout_ms: float | None) -> _TransactionWork:
        """
        Send the half message, in the event loop. Return when the sending thread is to do the work,
        or when the send has ended without it.
        """
        assert self._client is not None
        assert self._producer is not None
        work = _TransactionWork(self._client.loop)
        work.sending = ensure_future(
            self._producer.send_in_transaction(message, work, timeout_ms=timeout_ms)
        )
        work.sending.add_done_callback(_retrieve_error)
        waited: list[Future[Any]] = [work.sending, work.begun]
        try:
            await wait(waited, return_when=FIRST_COMPLETED)
        except BaseException:  # the thread that waits was interrupted
            work.sending.cancel()
            raise
        if not work.begun.done():
            work.sending.result()
        return work

    async def _decide(
        self, work: _TransactionWork, state: LocalTransactionState | BaseException
    ) -> TransactionSendResult:
        if isinstance(state, BaseException):
            work.state.set_exception(state)
        elif work.begun.done():
            work.state.set_result(state)
        return await work.sending

    async def _send(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: Any,
        timeout_ms: float | None,
    ) -> SendResult:
        assert self._producer is not None
        return await self._producer.send(
            message, queue=queue, selector=selector, arg=arg, timeout_ms=timeout_ms
        )


def _retrieve_error(sending: "Future[TransactionSendResult]") -> None:
    """Mark an error as seen, so that asyncio does not log it if no thread waits any more."""
    if not sending.cancelled():
        sending.exception()
