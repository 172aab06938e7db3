"""Traces of sends: their form, and that they never disturb."""

from typing import Any

from sim_cluster import SimCluster

from rmq_ha.client.messages import Message, MessageQueue, decode_messages
from rmq_ha.client.producer import Producer
from rmq_ha.client.requests import pull_request
from rmq_ha.client.settings import ProducerConfig
from rmq_ha.client.tracing import MAX_RECORDS, Tracer, TraceRecord

TOPIC = "RMQ_SYS_TRACE_TOPIC"


def traced(**broker: Any) -> tuple[SimCluster, Producer, Tracer]:
    cluster = SimCluster()
    cluster.add("a", broker=broker, store={"mapped_file_size_commit_log": 1 << 20})
    instance = cluster.client()
    tracer = Tracer(instance)
    cluster.wait(tracer.start())
    producer = Producer(instance, ProducerConfig(producer_group="PG"), [tracer])
    cluster.wait(producer.start())
    return cluster, producer, tracer


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
    for n in range(3 * MAX_RECORDS):
        tracer.append(TraceRecord(f"{n}\x02", (str(n),)))
    cluster.run(10)
    assert tracer.dropped == 3 * MAX_RECORDS
    cluster.wait(producer.stop())
    cluster.wait(tracer.stop())
