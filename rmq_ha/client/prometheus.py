"""Metrics of producers and consumers for Prometheus, with its own library.

    metrics = PrometheusMetrics()
    producer = await client.producer(hooks=[metrics])
    consumer = client.push_consumer("payments", hooks=[metrics])

The application shows them with its own metrics: `prometheus_client.start_http_server(8000)`.
"""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from rmq_ha.client.connection.hooks import Delivery, SendContext
from rmq_ha.client.consume.consume_service import ConsumeMessageContext

_STORED = "SEND_OK"


class PrometheusMetrics:
    """A hook for producers and push consumers of all kinds; make one for each registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """:param registry: the registry that the metrics are added to."""
        self._under_way = Gauge(
            "rmqha_client_sends_under_way",
            "Sends that have no outcome yet, those that wait for a broker to come back too.",
            ["group"],
            registry=registry,
        )
        self._send_seconds = Histogram(
            "rmqha_client_send_seconds",
            "How long a send took, with all its attempts.",
            ["topic", "outcome"],
            registry=registry,
        )
        self._sent = Counter(
            "rmqha_client_sent_messages",
            "Messages by what became of their send: a SendStatus, or the class of an error.",
            ["topic", "outcome"],
            registry=registry,
        )
        self._attempts = Counter(
            "rmqha_client_send_attempts",
            "Attempts to send, by broker: more than sends means retries.",
            ["topic", "broker", "outcome"],
            registry=registry,
        )
        self._process_seconds = Histogram(
            "rmqha_client_process_seconds",
            "How long a listener, or a loop, had messages.",
            ["group", "topic", "outcome"],
            registry=registry,
        )
        self._consumed = Counter(
            "rmqha_client_consumed_messages",
            "Messages by what their listener answered, or EXCEPTION.",
            ["group", "topic", "outcome"],
            registry=registry,
        )

    def before_delivery(self, delivery: Delivery) -> None:
        """Count a send that is under way."""
        self._under_way.labels(delivery.producer_group).inc()

    def after_delivery(self, delivery: Delivery) -> None:
        """Count the outcome and the time of a send."""
        self._under_way.labels(delivery.producer_group).dec()
        topic = delivery.messages[0].topic if delivery.messages else ""
        outcome = _STORED
        if delivery.error is not None:
            outcome = type(delivery.error).__name__
        else:
            worse = [r.send_status.name for r in delivery.results if r.send_status.value]
            outcome = worse[0] if worse else _STORED
        self._send_seconds.labels(topic, outcome).observe(delivery.elapsed_ms / 1000)
        self._sent.labels(topic, outcome).inc(len(delivery.messages))

    def before_send(self, context: SendContext) -> None:
        """Do nothing: attempts are counted when they have ended."""

    def after_send(self, context: SendContext) -> None:
        """Count an attempt by its outcome."""
        error, result = context.error, context.result
        outcome = type(error).__name__ if error is not None else "NONE"
        if result is not None:
            outcome = result.send_status.name
        self._attempts.labels(context.queue.topic, context.queue.broker_name, outcome).inc()

    def before_consume(self, context: ConsumeMessageContext) -> None:
        """Do nothing: calls are counted when they have ended."""

    def after_consume(self, context: ConsumeMessageContext) -> None:
        """Count the messages and the time of a listener's call."""
        topic = context.messages[0].topic if context.messages else context.message_queue.topic
        group, outcome = context.consumer_group, context.status
        self._process_seconds.labels(group, topic, outcome).observe(context.elapsed_ms / 1000)
        self._consumed.labels(group, topic, outcome).inc(len(context.messages))
