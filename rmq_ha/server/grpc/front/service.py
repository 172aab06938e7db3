"""The methods of `apache.rocketmq.v2.MessagingService` that this broker serves.

RocketMQ refuses a request by an answer with a `Status` inside. Only a fault of the protocol, or a
method that is not served, ends a call with a status of gRPC and no answer.

Spec: grpc.md, sections 4 to 9.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.attributes import DELAY, MIXED, message_type
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.timing.slices import Lane
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.recall_handle import RECALL_HANDLE, RecallHandle
from rmq_ha.server.acl.permissions import PUB, SUB, group_resource
from rmq_ha.server.door import BrokerVerbs, Need, SendOutcome, Settlement
from rmq_ha.server.grpc.face import (
    GrpcCall,
    MessageReceiver,
    Method,
    both_ways,
    server_stream,
    unary,
)
from rmq_ha.server.grpc.front.callers import CallSender, caller_of, identity_of
from rmq_ha.server.grpc.front.clients import ClientTable, DoorClient
from rmq_ha.server.grpc.front.consumers import ConsumerMethods
from rmq_ha.server.grpc.front.limits import SERVED_A_TURN, FrontSettings
from rmq_ha.server.grpc.front.names import StoredName, group_of, topic_of
from rmq_ha.server.grpc.front.refusals import (
    FrontRefusal,
    answer_code,
    check_count,
    refusal_of,
    status_of,
)
from rmq_ha.server.grpc.front.routes import accepted_types, queue_messages
from rmq_ha.server.grpc.front.sends import MessageChecks, StoredSend, topic_not_found
from rmq_ha.server.grpc.front.telemetry import TelemetryStream
from rmq_ha.server.grpc.front.transactions import TransactionId, parse_transaction_id
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import AnswerCode, ClientType, TransactionResolution
from rmq_ha.server.grpc.wire.status import GrpcRefusal

_NOT_HERE = "this broker is not the master now: ask for the route, and send to the master"


class _UnaryMethod(NamedTuple):
    """
    A method with one answer.

    :ivar answer: the class of the answer; a refusal has only its `status`.
    :ivar work: takes the call and the request; returns the answer, or a Deferred of it.
    """

    name: str
    request: Any
    answer: Callable[..., Any]
    work: Callable[[GrpcCall, Any], Any]


class MessagingService:
    """
    Serves the clients of RocketMQ 5.

    :param settings: returns the limits and settings, which may change at run time.
    :ivar clients: the clients that sent settings or heartbeats.
    :ivar answers: number of answers, by method and name of their code.
    """

    log = Logger()

    def __init__(
        self,
        verbs: BrokerVerbs,
        settings: Callable[[], FrontSettings],
        clock: IReactorTime,
        broker_name: str,
    ) -> None:
        self._verbs = verbs
        self._settings = settings
        self._lane = Lane(clock)
        self.clients = ClientTable(verbs, clock.seconds)
        self.answers: Counter[tuple[str, str]] = Counter()
        self.consumers = ConsumerMethods(
            verbs, self.clients, clock, broker_name, self._count_receive, self._lane
        )

    def methods(self) -> list[Method]:
        """Return all methods, as the transport needs them."""
        served = [
            _UnaryMethod(
                "QueryRoute", messages.QueryRouteRequest, messages.QueryRouteResponse, self._route
            ),
            _UnaryMethod(
                "SendMessage", messages.SendMessageRequest, messages.SendMessageResponse, self._send
            ),
            _UnaryMethod(
                "EndTransaction",
                messages.EndTransactionRequest,
                messages.EndTransactionResponse,
                self._end_transaction,
            ),
            _UnaryMethod(
                "RecallMessage",
                messages.RecallMessageRequest,
                messages.RecallMessageResponse,
                self._recall,
            ),
            _UnaryMethod(
                "Heartbeat", messages.HeartbeatRequest, messages.HeartbeatResponse, self._heartbeat
            ),
            _UnaryMethod(
                "NotifyClientTermination",
                messages.NotifyClientTerminationRequest,
                messages.NotifyClientTerminationResponse,
                self._terminate,
            ),
            _UnaryMethod(
                "QueryAssignment",
                messages.QueryAssignmentRequest,
                messages.QueryAssignmentResponse,
                self.consumers.assign,
            ),
            _UnaryMethod(
                "AckMessage",
                messages.AckMessageRequest,
                messages.AckMessageResponse,
                self.consumers.acknowledge,
            ),
            _UnaryMethod(
                "ChangeInvisibleDuration",
                messages.ChangeInvisibleDurationRequest,
                messages.ChangeInvisibleDurationResponse,
                self.consumers.change,
            ),
            _UnaryMethod(
                "ForwardMessageToDeadLetterQueue",
                messages.ForwardMessageToDeadLetterQueueRequest,
                messages.ForwardMessageToDeadLetterQueueResponse,
                self.consumers.forward,
            ),
        ]
        return [
            *[unary(item.name, item.request, partial(self._serve, item)) for item in served],
            both_ways("Telemetry", messages.TelemetryCommand, self._telemetry),
            server_stream("ReceiveMessage", messages.ReceiveMessageRequest, self.consumers.receive),
        ]

    # ------------------------------------------------------------ one call

    def _serve(self, method: _UnaryMethod, call: GrpcCall, request: Any) -> "Deferred[Any]":
        answered = maybeDeferred(method.work, call, request)
        answered.addErrback(self._answer_failure, method)
        return answered.addCallback(self._count, method.name)

    def _answer_failure(self, failure: Failure, method: _UnaryMethod) -> Any:
        error = failure.value
        if isinstance(error, GrpcRefusal):
            return failure
        if isinstance(error, RequestRejected):
            error = refusal_of(error)
        if isinstance(error, FrontRefusal):
            return method.answer(status=status_of(error.code, error.text))
        self.log.failure("{method} of a client", failure, method=method.name)
        text = f"{type(error).__name__}: {failure.getErrorMessage()}"
        return method.answer(status=status_of(AnswerCode.INTERNAL_SERVER_ERROR, text))

    def _count(self, answer: Any, method: str) -> Any:
        code = answer.status.code
        self.answers[method, AnswerCode(code).name] += 1
        return answer

    def _count_receive(self, code: AnswerCode) -> None:
        self.answers["ReceiveMessage", code.name] += 1

    def _authorize(self, call: GrpcCall, code: RequestCode, *needs: Need) -> str:
        account = self._verbs.authorize(caller_of(call, code), needs)
        call.peer.account = account  # quotas of accounts are kept by it
        return account

    def _check_leads(self) -> None:
        if self._verbs.is_slave:
            raise FrontRefusal(AnswerCode.HA_NOT_AVAILABLE, _NOT_HERE)

    # ------------------------------------------------------------ routes and clients

    def _route(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        identity_of(call.metadata)
        topic = topic_of(request.topic)
        self._authorize(call, RequestCode.GET_ROUTEINFO_BY_TOPIC, (topic.text, PUB | SUB))

        def answer(brokers: Any) -> Any:
            config = self._verbs.topic(topic.text)
            if not brokers and config is not None:
                raise FrontRefusal(
                    AnswerCode.HA_NOT_AVAILABLE,
                    f"no master of {topic.text} with a port for gRPC is known now: ask again",
                )
            if not brokers:
                raise topic_not_found(topic.text)
            default = self._settings().default_type
            kind = default if config is None else message_type(config.attributes, default)
            queues = queue_messages(request.topic, brokers, accepted_types(kind))
            return messages.QueryRouteResponse(
                status=status_of(AnswerCode.OK), message_queues=queues
            )

        return self._verbs.route(topic.text).addCallback(answer)

    def _telemetry(self, call: GrpcCall) -> MessageReceiver:
        return TelemetryStream(call, self._verbs, self.clients, self._settings)

    def _heartbeat(self, call: GrpcCall, request: Any) -> Any:
        identity = identity_of(call.metadata)
        if request.client_type not in (ClientType.PRODUCER, ClientType.CLIENT_TYPE_UNSPECIFIED):
            self.consumers.check_served()
            group = group_of(request.group)
            account = self._authorize(
                call, RequestCode.HEART_BEAT, (group_resource(group.text), SUB)
            )
            client = self.clients.put(identity, account, call.peer.remote_text)
            self.clients.set_consumer(client, group.text, client.subscriptions)
            return messages.HeartbeatResponse(status=status_of(AnswerCode.OK))
        self.clients.heard_of(self._known_client(call, identity.client_id))
        return messages.HeartbeatResponse(status=status_of(AnswerCode.OK))

    def _terminate(self, call: GrpcCall, request: Any) -> Any:
        identity = identity_of(call.metadata)
        self.clients.forget(self._known_client(call, identity.client_id))
        return messages.NotifyClientTerminationResponse(status=status_of(AnswerCode.OK))

    def _known_client(self, call: GrpcCall, client_id: str) -> DoorClient:
        account = self._authorize(call, RequestCode.HEART_BEAT)
        client = self.clients.find(account, client_id)
        if client is None:
            raise FrontRefusal(
                AnswerCode.UNRECOGNIZED_CLIENT_TYPE,
                "cannot find client settings for this client: it has to send them by Telemetry",
            )
        return client

    # ------------------------------------------------------------ sends

    def _send(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        identity_of(call.metadata)
        topic = self._topic_of_all(request.messages)
        account = self._authorize(
            call,
            RequestCode.SEND_MESSAGE_V2,
            (topic.text, SUB if topic.text.startswith(RETRY_PREFIX) else PUB),
        )
        self._check_leads()
        checks = MessageChecks(
            self._settings(),
            topic.text,
            self._verbs.topic(topic.text),
            serves_timers=self._verbs.serves_timers,
            now_ms=self._verbs.now_ms(),
        )
        sends: list[StoredSend] = []
        puts: list[Deferred[Any]] = []
        sender = CallSender(call.peer, account)

        def steps() -> Iterator[None]:
            # All messages are checked before the first is stored.
            for number, message in enumerate(request.messages):
                if number and number % SERVED_A_TURN == 0:
                    yield
                sends.append(checks.read(message, call.peer.remote_text))
            for number, send in enumerate(sends):
                if number and number % SERVED_A_TURN == 0:
                    yield
                puts.append(maybeDeferred(self._verbs.send, sender, send.header, send.body))

        if len(request.messages) <= SERVED_A_TURN:
            for _ in steps():
                pass
            return self._answer_sends(puts, sends)
        put = self._lane.run(call.peer.host, steps())
        return put.addCallback(lambda _: self._answer_sends(puts, sends))

    @staticmethod
    def _topic_of_all(batch: Any) -> StoredName:
        if not batch:
            raise FrontRefusal(AnswerCode.MESSAGE_CORRUPTED, "no message to send")
        check_count(batch, "messages")
        first = batch[0].topic
        if any(message.topic != first for message in batch):
            raise FrontRefusal(AnswerCode.MESSAGE_CORRUPTED, "topic in message is not same")
        return topic_of(first)

    def _answer_sends(
        self, puts: "list[Deferred[Any]]", sends: list[StoredSend]
    ) -> "Deferred[Any]":
        done: Deferred[Any] = DeferredList(puts, consumeErrors=True)

        def answer(results: list[tuple[bool, Any]]) -> Any:
            entries = [
                _entry(result if is_good else self._outcome_of(result), send)
                for (is_good, result), send in zip(results, sends, strict=True)
            ]
            codes = {(entry.status.code, entry.status.message) for entry in entries}
            first = entries[0].status
            if len({code for code, _ in codes}) == 1:
                status = first
            else:
                status = status_of(AnswerCode.MULTIPLE_RESULTS, "the messages have several results")
            return messages.SendMessageResponse(status=status, entries=entries)

        return done.addCallback(answer)

    def _outcome_of(self, failure: Failure) -> SendOutcome | FrontRefusal:
        error = failure.value
        if isinstance(error, RequestRejected):
            return refusal_of(error)
        self.log.failure("a message of SendMessage", failure)
        text = f"{type(error).__name__}: {failure.getErrorMessage()}"
        return FrontRefusal(AnswerCode.INTERNAL_SERVER_ERROR, text)

    # ------------------------------------------------------------ transactions and recalls

    def _end_transaction(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        identity_of(call.metadata)
        topic = topic_of(request.topic)
        place = parse_transaction_id(request.transaction_id)
        self._authorize(call, RequestCode.END_TRANSACTION, (topic.text, PUB))
        self._check_leads()
        resolution = request.resolution
        if resolution not in (TransactionResolution.COMMIT, TransactionResolution.ROLLBACK):
            return succeed(_end_answer(Settlement(0)))  # undecided: it is asked again later
        settled = self._verbs.settle(
            place.physical_offset,
            place.queue_offset,
            topic.text,
            place.unique_id,
            commits=resolution == TransactionResolution.COMMIT,
        )
        return settled.addCallback(_end_answer)

    def _recall(self, call: GrpcCall, request: Any) -> "Deferred[Any]":
        identity_of(call.metadata)
        topic = topic_of(request.topic)
        self._authorize(call, RequestCode.RECALL_MESSAGE, (topic.text, PUB))
        self._check_leads()
        config, settings = self._verbs.topic(topic.text), self._settings()
        if config is None:
            raise topic_not_found(topic.text)
        kind = message_type(config.attributes, settings.default_type)
        if settings.checks_types and kind not in (DELAY, MIXED):
            raise FrontRefusal(
                AnswerCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {kind}, but actual type "
                f"is {DELAY}",
            )
        if RecallHandle.parse(request.recall_handle) is None:
            raise FrontRefusal(AnswerCode.BAD_REQUEST, "recall handle is invalid")
        unique_id, recalled = self._verbs.take_back(
            call.peer.remote, topic.text, request.recall_handle
        )

        def answer(end: Settlement) -> Any:
            if end.remark is not None:
                raise FrontRefusal(answer_code(end.code), end.remark)
            return messages.RecallMessageResponse(
                status=status_of(AnswerCode.OK), message_id=unique_id
            )

        return recalled.addCallback(answer)


def _end_answer(end: Settlement) -> Any:
    if end.remark is not None:
        raise FrontRefusal(answer_code(end.code), end.remark)
    return messages.EndTransactionResponse(status=status_of(AnswerCode.OK))


def _entry(outcome: SendOutcome | FrontRefusal, send: StoredSend) -> Any:
    """
    Return the `SendResultEntry` of one message.

    A message that is stored, but not on all disks and brokers that are asked for, has the code of a
    failure and no ids, as in Java. The client then sends it again with the same id.
    """
    if isinstance(outcome, FrontRefusal):
        return messages.SendResultEntry(status=status_of(outcome.code, outcome.text))
    code, append = answer_code(outcome.code), outcome.append
    if code is not AnswerCode.OK or append is None:
        text = outcome.remark or "the message is stored, and not as safely as was asked"
        return messages.SendResultEntry(status=status_of(code, text))
    transaction_id = send.unique_id
    if send.is_half:
        transaction_id = str(
            TransactionId(send.unique_id, append.physical_offset, append.queue_offset)
        )
    return messages.SendResultEntry(
        status=status_of(AnswerCode.OK),
        message_id=send.unique_id,
        transaction_id=transaction_id,
        offset=append.queue_offset,
        recall_handle=outcome.fields.get(RECALL_HANDLE, ""),
    )
