"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: what becomes of a half message.

Spec: remoting.md, section 7.10; store.md, section 11.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.broker.processors.fields import Answer, Handler, flag, header, int32, int64, text
from rmq_ha.broker.processors.query import record_by_id
from rmq_ha.broker.transactions.messages import committed, op_mark, put_back
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.errors import CorruptRecord, RequestRejected
from rmq_ha.interfaces import IMessageStore
from rmq_ha.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq_ha.model.message import PutMessageResult
from rmq_ha.model.properties import PGROUP, TRANSACTION_CHECK_TIMES
from rmq_ha.model.status import BrokerRole, PutMessageStatus
from rmq_ha.model.topics import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rmq_ha.remoting.channel import Channel
from rmq_ha.store.default import DefaultMessageStore
from rmq_ha.store.format.commitlog import Record, decode_record
from rmq_ha.wire.codes import RequestCode, ResponseCode
from rmq_ha.wire.command import RemotingCommand

_ILLEGAL = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


class EndTransactionProcessor:
    """
    Commits and rolls back half messages, and has the checks of one begin anew.

    A request that comes twice does its work twice, as in RocketMQ: consumers have to expect that.

    :param front: where messages are put: the store, or the plugins around it.
    :param now_ms: ms since the epoch.
    """

    log = Logger()

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        front: IMessageStore,
        now_ms: Callable[[], int],
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._front: Any = front
        self._now_ms = now_ms
        self._host = configuration.store_host

    def routes(self) -> dict[int, Handler]:
        """Request codes and their functions."""
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check,
        }

    def end_transaction(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Nothing happens, and nothing is answered, for any decision but commit and rollback."""
        if self._configuration.store.broker_role is BrokerRole.SLAVE:
            raise RequestRejected(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "a slave ends no transactions; the half message's master does",
            )
        fields = header(request)
        decision = int32(fields, "commitOrRollback")
        if flag(fields, "fromTransactionCheck"):
            self.log.debug(
                "{peer} was asked about {msg_id} and answers {decision}",
                peer=channel.remote_text,
                msg_id=fields.get("msgId"),
                decision=decision,
            )
        if decision not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        half = self._half_message(
            int64(fields, "commitLogOffset"),
            int64(fields, "tranStateTableOffset"),
            text(fields, "producerGroup"),
        )
        if decision == TRANSACTION_ROLLBACK:
            return self._mark_done(half).addCallback(self._rolled_back, request, half)
        return Deferred.fromCoroutine(self._commit(half, request))

    def resume_check(self, channel: Channel, request: RemotingCommand) -> Answer:
        """RESUME_CHECK_HALF_MESSAGE: put a half message back as one that was never checked."""
        msg_id = text(header(request), "msgId")
        try:
            record = decode_record(record_by_id(self._store, msg_id) or b"")
        except CorruptRecord:
            record = None
        if record is None or record.topic not in (HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"no half message of this broker has the offsetMsgId {msg_id[:60]!r}: use that of"
                f" one in {TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        return Deferred.fromCoroutine(self._resume(record, request))

    async def _resume(self, half: Record, request: RemotingCommand) -> RemotingCommand:
        copy = put_back(half, {TRANSACTION_CHECK_TIMES: "0"})
        status = (await self._front.put_message(copy)).status
        if not status.is_stored:
            return request.response(
                ResponseCode.SYSTEM_ERROR, f"the half message cannot be put back: {status.name}"
            )
        if half.topic == HALF_TOPIC:  # the copy is looked after instead of it
            mark = op_mark(half, self._host, self._now_ms(), is_moved=True)
            self._marked(await self._front.put_message(mark), half)
        return request.response()

    def _half_message(self, physical_offset: int, queue_offset: int, group: str) -> Record:
        """
        The half message that a client means.

        :raises RequestRejected: it is not there, or is another group's.
        """
        data = self._store.record_at(physical_offset)
        try:
            record = decode_record(data) if data else None
        except CorruptRecord:
            record = None
        if record is None or record.topic != HALF_TOPIC:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"find prepared transaction message failed: no half message at {physical_offset}",
            )
        owner = record.properties.get(PGROUP)
        if owner != group:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group wrong: the half message is of {owner}, not of {group}",
            )
        if record.queue_offset != queue_offset or record.physical_offset != physical_offset:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the transaction state table offset wrong: {queue_offset}"
                f" at {physical_offset}, stored {record.queue_offset} at {record.physical_offset}",
            )
        return record

    async def _commit(self, half: Record, request: RemotingCommand) -> RemotingCommand:
        try:
            message = committed(half)
        except CorruptRecord as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"the half message cannot be committed: {error}"
            ) from None
        status = (await self._front.put_message(message)).status
        if status.is_stored:
            self._marked(await self._mark_done(half), half)
            return request.response()
        code = ResponseCode.SYSTEM_ERROR
        if status in _ILLEGAL:
            code = ResponseCode.MESSAGE_ILLEGAL
        elif status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            code = ResponseCode.SERVICE_NOT_AVAILABLE
        return request.response(code, f"the commit is not stored: {status.name}")

    def _mark_done(self, half: Record) -> "Deferred[PutMessageResult]":
        """The op message that says that a half message is settled."""
        mark: Deferred[PutMessageResult] = self._front.put_message(
            op_mark(half, self._host, self._now_ms())
        )
        return mark

    def _marked(self, result: PutMessageResult, half: Record) -> bool:
        if not result.status.is_stored:
            self.log.error(
                "half message {half_offset} is dealt with, but its op message is not stored "
                "({status}): its producer will be asked again",
                half_offset=half.queue_offset,
                status=result.status.name,
            )
        return result.status.is_stored

    def _rolled_back(
        self, result: PutMessageResult, request: RemotingCommand, half: Record
    ) -> RemotingCommand:
        if self._marked(result, half):
            return request.response()
        return request.response(
            ResponseCode.SYSTEM_ERROR, f"the rollback is not stored: {result.status.name}"
        )
