"""Transactions: messages that are delivered only if the sender's own work has succeeded.

Spec: remoting.md, section 7.10.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias, Unpack

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.python.failure import Failure

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq_ha.base.model.properties import DELAY, PGROUP, TRAN_MSG, UNIQ_KEY
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.client.connection.hooks import DeliveryHook, SendHook
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.connection.parts import CheckHeader
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import Message, MessageExt, SendResult, SendStatus
from rmq_ha.client.rules.options import ProducerOptions
from rmq_ha.client.rules.send_frames import LANGUAGE
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer

MAX_CHECKS = 2000
CHECK_SECONDS = 600.0
"""After this time a check is cancelled, and the broker gets no answer and asks again."""
_OFFSET_DIGITS = 16


class LocalTransactionState(Enum):
    """How the sender's own work ended."""

    COMMIT_MESSAGE = TRANSACTION_COMMIT
    ROLLBACK_MESSAGE = TRANSACTION_ROLLBACK
    UNKNOW = 0


StateOrLater: TypeAlias = LocalTransactionState | Awaitable[LocalTransactionState]


class TransactionListener(Protocol):
    """
    The sender's own part of a transaction: its work, and the answer when a broker asks about it.

    Both methods return a state, or a Deferred or coroutine of a state.
    """

    def execute_local_transaction(self, message: Message, arg: Any) -> StateOrLater:
        """
        Do the work, as the half message is stored.

        :returns: how the work ended; after UNKNOW or an exception the broker will ask.
        """

    def check_local_transaction(self, message: MessageExt) -> StateOrLater:
        """
        Return how the work ended; the broker asks because it was not told or the answer was lost.

        :returns: how the work ended; after UNKNOW or an exception the broker will ask again.
        """


class TransactionSendResult(NamedTuple):
    """
    The result of a message that was sent in a transaction.

    :ivar send_result: the result of sending the half message.
    :ivar local_transaction_state: the state that the broker was told.
    :ivar error: the exception of the sender's own work; None if it raised none.
    """

    send_result: SendResult
    local_transaction_state: LocalTransactionState
    error: BaseException | None = None


class TransactionProducer(Producer):
    """
    A producer whose messages take part in transactions.

    All producers of a group must be able to answer for each other, as the broker asks any of them.
    """

    def __init__(
        self,
        instance: ClientInstance,
        listener: TransactionListener,
        config: ProducerConfig | None = None,
        hooks: Sequence[SendHook | DeliveryHook] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(instance, config, hooks, **options)
        if self.config.idempotent:
            raise ConfigurationError(
                "idempotent=True is not for a TransactionProducer: brokers compare no ids of half"
                " messages; a transaction whose send failed is asked about, and decided once"
            )
        self._listener = listener
        self._checks: dict[Deferred[None], None] = {}

    async def stop(self) -> None:
        """
        Stop as `Producer.stop` does. Open questions of brokers get no answer, so that brokers ask
        other producers of the group.
        """
        for check in list(self._checks):
            check.cancel()
        await super().stop()

    def send_in_transaction(
        self, message: Message, arg: Any = None, *, timeout_ms: float | None = None
    ) -> "Deferred[TransactionSendResult]":
        """
        Send a half message, do the sender's own work, and tell the broker how that ended.

        :param arg: passed to `execute_local_transaction`.
        :param timeout_ms: time for sending the half message, in ms; None as in `send`.
        :returns: fails as `send` does if the half message was not sent; the work is then not begun.
        """
        properties = message.properties
        properties.pop(DELAY, None)
        properties[TRAN_MSG] = "true"
        properties[PGROUP] = self.group
        sent = self.send(message, timeout_ms=timeout_ms)
        return sent.addCallback(
            lambda result: Deferred.fromCoroutine(self._execute(message, arg, result))
        )

    async def _execute(
        self, message: Message, arg: Any, result: SendResult
    ) -> TransactionSendResult:
        state, error = LocalTransactionState.ROLLBACK_MESSAGE, None
        if result.send_status is SendStatus.SEND_OK:
            work = self._listener.execute_local_transaction
            state, error = await _state_of(work, message, arg)
        remark = None if error is None else f"executeLocalTransactionBranch exception: {error!r}"
        request = end_transaction(
            self.group,
            state,
            commit_log_offset=int(result.offset_msg_id[-_OFFSET_DIGITS:] or "0", 16),
            queue_offset=result.queue_offset,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id or "",
            remark=remark,
        )
        try:
            await self._end(result.message_queue.broker_name, request)
        except Exception as lost:
            # The broker will ask how the transaction ended.
            self.log.warn(
                "the end of the transaction {id} did not get away: {reason}",
                id=result.msg_id,
                reason=lost,
            )
        return TransactionSendResult(result, state, error)

    def _end(self, broker_name: str, request: RemotingCommand) -> "Deferred[None]":
        address = self.instance.broker_address(broker_name, only_this=True)
        if address is None:
            return fail(MQClientError(f"the broker {broker_name} has no master at the moment"))
        return self.instance.oneway(self.instance.vip(address[0]), request)

    def check_transaction(
        self,
        message: MessageExt,
        header: CheckHeader,
        answer: Callable[[RemotingCommand], object],
    ) -> None:
        """Answer a broker's question about a half message; without an answer it asks again."""
        if self._state != "running":
            return
        if len(self._checks) >= MAX_CHECKS:
            self.log.warn(
                "{count} questions about transactions wait for their answer already; {id} does not",
                count=len(self._checks),
                id=header.msg_id,
            )
            return
        checked = Deferred.fromCoroutine(self._check(message, header, answer))
        if checked.called:
            checked.addErrback(self._not_answered)
            return
        self._checks[checked] = None
        checked.addTimeout(CHECK_SECONDS, self._clock)
        checked.addErrback(self._not_answered)
        checked.addBoth(lambda _: self._checks.pop(checked, None))

    async def _check(
        self,
        message: MessageExt,
        header: CheckHeader,
        answer: Callable[[RemotingCommand], object],
    ) -> None:
        state, error = await _state_of(self._listener.check_local_transaction, message)
        remark = None if error is None else f"checkLocalTransactionState Exception: {error!r}"
        request = end_transaction(
            message.properties.get(PGROUP, self.group),
            state,
            commit_log_offset=header.commit_log_offset,
            queue_offset=header.tran_state_table_offset,
            msg_id=message.properties.get(UNIQ_KEY) or message.msg_id,
            transaction_id=header.transaction_id,
            remark=remark,
            is_answer=True,
        )
        answer(request)

    def _not_answered(self, failure: Failure) -> None:
        self.log.failure("a question about a transaction", failure)


def end_transaction(
    group: str,
    state: LocalTransactionState,
    *,
    commit_log_offset: int,
    queue_offset: int,
    msg_id: str,
    transaction_id: str,
    remark: str | None = None,
    is_answer: bool = False,
) -> RemotingCommand:
    """
    Make a one-way END_TRANSACTION request.

    :param queue_offset: the half message's offset in its queue.
    :param msg_id: the half message's unique id.
    :param is_answer: whether the broker has asked.
    """
    ext = {
        "producerGroup": group,
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(commit_log_offset),
        "commitOrRollback": str(state.value),
        "fromTransactionCheck": "true" if is_answer else "false",
        "msgId": msg_id,
    }
    if transaction_id:
        ext["transactionId"] = transaction_id
    return RemotingCommand(
        RequestCode.END_TRANSACTION, ext, flag=FLAG_ONEWAY, remark=remark, language=LANGUAGE
    )


async def _state_of(
    work: Callable[..., Any], *args: Any
) -> tuple[LocalTransactionState, BaseException | None]:
    """Return the listener's state; UNKNOW and the error if it raises or returns another type."""
    try:
        state = await maybeDeferred(work, *args)
    except Exception as error:
        return LocalTransactionState.UNKNOW, error
    if isinstance(state, LocalTransactionState):
        return state, None
    return LocalTransactionState.UNKNOW, TypeError(
        f"a TransactionListener returns a LocalTransactionState, not {state!r}"
    )
