"""Traces of sends: their form, and that they never disturb."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq_ha.client.connection.hooks import SendContext
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.client.rules.messages import (
    Message,
    MessageQueue,
    SendResult,
    SendStatus,
    decode_messages,
)
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.tracing import _BATCH, _MAX_BODY, Tracer, TraceRecord, _parts, sent_record
from tests.unit.client.sim_cluster import SimCluster

TOPIC = "RMQ_SYS_TRACE_TOPIC"
SENT = SendResult(SendStatus.SEND_OK, "ID", MessageQueue("T", "a", 0), 5, "M")


def traced(**broker: Any) -> tuple[SimCluster, Producer, Tracer]:
    cluster = SimCluster()
    cluster.add("a", broker=broker, store={"mapped_file_size_commit_log": 1 << 20})
    instance = cluster.client()
    tracer = Tracer(instance)
    cluster.wait(tracer.start())
    producer = Producer(instance, ProducerConfig(producer_group="PG"), [tracer])
    cluster.wait(producer.start())
    return cluster, producer, tracer


@given(st.lists(st.integers(0, 200_000), max_size=250))
@example([_MAX_BODY, 1, _MAX_BODY - 1])
def test_traces_go_together_as_far_as_a_message_holds_them(sizes: list[int]) -> None:
    """A broker would refuse what is larger, and with it all of them."""
    records = [TraceRecord("x" * size, (str(n),)) for n, size in enumerate(sizes)]
    parts = list(_parts(records))
    assert [record for part in parts for record in part] == records
    for number, part in enumerate(parts, 1):
        size = sum(len(record.text) for record in part)
        assert len(part) == 1 or (len(part) <= _BATCH and size <= _MAX_BODY)
        for following in parts[number : number + 1]:  # it would not have had room
            assert len(part) == _BATCH or size + len(following[0].text) > _MAX_BODY


def test_a_send_is_traced() -> None:
    """The fields of TraceDataEncoder, and keys to find them by."""
    cluster, producer, tracer = traced(trace_topic_enable=True)
    queue = MessageQueue("T", "a", 0)
    result = cluster.wait(producer.send(Message("T", b"hello", "tag", "k1"), queue=queue))
    delayed = Message("T", b"later", delay_time_level=1)
    cluster.wait(producer.send(delayed))
    cluster.run(1)
    ask = producer.instance.invoke(cluster.address("a"), pull_request("CG", TOPIC, 0, 0), 3000)
    (found,) = decode_messages(cluster.wait(ask).body or b"")
    first, second, rest = found.body.decode().split("\x02")
    assert rest == ""
    fields = first.split("\x01")
    assert fields[0] == "Pub"
    assert fields[2:10] == [
        *("DefaultRegion", "PG", "T", result.msg_id, "tag", "k1", cluster.address("a"), "5")
    ]
    assert fields[11:] == ["0", result.offset_msg_id, "true"]
    assert second.split("\x01")[11] == "3"
    assert set(found.keys.split()) == {result.msg_id, delayed.unique_id, "k1"}
    cluster.wait(producer.stop())
    cluster.wait(tracer.stop())
    assert not producer.instance.is_running
    assert tracer.dropped == 0


def test_without_a_trace_topic_sends_go_on() -> None:
    """Traces are dropped and counted; memory stays bounded."""
    cluster, producer, tracer = traced(auto_create_topic_enable=False)
    for n in range(6000):
        assert len(tracer._records) == n % _BATCH  # none waits when a message is full
        tracer.append(TraceRecord(f"{n}\x02", (str(n),)))
    for _ in range(2):
        tracer.append(TraceRecord("x" * _MAX_BODY, ()))
    cluster.run(10)
    assert tracer.dropped == 6002
    cluster.wait(producer.stop())
    cluster.wait(tracer.stop())


@pytest.mark.parametrize("result", [None, SENT._replace(trace_on=False)])
def test_what_a_broker_wants_no_trace_of_or_never_answered_leaves_none(result: Any) -> None:
    context = SendContext("G", (Message("T", b"x"),), SENT.message_queue, "a:1", "c", 5)
    context.result = result
    assert sent_record(context, "") is None
    context.result = SENT
    assert sent_record(context, "") is not None
