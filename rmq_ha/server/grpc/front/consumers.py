"""The methods of consumers: receive, acknowledge, change, forward to the dead letters, assignments.

Spec: grpc.md, sections 5.2 and 6.
"""

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.flags import PERM_READ
from rmq_ha.base.model.pop_topics import real_topic
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.timing.slices import Lane
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.server.acl.permissions import SUB, group_resource
from rmq_ha.server.door import BrokerVerbs, DoorQueues, PopOutcome, Settlement
from rmq_ha.server.grpc.face import GrpcCall
from rmq_ha.server.grpc.front.callers import CallSender, caller_of, identity_of
from rmq_ha.server.grpc.front.clients import ClientTable, DoorClient
from rmq_ha.server.grpc.front.limits import SERVED_A_TURN
from rmq_ha.server.grpc.front.names import StoredName, group_of, topic_of
from rmq_ha.server.grpc.front.receives import (
    CallPoller,
    PoppedMessage,
    checked_invisible_ms,
    pop_header,
    popped_messages,
)
from rmq_ha.server.grpc.front.refusals import (
    FrontRefusal,
    answer_code,
    check_count,
    refusal_of,
    status_of,
)
from rmq_ha.server.grpc.front.renewals import Renewals
from rmq_ha.server.grpc.front.routes import queue_messages
from rmq_ha.server.grpc.front.sends import topic_not_found
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import AnswerCode
from rmq_ha.server.grpc.wire.status import GrpcRefusal, GrpcStatus
from rmq_ha.server.pop.face import LeaseChange, LeaseStatus, Receipt

NO_CONSUMERS = (
    "this broker serves producers of RocketMQ 5, and no consumers: set popEnable=true at the broker"
)
_NOT_HERE = "this broker is not the master now: ask for the route"
_STALE = "the message is not out with this receipt any more"
_NO_MESSAGE = "no new message"
_LEASE_CODES = {
    LeaseStatus.DONE: (AnswerCode.OK, "OK"),
    LeaseStatus.UNKNOWN: (AnswerCode.INVALID_RECEIPT_HANDLE, _STALE),
    LeaseStatus.NOT_IN_BATCH: (AnswerCode.INVALID_RECEIPT_HANDLE, _STALE),
    LeaseStatus.NOT_KEPT: (
        AnswerCode.HA_NOT_AVAILABLE,
        "it is not kept yet, by disk and slaves as configured: repeat it",
    ),
    LeaseStatus.NOT_LEADING: (AnswerCode.HA_NOT_AVAILABLE, _NOT_HERE),
}
_POP_CODES = {
    ResponseCode.POLLING_TIMEOUT: (AnswerCode.MESSAGE_NOT_FOUND, _NO_MESSAGE),
    ResponseCode.POLLING_FULL: (AnswerCode.TOO_MANY_REQUESTS, "polling full"),
    ResponseCode.SYSTEM_BUSY: (AnswerCode.HA_NOT_AVAILABLE, _NOT_HERE),
}
_OF_PLACES = (ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR)


class ConsumerMethods:
    """
    Serves the methods of consumers.

    :param broker_name: this broker's name, which receipts have.
    :param count: called with the code of each answer to ReceiveMessage.
    :param lane: does the work of large requests, a slice a turn.
    :ivar renewals: the leases of push consumers.
    """

    log = Logger()

    def __init__(
        self,
        verbs: BrokerVerbs,
        clients: ClientTable,
        clock: IReactorTime,
        broker_name: str,
        count: Callable[[AnswerCode], None],
        lane: Lane,
    ) -> None:
        self._count = count
        self._lane = lane
        self._verbs = verbs
        self._clients = clients
        self._clock = clock
        self._broker_name = broker_name
        self.renewals = Renewals(verbs, clients.is_known)

    def check_served(self) -> None:
        """
        Refuse a call where no consumers are served.

        :raises GrpcRefusal: `popEnable` is false.
        """
        if not self._verbs.serves_pops:
            self._clients.refused_consumers += 1
            raise GrpcRefusal(GrpcStatus.UNIMPLEMENTED, NO_CONSUMERS)

    # ------------------------------------------------------------ ReceiveMessage

    def receive(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        """Serve ReceiveMessage: send a status, the messages, and at last the broker's time."""
        self.check_served()
        received = maybeDeferred(self._receive, call, request)
        received.addErrback(self._receive_failed, call)
        return received.addCallback(lambda _: call.finish())

    def _receive(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        identity = identity_of(call.metadata)
        group, topic = group_of(request.group), topic_of(request.message_queue.topic)
        account = self._authorize(call, RequestCode.POP_MESSAGE, group, topic)
        if self._verbs.is_slave:
            raise FrontRefusal(AnswerCode.HA_NOT_AVAILABLE, _NOT_HERE)
        if self._verbs.topic(topic.text) is None:
            raise topic_not_found(topic.text)
        config = self._known_group(group)
        left_ms = None if call.deadline is None else (call.deadline - self._clock.seconds()) * 1000
        header = pop_header(
            request, group.text, topic.text, left_ms, is_orderly=config.consume_message_orderly
        )
        client = self._clients.find(account, identity.client_id)
        poller = CallPoller(call)

        def pop(_: object) -> "Deferred[PopOutcome]":
            return self._verbs.pop(poller, header)

        popped = call.peer.writable().addCallback(pop)
        return popped.addCallback(self._deliver, call, request, topic, group, client)

    def _deliver(
        self,
        outcome: PopOutcome,
        call: GrpcCall,
        request: Any,
        topic: StoredName,
        group: StoredName,
        client: DoorClient | None,
    ) -> None:
        if outcome.answer is None:
            code, text = _POP_CODES.get(
                ResponseCode(outcome.code), (answer_code(outcome.code), outcome.remark)
            )
            self._send_status(call, code, text)
            return
        resource = request.message_queue.topic
        popped = popped_messages(outcome.answer, resource, topic.text, self._broker_name)
        if not call.is_open:  # nobody gets them, so others may have them now
            for item in popped:
                self._free(group.text, item)
            return
        self._count(AnswerCode.OK)
        call.send(messages.ReceiveMessageResponse(status=status_of(AnswerCode.OK)))
        for item in popped:
            if request.auto_renew:
                handle = item.receipt.encode()
                self.renewals.add(client, group.text, item.topic, handle, item.receipt)
            call.send(messages.ReceiveMessageResponse(message=item.message))
        self._send_time(call)

    def _free(self, group: str, item: PoppedMessage) -> None:
        place = _place(group, item.topic, item.receipt)
        freed = maybeDeferred(self._verbs.change, "a call that ended", place, 0)
        freed.addErrback(lambda failure: self.log.debug("not freed: {why}", why=failure.value))

    def _receive_failed(self, failure: Failure, call: GrpcCall) -> object:
        error = failure.value
        if isinstance(error, GrpcRefusal):
            return failure
        if isinstance(error, RequestRejected):
            error = _pop_refusal(error)
        if not isinstance(error, FrontRefusal):
            self.log.failure("ReceiveMessage of a client", failure)
            text = f"{type(error).__name__}: {failure.getErrorMessage()}"
            error = FrontRefusal(AnswerCode.INTERNAL_SERVER_ERROR, text)
        self._send_status(call, error.code, error.text)
        return None

    def _send_status(self, call: GrpcCall, code: AnswerCode, text: str) -> None:
        self._count(code)
        call.send(messages.ReceiveMessageResponse(status=status_of(code, text)))
        self._send_time(call)

    def _send_time(self, call: GrpcCall) -> None:
        last = messages.ReceiveMessageResponse()
        last.delivery_timestamp.FromMilliseconds(self._verbs.now_ms())
        call.send(last)

    # ------------------------------------------------------------ leases

    def acknowledge(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        """Serve AckMessage; the answer has a status for each message."""
        self.check_served()
        identity_of(call.metadata)
        group, topic = group_of(request.group), topic_of(request.topic)
        self._authorize(call, RequestCode.ACK_MESSAGE, group, topic)
        check_count(request.entries, "receipts")
        works: list[Deferred[Any]] = []

        def steps() -> Iterator[None]:
            for number, entry in enumerate(request.entries):
                if number and number % SERVED_A_TURN == 0:
                    yield
                handle = entry.receipt_handle
                works.append(maybeDeferred(self._acknowledge, call, group.text, topic.text, handle))

        def answer(results: list[tuple[bool, Any]]) -> Any:
            entries = [
                messages.AckMessageResultEntry(
                    message_id=entry.message_id,
                    receipt_handle=entry.receipt_handle,
                    status=self._lease_status(result),
                )
                for entry, (_, result) in zip(request.entries, results, strict=True)
            ]
            codes = {entry.status.code for entry in entries}
            if len(codes) == 1:
                status = entries[0].status
            else:
                status = status_of(AnswerCode.MULTIPLE_RESULTS, "the messages have several results")
            return messages.AckMessageResponse(status=status, entries=entries)

        def when_done(_: object) -> "Deferred[Any]":
            return DeferredList(works, consumeErrors=True).addCallback(answer)

        if len(request.entries) <= SERVED_A_TURN:
            for _ in steps():
                pass
            return when_done(None)
        return self._lane.run(call.peer.host, steps()).addCallback(when_done)

    def _acknowledge(
        self, call: GrpcCall, group: str, topic: str, handle: str
    ) -> "Deferred[LeaseStatus]":
        receipt = self._receipt(group, handle)
        place = _place(group, real_topic(group, topic, receipt.kind), receipt)
        return self._verbs.acknowledge(call.peer.remote_text, place)

    def change(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        """Serve ChangeInvisibleDuration; the answer has a new receipt."""
        self.check_served()
        identity_of(call.metadata)
        group, topic = group_of(request.group), topic_of(request.topic)
        self._authorize(call, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, group, topic)
        invisible_ms = checked_invisible_ms(request.invisible_duration, 0)
        receipt = self._receipt(group.text, request.receipt_handle)
        place = _place(group.text, real_topic(group.text, topic.text, receipt.kind), receipt)

        def answer(change: LeaseChange) -> Any:
            code, text = _LEASE_CODES[change.status]
            if code is not AnswerCode.OK:
                raise FrontRefusal(code, text)
            renewed = receipt._replace(pop_time=change.pop_ms, invisible_ms=change.invisible_ms)
            return messages.ChangeInvisibleDurationResponse(
                status=status_of(code), receipt_handle=renewed.encode()
            )

        changed: Deferred[Any] = maybeDeferred(
            self._verbs.change, call.peer.remote_text, place, invisible_ms
        )
        return changed.addErrback(_place_refusal).addCallback(answer)

    def forward(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        """Serve ForwardMessageToDeadLetterQueue: store the dead letter, then end the lease."""
        self.check_served()
        identity_of(call.metadata)
        group, topic = group_of(request.group), topic_of(request.topic)
        account = self._authorize(call, RequestCode.CONSUMER_SEND_MSG_BACK, group, topic)
        receipt = self._receipt(group.text, request.receipt_handle)
        place = _place(group.text, real_topic(group.text, topic.text, receipt.kind), receipt)

        def acknowledge(end: Settlement) -> "Deferred[LeaseStatus]":
            if end.remark is not None:
                raise FrontRefusal(answer_code(end.code), end.remark)
            return self._verbs.acknowledge(call.peer.remote_text, place)

        def answer(status: LeaseStatus) -> Any:
            code, text = _LEASE_CODES[status]
            if code is not AnswerCode.OK:
                raise FrontRefusal(code, text)
            return messages.ForwardMessageToDeadLetterQueueResponse(status=status_of(code))

        buried: Deferred[Any] = maybeDeferred(
            self._verbs.bury, CallSender(call.peer, account), place
        )
        return buried.addCallback(acknowledge).addErrback(_place_refusal).addCallback(answer)

    def _receipt(self, group: str, handle: str) -> PopReceipt:
        """
        Return the present receipt of a lease, which is renewed no more.

        :param handle: the receipt as the consumer got it.
        :raises FrontRefusal: the handle is no receipt of this broker.
        """
        renewed = self.renewals.take(group, handle)
        if renewed is not None:
            return renewed
        try:
            receipt = PopReceipt.parse(handle)
        except RequestRejected as rejected:
            raise FrontRefusal(AnswerCode.INVALID_RECEIPT_HANDLE, rejected.remark) from None
        if receipt.broker_name != self._broker_name or min(receipt.queue_id, receipt.offset) < 0:
            raise FrontRefusal(
                AnswerCode.INVALID_RECEIPT_HANDLE,
                f"the receipt is not of this broker, {self._broker_name}",
            )
        return receipt

    def _lease_status(self, result: Any) -> Any:
        if isinstance(result, LeaseStatus):
            return status_of(*_LEASE_CODES[result])
        error = result.value
        if isinstance(error, RequestRejected):
            error = _refusal_of_place(error)
        if isinstance(error, FrontRefusal):
            return status_of(error.code, error.text)
        self.log.failure("an acknowledgement of a client", result)
        return status_of(AnswerCode.INTERNAL_SERVER_ERROR, type(error).__name__)

    # ------------------------------------------------------------ QueryAssignment

    def assign(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        """
        Serve QueryAssignment.

        All clients of a group may pop the same queues. So each gets, of each broker, one entry for
        any queue, or all queues if the group pops in order.
        """
        self.check_served()
        identity_of(call.metadata)
        group, topic = group_of(request.group), topic_of(request.topic)
        self._authorize(call, RequestCode.QUERY_ASSIGNMENT, group, topic)
        config = self._known_group(group)

        def answer(brokers: list[DoorQueues]) -> Any:
            if not brokers:
                raise topic_not_found(topic.text)
            readable = [item for item in brokers if item.perm & PERM_READ and item.read_queues]
            if not readable:
                raise FrontRefusal(AnswerCode.FORBIDDEN, "no readable queue")
            queues: list[Any] = []
            for broker in readable:
                queues += _assignable_queues(request.topic, broker, config.consume_message_orderly)
            return messages.QueryAssignmentResponse(
                status=status_of(AnswerCode.OK),
                assignments=[messages.Assignment(message_queue=queue) for queue in queues],
            )

        return self._verbs.route(topic.text).addCallback(answer)

    # ------------------------------------------------------------ common

    def _authorize(
        self, call: GrpcCall, code: RequestCode, group: StoredName, topic: StoredName
    ) -> str:
        needs = [(topic.text, SUB), (group_resource(group.text), SUB)]
        account = self._verbs.authorize(caller_of(call, code), needs)
        call.peer.account = account
        return account

    def _known_group(self, group: StoredName) -> SubscriptionGroupConfig:
        config = self._verbs.group(group.text)
        if config is None:
            raise FrontRefusal(
                AnswerCode.CONSUMER_GROUP_NOT_FOUND,
                f"there is no group {group.text}: rmqha-admin group create {group.text}",
            )
        return config


def _place(group: str, topic: str, receipt: PopReceipt) -> Receipt:
    return Receipt(group, topic, receipt.queue_id, receipt.pop_time, [receipt.offset])


def _assignable_queues(topic: Any, broker: DoorQueues, is_orderly: bool) -> list[Any]:
    queues = queue_messages(topic, [broker], ())
    readable = [queue for queue in queues if queue.permission in (2, 4)]
    if is_orderly:
        return readable
    any_queue = readable[0]
    any_queue.id = -1
    return [any_queue]


def _pop_refusal(rejected: RequestRejected) -> FrontRefusal:
    if rejected.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        return FrontRefusal(AnswerCode.ILLEGAL_FILTER_EXPRESSION, rejected.remark)
    if rejected.code in _POP_CODES:
        code, _ = _POP_CODES[ResponseCode(rejected.code)]
        return FrontRefusal(code, rejected.remark)
    return refusal_of(rejected)


def _refusal_of_place(rejected: RequestRejected) -> FrontRefusal:
    if rejected.code in _OF_PLACES:
        return FrontRefusal(AnswerCode.INVALID_RECEIPT_HANDLE, rejected.remark)
    return _pop_refusal(rejected)


def _place_refusal(failure: Failure) -> Any:
    if isinstance(failure.value, RequestRejected):
        raise _refusal_of_place(failure.value)
    return failure
