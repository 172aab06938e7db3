"""What a producer is told of a put.

Spec: remoting.md, section 4.2; store.md, section 2.7.
"""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.message import AppendResult
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.duplicates import DUPLICATE
from rmq_ha.server.broker.processors.illegal import why_illegal
from rmq_ha.server.store.message_store import DefaultMessageStore

CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}


def code_of(status: PutMessageStatus) -> int:
    """The response code of a put that ended so."""
    return CODES.get(status, ResponseCode.SYSTEM_ERROR)


class SendAnswers:
    """Makes responses of sends, with the two trace fields that Java's producer insists on."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
    ) -> None:
        self._configuration = configuration
        self._store = store

    @property
    def trace_ext(self) -> dict[str, str]:
        """In every answer; both settings may change while we run."""
        broker = self._configuration.broker
        return {
            "MSG_REGION": broker.region_id,
            "TRACE_ON": "true" if broker.trace_on else "false",
        }

    def stored(
        self,
        request: RemotingCommand,
        status: PutMessageStatus,
        append: AppendResult,
        queue_id: int,
        *,
        is_known: bool = False,
    ) -> RemotingCommand:
        """
        The answer for a message that is stored.

        :param queue_id: the queue that the producer asked for.
        :param is_known: it was stored before, and is not stored again.
        """
        ext = {
            **self.trace_ext,
            "msgId": append.msg_id,
            "queueId": str(queue_id),
            "queueOffset": str(append.queue_offset),
        }
        if is_known:
            ext[DUPLICATE] = "true"
        return request.response(CODES[status], None, ext)

    def refused(self, request: RemotingCommand, status: PutMessageStatus) -> RemotingCommand:
        """The answer for a message that is not stored."""
        code = code_of(status)
        return request.response(code, self._remark(request, status), self.trace_ext)

    def _why_not(self) -> str:
        """Who is elected is a slave for as long as it does not lead: why is what helps."""
        store = self._store
        reason = store.why_not_writable()
        if not reason:
            return self._why_busy()
        return (store.is_open and store.is_slave and store.journal.why_no_puts()) or reason

    def _why_busy(self) -> str:
        """Why a put was not decided in time, or not even begun."""
        return self._store.journal.why_not_kept() or "the disk is slow"

    def _remark(self, request: RemotingCommand, status: PutMessageStatus) -> str:
        if code_of(status) == ResponseCode.MESSAGE_ILLEGAL:
            return why_illegal(request, self._configuration)
        remarks = {
            PutMessageStatus.SERVICE_NOT_AVAILABLE: "service not available now: " + self._why_not(),
            PutMessageStatus.CREATE_MAPEDFILE_FAILED: (
                "create mapped file failed, server is busy or broken: " + self._why_not()
            ),
            PutMessageStatus.OS_PAGECACHE_BUSY: (
                "[PC_SYNCHRONIZED]broker busy, start flow control for a while: " + self._why_busy()
            ),
        }
        return remarks.get(status, status.name)
