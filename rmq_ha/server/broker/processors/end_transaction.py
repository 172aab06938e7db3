"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: settles half messages.

Spec: remoting.md, section 7.10; store.md, section 11.
"""

import re
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import CorruptRecord, RequestRejected, StoreError
from rmq_ha.base.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq_ha.base.model.message import BrokerMessage, PutMessageResult
from rmq_ha.base.model.properties import PGROUP, TRANSACTION_CHECK_TIMES, UNIQ_KEY
from rmq_ha.base.model.status import BrokerRole, PutMessageStatus
from rmq_ha.base.model.topics import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.processors.fields import Answer, Handler, flag, header, int32, int64, text
from rmq_ha.server.broker.processors.query import record_by_id
from rmq_ha.server.broker.transactions.fates import HalfMessageFate, HalfPlace
from rmq_ha.server.broker.transactions.lookup import HalfMessages
from rmq_ha.server.broker.transactions.messages import committed, op_mark, put_back
from rmq_ha.server.door import Settlement
from rmq_ha.server.store.message_store import DefaultMessageStore

_UNIQUE_ID = re.compile("[0-9A-Fa-f]{32}(?:[0-9A-Fa-f]{2})?")  # clients of RocketMQ 5: 34
_ILLEGAL = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


class EndTransactionProcessor:
    """
    Commits and rolls back half messages, and lets the checks of a half message begin again.

    The first decision counts: a later request for the same half message changes nothing, and is
    answered with success. A request for a half message that was replaced by a copy settles the
    copy.

    :param halves: finds the half message that a request now applies to.
    :param put: stores messages in order, and no message after one that it refuses.
    :param timed: takes a committed message, and returns what is stored: the message, or the record
        of a timer that begins with the commit.
    :param now_ms: returns ms since the epoch.
    """

    log = Logger()

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        halves: HalfMessages,
        put: Callable[[list[BrokerMessage]], "Deferred[list[PutMessageResult]]"],
        timed: Callable[[BrokerMessage], BrokerMessage],
        now_ms: Callable[[], int],
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._halves = halves
        self._put = put
        self._timed = timed
        self._now_ms = now_ms
        self._host = configuration.store_host

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check,
        }

    def end_transaction(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Settle a half message; a decision other than commit or rollback is ignored and not answered.
        """
        self._check_role()
        fields = header(request)
        decision = int32(fields, "commitOrRollback")
        if flag(fields, "fromTransactionCheck"):
            self.log.debug(
                "{peer} was asked about {msg_id} and answers {decision}",
                peer=channel.remote_text,
                msg_id=fields.get("msgId") or "a message without id",
                decision=decision,
            )
        if decision not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        place = HalfPlace(int64(fields, "tranStateTableOffset"), int64(fields, "commitLogOffset"))
        settled = self.settle(
            place,
            text(fields, "producerGroup"),
            fields.get("msgId") or "",
            is_commit=decision == TRANSACTION_COMMIT,
        )
        return settled.addCallback(lambda end: request.response(end.code, end.remark))

    def settle(
        self, place: HalfPlace, group: str, unique_id: str, *, is_commit: bool
    ) -> "Deferred[Settlement]":
        """
        Commit or roll back a half message, for a client of remoting or of the gRPC door.

        :param place: the half message's offsets, as the answer to its send or a check named them.
        :param group: its producer group.
        :param unique_id: the id that its client gave it; empty if the client does not say it.
        :raises RequestRejected: this broker does not lead, or the half message is not there.
        """
        self._check_role()
        half = self._half_message(place.physical_offset, place.queue_offset, group)
        self._refuse_other(half, unique_id)
        return Deferred.fromCoroutine(self._settle(half, is_commit))

    def _check_role(self) -> None:
        if self._configuration.store.broker_role is BrokerRole.SLAVE:
            raise RequestRejected(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "a slave ends no transactions; the half message's master does",
            )

    def resume_check(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer RESUME_CHECK_HALF_MESSAGE (323): put a half message back as one that was never
        checked.
        """
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
        if half.topic != HALF_TOPIC:  # was given up, and is in no open transaction
            (result,) = await self._put([put_back(half, {TRANSACTION_CHECK_TIMES: "0"})])
            return self._answer_resumed(result.status, request)
        current = await self._claim(half)
        if current is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "the transaction of this half message has ended"
            )
        fate, place = HalfMessageFate.OPEN, None
        try:
            copy = put_back(current, {TRANSACTION_CHECK_TIMES: "0"})
            mark = op_mark(current, self._host, self._now_ms(), is_moved=True)
            put, marked = await self._put([copy, mark])
            if (stored := put.stored) is not None:
                place = HalfPlace(stored.queue_offset, stored.physical_offset)
                fate = HalfMessageFate.MOVED  # from now on the copy is checked instead
                self._marked(marked, current)
        finally:
            self._halves.release(current, fate, place)
        return self._answer_resumed(put.status, request)

    def _answer_resumed(
        self, status: PutMessageStatus, request: RemotingCommand
    ) -> RemotingCommand:
        if status.is_stored:
            return request.response()
        return request.response(
            ResponseCode.SYSTEM_ERROR, f"the half message cannot be put back: {status.name}"
        )

    async def _claim(self, half: Record) -> Record | None:
        try:
            return await self._halves.claim(half)
        except StoreError as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"nobody can say now whether half message {half.queue_offset} was settled: {error}",
            ) from None

    def _half_message(self, physical_offset: int, queue_offset: int, group: str) -> Record:
        """
        Return the half message that a client names.

        :raises RequestRejected: it does not exist, or belongs to another group.
        """
        data = self._store.record_starting_at(physical_offset)
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

    def _refuse_other(self, half: Record, unique_id: str) -> None:
        """
        Refuse a decision that was meant for another half message.

        A log that lost its end, for example by a failover, grows again. Then another half message
        is at the place that the producer names.

        :raises RequestRejected: both have a client's unique id, and the ids differ.
        """
        stored = half.properties.get(UNIQ_KEY, "")
        if stored != unique_id and _UNIQUE_ID.fullmatch(stored) and _UNIQUE_ID.fullmatch(unique_id):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the half message {unique_id} is not there any more: the log has lost it, and has "
                f"{stored} at {half.physical_offset}",
            )

    async def _settle(self, half: Record, is_commit: bool) -> Settlement:
        current = await self._claim(half)
        if current is None:
            self.log.debug(
                "half message {half_offset} has been ended before", half_offset=half.queue_offset
            )
            return Settlement(ResponseCode.SUCCESS)
        fate = HalfMessageFate.OPEN
        try:
            messages = [self._message_to_commit(current)] if is_commit else []
            mark = op_mark(current, self._host, self._now_ms())
            results = await self._put([*messages, mark])
            if results[0].status.is_stored:
                fate = HalfMessageFate.ENDED
                self._marked(results[-1], current)
        finally:
            self._halves.release(current, fate)
        return _settlement(results[0].status, is_commit)

    def _message_to_commit(self, half: Record) -> BrokerMessage:
        try:
            return self._timed(committed(half))
        except CorruptRecord as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"the half message cannot be committed: {error}"
            ) from None

    def _marked(self, result: PutMessageResult, half: Record) -> None:
        """
        Log it if an op message was not stored. Without the op message the log does not say that the
        half message is settled.
        """
        if not result.status.is_stored:
            self.log.error(
                "half message {half_offset} is dealt with, but its op message is not stored "
                "({status}): its producer will be asked again",
                half_offset=half.queue_offset,
                status=result.status.name,
            )


def _settlement(status: PutMessageStatus, is_commit: bool) -> Settlement:
    if status.is_stored:
        return Settlement(ResponseCode.SUCCESS)
    code = ResponseCode.SYSTEM_ERROR
    if is_commit and status in _ILLEGAL:
        code = ResponseCode.MESSAGE_ILLEGAL
    elif is_commit and status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
        code = ResponseCode.SERVICE_NOT_AVAILABLE
    what = "commit" if is_commit else "rollback"
    return Settlement(code, f"the {what} is not stored: {status.name}")
