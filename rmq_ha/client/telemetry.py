"""OpenTelemetry: spans and metrics by its conventions for messaging systems (`rmq-ha[otel]`).

    telemetry = OpenTelemetry()
    producer = await client.producer(hooks=[telemetry])
    consumer = client.push_consumer("payments", hooks=[telemetry])

A message carries the context of its send in its property `traceparent`, from any client that sets
it. The span of the message's processing links to this context.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

import rmq_ha
from rmq_ha.base.model.properties import TIMER_DELIVER_MS, TRAN_MSG
from rmq_ha.base.model.unserved_properties import asks_for_timer
from rmq_ha.client.connection.hooks import Delivery
from rmq_ha.client.consume.consume_service import ConsumeMessageContext
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.client.rules.namespaces import unwrap

_NAME = "rmq_ha.client"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_SYSTEM = "messaging.system"
_OPERATION, _OPERATION_TYPE = "messaging.operation.name", "messaging.operation.type"
_DESTINATION, _GROUP = "messaging.destination.name", "messaging.consumer.group.name"
_ERROR = "error.type"


class OpenTelemetry:
    """
    A hook for producers and push consumers of all kinds; one object may serve a whole process.

    A span `send <topic>` is a send with all its attempts. A span `process <topic>` is a call of the
    listener, which runs in the span's context, or the handling of a message in a loop.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        """Without arguments, the providers that are set for the process are used."""
        self._tracer = trace.get_tracer(_NAME, rmq_ha.__version__, tracer_provider)
        meter = metrics.get_meter(_NAME, rmq_ha.__version__, meter_provider)
        self._sends = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long a send took, with all its attempts.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that were to be sent."
        )
        self._calls = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long a listener had messages.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that a listener was shown."
        )

    def link(self, message: MessageExt) -> Link | None:
        """
        Return a link to the send of a message, for the application's spans; None if its send was
        not traced.
        """
        sent = trace.get_current_span(propagate.extract(message.properties, contexts.Context()))
        context = sent.get_span_context()
        return Link(context) if context.is_valid else None

    # rmq_ha.client.connection.hooks.DeliveryHook

    def before_delivery(self, delivery: Delivery) -> None:
        """Begin a span, and put its context into the messages' properties."""
        first = delivery.messages[0] if delivery.messages else None
        topic = first.topic if first is not None else ""
        common = {
            _SYSTEM: "rocketmq",
            _OPERATION: "send",
            _OPERATION_TYPE: "send",
            _DESTINATION: topic,
        }
        span = self._tracer.start_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes={
                **common,
                "messaging.client.id": delivery.client_id,
                **_of_messages(delivery.messages),
            },
        )
        delivery.notes[_NAME] = span, common
        context = trace.set_span_in_context(span)
        for message in delivery.messages:
            propagate.inject(message.properties, context)

    def after_delivery(self, delivery: Delivery) -> None:
        """End the span of the send, and count the send and its messages."""
        noted: tuple[Span, dict[str, str]] | None = delivery.notes.get(_NAME)
        if noted is None:
            return
        span, common = noted
        if delivery.error is not None:
            common[_ERROR] = type(delivery.error).__name__
            span.record_exception(delivery.error)
            _fail(span, common[_ERROR], str(delivery.error))
        elif len(delivery.results) == 1:
            result = delivery.results[0]
            if len(delivery.messages) == 1:
                span.set_attribute("messaging.message.id", result.msg_id)
            queue = result.message_queue
            place = f"{queue.broker_name}/{queue.queue_id}"
            span.set_attribute("messaging.destination.partition.id", place)
        span.end()
        self._sends.record(delivery.elapsed_ms / 1000, common)
        self._sent.add(len(delivery.messages), common)

    # rmq_ha.client.consume.consume_service.ConsumeHook

    def before_consume(self, context: ConsumeMessageContext) -> None:
        """Begin a span, and make it current for the listener."""
        topic = context.messages[0].topic if context.messages else context.message_queue.topic
        common = {
            _SYSTEM: "rocketmq",
            _OPERATION: "process",
            _OPERATION_TYPE: "process",
            _DESTINATION: topic,
            _GROUP: unwrap(context.namespace, context.consumer_group),
        }
        queue = context.message_queue
        place = f"{queue.broker_name}/{queue.queue_id}"
        links = [link for message in context.messages if (link := self.link(message)) is not None]
        span = self._tracer.start_span(
            f"process {topic}",
            kind=SpanKind.CONSUMER,
            links=links,
            attributes={
                **common,
                "messaging.destination.partition.id": place,
                **_of_messages(context.messages),
            },
        )
        context.properties[_NAME] = span, common
        contexts.attach(trace.set_span_in_context(span))  # for this call alone: see the hook

    def after_consume(self, context: ConsumeMessageContext) -> None:
        """End the span of the processing, and count the call and its messages."""
        noted: tuple[Span, dict[str, str]] | None = context.properties.get(_NAME)
        if noted is None:
            return
        span, common = noted
        if not context.success:
            common[_ERROR] = context.status
            _fail(span, context.status, context.status)
        span.end()
        self._calls.record(context.elapsed_ms / 1000, common)
        self._consumed.add(len(context.messages), common)


def _fail(span: Span, kind: str, why: str) -> None:
    span.set_attribute(_ERROR, kind)
    span.set_status(Status(StatusCode.ERROR, why))


def _of_messages(messages: Sequence[Message | MessageExt]) -> Mapping[str, Any]:
    """Return the attributes of one message; of several messages only their number."""
    if len(messages) != 1:
        return {"messaging.batch.message_count": len(messages)}
    message = messages[0]
    attributes: dict[str, Any] = {"messaging.message.body.size": len(message.body)}
    kind = "normal"
    if message.properties.get(TRAN_MSG) == "true":
        kind = "transaction"
    if message.delay_time_level:
        kind = "delay"
        attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_time_level
    elif asks_for_timer(message.properties):
        kind = "delay"
        if TIMER_DELIVER_MS in message.properties:
            deliver_at = message.properties[TIMER_DELIVER_MS]
            if deliver_at.isdecimal():
                attributes["messaging.rocketmq.message.delivery_timestamp"] = int(deliver_at)
    attributes["messaging.rocketmq.message.type"] = kind
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = message.keys.split()
    if isinstance(message, MessageExt):
        attributes["messaging.message.id"] = message.msg_id
    return attributes
