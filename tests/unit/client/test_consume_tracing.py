"""Traces of consuming: Java's own texts, and what a consumer with a tracer sends."""

from types import SimpleNamespace
from typing import Any

from rmq_ha.base.model.message import Address
from rmq_ha.client.consume.consume_service import ConsumeMessageContext
from rmq_ha.client.consume.consume_tracing import (
    ConsumeTrace,
    ConsumeTracer,
    after_records,
    before_records,
)
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus
from rmq_ha.client.rules.messages import MessageExt, decode_messages
from rmq_ha.client.send.tracing import Tracer
from tests.unit.client.consuming import FIRST, GROUP, TOPIC, Consuming
from tests.unit.client.scripted import QUEUE, Scripted

TRACES = "RMQ_SYS_TRACE_TOPIC"
NOWHERE = Address(b"\0\0\0\0", 0)
REQUEST = "7F000001000018B4AAC2000000000000"
# By TraceDataEncoder.encoderFromContextBean of rocketmq-client 4.9.7.
BEFORE = (
    f"SubBefore\x011700000000123\x01DefaultRegion\x01CG\x01{REQUEST}\x01ID1\x010\x01k1 x\x02"
    f"SubBefore\x011700000000123\x01DefaultRegion\x01CG\x01{REQUEST}\x01ID2\x011\x01k2 x\x02"
)
AFTER = (
    f"SubAfter\x01{REQUEST}\x01ID1\x017\x01false\x01k1 x\x013\x011700000000123\x01CG\x02"
    f"SubAfter\x01{REQUEST}\x01ID2\x017\x01false\x01k2 x\x013\x011700000000123\x01CG\x02"
)


def message(number: int) -> MessageExt:
    return MessageExt(
        topic="T",
        body=b"hello",
        properties={"KEYS": f"k{number} x", "MSG_REGION": "DefaultRegion"},
        broker_name="a",
        queue_id=0,
        queue_offset=number,
        msg_id=f"ID{number}",
        offset_msg_id="",
        commit_log_offset=0,
        born_timestamp=0,
        born_host=NOWHERE,
        store_timestamp=0,
        store_host=NOWHERE,
        store_size=0,
        sys_flag=0,
        flag=0,
        reconsume_times=number - 1,
    )


def test_traces_are_java_s() -> None:
    trace = ConsumeTrace(REQUEST, "CG", 1700000000123, [message(1), message(2)])
    assert "".join(record.text for record in before_records(trace)) == BEFORE
    after = after_records(trace, 1700000000123, 7, 3, success=False)
    assert "".join(record.text for record in after) == AFTER
    assert [record.keys for record in after] == [("ID1", "k1 x"), ("ID2", "k2 x")]


def test_what_a_listener_did_is_traced() -> None:
    """Success, exception, later; a message that wants no trace has none."""
    cluster = Consuming()
    cluster.add(
        "a", broker={"trace_topic_enable": True}, store={"mapped_file_size_commit_log": 1 << 20}
    )
    cluster.create("a", TOPIC, 4)
    instance = cluster.client("c1")
    tracer = Tracer(instance)
    cluster.wait(tracer.start())

    def listener(messages: Any, context: Any) -> Any:
        (one,) = messages
        if one.body == b"m1" and not one.reconsume_times:
            raise ValueError("on purpose")
        if one.body == b"m2":
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        return None

    config = PushConsumerConfig(consume_from_where=FIRST)
    consumer = PushConsumer(instance, GROUP, config, hooks=[ConsumeTracer(instance, tracer)])
    consumer.subscribe(TOPIC)
    consumer.register_message_listener(listener)
    cluster.wait(consumer.start())
    cluster.send("a", 3)
    cluster.send("a", TRACE_ON="false")
    cluster.run(2)
    ask = cluster.sender.invoke(cluster.address("a"), pull_request("CG", TRACES, 0, 0), 3000)
    found = decode_messages(cluster.wait(ask).body or b"")
    lines = "".join(each.body.decode() for each in found).split("\x02")[:-1]
    fields = [line.split("\x01") for line in lines]
    before = {line[4]: line for line in fields if line[0] == "SubBefore"}
    after = {line[1]: line for line in fields if line[0] == "SubAfter"}
    assert before.keys() == after.keys()
    assert {line[3] for line in before.values()} == {line[8] for line in after.values()} == {GROUP}
    assert sorted((line[4], line[6]) for line in after.values()) == [
        *(("false", "2"), ("false", "4"), ("true", "0"))
    ]
    assert all(len(line) == 8 and line[7] == "null" for line in before.values())
    cluster.wait(consumer.stop())
    cluster.wait(tracer.stop())
    assert tracer.dropped == 0


def test_a_trace_says_how_long_the_listener_took_for_each_message() -> None:
    """And nothing of what nobody began to trace."""
    client = Scripted()
    records: list[Any] = []
    tracer: Any = SimpleNamespace(topic=TRACES, append=records.append)
    traced = ConsumeTracer(client.instance, tracer)
    context = ConsumeMessageContext("CG", "", QUEUE, [message(1), message(2)])
    traced.after_consume(context)
    assert records == []
    client.clock.run_for(3)
    traced.before_consume(context)
    assert records[0].text.split("\x01")[4].startswith("0A000009")  # of this machine
    client.clock.run_for(1)
    context.success = True
    traced.after_consume(context)
    assert [record.text.split("\x01")[3] for record in records[2:]] == ["500", "500"]


def test_the_reading_of_traces_is_not_traced() -> None:
    """There would be no end to it."""
    client = Scripted()
    records: list[Any] = []
    tracer: Any = SimpleNamespace(topic="T", append=records.append)
    traced = ConsumeTracer(client.instance, tracer)
    context = ConsumeMessageContext("CG", "", QUEUE, [message(1)])
    traced.before_consume(context)
    traced.after_consume(context)
    assert records == []
