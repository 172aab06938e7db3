"""Transactions for threads, over a whole broker in this process."""

from collections.abc import Iterator
from threading import Event, get_ident
from typing import Any

import pytest

from rmq_ha.client import (
    BlockingTransactionProducer,
    LocalTransactionState,
    Message,
    MessageExt,
    NoRoute,
    NotStarted,
    ProducerConfig,
    SendStatus,
)
from tests.unit.client.whole_broker import Bench

COMMIT, ROLLBACK, UNKNOW = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)
LIMIT_S = 20.0


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("broker"))
    yield made
    made.close()


class Shop:
    """Books orders; what it answers is what `arg` says."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.asked: list[tuple[bytes, int]] = []
        self.was_asked = Event()

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        self.threads.append(get_ident())
        if isinstance(arg, BaseException):
            raise arg
        if callable(arg):
            arg()
            return COMMIT
        assert isinstance(arg, LocalTransactionState)
        return arg

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        self.asked.append((message.body, get_ident()))
        self.was_asked.set()
        return COMMIT


def bodies(bench: Bench, topic: str) -> list[bytes]:
    (queue,) = bench.client.queues(topic)
    found = bench.client.messages(queue, 0, bench.client.max_offset(queue))
    return [message.body for message in found]


def producer(bench: Bench, shop: Shop, **config: Any) -> BlockingTransactionProducer:
    return BlockingTransactionProducer(shop, bench.namesrv_addr, ProducerConfig(**config))


def test_the_work_is_done_in_the_thread_that_sends(bench: Bench) -> None:
    """Where its database connection is; and what it says counts."""
    topic, shop = bench.topic(), Shop()
    with producer(bench, shop) as it:
        done = it.send_in_transaction(Message(topic, b"paid"), COMMIT)
        assert (done.send_result.send_status, done.local_transaction_state) == (
            SendStatus.SEND_OK,
            COMMIT,
        )
        it.send_in_transaction(Message(topic, b"refused"), ROLLBACK)
        assert it.send(Message(topic, b"plain")).send_status is SendStatus.SEND_OK
    assert shop.threads == [get_ident()] * 2
    assert bodies(bench, topic) == [b"paid", b"plain"]


def test_who_fails_is_asked_and_answers_in_another_thread(bench: Bench) -> None:
    topic, shop = bench.topic(), Shop()
    with producer(bench, shop) as it:
        error = ValueError("no connection")
        done = it.send_in_transaction(Message(topic, b"lost"), error)
        assert (done.local_transaction_state, done.error) == (UNKNOW, error)
        assert shop.was_asked.wait(LIMIT_S)
    ((body, thread),) = shop.asked[:1]
    assert body == b"lost"
    assert thread != get_ident()


def test_without_a_half_message_the_work_is_not_begun(bench: Bench) -> None:
    shop = Shop()
    with (
        producer(bench, shop, create_topic_key="NotHere") as it,
        pytest.raises(NoRoute, match="NobodyHasIt"),
    ):
        it.send_in_transaction(Message("NobodyHasIt", b"x"), COMMIT)
    assert shop.threads == []


def test_an_interrupt_in_the_work_leaves_nobody_waiting(bench: Bench) -> None:
    topic, shop = bench.topic(), Shop()
    with producer(bench, shop) as it:
        with pytest.raises(KeyboardInterrupt):
            it.send_in_transaction(Message(topic, b"x"), KeyboardInterrupt())
        it.send_in_transaction(Message(topic, b"y"), COMMIT)
    assert b"y" in bodies(bench, topic)


def test_a_producer_that_is_stopped_meanwhile_says_that_the_broker_will_ask(bench: Bench) -> None:
    topic, shop = bench.topic(), Shop()
    it = producer(bench, shop)
    with pytest.raises(NotStarted, match="call `start"):
        it.send(Message(topic, b"x"))
    it.start()
    with pytest.raises(NotStarted, match="it will ask"):
        it.send_in_transaction(Message(topic, b"x"), it.stop)
    it.stop()
