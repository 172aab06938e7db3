"""END_TRANSACTION: a half message becomes visible, or never does.

Spec: remoting.md, section 7.10; store.md, section 11.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.broker.processors.fields import Answer, Handler, header, int32, int64, text
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.errors import CorruptRecord, RequestRejected
from rmq_ha.interfaces import IMessageStore
from rmq_ha.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmq_ha.model.message import Address, Message, PutMessageResult
from rmq_ha.model.properties import (
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_MSG,
    WAIT,
    encode_properties,
)
from rmq_ha.model.status import BrokerRole, PutMessageStatus
from rmq_ha.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.remoting.channel import Channel
from rmq_ha.store.default import DefaultMessageStore
from rmq_ha.store.format.commitlog import Record, decode_record
from rmq_ha.wire.codes import RequestCode, ResponseCode
from rmq_ha.wire.command import RemotingCommand

_ILLEGAL = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
_DONE_TAG = "d"


class EndTransactionProcessor:
    """
    Commits and rolls back half messages.

    :param front: where messages are put: the store, or the plugins around it.
    :param now_ms: ms since the epoch.
    """

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
        self._host = Address.parse(
            configuration.broker.broker_ip1 or "127.0.0.1", configuration.server.listen_port
        )

    def routes(self) -> dict[int, Handler]:
        """Request codes and their functions."""
        return {RequestCode.END_TRANSACTION: self.end_transaction}

    def end_transaction(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Nothing happens, and nothing is answered, for any decision but commit and rollback."""
        if self._configuration.store.broker_role is BrokerRole.SLAVE:
            raise RequestRejected(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "a slave ends no transactions; the half message's master does",
            )
        fields = header(request)
        decision = int32(fields, "commitOrRollback")
        if decision not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        half = self._half_message(
            int64(fields, "commitLogOffset"),
            int64(fields, "tranStateTableOffset"),
            text(fields, "producerGroup"),
        )
        if decision == TRANSACTION_ROLLBACK:
            return self._mark_done(half).addCallback(lambda _: request.response())
        return Deferred.fromCoroutine(self._commit(half, request))

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
        status = (await self._front.put_message(_committed(half))).status
        if status.is_stored:
            await self._mark_done(half)
            return request.response()
        code = ResponseCode.SYSTEM_ERROR
        if status in _ILLEGAL:
            code = ResponseCode.MESSAGE_ILLEGAL
        elif status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            code = ResponseCode.SERVICE_NOT_AVAILABLE
        return request.response(code, f"the commit is not stored: {status.name}")

    def _mark_done(self, half: Record) -> "Deferred[PutMessageResult]":
        """The op message that says that a half message is settled."""
        # UNIQ_KEY is no property of it: upstream sets it after the string was built.
        properties = {WAIT: "true", TAGS: _DONE_TAG}
        put: Deferred[PutMessageResult] = self._front.put_message(
            Message(
                OP_HALF_TOPIC,
                half.queue_id,
                str(half.queue_offset).encode("ascii"),
                self._host,
                self._host,
                self._now_ms(),
                properties={TAGS: _DONE_TAG},
                properties_string=encode_properties(properties),
                wait_store_ok=False,
            )
        )
        return put


def _committed(half: Record) -> Message:
    """The message in its real topic; its stored properties are the half message's, as upstream."""
    properties = half.properties
    topic = properties.pop(REAL_TOPIC, "")
    queue_id = int(properties.pop(REAL_QID, "0"))
    properties.pop(TRAN_MSG, None)
    return Message(
        topic,
        queue_id,
        half.body,
        half.born_host,
        half.store_host,
        half.born_timestamp,
        half.flag,
        (half.sys_flag & ~TRANSACTION_MASK) | TRANSACTION_COMMIT,
        half.reconsume_times,
        half.physical_offset,
        properties,
        half.properties_string,
        wait_store_ok=False,
    )
