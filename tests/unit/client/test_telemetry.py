"""Spans, links and metrics of sends and consumers, over a whole broker on a simulated clock."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.aio import Client
from rmq_ha.client.connection.hooks import Deliveries, Delivery, SendContext
from rmq_ha.client.consume.consume_service import ConsumeMessageContext
from rmq_ha.client.prometheus import PrometheusMetrics
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.errors import IllegalMessage, NoRoute
from rmq_ha.client.rules.messages import Message, MessageExt, SendResult, SendStatus
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.testing.client_world import ClientWorld
from tests.unit.client.scripted import message

pytest.importorskip("opentelemetry.sdk", reason="pip install opentelemetry-sdk")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from rmq_ha.client.telemetry import OpenTelemetry


class Watched:
    """A telemetry whose spans and numbers stay here, and metrics for Prometheus."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = OpenTelemetry(tracers, MeterProvider([self.reader]))
        self.tracer = tracers.get_tracer("app")
        self.registry = CollectorRegistry()
        self.hooks = [self.telemetry, PrometheusMetrics(self.registry)]

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def number(self, name: str, **attributes: Any) -> Any:
        """Sum of a counter, or count of a histogram, over what has these attributes."""
        data: Any = self.reader.get_metrics_data()
        total = 0
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points if metric.name == name else ():
                if attributes.items() <= dict(point.attributes).items():
                    total += getattr(point, "value", None) or getattr(point, "count", 0)
        return total

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"rmqha_client_{name}", labels)


def run(story: Any) -> Watched:
    watched = Watched()

    async def told(world: ClientWorld) -> None:
        async with world.connect() as client:
            await story(client, watched)

    with ClientWorld() as world:
        world.run(told(world))
    return watched


async def a_poison_order(client: Client, watched: Watched) -> None:
    """Sent in a span of the application; fails once."""
    shown: list[MessageExt] = []

    async def listen(messages: Any, context: Any) -> None:
        shown.extend(messages)
        with watched.tracer.start_as_current_span("book"):
            await asyncio.sleep(0.5)
        if len(shown) == 1:
            raise ValueError("out of stock")

    consumer = client.push_consumer("g", PushConsumerConfig(), hooks=watched.hooks)
    consumer.subscribe("Orders")
    consumer.register_message_listener(listen)
    await consumer.start()
    producer = await client.producer(hooks=watched.hooks)
    with watched.tracer.start_as_current_span("request"):
        await producer.send(Message("Orders", b"4711", "paid", ["a", "b"]))
    await asyncio.sleep(60)
    assert len(shown) == 2


def test_a_link_leads_from_who_processes_to_who_sent() -> None:
    watched = run(a_poison_order)
    (request,), (send,) = watched.spans("request"), watched.spans("send Orders")
    first, second = watched.spans("process Orders")
    assert send.parent is not None
    assert send.parent.span_id == request.context.span_id
    assert [link.context.span_id for link in first.links] == [send.context.span_id]
    assert [link.context.span_id for link in second.links] == [send.context.span_id]
    assert first.parent is None
    books = [span.parent.span_id for span in watched.spans("book") if span.parent is not None]
    assert books == [first.context.span_id, second.context.span_id]
    assert (first.status.is_ok, second.status.is_ok) == (False, True)
    assert send.attributes is not None
    assert first.attributes is not None
    assert (
        dict(send.attributes).items()
        >= {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "send",
            "messaging.destination.name": "Orders",
            "messaging.message.body.size": 4,
            "messaging.rocketmq.message.type": "normal",
            "messaging.rocketmq.message.tag": "paid",
            "messaging.rocketmq.message.keys": ("a", "b"),
        }.items()
    )
    assert send.attributes["messaging.message.id"] == first.attributes["messaging.message.id"]
    assert first.attributes["messaging.consumer.group.name"] == "g"
    assert first.attributes["error.type"] == "EXCEPTION"
    assert (send.kind, first.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)


def test_what_is_counted() -> None:
    watched = run(a_poison_order)
    assert watched.number("messaging.client.sent.messages") == 1
    assert watched.number("messaging.client.operation.duration") == 1
    assert watched.number("messaging.process.duration") == 2
    counted = "messaging.client.consumed.messages"
    assert watched.number(counted, **{"error.type": "EXCEPTION"}) == 1
    labels = {"group": "g", "topic": "Orders"}
    assert watched.sample("consumed_messages_total", **labels, outcome="EXCEPTION") == 1
    assert watched.sample("consumed_messages_total", **labels, outcome="CONSUME_SUCCESS") == 1
    took = watched.sample("process_seconds_sum", **labels, outcome="EXCEPTION")
    assert took == pytest.approx(0.5, abs=0.01)
    assert watched.sample("sent_messages_total", topic="Orders", outcome="SEND_OK") == 1
    broker = {"topic": "Orders", "broker": "broker-a", "outcome": "SEND_OK"}
    assert watched.sample("send_attempts_total", **broker) == 1
    assert watched.sample("sends_under_way", group="DEFAULT_PRODUCER") == 0


def test_a_send_that_fails_and_batches() -> None:
    async def story(client: Client, watched: Watched) -> None:
        config = ProducerConfig(create_topic_key="NotThere")
        producer = await client.producer(config, hooks=watched.hooks)
        with pytest.raises(NoRoute):
            await producer.send(Message("Nowhere", b"x"))
        with pytest.raises(IllegalMessage):
            await producer.send(Message("Nowhere", b""))
        other = await client.producer(ProducerConfig(producer_group="p"), hooks=watched.hooks)
        await other.send_batch([Message("Orders", b"1"), Message("Orders", b"2")])
        await other.send_oneway(Message("Orders", b"3"))

    watched = run(story)
    failed, refused = watched.spans("send Nowhere")
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "NoRoute"
    assert not refused.status.is_ok
    assert watched.sample("sent_messages_total", topic="Nowhere", outcome="NoRoute") == 1
    batch, oneway = watched.spans("send Orders")
    assert batch.attributes is not None
    assert batch.attributes["messaging.batch.message_count"] == 2
    assert oneway.status.is_ok
    assert watched.number("messaging.client.sent.messages") == 5


def test_loops_have_links_and_a_message_without_a_trace_has_none() -> None:
    links: list[Any] = []

    async def story(client: Client, watched: Watched) -> None:
        consumer = client.push_consumer("g", hooks=watched.hooks)
        consumer.subscribe("Orders")
        traced = await client.producer(hooks=watched.hooks)
        plain = await client.producer(ProducerConfig(producer_group="p"))
        async with consumer:
            await traced.send(Message("Orders", b"traced"))
            await plain.send(Message("Orders", b"plain"))
            async for message in consumer:
                links.append((message.body, watched.telemetry.link(message)))
                if len(links) == 2:
                    consumer.ack(message)
                    break

    watched = run(story)
    found = dict(links)
    assert found[b"plain"] is None
    assert found[b"traced"].context.span_id == watched.spans("send Orders")[0].context.span_id
    assert len(watched.spans("process Orders")) == 2


def test_a_hook_may_refuse_and_one_that_breaks_breaks_nothing() -> None:
    class Refuses:
        def before_delivery(self, delivery: Delivery) -> None:
            raise ValueError("not today")

        def after_delivery(self, delivery: Delivery) -> None:
            raise AssertionError

    class Breaks:
        def before_delivery(self, delivery: Delivery) -> None:
            delivery.messages[0].properties["seen"] = "yes"

        def after_delivery(self, delivery: Delivery) -> None:
            raise RuntimeError("on purpose")

    async def story(client: Client, watched: Watched) -> None:
        refuses = await client.producer(hooks=[Refuses()])
        with pytest.raises(ValueError, match="not today"):
            await refuses.send(Message("Orders", b"x"))
        breaks = await client.producer(ProducerConfig(producer_group="p"), hooks=[Breaks()])
        message = Message("Orders", b"x")
        assert await breaks.send(message)
        assert message.properties["seen"] == "yes"

    run(story)


def test_only_those_who_want_deliveries_are_told_of_them() -> None:
    class Attempts:
        def before_send(self, context: Any) -> None: ...

        def after_send(self, context: Any) -> None: ...

    assert Deliveries([Attempts()], "g", "c", float, list).hooks == []


# By hand: what one hook is told, and what it makes of it


QUEUE = MessageQueue("T", "a", 3)
STORED = SendResult(SendStatus.SEND_OK, "ID", QUEUE, 5, "M")
LATE = SendStatus.FLUSH_SLAVE_TIMEOUT
UNSAFE = STORED._replace(send_status=SendStatus.FLUSH_DISK_TIMEOUT)


def delivered(watched: Watched, *results: SendResult, count: int = 1, **more: Any) -> None:
    """One that took 20 s."""
    delivery = Delivery("g", "c", [Message("T", b"xx") for _ in range(count)])
    for hook in watched.hooks:
        hook.before_delivery(delivery)
    delivery.results, delivery.elapsed_ms = results, 20_000.0
    for name, value in more.items():
        setattr(delivery, name, value)
    for hook in watched.hooks:
        hook.after_delivery(delivery)


@pytest.mark.parametrize(
    ("count", "results", "attributes"),
    [
        (1, [STORED], {"messaging.message.id": "ID", "messaging.destination.partition.id": "a/3"}),
        (2, [STORED], {"messaging.destination.partition.id": "a/3"}),
        (2, [STORED, STORED], {}),
        (1, [], {}),
    ],
)
def test_a_span_says_where_it_went_if_it_went_to_one_place(
    count: int, results: list[SendResult], attributes: dict[str, str]
) -> None:
    watched = Watched()
    delivered(watched, *results, count=count)
    (span,) = watched.spans("send T")
    names = ("messaging.message.id", "messaging.destination.partition.id")
    found = dict(span.attributes or {})
    assert {name: found[name] for name in names if name in found} == attributes
    size = {"messaging.message.body.size": 2} if count == 1 else {}
    assert {key: found[key] for key in found if key.endswith("size")} == size
    assert watched.number("messaging.client.sent.messages") == count


@pytest.mark.parametrize(
    ("results", "error", "outcome"),
    [
        ([STORED, STORED], None, "SEND_OK"),
        ([STORED, UNSAFE, UNSAFE._replace(send_status=LATE)], None, "FLUSH_DISK_TIMEOUT"),
        ([], None, "SEND_OK"),
        ([STORED], ValueError("no"), "ValueError"),
    ],
)
def test_the_worst_of_its_results_is_the_outcome_of_a_send(
    results: list[SendResult], error: Exception | None, outcome: str
) -> None:
    watched = Watched()
    delivered(watched, *results, count=3, error=error)
    labels = {"topic": "T", "outcome": outcome}
    assert watched.sample("sent_messages_total", **labels) == 3
    assert watched.sample("send_seconds_sum", **labels) == 20.0
    assert watched.sample("sends_under_way", group="g") == 0
    assert watched.number("messaging.client.sent.messages", **{"error.type": outcome}) == (
        0 if error is None else 3
    )
    (span,) = watched.spans("send T")
    assert [event.name for event in span.events] == ([] if error is None else ["exception"])


def test_each_message_of_a_batch_names_its_send() -> None:
    """Else only the first of them would lead there."""
    watched = Watched()
    delivery = Delivery("g", "c", [Message("T", b"x") for _ in range(2)])
    watched.telemetry.before_delivery(delivery)
    first, second = [sent.properties["traceparent"] for sent in delivery.messages]
    assert first == second


def test_a_hook_that_saw_no_beginning_and_a_batch_of_nothing_break_nothing() -> None:
    watched = Watched()
    delivered(watched, count=0)
    assert len(watched.spans("send ")) == 1
    watched.telemetry.after_delivery(Delivery("g", "c", []))
    nothing = ConsumeMessageContext("g", "", QUEUE, [])
    watched.telemetry.after_consume(nothing)
    assert len(watched.exporter.get_finished_spans()) == 1
    for hook in watched.hooks:
        hook.before_consume(nothing)
    for hook in watched.hooks:
        hook.after_consume(nothing)
    (span,) = watched.spans("process T")
    assert (span.attributes or {})["messaging.destination.partition.id"] == "a/3"
    assert not span.status.is_ok


@pytest.mark.parametrize(
    ("result", "error", "outcome"),
    [(STORED, None, "SEND_OK"), (None, ValueError("no"), "ValueError"), (None, None, "NONE")],
)
def test_an_attempt_counts_by_its_broker_and_outcome(
    result: SendResult | None, error: Exception | None, outcome: str
) -> None:
    watched = Watched()
    context = SendContext("g", (Message("T", b"x"),), QUEUE, "a:1", "c", 5, result, error)
    metrics: Any = watched.hooks[1]
    metrics.before_send(context)
    metrics.after_send(context)
    labels = {"topic": "T", "broker": "a", "outcome": outcome}
    assert watched.sample("send_attempts_total", **labels) == 1


@pytest.mark.parametrize(
    ("properties", "attributes"),
    [
        ({}, {"type": "normal"}),
        ({"TRAN_MSG": "true"}, {"type": "transaction"}),
        ({"TRAN_MSG": "false"}, {"type": "normal"}),
        ({"DELAY": "3"}, {"type": "delay", "delay_time_level": 3}),
        ({"TAGS": "paid", "KEYS": "a b"}, {"type": "normal", "tag": "paid", "keys": ("a", "b")}),
    ],
)
def test_a_span_says_what_kind_of_message_it_is_of(
    properties: dict[str, str], attributes: dict[str, Any]
) -> None:
    watched = Watched()
    context = ConsumeMessageContext("ns%g", "ns", QUEUE, [message(7, b"xxx", **properties)])
    watched.telemetry.before_consume(context)
    context.status, context.success, context.elapsed_ms = "CONSUME_SUCCESS", True, 2000.0
    watched.telemetry.after_consume(context)
    (span,) = watched.spans("process T")
    found = dict(span.attributes or {})
    prefix = "messaging.rocketmq.message."
    assert {
        name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)
    } == attributes
    assert (found["messaging.message.id"], found["messaging.message.body.size"]) == ("id7", 3)
    assert found["messaging.consumer.group.name"] == "g"
    assert (span.kind, span.status.is_ok) == (SpanKind.CONSUMER, True)
