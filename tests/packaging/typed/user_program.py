"""What a user of the client writes; `mypy --strict` knows every type in it, and each mistake."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_type

from twisted.internet.defer import Deferred

import rmq_ha
from rmq_ha.client import (
    BlockingClient,
    BlockingTransactionProducer,
    BrokerRefused,
    ClientConfig,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Delivery,
    JsonSerializer,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PushConsumer,
    SendContext,
    SendResult,
    TextSerializer,
    TransactionProducer,
    TransactionSendResult,
    connect,
    select_by_hash,
)
from rmq_ha.client.aio import connect as connect_aio

assert_type(rmq_ha.__version__, str)


class Transfers:
    async def execute_local_transaction(self, message: Message, arg: int) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


class Hook:
    def before_send(self, context: SendContext) -> None:
        assert_type(context.messages, tuple[Message, ...])

    def after_send(self, context: SendContext) -> None:
        assert_type(context.result, SendResult | None)


class Watcher:
    def before_delivery(self, delivery: Delivery) -> None:
        assert_type(delivery.messages, Sequence[Message])

    def after_delivery(self, delivery: Delivery) -> None:
        assert_type(delivery.results, Sequence[SendResult])


class Work:
    def execute_local_transaction(self, message: Message, arg: int) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


@dataclass
class Order:
    number: str


def values(message: MessageExt) -> Message:
    orders = JsonSerializer(Order)
    assert_type(orders.value(message), Order)
    assert_type(TextSerializer().value(message), str)
    orders.message("Orders", "4711")  # wrong: arg-type
    return orders.message("Orders", Order("4711"), keys="4711")


async def listen(messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext) -> None:
    context.delay_level_when_next_consume = messages[0].reconsume_times
    assert_type(messages[0].body, bytes)


def in_order(
    messages: Sequence[MessageExt], context: ConsumeOrderlyContext
) -> ConsumeOrderlyStatus:
    context.auto_commit = False
    return ConsumeOrderlyStatus.COMMIT


def later(
    messages: Sequence[MessageExt], context: Any
) -> Deferred[ConsumeConcurrentlyStatus | None]:
    return Deferred()


async def with_twisted(reactor: Any) -> None:
    instance = connect(reactor, ClientConfig(namesrv_addr="a:9876", instance_name="x"))
    producer = Producer(
        instance, ProducerConfig(send_msg_timeout_ms=1000), hooks=[Hook(), Watcher()]
    )
    assert_type(await producer.send(Message("T", b"x")), SendResult)
    TransactionProducer(instance, Transfers())
    consumer = PushConsumer(instance, "g")
    consumer.register_message_listener(listen)
    consumer.register_message_listener(later)
    consumer.register_message_listener(in_order, orderly=True)
    consumer.register_message_listener(in_order)  # wrong: arg-type
    consumer.register_message_listener(listen, orderly=True)  # wrong: call-overload
    producer.send(Message("T", "text"))  # wrong: arg-type


async def with_asyncio() -> None:
    async with connect_aio("a:9876") as client:
        producer = await client.producer(hooks=[Hook()])
        results = await asyncio.gather(*[producer.send(Message("T", b"x")) for _ in range(3)])
        assert_type(results, list[SendResult])
        await producer.send(Message("T", b"x"), selector=select_by_hash, arg="key")
        await client.transaction_producer(Transfers())
        consumer = client.push_consumer("g", filters=[list])
        consumer.register_message_listener(in_order, orderly=True)
        pulled = await client.lite_pull_consumer("g").poll()
        assert_type(pulled, list[MessageExt])
        client.push_consumer("g", hook=[])  # wrong: call-arg
        await client.transaction_producer(Hook())  # wrong: arg-type
        (await client.producer()).send(Message("T", b"x"), timeout=1)  # wrong: call-arg


def without() -> None:
    with BlockingClient("a:9876") as client:
        try:
            client.send(Message("T", b"x"), queue=MessageQueue("T", "a", 0))
        except BrokerRefused as error:
            assert_type(error.code, int)
        print(client.send(Message("T", b"x")).queue_ofset)  # wrong: attr-defined


def with_threads() -> None:
    with BlockingTransactionProducer(Work(), "a:9876", hooks=[Watcher()]) as producer:
        assert_type(producer.send_in_transaction(Message("T", b"x"), 3), TransactionSendResult)
    BlockingTransactionProducer(Transfers())  # wrong: arg-type
