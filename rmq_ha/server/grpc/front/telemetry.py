"""The stream of one client, by which both sides tell each other settings and commands.

Spec: grpc.md, section 5.3.
"""

from collections.abc import Callable
from typing import Any

from rmq_ha.base.errors import AccessRefused
from rmq_ha.base.model.subscription import SQL92, TAG, SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.server.acl.permissions import PUB, SUB, group_resource
from rmq_ha.server.door import BrokerVerbs
from rmq_ha.server.grpc.face import GrpcCall
from rmq_ha.server.grpc.front.callers import ClientIdentity, caller_of, identity_of
from rmq_ha.server.grpc.front.clients import MOST_TOPICS, ClientTable
from rmq_ha.server.grpc.front.consumers import NO_CONSUMERS
from rmq_ha.server.grpc.front.limits import FrontSettings
from rmq_ha.server.grpc.front.names import StoredName, group_of, topic_of
from rmq_ha.server.grpc.front.receives import MOST_MESSAGES, MOST_POLL_MS
from rmq_ha.server.grpc.front.refusals import FrontRefusal, status_of
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import AnswerCode, FilterType
from rmq_ha.server.grpc.wire.status import GrpcRefusal, GrpcStatus

_PAUSES_MS = (
    *(1000, 5000, 10_000, 30_000, *(60_000 * minutes for minutes in range(1, 11))),
    *(1_200_000, 1_800_000, 3_600_000, 7_200_000),
)
"""RocketMQ's pauses between the attempts to consume a message, ms."""


class TelemetryStream:
    """The receiver of one Telemetry call: takes the client's settings, and answers them."""

    def __init__(
        self,
        call: GrpcCall,
        verbs: BrokerVerbs,
        clients: ClientTable,
        settings: Callable[[], FrontSettings],
    ) -> None:
        self._call = call
        self._verbs = verbs
        self._clients = clients
        self._settings = settings

    def message_received(self, message: Any) -> None:
        """
        Answer settings; ignore answers to commands.

        :raises GrpcRefusal: the command or the settings are not allowed.
        """
        kind = message.WhichOneof("command")
        if kind in ("thread_stack_trace", "verify_message_result"):
            return  # answers to commands that this front does not give
        if kind != "settings":
            raise GrpcRefusal(
                GrpcStatus.INVALID_ARGUMENT,
                f"a client may not send the command {kind or 'without a name'}",
            )
        try:
            self._take(message.settings)
        except AccessRefused as refused:
            raise GrpcRefusal(GrpcStatus.UNAUTHENTICATED, refused.remark) from None
        except FrontRefusal as refusal:
            raise GrpcRefusal(_grpc_status(refusal.code), refusal.text) from None

    def sending_ended(self) -> None:
        """End the stream, as nobody answers commands any more."""
        self._call.finish()

    def _take(self, settings: Any) -> None:
        identity = identity_of(self._call.metadata)
        kind = settings.WhichOneof("pub_sub")
        if kind == "subscription":
            self._take_consumer(identity, settings)
            return
        if kind is None:
            raise GrpcRefusal(
                GrpcStatus.INVALID_ARGUMENT,
                "there is no publishing or subscription data in settings",
            )
        resources = settings.publishing.topics
        if len(resources) > MOST_TOPICS:
            raise FrontRefusal(
                AnswerCode.BAD_REQUEST, f"a client names at most {MOST_TOPICS} topics"
            )
        topics = [topic_of(resource) for resource in resources]
        account = self._verbs.authorize(
            caller_of(self._call, RequestCode.HEART_BEAT),
            [(topic.text, PUB) for topic in topics],
        )
        client = self._clients.put(identity, account, self._call.peer.remote_text)
        client.add_stream(self._call)
        namespace = next((topic.namespace for topic in topics), "")
        self._clients.set_producer(client, namespace, (topic.text for topic in topics))
        answer = producer_settings(settings, self._settings())
        self._call.send(messages.TelemetryCommand(status=status_of(AnswerCode.OK), settings=answer))

    def _take_consumer(self, identity: ClientIdentity, settings: Any) -> None:
        if not self._verbs.serves_pops:
            self._clients.refused_consumers += 1
            raise GrpcRefusal(GrpcStatus.UNIMPLEMENTED, NO_CONSUMERS)
        subscription = settings.subscription
        if len(subscription.subscriptions) > MOST_TOPICS:
            raise FrontRefusal(
                AnswerCode.BAD_REQUEST, f"a client names at most {MOST_TOPICS} topics"
            )
        group = group_of(subscription.group)
        topics = [topic_of(entry.topic) for entry in subscription.subscriptions]
        needs = [(group_resource(group.text), SUB), *((topic.text, SUB) for topic in topics)]
        caller = caller_of(self._call, RequestCode.HEART_BEAT)
        account = self._verbs.authorize(caller, needs)
        client = self._clients.put(identity, account, self._call.peer.remote_text)
        client.add_stream(self._call)
        entries = zip(topics, subscription.subscriptions, strict=True)
        self._clients.set_consumer(
            client, group.text, [_subscription(topic, entry) for topic, entry in entries]
        )
        answer = consumer_settings(settings, self._verbs.group(group.text))
        self._call.send(messages.TelemetryCommand(status=status_of(AnswerCode.OK), settings=answer))


def _subscription(topic: StoredName, entry: Any) -> SubscriptionData:
    """Return what a consumer subscribes, as remoting's tools show it."""
    expression = entry.expression.expression or "*"
    kind = SQL92 if entry.expression.type == FilterType.SQL else TAG
    return SubscriptionData(topic.text, expression, expression_type=kind)


def producer_settings(asked: Any, settings: FrontSettings) -> Any:
    """Return the settings that a producer asked for, with the limits of this broker in them."""
    answer = messages.Settings()
    answer.CopyFrom(asked)
    answer.publishing.max_body_size = settings.max_body
    answer.publishing.validate_message_type = settings.checks_types
    answer.metric.on = False
    policy = messages.RetryPolicy(max_attempts=settings.producer_attempts)
    policy.exponential_backoff.initial.FromMilliseconds(settings.backoff_initial_ms)
    policy.exponential_backoff.max.FromMilliseconds(settings.backoff_max_ms)
    policy.exponential_backoff.multiplier = settings.backoff_multiplier
    answer.backoff_policy.CopyFrom(policy)
    return answer


def consumer_settings(asked: Any, group: SubscriptionGroupConfig | None) -> Any:
    """
    Return the settings that a consumer asked for, with those of its group in them.

    :param group: the group; None if this broker does not have it.
    """
    answer = messages.Settings()
    answer.CopyFrom(asked)
    config = group or SubscriptionGroupConfig("")
    subscription = answer.subscription
    subscription.fifo = config.consume_message_orderly
    subscription.receive_batch_size = MOST_MESSAGES
    if group is not None or not subscription.HasField("long_polling_timeout"):
        subscription.long_polling_timeout.FromMilliseconds(MOST_POLL_MS)
    answer.metric.on = False
    answer.backoff_policy.CopyFrom(_backoff_of(config))
    return answer


def _backoff_of(group: SubscriptionGroupConfig) -> Any:
    """Return the retry policy of a group, from the members that RocketMQ 5 stores in it."""
    policy = messages.RetryPolicy(max_attempts=max(0, group.retry_max_times) + 1)
    told = group.foreign.get("groupRetryPolicy")
    told = told if isinstance(told, dict) else {}
    exponential = told.get("exponentialRetryPolicy")
    if told.get("type") == "EXPONENTIAL" and isinstance(exponential, dict):
        backoff = policy.exponential_backoff
        backoff.initial.FromMilliseconds(_number(exponential, "initial", 5000))
        backoff.max.FromMilliseconds(_number(exponential, "max", 7_200_000))
        backoff.multiplier = _number(exponential, "multiplier", 2)
        return policy
    customized = told.get("customizedRetryPolicy")
    pauses = customized.get("next") if isinstance(customized, dict) else None
    if not isinstance(pauses, list) or not all(isinstance(item, int) for item in pauses):
        pauses = _PAUSES_MS
    for pause in pauses:
        policy.customized_backoff.next.add().FromMilliseconds(max(0, pause))
    return policy


def _number(members: dict[str, Any], name: str, default: int) -> int:
    value = members.get(name, default)
    return value if isinstance(value, int) and value >= 0 else default


def _grpc_status(code: AnswerCode) -> GrpcStatus:
    """Return the status for the end of a stream, which cannot have a code of RocketMQ."""
    if code is AnswerCode.UNAUTHORIZED:
        return GrpcStatus.UNAUTHENTICATED
    if code is AnswerCode.TOO_MANY_REQUESTS:
        return GrpcStatus.RESOURCE_EXHAUSTED
    if AnswerCode.BAD_REQUEST <= code < AnswerCode.INTERNAL_ERROR:
        return GrpcStatus.INVALID_ARGUMENT
    return GrpcStatus.INTERNAL
