"""Answers acknowledgements of popped messages, and changes of their leases.

ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME (200053).

Spec: pop.md, sections 2.5, 2.6 and 13.4.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import BatchAck
from rmq_ha.base.wire.pop_headers import (
    AckHeader,
    ChangeInvisibleAnswer,
    ChangeInvisibleHeader,
)
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.processors.pop import NOT_LEADING, refuse_unless_leading
from rmq_ha.server.broker.processors.pop_checks import PopChecks
from rmq_ha.server.pop.face import LeaseChange, LeaseStatus, Pops, Receipt

_UNCHANGED = ChangeInvisibleAnswer().ext()
_UNKNOWN = "no such lease is current: the message was moved, or popped again"
_CODES = {
    LeaseStatus.DONE: (ResponseCode.SUCCESS, None),
    LeaseStatus.UNKNOWN: (ResponseCode.NO_MESSAGE, _UNKNOWN),
    LeaseStatus.NOT_IN_BATCH: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the orderly batch that is out has no such offset",
    ),
    LeaseStatus.NOT_KEPT: (
        ResponseCode.SYSTEM_BUSY,
        "the acknowledgement is not kept yet, by disk and slaves as configured: repeat it",
    ),
    LeaseStatus.NOT_LEADING: (ResponseCode.SYSTEM_BUSY, NOT_LEADING),
}


class PopAckProcessor:
    """
    Ends leases, and changes how long they last. Each answer waits until the change is in the log,
    flushed and replicated as configured.

    :param bounds: returns the first offset and the end of a queue, by topic and queue id.
    """

    def __init__(
        self,
        pops: Pops,
        checks: PopChecks,
        config: RmqHaConfig,
        bounds: Callable[[str, int], tuple[int, int]],
    ) -> None:
        self._pops = pops
        self._checks = checks
        self._config = config
        self._bounds = bounds

    def routes(self) -> dict[int, Handler]:
        """Return handlers by request code; none while `popEnable` is false."""
        if not self._pops.is_enabled:
            return {}
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    def ack(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer ACK_MESSAGE (200051)."""
        refuse_unless_leading(self._pops)
        header = AckHeader.read(request.ext)
        lease = self._lease(channel, header)
        return self._pops.ack([lease]).addCallback(self._answer_ack, request)

    def batch_ack(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer BATCH_ACK_MESSAGE (200151), with one code for all messages.

        As in RocketMQ, messages without a current lease are skipped. Code 208 says that no message
        had one.
        """
        refuse_unless_leading(self._pops)
        if not request.body:
            raise RequestRejected(ResponseCode.NO_MESSAGE, "the request acknowledges nothing")
        batch = request.read(BatchAck.decode)
        try:
            leases = [
                Receipt(
                    entry.consumer_group,
                    entry.real_topic,
                    entry.queue_id,
                    entry.pop_time,
                    entry.offsets(),
                )
                for entry in batch.acks
            ]
        except ProtocolViolation as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
        leases = [lease for lease in leases if lease.offsets]
        if not leases:
            raise RequestRejected(ResponseCode.NO_MESSAGE, "the request acknowledges nothing")
        return self._pops.ack(leases).addCallback(self._answer_ack, request)

    def change(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer CHANGE_MESSAGE_INVISIBLETIME (200053) with the items of the new receipt."""
        try:
            refuse_unless_leading(self._pops)
            header = ChangeInvisibleHeader.read(request.ext)
            lease = self._lease(channel, header)
            self._checks.invisible_time(header.invisible_time)
        except RequestRejected as error:
            return request.response(error.code, error.remark, _UNCHANGED)
        return self._pops.change(lease, header.invisible_time).addCallback(
            self._answer_change, request
        )

    def _lease(self, channel: Channel, header: AckHeader | ChangeInvisibleHeader) -> Receipt:
        """
        Check a request in RocketMQ's order, and return the lease that it names.

        :raises RequestRejected: with the code of the first check that fails.
        """
        topic, queue_id, offset = header.topic, header.queue_id, header.offset
        self._check_place(channel.remote_text, topic, queue_id, offset)
        receipt = PopReceipt.parse(header.extra_info)
        return Receipt(header.consumer_group, topic, queue_id, receipt.pop_time, [offset])

    def _check_place(self, client: str, topic: str, queue_id: int, offset: int) -> None:
        self._checks.acked_topic(topic, queue_id, client)
        least, end = self._bounds(topic, queue_id)
        if not least <= offset < end:
            raise RequestRejected(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{least}~{end}",
            )

    def acknowledge(self, client: str, receipt: Receipt) -> "Deferred[LeaseStatus]":
        """
        Acknowledge a message for a client of the gRPC door; see `BrokerVerbs`.

        :raises RequestRejected: the receipt names nothing that this broker has.
        """
        refuse_unless_leading(self._pops)
        self._check_place(client, receipt.topic, receipt.queue_id, receipt.offsets[0])
        return self._pops.ack([receipt])

    def change_lease(
        self, client: str, receipt: Receipt, invisible_ms: int
    ) -> "Deferred[LeaseChange]":
        """
        Change a lease for a client of the gRPC door; see `BrokerVerbs`.

        :raises RequestRejected: see `acknowledge`; or the time is too long.
        """
        refuse_unless_leading(self._pops)
        self._check_place(client, receipt.topic, receipt.queue_id, receipt.offsets[0])
        self._checks.invisible_time(invisible_ms)
        return self._pops.change(receipt, invisible_ms)

    def _answer_ack(self, status: LeaseStatus, request: RemotingCommand) -> RemotingCommand:
        code, remark = self._code(status)
        return request.response(code, remark)

    def _answer_change(self, change: LeaseChange, request: RemotingCommand) -> RemotingCommand:
        code, remark = self._code(change.status)
        ext = ChangeInvisibleAnswer(change.pop_ms, change.invisible_ms, change.revive_queue).ext()
        return request.response(
            code, remark, ext if change.status is LeaseStatus.DONE else _UNCHANGED
        )

    def _code(self, status: LeaseStatus) -> tuple[ResponseCode, str | None]:
        if status is LeaseStatus.UNKNOWN and self._config.pop_stale_ack == SUCCESS:
            return ResponseCode.SUCCESS, None
        return _CODES[status]


SUCCESS = "success"
"""The value of `popStaleAck` with which acknowledgements that change nothing are answered 0."""
